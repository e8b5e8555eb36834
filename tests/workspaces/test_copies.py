"""Inputs that come along into a workspace (COPY-01 to COPY-04)."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from outpost_lsp import BranchPolicy, OutpostError, StageLimits, dispatch, open_workspace
from tests.workspaces.conftest import Bench, worker


@pytest.mark.parametrize(
    "entry", ["", ".", "/etc/passwd", "../x", "a/../b", ".git", "a/.GIT/config", ".Git", "a\\..\\b", "C:/x", "a\0b"]
)
async def test_COPY_01_an_entry_that_is_no_path_of_the_repository_is_refused(bench: Bench, entry: str) -> None:
    with pytest.raises(OutpostError) as caught:
        bench.open("named", "work", copies=[entry])
    assert caught.value.code == "configuration"
    with pytest.raises(OutpostError) as caught:
        await dispatch(bench.repository.path, worker("true"), "go", copies=[entry], layout=bench.layout)
    assert caught.value.code == "configuration"


async def test_COPY_01_files_and_folders_come_along_with_their_modes(bench: Bench) -> None:
    bench.repository.write("ignored/deep/tool.sh", "#!/bin/sh\n", mode=0o755)
    bench.repository.write("some.log", b"\x00\xff")
    async with bench.open("named", "work", copies=["ignored/", "./some.log"]) as workspace:
        assert os.access(workspace.directory / "ignored/deep/tool.sh", os.X_OK)
        assert (workspace.directory / "some.log").read_bytes() == b"\x00\xff"


async def test_COPY_02_a_missing_entry_is_passed_over(bench: Bench) -> None:
    async with bench.open("named", "work", copies=["not/there"]) as workspace:
        assert not (workspace.directory / "not").exists()


async def test_COPY_03_links_are_copied_as_links_and_never_followed(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("s")
    folder = bench.repository.path / "ignored"
    folder.mkdir()
    (folder / "out").symlink_to(tmp_path / "outside")
    (folder / "dangling").symlink_to("nowhere")
    async with bench.open("named", "work", copies=["ignored"]) as workspace:
        assert (workspace.directory / "ignored/out").readlink() == tmp_path / "outside"
        assert (workspace.directory / "ignored/dangling").readlink() == Path("nowhere")
    with pytest.raises(OutpostError) as caught:
        await bench.open("named", "other", copies=["ignored/out/secret"])
    assert caught.value.code == "workspace"
    assert (len(bench.worktrees()), bench.held_locks()) == (1, [])


async def test_COPY_03_a_link_in_the_workspace_is_not_written_through(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (bench.repository.path / "way").symlink_to(tmp_path / "outside")
    bench.repository.commit_all("link")
    (bench.repository.path / "way").unlink()
    bench.repository.write("way/file.txt", "x")
    with pytest.raises(OutpostError) as caught:
        await bench.open("named", "work", copies=["way/file.txt"])
    assert caught.value.code == "workspace"
    # As a whole the folder takes the link's place.
    async with bench.open("named", "work", copies=["way"]) as workspace:
        assert (workspace.directory / "way/file.txt").read_text() == "x"
    assert list((tmp_path / "outside").iterdir()) == []


async def test_COPY_04_existing_targets_are_overwritten(bench: Bench) -> None:
    bench.repository.write("a.txt", "of the checkout\n")
    bench.repository.write("src/main.py", "changed\n")
    async with bench.open("named", "work", copies=["a.txt", "src"]) as workspace:
        assert (workspace.directory / "a.txt").read_text() == "of the checkout\n"
        assert (workspace.directory / "src/main.py").read_text() == "changed\n"


async def test_COPY_04_what_an_agent_left_in_the_way_is_moved_aside_first(bench: Bench) -> None:
    bench.repository.write("some.log", "input\n")
    workspace = await bench.open("named", "work", copies=["some.log"])
    (workspace.directory / "some.log").write_text("the agent's own\n")
    await workspace.close()
    async with bench.open("named", "work", copies=["some.log"]) as again:
        assert (again.directory / "some.log").read_text() == "input\n"
    (aside,) = bench.recovery.iterdir()
    assert (aside / "some.log").read_text() == "the agent's own\n"


async def test_COPY_04_one_deadline_covers_all_entries(bench: Bench) -> None:
    """A pipe among the inputs is passed over; a limit that cannot be kept is a timeout, and nothing goes on after it."""
    for number in range(300):
        bench.repository.write(f"ignored/{number}", "x")
    os.mkfifo(bench.repository.path / "ignored/pipe")
    with pytest.raises(OutpostError) as caught:
        await bench.open("named", "work", copies=["ignored"], limits=StageLimits(copy_s=0.000_001))
    assert caught.value.code == "timeout"
    assert bench.held_locks() == []
    async with bench.open("named", "work", copies=["ignored"]) as workspace:
        assert len(list((workspace.directory / "ignored").iterdir())) == 300
    assert not [thread for thread in threading.enumerate() if "copy" in thread.name.lower()]


async def test_unchanged_copies_are_no_work_and_changed_ones_are(bench: Bench) -> None:
    """What came along does not count against WS-23 as long as it is what came along."""
    bench.repository.write("ignored/x", "input")
    bench.repository.write("untracked.txt", "input")
    workspace = await bench.open("named", "work", copies=["ignored", "untracked.txt"])
    assert (await workspace.close()).retained_directory is None
    workspace = await bench.open("named", "work", copies=["ignored", "untracked.txt"])
    (workspace.directory / "ignored/x").write_text("changed")
    assert (await workspace.close()).retained_directory == workspace.directory
    assert (bench.repository.path / "ignored/x").read_text() == "input"


async def test_a_nested_git_directory_does_not_come_along(bench: Bench) -> None:
    bench.repository.write("ignored/module/.git/config", "[core]\n")
    bench.repository.write("ignored/module/file", "x")
    async with bench.open("named", "work", copies=["ignored"]) as workspace:
        assert [path.name for path in (workspace.directory / "ignored/module").iterdir()] == ["file"]


async def test_a_snapshot_worktree_takes_copies_too(bench: Bench) -> None:
    bench.repository.write("some.log", "input\n")
    agent = worker("cat some.log > seen.txt")
    result = await dispatch(bench.repository.path, agent, "go", copies=["some.log"], layout=bench.layout)
    assert result.changes is not None
    assert [file.path for file in result.changes.files] == ["seen.txt"]
    with pytest.raises(OutpostError):
        open_workspace(bench.repository.path, branch=BranchPolicy("named", "x"), copies="some.log")
