"""Journals of dispatches on branches hold their commits, and a replay makes them again (JRN-04, RPL-05)."""

from __future__ import annotations

from typing import Any

import pytest

from outpost_lsp import BranchPolicy, OutpostError, ReplayAgent, dispatch, read_journal
from tests.workspaces.conftest import Bench, commits, worker

MERGE = """
git checkout -qb side; git commit -q --allow-empty -m side
git checkout -q work; git commit -q --allow-empty -m work
git merge -q --no-edit side
"""


async def recorded(bench: Bench, script: str, branch: str = "work") -> Any:
    return await dispatch(
        bench.repository.path, worker(script), "go", branch=BranchPolicy("named", branch), layout=bench.layout
    )


def event_of(result: Any) -> Any:
    return next(record.event for record in read_journal(result.journal) if record.kind == "workspace-commits")


async def test_JRN_04_every_commit_is_there_with_tree_people_message_and_patch(bench: Bench) -> None:
    start = bench.repository.head
    script = commits("one", "1\\n", "first\n\nwith a body") + "; " + commits("bin", "a\\000b\\377", "second")
    result = await recorded(bench, script)
    event = event_of(result)
    assert event["baseline"] == {"commit": start, "tree": bench.repository.git("rev-parse", f"{start}^{{tree}}")}
    first, second = event["commits"]
    assert first["message"] == "first\n\nwith a body\n"
    assert first["author"]["name"] == "Outpost"
    assert (first["tree"], second["tree"]) == tuple(
        bench.repository.git("rev-parse", f"{commit.oid}^{{tree}}") for commit in reversed(result.commits)
    )
    assert "+1" in first["patch"]
    finished = next(one.event for one in read_journal(result.journal) if one.kind == "dispatch-finished")
    assert finished["branch"] == "work"
    assert [commit["subject"] for commit in finished["commits"]] == ["second", "first"]


async def test_RPL_05_a_replay_makes_the_same_commits_on_a_branch(bench: Bench) -> None:
    script = commits("one", "1\\n", "first") + "; chmod +x one; git mv a.txt b.txt; git commit -qam second"
    result = await recorded(bench, script)
    again = await dispatch(
        bench.repository.path,
        ReplayAgent(result.journal),
        "go",
        branch=BranchPolicy("named", "again"),
        layout=bench.layout,
    )
    # Trees, people, dates, messages and parents are the same, and so are the names of the commits.
    assert [commit.oid for commit in again.commits] == [commit.oid for commit in result.commits]
    assert bench.repository.git("rev-parse", "again") == bench.repository.git("rev-parse", "work")
    assert again.retained_directory is None


async def test_RPL_05_another_baseline_is_a_divergence(bench: Bench) -> None:
    result = await recorded(bench, commits("one", "1\\n"))
    bench.repository.write("other.txt", "x")
    bench.repository.commit_all("meanwhile")
    with pytest.raises(OutpostError) as caught:
        await dispatch(
            bench.repository.path,
            ReplayAgent(result.journal),
            "go",
            branch=BranchPolicy("named", "again"),
            layout=bench.layout,
        )
    assert (caught.value.code, caught.value.details["kind"]) == ("replay", "baseline")


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (MERGE, "merge"),
        ("git commit -q --amend -m rewritten", "rewritten"),
        ("printf '\\377' > m; git -c i18n.commitEncoding=ISO-8859-1 commit -q --allow-empty -F m; rm m", "UTF-8"),
        ("head -c 9000000 /dev/urandom > big; git add big; git commit -qm big", "larger"),
    ],
)
async def test_JRN_04_what_cannot_be_kept_says_why(bench: Bench, script: str, why: str) -> None:
    event = event_of(await recorded(bench, script))
    assert why in event["unavailable"]
    assert event.get("commits") is None
