"""What the settings of the tables `review`, `sandbox` and `runs` change about a run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outpost_lsp.domain.run import ReviewScope, Run
from outpost_lsp.service.workspace import Workspace
from tests.service.conftest import Office, loopback
from tests.support.model_answers import Answer
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository

UNCOMMITTED = ReviewScope(scope="uncommitted")


def report(quote: str, path: str = "b.py", **more: Any) -> dict[str, Any]:
    found = {"path": path, "quote": quote, "severity": "error", "code": "c", "title": quote, "detail": "d", **more}
    return {"name": "report_finding", "input": found}


async def reviewed(office: Office, workspace: Workspace, scope: ReviewScope = UNCOMMITTED, **more: Any) -> Run:
    run = await (await office.outpost.review(workspace, scope, **more)).wait()
    assert run.status == "succeeded", run.error
    return run


@pytest.mark.parametrize(
    ("chosen", "severities"), [("hint", ["error", "hint"]), ("drop", ["error"]), ("keep", ["error", "error"])]
)
async def test_what_lies_outside_the_change_is_a_hint_dropped_or_kept(
    office: Office, project: RealRepository, chosen: str, severities: list[str]
) -> None:
    project.write("b.py", "x = 1\n" + "y = 1\n" * 20)
    project.commit_all()
    project.write("b.py", "x = 2\n" + "y = 1\n" * 20)
    with ModelServer() as server:
        server.add(Answer(calls=[report("x = 2"), report("y = 1", line=15)]), "Done.")
        workspace = await office.workspace(project, loopback(server.base_url, review={"outsideDiff": chosen}))
        await reviewed(office, workspace)
        found = workspace.findings()
        assert sorted(one.severity for one in found) == severities
        assert [one.in_diff for one in found if one.quote == "x = 2"] == [True]


async def test_findings_below_the_confidence_and_beyond_the_number_that_is_set_are_not_shown(
    office: Office, project: RealRepository
) -> None:
    project.write("b.py", "".join(f"x{number} = 1\n" for number in range(4)))
    calls = [report("x0 = 1", confidence=0.2), *(report(f"x{number} = 1", confidence=0.9) for number in (1, 2, 3))]
    with ModelServer() as server:
        server.add(Answer(calls=calls), "Done.")
        settings = loopback(server.base_url, review={"minConfidence": 0.5, "maxFindings": 2})
        workspace = await office.workspace(project, settings)
        run = await reviewed(office, workspace)
        assert [one.quote for one in workspace.findings()] == ["x1 = 1", "x2 = 1"]
        assert run.findings == 2


async def test_what_the_patterns_exclude_is_not_reviewed(office: Office, project: RealRepository) -> None:
    for name in ("gen/made.py", "kept.py"):
        project.write(name, "print(no_such_name)\n")
    workspace = await office.workspace(project, {"review": {"exclude": ["gen/**", "a.py"]}})
    await reviewed(office, workspace)
    assert [one.path for one in workspace.findings()] == ["kept.py"]


async def test_the_files_with_instructions_are_those_that_are_named_and_a_note_says_which_were_used(
    office: Office, project: RealRepository
) -> None:
    for name in ("AGENTS.md", "HOUSE.md"):
        project.write(name, f"The rules of {name}.\n")
    project.commit_all()
    project.write("b.py", "x = 2\n")
    with ModelServer() as server:
        server.add("Done.")
        settings = loopback(server.base_url, review={"instructions": ["HOUSE.md", "NONE.md"]})
        run = await reviewed(office, await office.workspace(project, settings))
        sent = json.dumps(server.requests[0].json)
        assert ("The rules of HOUSE.md" in sent, "The rules of AGENTS.md" in sent) == (True, False)
        assert any("HOUSE.md" in note for note in run.notes)


@pytest.mark.parametrize(
    ("setting", "seen"),
    [
        ({}, {"a.py": "edited", "new.py": "untracked", "b.py": "unsaved"}),
        ({"uncommitted": False}, {"a.py": "committed", "new.py": "untracked", "b.py": "unsaved"}),
        ({"untracked": False}, {"a.py": "edited", "new.py": None, "b.py": "unsaved"}),
        ({"unsaved": False}, {"a.py": "edited", "new.py": "untracked", "b.py": "committed"}),
    ],
    ids=str,
)
async def test_the_snapshot_holds_what_the_settings_say(
    office: Office, project: RealRepository, setting: dict[str, Any], seen: dict[str, str | None]
) -> None:
    for name in ("a.py", "b.py"):
        project.write(name, "# committed\n")
    project.commit_all()
    project.write("a.py", "# edited\n")
    project.write("new.py", "# untracked\n")
    with ModelServer() as server:
        reads = [{"name": "read_file", "input": {"path": path}} for path in seen]
        server.add(Answer(calls=reads), "Done.")
        workspace = await office.workspace(project, loopback(server.base_url, sandbox=setting))
        unsaved = {"b.py": "# unsaved\n"}
        run = await (await office.outpost.run_agent(workspace, "fixer", "Read.", unsaved=unsaved)).wait()
        assert run.status == "succeeded", run.error
        results = [one["content"] for one in server.requests[1].json["messages"] if one["role"] == "tool"]
        for text, expected in zip(results, seen.values(), strict=True):
            words = {word for word in ("committed", "edited", "untracked", "unsaved") if f"# {word}" in text}
            assert words == ({expected} if expected else set()), text


async def test_untracked_files_beyond_the_size_that_is_set_are_left_out_and_named(
    office: Office, project: RealRepository
) -> None:
    project.write("large.txt", "line\n" * 300_000)
    project.write("small.py", "print(no_such_name)\n")
    workspace = await office.workspace(project, {"sandbox": {"maxUntrackedMib": 1}})
    run = await reviewed(office, workspace)
    assert any("large.txt" in note for note in run.notes)
    assert "small.py" in {one.path for one in workspace.findings()}


@pytest.mark.parametrize(
    ("keep", "kept"), [("changed", [True, False]), ("always", [True, True]), ("never", [False] * 2)]
)
async def test_which_worktrees_stay_is_set(
    office: Office, project: RealRepository, keep: str, kept: list[bool]
) -> None:
    write = {"name": "write_file", "input": {"path": "new.txt", "content": "new\n"}}
    with ModelServer() as server:
        server.add(Answer(calls=[write]), "Done.", "Nothing.")
        workspace = await office.workspace(project, loopback(server.base_url, sandbox={"keep": keep}))
        for stays, disposition in zip(kept, ("pending", "none"), strict=True):
            run = await (await office.outpost.run_agent(workspace, "fixer", "Work.")).wait()
            # What it changed is kept in the state folder in any case.
            assert (run.status, run.disposition) == ("succeeded", disposition)
            assert (workspace.layout.worktrees / run.id).is_dir() == stays


@pytest.mark.parametrize("is_verbose", [False, True])
async def test_requests_and_answers_are_in_the_journal_when_that_is_set(
    office: Office, project: RealRepository, is_verbose: bool
) -> None:
    with ModelServer() as server:
        server.add("Done.")
        workspace = await office.workspace(project, loopback(server.base_url, runs={"verbose": is_verbose}))
        run = await (await office.outpost.run_agent(workspace, "fixer", "A word to look for.")).wait()
        kinds = [json.loads(line)["event"]["kind"] for line in events_of(workspace, run.id)]
        assert ("model-request" in kinds) == is_verbose
        assert workspace.journal_path(run.id).stat().st_mode & 0o077 == 0


def events_of(workspace: Workspace, run_id: str) -> list[str]:
    return [line for line in workspace.journal_path(run_id).read_text().splitlines() if '"event":{' in line]
