"""Closing workspaces: what is removed, and what never is (WS-19 to WS-29)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from outpost_lsp import DiffGuard, OutpostError
from tests.workspaces.conftest import Bench, sh


async def test_WS_19_a_workspace_with_an_open_sandbox_is_not_closed(bench: Bench) -> None:
    workspace = await bench.open("named", "work")
    async with workspace.sandbox():
        with pytest.raises(OutpostError) as caught:
            await workspace.close()
        assert caught.value.code == "configuration"
        assert bench.held_locks() == [bench.locks.path("work").name]
        assert workspace.directory.exists()
    await workspace.close()


async def test_WS_20_the_checkout_itself_is_left_as_it_is(bench: Bench) -> None:
    workspace = await bench.open()
    bench.repository.write("new.txt", "new")
    assert (await workspace.close(preserve=True)).retained_directory is None
    assert (bench.repository.path / "new.txt").exists()
    assert bench.held_locks() == []


async def test_WS_21_preserve_keeps_a_clean_worktree(bench: Bench) -> None:
    workspace = await bench.open("named", "work")
    assert (await workspace.close(preserve=True)).retained_directory == workspace.directory
    assert len(bench.worktrees()) == 2
    assert bench.held_locks() == []


async def test_WS_21_what_was_refused_and_then_put_right_is_not_kept(bench: Bench) -> None:
    workspace = await bench.open("integrate", guard=DiffGuard(protected_paths=("secret",)))
    sh(workspace.directory, "echo s > secret; echo agent > a.txt; git add -A; git commit -qm s")
    bench.repository.write("a.txt", "person\n")
    bench.repository.commit_all("person")
    for code, script in (
        ("guard", "git rm -q secret; git commit -qm undone"),
        ("conflict", "git merge -q -X ours --no-edit main"),
    ):
        with pytest.raises(OutpostError) as caught:
            await workspace.integrate()
        assert caught.value.code == code
        sh(workspace.directory, script)
    await workspace.integrate()
    assert (await workspace.close()).retained_directory is None
    assert bench.branches() == ["main"]


async def test_WS_22_a_detached_worktree_is_kept(bench: Bench) -> None:
    workspace = await bench.open("named", "work")
    sh(workspace.directory, "git checkout -q --detach; echo x > x; git add x; git commit -qm x")
    assert (await workspace.close()).retained_directory == workspace.directory


@pytest.mark.parametrize(
    "script",
    [
        "echo changed >> a.txt",
        "rm a.txt",
        "echo new > new.txt",
        "mkdir ignored; echo x > ignored/x",
        "echo x > some.log",
        "echo staged >> a.txt; git add a.txt",
        "git update-index --assume-unchanged a.txt; echo hidden >> a.txt",
        "git update-index --skip-worktree a.txt; echo hidden >> a.txt",
        "git init -q nested; echo x > nested/x",
        "mkdir q; printf x > 'q/a \"b\n\tc'",
    ],
)
async def test_WS_23_any_modified_untracked_or_ignored_file_keeps_the_worktree(bench: Bench, script: str) -> None:
    workspace = await bench.open("named", "work")
    sh(workspace.directory, script)
    assert (await workspace.close()).retained_directory == workspace.directory
    assert workspace.directory.is_dir()
    assert bench.held_locks() == []


async def test_WS_24_nothing_outside_the_managed_folder_is_removed(bench: Bench, tmp_path: Path) -> None:
    workspace = await bench.open("named", "work")
    moved = tmp_path / "elsewhere"
    workspace.directory.rename(moved)
    workspace.directory.symlink_to(moved)
    with pytest.raises(OutpostError) as caught:
        await workspace.close()
    assert caught.value.code == "workspace"
    assert (moved / "a.txt").exists()
    assert bench.held_locks() == []
    assert (await workspace.close()).retained_directory == workspace.directory


async def test_WS_25_a_clean_worktree_goes_and_a_named_branch_stays(bench: Bench) -> None:
    workspace = await bench.open("named", "work")
    sh(workspace.directory, "echo x > x; git add x; git commit -qm x")
    assert (await workspace.close()).retained_directory is None
    assert not workspace.directory.exists()
    assert (len(bench.worktrees()), bench.branches()) == (1, ["main", "work"])


async def test_WS_25_a_generated_branch_goes_when_it_is_merged_and_survives_when_it_is_not(bench: Bench) -> None:
    workspace = await bench.open("integrate")
    await workspace.close()
    assert bench.branches() == ["main"]
    workspace = await bench.open("integrate")
    sh(workspace.directory, "echo x > x; git add x; git commit -qm x")
    await workspace.close()
    assert not workspace.directory.exists()
    assert bench.branches() == ["main", workspace.branch]


async def test_WS_26_retained_work_comes_back_by_the_name_of_its_branch(bench: Bench) -> None:
    workspace = await bench.open("integrate", label="my job")
    (workspace.directory / "draft.txt").write_text("draft")
    await workspace.close()
    async with bench.open("named", workspace.branch) as again:
        assert again.directory == workspace.directory
        assert (again.directory / "draft.txt").read_text() == "draft"


async def test_WS_27_closing_an_idle_workspace_a_second_time_gives_the_first_answer(bench: Bench) -> None:
    workspace = await bench.open("named", "work")
    (workspace.directory / "draft.txt").write_text("draft")
    first = await workspace.close()
    (workspace.directory / "draft.txt").unlink()
    assert await workspace.close() == first
    assert workspace.directory.exists()
    with pytest.raises(OutpostError) as caught:
        async with workspace.sandbox():
            pass
    assert caught.value.code == "configuration"


async def test_WS_27_a_worktree_deleted_by_hand_meanwhile_leaves_its_commits_and_no_registration(bench: Bench) -> None:
    workspace = await bench.open("named", "work")
    sh(workspace.directory, "echo x > x; git add x; git commit -qm x")
    tip = bench.repository.git("rev-parse", "work")
    sh(bench.repository.path, f"rm -r '{workspace.directory}'")
    assert (await workspace.close()).retained_directory is None
    assert len(bench.worktrees()) == 1
    assert bench.repository.git("rev-parse", "work") == tip


HOLDER = """
import asyncio, json, sys
from pathlib import Path
from outpost_lsp import BranchPolicy, Layout, open_workspace

async def main():
    state, cache, repository = map(Path, sys.argv[1:])
    workspace = await open_workspace(repository, branch=BranchPolicy("named", "work"), layout=Layout(state, cache))
    (workspace.directory / "draft.txt").write_text("draft")
    print(json.dumps(str(workspace.directory)), flush=True)
    sys.stdin.read()

asyncio.run(main())
"""


async def test_WS_28_WS_29_work_of_a_killed_process_is_found_again_by_its_branch(bench: Bench) -> None:
    """The lock of the dead process is taken over (LOCK-04) and nothing it left is lost (REL-01)."""
    arguments = [bench.layout.state, bench.layout.cache, bench.repository.path]
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        directory = Path(json.loads(process.stdout.readline()))
        with pytest.raises(OutpostError) as caught:
            await bench.open("named", "work")
        assert (caught.value.code, caught.value.details["pid"]) == ("conflict", process.pid)
        process.kill()
        process.wait()
    async with bench.open("named", "work") as workspace:
        assert workspace.directory == directory
        assert (directory / "draft.txt").read_text() == "draft"
