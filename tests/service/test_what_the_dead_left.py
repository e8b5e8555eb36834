"""What a service finds of runs whose process died."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from outpost_lsp.domain.run import Run
from outpost_lsp.service import results
from outpost_lsp.storage.identifiers import new_run_id, now_text
from outpost_lsp.worktrees.plain_folder import open_plain_folder
from outpost_lsp.worktrees.registration import Owner
from tests.service.conftest import Office, Open


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


async def _opened(office: Office, folder: Path):
    workspace = office.outpost.add_workspace(folder)
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
