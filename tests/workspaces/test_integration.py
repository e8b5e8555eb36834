"""Merging a workspace's branch into the checkout's (INT-01 to INT-08)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from outpost_lsp import OutpostError
from outpost_lsp.dispatches.workspace import Workspace
from outpost_lsp.workspaces import integration as integrating
from tests.workspaces.conftest import Bench, sh


def work(workspace: Workspace, text: str = "agent\n", path: str = "work.txt") -> str:
    """Commit a file in the workspace; the commit."""
    (workspace.directory / path).write_text(text)
    return sh(workspace.directory, f"git add -A; git commit -qm work; git rev-parse HEAD")  # noqa: F541


async def conflict(workspace: Workspace, bench: Bench, code: str = "conflict") -> OutpostError:
    """Integrate, be refused, and find the checkout as it was."""
    before = (bench.repository.head, bench.repository.git("status", "--porcelain"))
    with pytest.raises(OutpostError) as caught:
        await workspace.integrate()
    assert caught.value.code == code, caught.value
    assert (bench.repository.head, bench.repository.git("status", "--porcelain")) == before
    assert not (bench.repository.path / ".git/MERGE_HEAD").exists()
    assert bench.locks.owner("merge:main") is None
    return caught.value


@pytest.mark.parametrize("policy", [("current",), ("named", "work")])
async def test_INT_01_other_policies_are_not_integrated(bench: Bench, policy: tuple[str, ...]) -> None:
    async with bench.open(*policy) as workspace:
        work(workspace)
        main = bench.repository.git("rev-parse", "main")
        assert await workspace.integrate() is None
        assert bench.repository.git("rev-parse", "main") == main


async def test_INT_01_nothing_is_pushed(bench: Bench, tmp_path: Path) -> None:
    bench.repository.git("clone", "-q", "--bare", str(bench.repository.path), str(tmp_path / "origin.git"))
    bench.repository.git("remote", "add", "origin", str(tmp_path / "origin.git"))
    before = sh(tmp_path / "origin.git", "git for-each-ref")
    async with bench.open("integrate") as workspace:
        work(workspace)
        await workspace.integrate()
    assert sh(tmp_path / "origin.git", "git for-each-ref") == before


async def test_the_checkout_moves_forward_when_nothing_else_happened(bench: Bench) -> None:
    async with bench.open("integrate") as workspace:
        commit = work(workspace)
        done = await workspace.integrate()
        assert done is not None
        assert (done.commit, done.merged, bench.repository.head) == (commit, True, commit)
        assert (bench.repository.path / "work.txt").read_text() == "agent\n"
        assert bench.repository.git("status", "--porcelain") == ""
        again = await workspace.integrate()
        assert again is not None
        assert not again.merged
    assert (len(bench.worktrees()), bench.branches()) == (1, ["main"])


async def test_INT_04_exactly_the_inspected_commit_is_merged_with_both_parents(bench: Bench) -> None:
    async with bench.open("integrate") as workspace:
        commit = work(workspace)
        bench.repository.write("theirs.txt", "person\n")
        host = bench.repository.commit_all("person")
        await workspace.integrate()
        assert bench.repository.git("rev-parse", "HEAD^1", "HEAD^2").split() == [host, commit]
        assert bench.repository.git("log", "-1", "--format=%s") == f"Merge branch '{workspace.branch}' into main"
        assert (bench.repository.path / "work.txt").exists()
        assert (bench.repository.path / "theirs.txt").exists()
        assert bench.repository.git("status", "--porcelain") == ""


async def test_INT_02_the_checkout_has_to_be_on_the_base_branch_still(bench: Bench) -> None:
    async with bench.open("integrate") as workspace:
        work(workspace)
        bench.repository.git("checkout", "-q", "-b", "other")
        fault = await conflict(workspace, bench)
        assert (fault.details["expected"], fault.details["current"]) == ("main", "other")
        assert fault.details["directory"] == str(workspace.directory)
        bench.repository.git("checkout", "-q", "main")


async def test_INT_03_INT_08_a_second_integration_into_one_base_is_refused_by_the_lock(bench: Bench) -> None:
    async with bench.open("integrate") as first, bench.open("integrate") as second:
        work(first)
        work(second, path="second.txt")
        with bench.locks.take("merge:main"):
            fault = await conflict_by_lock(second)
            assert fault.details["lock"] == str(bench.locks.path("merge:main"))
        await first.integrate()
        await second.integrate()
        assert {"work.txt", "second.txt"} <= set(bench.repository.tree("HEAD"))


async def conflict_by_lock(workspace: Workspace) -> OutpostError:
    with pytest.raises(OutpostError) as caught:
        await workspace.integrate()
    assert caught.value.code == "conflict"
    return caught.value


async def test_INT_05_INT_06_a_conflict_is_found_beforehand_and_the_workspace_is_retained(bench: Bench) -> None:
    workspace = await bench.open("integrate")
    work(workspace, "agent\n", "a.txt")
    bench.repository.write("a.txt", "person\n")
    bench.repository.commit_all("person")
    before = bench.repository.state()
    fault = await conflict(workspace, bench)
    assert fault.details["conflicts"] == ["a.txt"]
    assert (fault.details["branch"], fault.details["directory"]) == (workspace.branch, str(workspace.directory))
    assert bench.repository.state() == before
    assert (await workspace.close()).retained_directory == workspace.directory


async def test_INT_06_a_merge_that_the_user_has_under_way_is_left_as_it_is(bench: Bench) -> None:
    repository = bench.repository
    async with bench.open("integrate") as workspace:
        work(workspace)
        repository.git("checkout", "-q", "-b", "side")
        repository.write("a.txt", "side\n")
        repository.commit_all("side")
        repository.git("checkout", "-q", "main")
        repository.write("b.txt", "b\n")
        repository.commit_all("main")
        repository.git("merge", "-q", "--no-commit", "--no-ff", "side")
        merge_head = (repository.path / ".git/MERGE_HEAD").read_text()
        with pytest.raises(OutpostError) as caught:
            await workspace.integrate()
        assert caught.value.code == "conflict"
        assert (repository.path / ".git/MERGE_HEAD").read_text() == merge_head
        assert (repository.path / "a.txt").read_text() == "side\n"


async def test_INT_07_a_dirty_checkout_is_merged_into_unless_a_changed_file_would_be_overwritten(bench: Bench) -> None:
    async with bench.open("integrate") as workspace:
        work(workspace)
        bench.repository.write("a.txt", "dirty\n")
        bench.repository.write("untracked.txt", "mine\n")
        await workspace.integrate()
        assert (bench.repository.path / "work.txt").exists()
        assert (bench.repository.path / "a.txt").read_text() == "dirty\n"
        work(workspace, "agent\n", "a.txt")
        fault = await conflict(workspace, bench)
        assert "a.txt" in str(fault)
        assert (bench.repository.path / "a.txt").read_text() == "dirty\n"


async def test_an_untracked_file_of_the_user_is_not_overwritten(bench: Bench) -> None:
    async with bench.open("integrate") as workspace:
        work(workspace)
        bench.repository.write("work.txt", "mine\n")
        await conflict(workspace, bench)
        assert (bench.repository.path / "work.txt").read_text() == "mine\n"


async def test_INT_04_without_a_guard_too_a_branch_that_moves_meanwhile_is_not_merged(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench.open("integrate") as workspace:
        work(workspace)
        bench.repository.write("theirs.txt", "person\n")
        bench.repository.commit_all("person")
        merged_tree = integrating._merged_tree

        async def meanwhile(*arguments: Any) -> Any:
            found = await merged_tree(*arguments)
            sh(workspace.directory, "git commit -q --allow-empty -m later")
            return found

        monkeypatch.setattr(integrating, "_merged_tree", meanwhile)
        await conflict(workspace, bench)


async def test_a_detached_workspace_is_not_integrated(bench: Bench) -> None:
    async with bench.open("integrate") as workspace:
        work(workspace)
        sh(workspace.directory, "git checkout -q --detach")
        await conflict(workspace, bench, "workspace")


async def test_the_users_settings_and_hooks_do_not_change_the_merge(bench: Bench) -> None:
    repository, marker = bench.repository, bench.repository.path.parent / "marker"
    for name in ("pre-merge-commit", "post-merge", "post-checkout", "reference-transaction"):
        repository.write(f".git/hooks/{name}", f"#!/bin/sh\necho {name} >> '{marker}'\nexit 1\n", mode=0o755)
    repository.git("config", "branch.main.mergeOptions", "--squash --no-commit")
    repository.git("config", "merge.autoStash", "true")
    repository.git("config", "commit.gpgSign", "true")
    async with bench.open("integrate") as workspace:
        (workspace.directory / "work.txt").write_text("agent\n")
        sh(workspace.directory, "git -c core.hooksPath=/dev/null -c commit.gpgSign=false add -A")
        sh(workspace.directory, "git -c core.hooksPath=/dev/null -c commit.gpgSign=false commit -qm work")
        marker.unlink(missing_ok=True)
        done = await workspace.integrate()
        assert done is not None
        assert done.commit == repository.head
        assert repository.git("status", "--porcelain") == ""
        assert not marker.exists()


async def test_a_commit_of_another_identity_setup_needs_no_name_in_the_users_git(bench: Bench) -> None:
    """Without `user.name` the merge commit is by Outpost (GIT-03)."""
    async with bench.open("integrate") as workspace:
        work(workspace)
        bench.repository.write("theirs.txt", "person\n")
        bench.repository.commit_all("person")
        await workspace.integrate()
    assert bench.repository.git("log", "-1", "--format=%an <%ae>") == "Outpost <outpost@localhost>"
