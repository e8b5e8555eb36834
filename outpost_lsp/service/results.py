"""What runs changed: frozen when they end, shown, applied, dropped and brought back.

The frozen result is a commit on the run's snapshot, kept by the worktree while that stands and by a bundle in the state
folder for as long as runs are kept. Nothing here writes to the user's files: applying hands operations to whoever can
(an editor, or the disk), after every file was compared with what the user has now (SEC-23, SEC-24).
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from anyio import to_thread

from outpost_lsp.domain.finding import Finding
from outpost_lsp.domain.landing import ApplyConflict, FileOperation
from outpost_lsp.domain.run import ChangeCount, Disposition, Run
from outpost_lsp.errors import OutpostError, configuration
from outpost_lsp.sandbox.standing import names_on_disk
from outpost_lsp.worktrees.apply import ReadPresent, choose, plan
from outpost_lsp.worktrees.bundle import load_bundle, save_bundle
from outpost_lsp.worktrees.changes import ChangeSet, changed_files, freeze, patch
from outpost_lsp.worktrees.contents import FileVersions, versions_of
from outpost_lsp.worktrees.git import Repository, run_git
from outpost_lsp.worktrees.hardening import host_environment
from outpost_lsp.worktrees.plain_folder import begin_copy
from outpost_lsp.worktrees.registration import owner_of
from outpost_lsp.worktrees.repository import administrative_directories, registered_directory
from outpost_lsp.worktrees.scratch import scratch_folder
from outpost_lsp.worktrees.worktree import remove_worktree

if TYPE_CHECKING:
    from outpost_lsp.service.workspace import Workspace

logger = logging.getLogger(__name__)

_LARGEST_PATCH: Final = 256 * 1024 * 1024

Land = Callable[[Sequence[FileOperation]], Awaitable[bool]]
"""Carries operations out, all or none; `False` when an editor declined."""


@dataclass(frozen=True, slots=True)
class RunDiff:
    """What a run changed, file by file, and as one patch."""

    files: tuple[FileVersions, ...]
    patch: bytes


@dataclass(frozen=True, slots=True)
class ApplyOutcome:
    """What became of an apply. With a conflict nothing was changed."""

    applied: bool
    files: tuple[str, ...] = ()
    already: tuple[str, ...] = ()
    """Those of the files that stood as the run made them before anything was done."""
    conflicts: tuple[ApplyConflict, ...] = ()
    needs_own_accept: tuple[str, ...] = ()


async def keep_result(
    workspace: Workspace, run_id: str, worktree: Repository, snapshot: str, frozen: ChangeSet | None = None
) -> ChangeSet:
    """Freeze what a worktree holds if that was not done, save it outside the repository, and remember where it is."""
    changes = frozen or await freeze(worktree, snapshot)
    if not changes.is_empty:
        await save_bundle(worktree, changes, _bundle(workspace, run_id))
        known = workspace.runs.details(run_id) | {"snapshot": snapshot, "result": changes.commit}
        if not workspace.has_repository:
            # The copy of a plain folder has a git directory of its own, which nothing else leads to.
            known |= {"copy": str(worktree.top), "copyGitDirectory": str(worktree.git_dir)}
        workspace.runs.save_details(run_id, known)
    return changes


def change_count(changes: ChangeSet) -> ChangeCount:
    """How much a run changed."""
    return ChangeCount(
        files=len(changes.files),
        insertions=sum(file.insertions for file in changes.files),
        deletions=sum(file.deletions for file in changes.files),
    )


async def diff(workspace: Workspace, run: Run) -> RunDiff:
    """What a run changed; empty when it changed nothing."""
    run = await _looked_after(workspace, run)
    if not _has_result(workspace, run.id):
        return RunDiff((), b"")
    async with _readable(workspace, run.id) as repository:
        changes = await _result(workspace, run, repository)
        if changes is None:
            return RunDiff((), b"")
        return RunDiff(
            await versions_of(repository, changes),
            await patch(repository, changes.base, changes.commit, max_output=_LARGEST_PATCH),
        )


async def apply(
    workspace: Workspace,
    run: Run,
    *,
    present: ReadPresent,
    land: Land,
    paths: Collection[str] | None = None,
    hunks: Collection[str] | None = None,
) -> ApplyOutcome:
    """Bring a run's changes, or those of them that are named, into the user's files.

    `present` says what stands at a path now (an open buffer before the disk). The run stays `pending` while anything of
    it is neither applied nor discarded.
    """
    run = await _looked_after(workspace, run)
    changes = await _result(workspace, run)
    if changes is None or run.disposition not in ("pending", "applied"):
        raise configuration(f"run {run.id} has no changes to apply ({run.disposition})", runId=run.id)
    repository = _repository(workspace, run.id)
    versions = await versions_of(repository, changes)
    chosen = choose(versions, paths=paths, hunks=hunks)
    landing = await plan(repository, chosen.versions, present, partial(names_on_disk, workspace.top))
    if landing.conflicts:
        return ApplyOutcome(False, conflicts=landing.conflicts, needs_own_accept=chosen.needs_own_accept)
    if landing.operations and not await land(landing.operations):
        return ApplyOutcome(False, needs_own_accept=chosen.needs_own_accept)
    applied = [each.file.path for each in chosen.versions]
    _remember_applied(workspace, run.id, chosen.versions, hunks)
    _note_fixed(workspace, run.id, applied)
    if _is_settled(workspace, run.id, versions):
        await _settle(workspace, run.id, "applied")
    files = tuple(sorted({*(operation.path for operation in landing.operations), *landing.already} & set(applied)))
    already = tuple(path for path in files if path in landing.already)
    return ApplyOutcome(bool(applied), files, already, needs_own_accept=chosen.needs_own_accept)


async def discard(workspace: Workspace, run: Run) -> bool:
    """Drop a run's changes; `False` when there was nothing left to drop."""
    run = await _looked_after(workspace, run)
    if run.disposition != "pending":
        return False
    await _settle(workspace, run.id, "discarded")
    return True


