"""What ended runs left and nobody needs any more: found first, removed when somebody says so.

Nothing that a run changed and nobody applied or discarded is ever removed, and nothing of a process that lives. What a
dead process left in a worktree counts as changed when that cannot be told (REL-20).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from anyio import to_thread

from outpost_lsp.domain.run import Run
from outpost_lsp.errors import OutpostError, configuration
from outpost_lsp.storage.identifiers import made_at, now_text
from outpost_lsp.storage.locks import LockFolder
from outpost_lsp.worktrees.changes import change_set
from outpost_lsp.worktrees.registration import owner_of, processes_in
from outpost_lsp.worktrees.repository import administrative_directories, registered_directory
from outpost_lsp.worktrees.worktree import remove_worktree

if TYPE_CHECKING:
    from outpost_lsp.service.workspace import Workspace

Kind = Literal["run", "worktree", "conversation", "folder", "lock"]
_SETTLED: Final = ("applied", "discarded")
_GRACE: Final = timedelta(days=1)
"""Scratch folders younger than this may belong to a run that is about to begin."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """Something that can go. `path` is the file or folder, for a run its journal."""

    kind: Kind
    id: str
    path: Path
    why: str


async def leftovers(workspace: Workspace) -> list[Leftover]:
    """Everything that can go, oldest runs first. Nothing is changed."""
    await workspace.ready()
    found = (await dead_worktrees(workspace))[0] if workspace.has_repository else []
    found += await to_thread.run_sync(lambda: list(_old_runs(workspace)))
    gone = {leftover.id for leftover in found if leftover.kind == "run"}
    found += await to_thread.run_sync(lambda: list(_old_conversations(workspace, gone)))
    found += await to_thread.run_sync(lambda: list(_scratch(workspace)))
    dead = await to_thread.run_sync(LockFolder(workspace.layout.locks).stale)
    return found + [Leftover("lock", key, path, "its process died") for path, key in dead.items()]


async def remove(workspace: Workspace, found: Sequence[Leftover]) -> None:
    """Remove what `leftovers` found; locks go by their own rule, and unfinished files along with them."""
    for leftover in found:
        match leftover.kind:
            case "worktree":
                await remove_worktree(workspace.repository, leftover.path)
            case "run":
                await to_thread.run_sync(_forget_run, workspace, leftover)
            case "conversation":
                await to_thread.run_sync(lambda path: path.unlink(missing_ok=True), leftover.path)
            case "folder":
                await to_thread.run_sync(lambda path: shutil.rmtree(path, ignore_errors=True), leftover.path)
    await to_thread.run_sync(workspace.layout.sweep)
    await to_thread.run_sync(LockFolder(workspace.layout.locks).sweep)


async def dead_worktrees(workspace: Workspace) -> tuple[list[Leftover], list[Path]]:
    """The worktrees of dead processes that can go, and those that hold something which no run leads to any more."""
    found, kept = [], []
    for entry in administrative_directories(workspace.repository.common_dir):
        owner, folder = owner_of(entry), registered_directory(entry)
        if owner is None or owner.is_alive or folder is None:
            continue
        run = workspace.runs.load(owner.run_id)
        if run is not None and run.disposition == "pending":
            continue
        if not await to_thread.run_sync(folder.parent.is_dir):
            continue  # Made under other settings, on a disk that is not there now: not to know counts as changed.
        if not await to_thread.run_sync(folder.is_dir):
            found.append(Leftover("worktree", owner.run_id, folder, "its folder is gone"))
        elif run is not None and run.disposition in _SETTLED and not await to_thread.run_sync(processes_in, folder):
            found.append(Leftover("worktree", owner.run_id, folder, f"its changes were {run.disposition}"))
        elif await _is_empty(workspace, folder, entry, owner.base):
            found.append(Leftover("worktree", owner.run_id, folder, "its process died and it holds no change"))
        else:
            kept.append(folder)
    return found, kept


async def _is_empty(workspace: Workspace, folder: Path, entry: Path, base: str) -> bool:
    if await to_thread.run_sync(processes_in, folder):
        return False
    try:
        return (await change_set(workspace.repository.at(folder, entry), base)).is_empty
    except OutpostError:
        return False


def _old_runs(workspace: Workspace) -> Iterator[Leftover]:
    days = workspace.settings.runs.retention_days
    before = now_text(datetime.now(UTC) - timedelta(days=days))
    for run in reversed(workspace.runs.list()):
        if _may_go(run, before):
            path = workspace.journal_path(run.id)
            yield Leftover("run", run.id, path, f"{run.status} more than {days} days ago")


def unknown_run(run_id: str, workspaces: Iterable[Workspace]) -> OutpostError:
    """The fault of a run that is not there; of one whose time is over it says so."""
    days = max((workspace.settings.runs.retention_days for workspace in workspaces), default=0)
    made = made_at(run_id)
    is_over = made is not None and days > 0 and made < datetime.now(UTC) - timedelta(days=days)
    gone = f" any more: what ended is kept for {days} days (runs.retention_days)" if is_over else ""
    return configuration(f"there is no run {run_id!r}{gone}", runId=run_id)


def _may_go(run: Run, before: str) -> bool:
    ended = run.finished_at or run.started_at
    return run.is_finished and run.disposition != "pending" and ended < before


def _old_conversations(workspace: Workspace, gone: set[str]) -> Iterator[Leftover]:
    """Conversations older than the kept runs that no kept run can be continued from."""
    kept = {run.conversation for run in workspace.runs.list() if run.id not in gone}
    days = workspace.settings.runs.retention_days
    before = datetime.now(UTC) - timedelta(days=days)
    for path in sorted(workspace.layout.conversations.glob("*.jsonl")):
        if path.stem not in kept and _changed_before(path, before):
            yield Leftover("conversation", path.stem, path, f"not used for more than {days} days")


def _scratch(workspace: Workspace) -> Iterator[Leftover]:
    live = {run.id for run in workspace.runs.list() if not run.is_finished}
    before = datetime.now(UTC) - _GRACE
    for folder in sorted((workspace.layout.cache / "home").glob("*")):
        if folder.name not in live and _changed_before(folder, before):
            yield Leftover("folder", folder.name, folder, "the home folder of commands of a run that ended")


def _changed_before(path: Path, moment: datetime) -> bool:
    try:
        return datetime.fromtimestamp(path.lstat().st_mtime, UTC) < moment
    except OSError:
        return False


def _forget_run(workspace: Workspace, leftover: Leftover) -> None:
    leftover.path.unlink(missing_ok=True)
    for bundle in workspace.layout.bundles.glob(f"{leftover.id}*"):
        bundle.unlink(missing_ok=True)
    workspace.runs.remove(leftover.id)
