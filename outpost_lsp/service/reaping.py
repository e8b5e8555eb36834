"""What processes that died left of a folder: worktrees without changes go, the others are kept and offered.

Called once for each workspace, in the background; nothing that a run changed is lost (SNAP-07, REL-20, U-14). Worktrees
that were made while the settings named another folder for them are looked after all the same.
"""

from __future__ import annotations

import logging
import shutil
from typing import TYPE_CHECKING

from anyio import to_thread

from outpost_lsp.errors import OutpostError
from outpost_lsp.service.results import change_count, keep_result, let_go
from outpost_lsp.worktrees.plain_folder import copy_of_plain_folder, reap_plain_folders
from outpost_lsp.worktrees.registration import processes_in
from outpost_lsp.worktrees.scratch import sweep_scratch
from outpost_lsp.worktrees.trash import TRASH, sweep
from outpost_lsp.worktrees.worktree import Leftover, reap

if TYPE_CHECKING:
    from outpost_lsp.service.workspace import Workspace

logger = logging.getLogger(__name__)


async def clear_what_the_dead_left(workspace: Workspace) -> None:
    """Clear away worktrees, and copies of a plain folder, whose process is gone; what holds changes stays."""
    layout = workspace.layout
    await to_thread.run_sync(sweep_scratch)
    await to_thread.run_sync(_sweep_homes, workspace)
    try:
        if workspace.has_repository:
            found = await reap(workspace.repository, layout.worktrees)
        else:
            places = (layout.worktrees, *layout.former_worktrees)
            found = [leftover for place in places for leftover in await reap_plain_folders(place)]
        for place in layout.former_worktrees:
            await to_thread.run_sync(sweep, place / TRASH)
        for leftover in found:
            logger.info("worktree %s was %s: %s", leftover.directory, leftover.state, leftover.reason or "empty")
            if leftover.state == "kept":
                await _keep_interrupted(workspace, leftover)
    except (OutpostError, OSError) as error:
        logger.warning("worktrees of dead processes could not be cleared: %s", error)


def _sweep_homes(workspace: Workspace) -> None:
    """The home folders and stand-ins for git directories that commands of dead runs had."""
    ended = {run.id for run in workspace.runs.list() if run.is_finished}
    for kind in ("home", "git"):
        for folder in (workspace.layout.cache / kind).glob("*"):
            # A later pass of a dispatch has the run's name with a number.
            if not ended.isdisjoint({folder.name, folder.name.rpartition("-")[0]}):
                shutil.rmtree(folder, ignore_errors=True)


async def _keep_interrupted(workspace: Workspace, leftover: Leftover) -> None:
    """Freeze what a run had changed when its process died, so that it can be applied or discarded if it was not."""
    run = workspace.runs.load(leftover.run_id)
    if run is not None and run.disposition in ("applied", "discarded"):
        # It was decided, and the process died before the worktree went.
        if not await to_thread.run_sync(processes_in, leftover.directory):
            await let_go(workspace, run.id)
        return
    if run is None or run.changes is not None or not run.is_finished:
        return
    if workspace.has_repository:
        view = workspace.repository.linked(leftover.directory)
    elif (copy := copy_of_plain_folder(leftover.directory.parent, run.id)) is not None:
        view = copy
    else:
        return
    changes = await keep_result(workspace, run.id, view, leftover.base)
    if not changes.is_empty:
        notes = tuple(dict.fromkeys((*run.notes, *changes.notes)))
        workspace.change_run(run.id, changes=change_count(changes), disposition="pending", notes=notes)