async def reopen(workspace: Workspace, run: Run) -> Run:
    """Make dropped or applied changes pending again, as long as they are kept."""
    if run.disposition not in ("discarded", "applied"):
        raise configuration(f"run {run.id} has nothing to reopen: its changes are {run.disposition}", runId=run.id)
    if not workspace.has_repository and await to_thread.run_sync(_bundle(workspace, run.id).exists):
        # The copy went when the run was settled. A plain folder has no history: its bundle stands on nothing else.
        await begin_copy(_repository(workspace, run.id))
    if await _result(workspace, run) is None:
        raise configuration(f"the changes of run {run.id} are not kept any more", runId=run.id)
    details = workspace.runs.details(run.id)
    details.pop("applied", None)
    workspace.runs.save_details(run.id, details)
    return workspace.change_run(run.id, disposition="pending")


async def _looked_after(workspace: Workspace, run: Run) -> Run:
    """The run as it is when what a dead process left of it was looked at, which a start does in the background."""
    if run.status != "interrupted" or run.disposition != "none":
        return run
    await workspace.cleared()
    return workspace.runs.load(run.id) or run


def _has_result(workspace: Workspace, run_id: str) -> bool:
    details = workspace.runs.details(run_id)
    return isinstance(details.get("snapshot"), str) and isinstance(details.get("result"), str)


async def _result(workspace: Workspace, run: Run, repository: Repository | None = None) -> ChangeSet | None:
    """The frozen result; `None` when the run changed nothing or it is not kept any more."""
    if not _has_result(workspace, run.id):
        return None
    details = workspace.runs.details(run.id)
    snapshot, result = details["snapshot"], details["result"]
    repository = repository or _repository(workspace, run.id)
    if not await to_thread.run_sync(repository.git_dir.is_dir):
        return None
    if not await _has_commit(repository, result):
        bundle = _bundle(workspace, run.id)
        if not await to_thread.run_sync(bundle.exists):
            return None
        await load_bundle(repository, bundle)
    tree = await run_git(repository, ["rev-parse", "--verify", f"{result}^{{tree}}"], check=True)
    files = await changed_files(repository, snapshot, result)
    return ChangeSet(snapshot, tree.stdout.decode("ascii").strip(), result, files)


