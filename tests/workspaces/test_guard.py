"""What the diff guard lets pass and what it refuses (GUARD-01 to GUARD-09)."""

from __future__ import annotations

from typing import Any

import pytest

from outpost_lsp import BranchPolicy, DiffGuard, OutpostError, dispatch
from outpost_lsp.dispatches.workspace import Workspace
from outpost_lsp.workspaces import guard as guarding
from tests.workspaces.conftest import Bench, commits, sh, worker


async def refusal(workspace: Workspace, script: str) -> OutpostError:
    """Dispatch an agent that runs the script; the guard's refusal of it."""
    with pytest.raises(OutpostError) as caught:
        await workspace.dispatch(worker(script), "go")
    assert caught.value.code == "guard", caught.value
    return caught.value


async def test_GUARD_01_later_changes_of_the_callers_object_have_no_effect(bench: Bench) -> None:
    patterns = ["secrets/**"]
    asked: dict[str, Any] = {"protected_paths": patterns, "max_changed_lines": 5}
    async with bench.open("named", "work", guard=asked) as workspace:
        patterns.clear()
        asked["max_changed_lines"] = 1_000
        fault = await refusal(workspace, commits("secrets/key", "1\\n2\\n3\\n4\\n5\\n6\\n"))
        assert fault.details["reasons"] == ["protected-paths", "changed-lines"]


async def test_GUARD_02_only_committed_work_counts_after_cold_and_warm_dispatches(bench: Bench) -> None:
    async with bench.open("named", "work", guard=DiffGuard(protected_paths=("secrets/**",))) as workspace:
        dirty = "mkdir secrets; echo x > secrets/key"
        await workspace.dispatch(worker(dirty), "go")
        async with workspace.sandbox() as sandbox:
            await sandbox.dispatch("go", agent=worker("true"))
            with pytest.raises(OutpostError) as caught:
                await sandbox.dispatch("go", agent=worker("git add -A; git commit -qm x"))
            assert caught.value.code == "guard"
            # The sandbox stays usable (GUARD-07).
            with pytest.raises(OutpostError) as caught:
                await sandbox.dispatch("go", agent=worker("true"))
            assert caught.value.code == "guard"
        await refusal(workspace, "true")


async def test_GUARD_03_commits_inherited_through_start_count_for_integrate_and_the_hosts_own_do_not(
    bench: Bench,
) -> None:
    repository = bench.repository
    repository.git("checkout", "-q", "-b", "feature")
    repository.write("secrets/key", "k\n")
    repository.commit_all("feature")
    repository.git("checkout", "-q", "main")
    guard = DiffGuard(protected_paths=("secrets/**",))
    async with bench.open(branch=BranchPolicy("integrate", start="feature"), guard=guard) as workspace:
        await refusal(workspace, "true")
    async with bench.open(branch=BranchPolicy("named", "work", start="feature"), guard=guard) as workspace:
        await workspace.dispatch(worker("true"), "go")
    async with bench.open("integrate", guard=guard) as workspace:
        repository.write("secrets/mine", "m\n")
        repository.commit_all("the person's own")
        await workspace.dispatch(worker(commits("ok.txt", "fine\\n")), "go")
        assert (repository.path / "ok.txt").exists()


async def test_GUARD_04_it_is_the_net_diff(bench: Bench) -> None:
    guard = DiffGuard(protected_paths=("secrets/**",), max_changed_lines=1)
    async with bench.open("named", "work", guard=guard) as workspace:
        undone = commits("secrets/key", "1\\n2\\n3\\n") + "; git rm -rq secrets; git commit -qm undone"
        await workspace.dispatch(worker(undone), "go")


async def test_GUARD_04_three_warm_dispatches_of_one_line_each_break_a_limit_of_two_at_the_third(bench: Bench) -> None:
    async with bench.open("named", "work", guard=DiffGuard(max_changed_lines=2)) as workspace:
        async with workspace.sandbox() as sandbox:
            for name in ("1", "2"):
                await sandbox.dispatch("go", agent=worker(commits(name, "line\\n")))
            with pytest.raises(OutpostError) as caught:
                await sandbox.dispatch("go", agent=worker(commits("3", "line\\n")))
        details = caught.value.details
        assert (details["reasons"], details["changedLines"], details["maxChangedLines"]) == (["changed-lines"], 3, 2)


