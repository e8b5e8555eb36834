"""What a service finds of runs whose process died."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp.domain.landing import FileOperation
from outpost_lsp.domain.run import Run
from outpost_lsp.sandbox.landing import land
from outpost_lsp.sandbox.standing import present_on_disk
from outpost_lsp.service import results
from outpost_lsp.service.workspace import Workspace
from outpost_lsp.storage.identifiers import new_run_id, now_text
from outpost_lsp.worktrees.plain_folder import open_plain_folder
from outpost_lsp.worktrees.registration import Owner
from outpost_lsp.worktrees.snapshot import take_snapshot
from outpost_lsp.worktrees.worktree import open_worktree
from tests.service.conftest import Office, Open
from tests.support.repositories import RealRepository


async def test_SNAP_09_what_a_killed_run_changed_in_a_copy_of_a_plain_folder_is_offered_and_the_rest_is_cleared_away(
    open_office: Open, tmp_path: Path
) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n", "utf-8")
    changed, empty = new_run_id(), new_run_id()
    async with open_office() as office:
        workspace = await _opened(office, folder)
        for run_id in (changed, empty):
            workspace.runs.save(_interrupted(run_id, folder))
            worktree, _ = await open_plain_folder(folder, workspace.layout.worktrees, run_id=run_id)
            owner = Owner(run_id, worktree.commit, _ended_process(), "1")
            (worktree.repository.git_dir / "locked").write_text(owner.reason, "utf-8")
            if run_id == changed:
                (worktree.directory / "a.txt").write_text("two\n", "utf-8")
    async with open_office() as office:
        workspace = await _opened(office, folder)
        await workspace.cleared()
        run, other = workspace.runs.load(changed), workspace.runs.load(empty)
        assert run is not None
        assert other is not None
        assert (run.disposition, other.disposition) == ("pending", "none")
        assert b"+two" in (await results.diff(workspace, run)).patch
        assert [path.name for path in workspace.layout.worktrees.iterdir() if path.name[0] != "."] == [changed]


@pytest.mark.parametrize("is_repository", [True, False])
async def test_SNAP_07_after_the_folder_of_worktrees_changed_what_the_former_one_holds_is_offered_and_cleared(
    open_office: Open, project: RealRepository, tmp_path: Path, is_repository: bool
) -> None:
    folder = project.path
    if not is_repository:
        shutil.rmtree(folder / ".git")
    changed, empty = new_run_id(), new_run_id()
    async with open_office() as office:
        workspace = await _opened(office, folder, {"sandbox": {"directory": str(tmp_path / "former")}})
        former = workspace.layout.worktrees
        for run_id in (changed, empty):
            workspace.runs.save(_interrupted(run_id, folder))
            if is_repository:
                snapshot = await take_snapshot(workspace.repository)
                worktree = await open_worktree(workspace.repository, snapshot.commit, former, run_id=run_id)
            else:
                worktree, _ = await open_plain_folder(folder, former, run_id=run_id)
            owner = Owner(run_id, worktree.commit, _ended_process(), "1")
            (worktree.repository.git_dir / "locked").write_text(owner.reason, "utf-8")
            if run_id == changed:
                (worktree.directory / "new.txt").write_text("two\n", "utf-8")
        (former / ".trash" / "left").mkdir(parents=True)
    async with open_office() as office:
        workspace = await _opened(office, folder)
        assert workspace.layout.worktrees != former
        assert workspace.layout.former_worktrees == (former,)
        await workspace.cleared()
        run, other = workspace.runs.load(changed), workspace.runs.load(empty)
        assert run is not None
        assert other is not None
        assert (run.disposition, other.disposition) == ("pending", "none")
        assert b"+two" in (await results.diff(workspace, run)).patch
        assert [path.name for path in former.iterdir() if path.name[0] != "."] == [changed]
        assert not (former / ".trash" / "left").exists()


@pytest.mark.parametrize("deed", ["diff", "apply", "discard"])
async def test_U_14_whoever_asks_for_an_interrupted_runs_changes_right_after_the_start_gets_them(
    open_office: Open, project: RealRepository, deed: str
) -> None:
    run_id = new_run_id()
    async with open_office() as office:
        workspace = await _opened(office, project.path)
        workspace.runs.save(_interrupted(run_id, project.path))
        snapshot = await take_snapshot(workspace.repository)
        worktree = await open_worktree(workspace.repository, snapshot.commit, workspace.layout.worktrees, run_id=run_id)
        owner = Owner(run_id, worktree.commit, _ended_process(), "1")
        (worktree.repository.git_dir / "locked").write_text(owner.reason, "utf-8")
        (worktree.directory / "new.txt").write_text("two\n", "utf-8")
    async with open_office() as office:
        workspace = await _opened(office, project.path)
        run = workspace.runs.load(run_id)
        assert run is not None
        if deed == "diff":
            assert b"+two" in (await results.diff(workspace, run)).patch
        elif deed == "discard":
            assert await results.discard(workspace, run)
        else:
            top = workspace.top
            outcome = await results.apply(
                workspace,
                run,
                present=partial(present_on_disk, top),
                land=partial(_landed, top, workspace.layout.landings),
            )
            assert outcome.files == ("new.txt",)
            assert (project.path / "new.txt").read_text() == "two\n"
        known = workspace.runs.load(run_id)
        assert known is not None
        assert known.disposition == {"diff": "pending", "apply": "applied", "discard": "discarded"}[deed]


async def _landed(top: Path, records: Path, operations: Sequence[FileOperation]) -> bool:
    await land(top, operations, records=records)
    return True


async def _opened(office: Office, folder: Path, settings: dict[str, Any] | None = None) -> Workspace:
    workspace = office.outpost.add_workspace(folder, client_settings=settings, trusted=True)
    await workspace.ready()
    return workspace


def _interrupted(run_id: str, folder: Path) -> Run:
    return Run(
        id=run_id,
        kind="dispatch",
        agent="fixer",
        title="Fix",
        status="interrupted",
        workspace=str(folder),
        started_at=now_text(),
        finished_at=now_text(),
    )


def _ended_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid
