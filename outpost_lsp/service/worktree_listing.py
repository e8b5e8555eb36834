"""The worktrees that runs left standing, and letting go of those that nobody uses.

What a worktree holds and no ref reaches is saved in the state folder before it goes, so that pruning never loses work
(SEC-06, REL-20). To fail to tell counts as changed, and as in use. Used by the faces.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from anyio import to_thread

from outpost_lsp.errors import OutpostError
from outpost_lsp.service.results import keep_result
from outpost_lsp.worktrees.changes import change_set
from outpost_lsp.worktrees.registration import Owner, owner_of, processes_in
from outpost_lsp.worktrees.repository import administrative_directories, registered_directory
from outpost_lsp.worktrees.worktree import remove_worktree

if TYPE_CHECKING:
    from outpost_lsp.service.workspace import Workspace

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StandingWorktree:
    """A worktree of a run. `size` is in bytes; `changed`: it differs from what the run began with."""

    path: Path
    run_id: str
    size: int
    in_use: bool
    changed: bool


async def standing_worktrees(workspace: Workspace) -> list[StandingWorktree]:
    """The worktrees that the product made of this repository, in the order of their folders."""
    return [one for one, _ in await _all(workspace)]


async def prune_worktrees(workspace: Workspace) -> list[StandingWorktree]:
    """Remove the worktrees that nobody uses, after what they hold was saved; those that are left."""
    left = []
    for one, owner in await _all(workspace):
        if one.in_use:
            left.append(one)
            continue
        try:
            if one.changed and not workspace.runs.details(one.run_id).get("result"):
                entry = await _entry_of(workspace, one.path)
                await keep_result(workspace, one.run_id, workspace.repository.at(one.path, entry), owner.base)
            await remove_worktree(workspace.repository, one.path)
        except (OutpostError, OSError) as error:
            logger.warning("the worktree %s stays: %s", one.path, error)
            left.append(one)
    return left


async def _all(workspace: Workspace) -> list[tuple[StandingWorktree, Owner]]:
    if not workspace.has_repository:
        return []
    found = []
    for entry in await to_thread.run_sync(_entries, workspace):
        owner, folder = owner_of(entry), registered_directory(entry)
        if owner is None or folder is None or not await to_thread.run_sync(folder.is_dir):
            continue
        run = workspace.runs.load(owner.run_id)
        is_live = owner.is_alive and (run is None or not run.is_finished)
        in_use = is_live or bool(await to_thread.run_sync(processes_in, folder))
        changed = await _is_changed(workspace, folder, entry, owner.base)
        size = await to_thread.run_sync(_size, folder)
        found.append((StandingWorktree(folder, owner.run_id, size, in_use, changed), owner))
    return found


def _entries(workspace: Workspace) -> Sequence[Path]:
    return administrative_directories(workspace.repository.common_dir)


async def _entry_of(workspace: Workspace, folder: Path) -> Path:
    for entry in await to_thread.run_sync(_entries, workspace):
        if registered_directory(entry) == folder:
            return entry
    raise OutpostError("workspace", f"{folder} is not a worktree any more")


async def _is_changed(workspace: Workspace, folder: Path, entry: Path, base: str) -> bool:
    try:
        return not (await change_set(workspace.repository.at(folder, entry), base)).is_empty
    except OutpostError:
        return True


def _size(folder: Path) -> int:
    total = 0
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            try:
                total += os.lstat(os.path.join(place, name)).st_size  # noqa: PTH118 - many files, few objects
            except OSError:
                continue
    return total