@pytest.mark.parametrize(("lines", "passes"), [(3, True), (4, False)])
async def test_the_limit_itself_passes_and_one_more_line_does_not(bench: Bench, lines: int, passes: bool) -> None:
    async with bench.open("named", "work", guard=DiffGuard(max_changed_lines=3)) as workspace:
        script = commits("new.txt", "line\\n" * lines)
        if passes:
            assert (await workspace.dispatch(worker(script), "go")).text == "done"
        else:
            assert (await refusal(workspace, script)).details["changedLines"] == lines


async def test_GUARD_05_a_rename_costs_no_lines_and_both_its_names_are_checked(bench: Bench) -> None:
    async with bench.open("named", "work", guard=DiffGuard(max_changed_lines=0)) as workspace:
        await workspace.dispatch(worker("git mv a.txt moved.txt; git commit -qm moved"), "go")
    for policy, pattern in (("one", "a.txt"), ("two", "moved.txt")):
        async with bench.open("named", policy, guard=DiffGuard(protected_paths=(pattern,))) as workspace:
            fault = await refusal(workspace, "git mv a.txt moved.txt; git commit -qm moved")
            assert fault.details["matches"] == [{"path": pattern, "pattern": pattern}]


async def test_GUARD_06_binary_changes_are_refused_only_with_a_line_limit(bench: Bench) -> None:
    script = "printf 'a\\000b' > data.bin; git add -A; git commit -qm binary"
    async with bench.open("named", "one", guard=DiffGuard(protected_paths=("x",))) as workspace:
        await workspace.dispatch(worker(script), "go")
    async with bench.open("named", "two", guard=DiffGuard(max_changed_lines=1_000)) as workspace:
        fault = await refusal(workspace, script)
        assert (fault.details["reasons"], fault.details["binaryPaths"]) == (["binary-files"], ["data.bin"])


async def test_GUARD_07_a_refusal_says_everything_and_the_work_is_retained(bench: Bench) -> None:
    workspace = await bench.open("integrate", guard=DiffGuard(protected_paths=("src/*", "src/**"), max_changed_lines=1))
    host = bench.repository.head
    fault = await refusal(workspace, commits("src/new.py", "1\\n2\\n"))
    details = dict(fault.details)
    assert details == {
        "reasons": ["protected-paths", "changed-lines"],
        "matches": [
            {"path": "src/new.py", "pattern": "src/*"},
            {"path": "src/new.py", "pattern": "src/**"},
        ],
        "changedLines": 2,
        "binaryPaths": [],
        "maxChangedLines": 1,
        "baseline": host,
        "candidateCommit": bench.repository.git("rev-parse", workspace.branch),
        "hostCommit": host,
        "branch": workspace.branch,
        "directory": str(workspace.directory),
    }
    assert not (bench.repository.path / "src/new.py").exists()
    assert (await workspace.close()).retained_directory == workspace.directory
    async with bench.open("named", workspace.branch) as again:
        assert (again.directory / "src/new.py").exists()


async def test_GUARD_08_a_detached_candidate_is_refused_and_an_empty_guard_wants_one_it_can_inspect(
    bench: Bench,
) -> None:
    async with bench.open("named", "work", guard=DiffGuard()) as workspace:
        await workspace.dispatch(worker("true"), "go")
        fault = await refusal(workspace, "git checkout -q --detach")
        assert fault.details["reasons"] == ["inspection"]


async def test_GUARD_08_more_than_one_merge_base_is_refused(bench: Bench) -> None:
    async with bench.open("integrate", guard=DiffGuard()) as workspace:
        repository = bench.repository
        sh(workspace.directory, "echo w > w; git add w; git commit -qm w")
        repository.write("h.txt", "h\n")
        repository.commit_all("h")
        host, own = repository.head, repository.git("rev-parse", workspace.branch)
        sh(workspace.directory, f"git merge -q --no-edit {host}")
        repository.git("merge", "-q", "--no-edit", own)
        fault = await refusal(workspace, "true")
        assert fault.details["reasons"] == ["inspection"]


async def test_GUARD_08_statistics_that_are_too_large_or_cannot_be_read_are_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench.open("named", "work", guard=DiffGuard()) as workspace:
        with monkeypatch.context() as patched:
            patched.setattr(guarding, "_LONGEST_STATISTICS", 20)
            fault = await refusal(workspace, commits("a-file-with-a-long-name.txt", "x\\n"))
        assert fault.details["reasons"] == ["inspection"]
    for output in (b"1\t2", b"x\t1\ta.txt\0", b"1\t2\t\0old\0", b"-\t1\ta\0", b"1 2 a\0"):
        with pytest.raises(OutpostError):
            guarding._parse(output)


