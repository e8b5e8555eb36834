"""What ended runs left: cleared away or named, and never more said than done."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from outpost_lsp.domain.run import Disposition, Run
from outpost_lsp.service import results
from outpost_lsp.service.checks import diagnose
from outpost_lsp.service.cleaning import leftovers, remove
from outpost_lsp.service.workspace import Workspace
from outpost_lsp.storage.identifiers import new_run_id, now_text
from outpost_lsp.worktrees.registration import Owner
from outpost_lsp.worktrees.snapshot import take_snapshot
from outpost_lsp.worktrees.worktree import open_worktree
from tests.service.conftest import Office, Open
from tests.support.repositories import RealRepository


async def left_by_a_dead_process(workspace: Workspace, disposition: Disposition | None) -> str:
    """A worktree with a change whose process died; `None`: nothing is recorded of its run. The run's id."""
    run_id = new_run_id()
    snapshot = await take_snapshot(workspace.repository)
    worktree = await open_worktree(workspace.repository, snapshot.commit, workspace.layout.worktrees, run_id=run_id)
    (worktree.directory / "new.txt").write_text("new\n", "utf-8")
    if disposition is not None:
        changes = await results.keep_result(workspace, run_id, worktree.repository, worktree.commit)
        known = {"changes": results.change_count(changes), "disposition": disposition}
        workspace.runs.save(ended(run_id, workspace.folder).model_copy(update=known))
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    owner = Owner(run_id, worktree.commit, process.pid, "1")
    (worktree.repository.git_dir / "locked").write_text(owner.reason, "utf-8")
    return run_id


def ended(run_id: str, folder: Path) -> Run:
    return Run(
        id=run_id,
        kind="dispatch",
        agent="fixer",
        title="Fix",
        status="succeeded",
        workspace=str(folder),
        started_at=now_text(),
        finished_at=now_text(),
    )


def worktrees(project: RealRepository) -> int:
    return len(project.git("worktree", "list").splitlines()) - 1


async def opened(office: Office, project: RealRepository) -> Workspace:
    workspace = await office.workspace(project)
    await workspace.cleared()
    return workspace


@pytest.mark.parametrize("disposition", ["applied", "discarded"])
async def test_REL_01_a_worktree_whose_changes_were_settled_when_its_process_died_goes_at_the_next_start(
    open_office: Open, project: RealRepository, disposition: Disposition
) -> None:
    async with open_office() as office:
        run_id = await left_by_a_dead_process(await opened(office, project), disposition)
    assert worktrees(project) == 1
    async with open_office() as office:
        workspace = await opened(office, project)
        assert worktrees(project) == 0
        run = workspace.runs.load(run_id)
        assert run is not None
        assert run.disposition == disposition
        assert (await results.reopen(workspace, run)).disposition == "pending"


@pytest.mark.parametrize("disposition", ["applied", "discarded"])
async def test_DOC_04_what_the_doctor_sends_to_clean_is_removed_by_it_and_named(
    office: Office, project: RealRepository, disposition: Disposition
) -> None:
    workspace = await opened(office, project)
    run_id = await left_by_a_dead_process(workspace, disposition)
    lock = workspace.layout.locks / "0123456789abcdef0123.json"
    lock.write_text(json.dumps({"pid": 2**22 + 1, "started": "1", "nonce": "n", "key": "branch"}), "utf-8")
    lock.chmod(0o600)
    before = {check.name: check for check in await diagnose(office.outpost, workspace)}
    for name in ("leftovers", "locks"):
        assert before[name].status == "warn"
        assert "outpost-lsp clean" in before[name].detail
    found = await leftovers(workspace)
    assert [(one.kind, one.id) for one in found] == [("worktree", run_id), ("lock", "branch")]
    await remove(workspace, found)
    assert not lock.exists()
    assert worktrees(project) == 0
    assert await leftovers(workspace) == []
    after = {check.name: check for check in await diagnose(office.outpost, workspace)}
    assert (after["leftovers"].status, after["locks"].status) == ("ok", "ok")


async def test_DOC_04_what_no_run_leads_to_is_named_with_another_remedy_and_stays(
    office: Office, project: RealRepository
) -> None:
    workspace = await opened(office, project)
    run_id = await left_by_a_dead_process(workspace, None)
    found = {check.name: check for check in await diagnose(office.outpost, workspace)}
    assert found["leftovers"].status == "warn"
    assert str(workspace.layout.worktrees / run_id) in found["leftovers"].detail
    assert "outpost-lsp clean" not in found["leftovers"].detail
    assert await leftovers(workspace) == []
    assert worktrees(project) == 1