def _repository(workspace: Workspace, run_id: str) -> Repository:
    """Where a run's result is: the user's repository, or for a plain folder the copy that the run worked on."""
    if workspace.has_repository:
        return workspace.repository
    details = workspace.runs.details(run_id)
    if "copyGitDirectory" not in details:
        return workspace.repository
    git_dir = Path(details["copyGitDirectory"])
    return Repository(Path(details["copy"]), git_dir, git_dir, environment=host_environment())


@asynccontextmanager
async def _readable(workspace: Workspace, run_id: str) -> AsyncIterator[Repository]:
    """Where a run's result can be read; a copy that went when it was settled is stood in for while the context lasts."""
    repository = _repository(workspace, run_id)
    is_gone = not workspace.has_repository and not await to_thread.run_sync(repository.git_dir.is_dir)
    if not is_gone or not await to_thread.run_sync(_bundle(workspace, run_id).exists):
        yield repository
        return
    place = await to_thread.run_sync(scratch_folder, "result")
    try:
        git_dir = place / "git"
        stand_in = Repository(place / "copy", git_dir, git_dir, environment=host_environment())
        await begin_copy(stand_in)
        yield stand_in
    finally:
        await to_thread.run_sync(shutil.rmtree, place, True)


async def _has_commit(repository: Repository, commit: str) -> bool:
    return (await run_git(repository, ["cat-file", "-e", f"{commit}^{{commit}}"])).status == 0


def _remember_applied(
    workspace: Workspace, run_id: str, versions: Sequence[FileVersions], hunks: Collection[str] | None
) -> None:
    details = workspace.runs.details(run_id)
    known: dict[str, Any] = dict(details.get("applied") or {})
    for each in versions:
        ids = [hunk.id for hunk in each.hunks if hunks is None or hunk.id in hunks]
        known[each.file.path] = sorted({*known.get(each.file.path, ()), *ids})
    workspace.runs.save_details(run_id, details | {"applied": known})


def _note_fixed(workspace: Workspace, run_id: str, applied: Sequence[str]) -> None:
    """Mark the finding that a run was to settle, once what it changed in the finding's file is applied."""
    finding_id = workspace.runs.details(run_id).get("finding")
    finding = workspace.finding(finding_id) if isinstance(finding_id, str) else None
    if finding is not None and finding.path in applied:
        workspace.board.mark_fixed(finding.id)
        for kept in workspace.runs.details(run_id).get("remains") or ():
            workspace.board.publish(Finding.model_validate(kept))


def _is_settled(workspace: Workspace, run_id: str, versions: Sequence[FileVersions]) -> bool:
    known = workspace.runs.details(run_id).get("applied") or {}
    return all(
        each.file.path in known and {hunk.id for hunk in each.hunks} <= set(known[each.file.path]) for each in versions
    )


async def _settle(workspace: Workspace, run_id: str, disposition: Disposition) -> None:
    """Record what became of the changes, then let go of the worktree; the bundle stays, so that it can be reopened."""
    workspace.change_run(run_id, disposition=disposition)
    await let_go(workspace, run_id)


async def let_go(workspace: Workspace, run_id: str) -> None:
    """Remove the worktree of a run whose changes were applied or discarded."""
    if not workspace.has_repository:
        repository = _repository(workspace, run_id)
        for place in (repository.top, repository.git_dir):
            await to_thread.run_sync(shutil.rmtree, place, True)
        return
    try:
        # By its owner: since the run, the settings may have moved where worktrees are made.
        for entry in await to_thread.run_sync(administrative_directories, workspace.repository.common_dir):
            owner, folder = owner_of(entry), registered_directory(entry)
            if owner is not None and owner.run_id == run_id and folder is not None:
                await remove_worktree(workspace.repository, folder)
    except OutpostError as error:
        logger.warning("the worktree of run %s could not be removed: %s", run_id, error)


def _bundle(workspace: Workspace, run_id: str) -> Path:
    return workspace.layout.bundles / f"{run_id}.bundle"