async def test_GUARD_08_a_reference_that_moves_between_inspection_and_merge_is_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person commits on the agent's branch right after it was inspected."""
    async with bench.open("integrate", guard=DiffGuard()) as workspace:
        sh(workspace.directory, "echo w > w; git add w; git commit -qm w")
        host = bench.repository.head
        statistics = guarding._statistics

        async def meanwhile(*arguments: Any) -> Any:
            found = await statistics(*arguments)
            sh(workspace.directory, "echo later > later; git add later; git commit -qm later")
            return found

        monkeypatch.setattr(guarding, "_statistics", meanwhile)
        with pytest.raises(OutpostError) as caught:
            await workspace.integrate()
        assert caught.value.details["reasons"] == ["references-changed"]
        assert bench.repository.head == host
        assert bench.locks.owner("merge:main") is None


async def test_GUARD_08_a_branch_that_moves_while_it_is_inspected_is_refused_after_a_dispatch(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench.open("named", "work", guard=DiffGuard()) as workspace:
        statistics = guarding._statistics

        async def meanwhile(*arguments: Any) -> Any:
            found = await statistics(*arguments)
            sh(workspace.directory, "git commit -q --allow-empty -m later")
            return found

        monkeypatch.setattr(guarding, "_statistics", meanwhile)
        fault = await refusal(workspace, commits("one", "1\\n"))
        assert fault.details["reasons"] == ["references-changed"]


async def test_GUARD_09_names_with_spaces_tabs_and_newlines_survive_and_settings_do_not_blind_it(bench: Bench) -> None:
    repository = bench.repository
    repository.git("config", "diff.renames", "false")
    repository.git("config", "diff.algorithm", "patience")
    repository.git("config", "diff.external", "/bin/true")
    name = "odd name\twith\nall.txt"
    (repository.path / name).write_text("x\n")
    repository.commit_all("odd")
    async with bench.open("named", "work", guard=DiffGuard(protected_paths=("odd*", "odd*/**"))) as workspace:
        fault = await refusal(workspace, 'for f in odd*; do echo more >> "$f"; done; git add -A; git commit -qm odd')
        assert fault.details["matches"] == [{"path": name, "pattern": "odd*"}]
        assert fault.details["changedLines"] == 1


async def test_GUARD_09_a_submodule_that_settings_hide_is_seen(bench: Bench) -> None:
    head = bench.repository.head
    bench.repository.git("config", "submodule.lib.ignore", "all")
    bench.repository.write(".gitmodules", '[submodule "lib"]\n\tpath = lib\n\turl = ./lib\n\tignore = all\n')
    bench.repository.commit_all("modules")
    async with bench.open("named", "work", guard=DiffGuard(protected_paths=("lib",))) as workspace:
        script = f"git update-index --add --cacheinfo 160000,{head},lib; git commit -qm lib"
        fault = await refusal(workspace, script)
        assert fault.details["matches"] == [{"path": "lib", "pattern": "lib"}]


async def test_a_cold_dispatch_that_the_guard_refuses_leaves_the_checkout_alone_and_its_branch_to_open(
    bench: Bench,
) -> None:
    with pytest.raises(OutpostError) as caught:
        await dispatch(
            bench.repository.path,
            worker(commits("a.txt", "agent\\n")),
            "go",
            branch=BranchPolicy("integrate"),
            guard=DiffGuard(protected_paths=("a.txt",)),
            layout=bench.layout,
        )
    assert caught.value.code == "guard"
    assert (bench.repository.path / "a.txt").read_text() == "one\ntwo\nthree\n"
    async with bench.open("named", caught.value.details["branch"]) as again:
        assert (again.directory / "a.txt").read_text() == "agent\n"


@pytest.mark.parametrize(
    "wrong",
    [
        {"protected_paths": ["/absolute"]},
        {"protected_paths": ["a/../b"]},
        {"protected_paths": ["./a"]},
        {"protected_paths": ["C:/a"]},
        {"protected_paths": ["a\\b"]},
        {"protected_paths": ["a\0b"]},
        {"protected_paths": [""]},
        {"protected_paths": ["a/"]},
        {"max_changed_lines": -1},
        {"max_changed_lines": True},
        {"max_changed_lines": 1.5},
        {"other": 1},
    ],
)
def test_a_guard_that_makes_no_sense_is_refused_when_it_is_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(OutpostError) as caught:
        DiffGuard(**wrong)
    assert caught.value.code == "configuration"
