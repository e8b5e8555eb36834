"""Proof after each run that it left the user's repository alone, kept with the run's record.

HEAD, index, configuration, refs, hooks, info and stash are compared with what they were when the run began. Nothing of a
run writes there, so a difference is named as what somebody else did meanwhile. A file of the checkout that holds what the
agent made, although nothing was applied, is the one thing that a run is blamed for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio

from outpost_lsp.errors import OutpostError
from outpost_lsp.worktrees.changes import ChangeSet
from outpost_lsp.worktrees.contents import versions_of
from outpost_lsp.worktrees.witness import Witness, differences, take_witness, taken_over

if TYPE_CHECKING:
    from outpost_lsp.service.handle import RunHandle
    from outpost_lsp.service.workspace import Workspace

logger = logging.getLogger(__name__)

_PATIENCE_S: Final = 10.0
_MOST_FILES: Final = 2_000
_NAMED: Final = 5


@dataclass(slots=True)
class Proof:
    """What the run changed, once that is known."""

    changes: ChangeSet | None = None


@asynccontextmanager
async def proved(workspace: Workspace, handle: RunHandle) -> AsyncIterator[Proof]:
    """Look at the user's repository now, beside what goes on inside, and compare when the context is left."""
    proof = Proof()
    if not workspace.has_repository:
        yield proof
        return
    before = asyncio.get_running_loop().create_task(take_witness(workspace.repository))
    try:
        yield proof
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(_PATIENCE_S):
            try:
                await _compare(workspace, handle, await before, proof.changes)
            except (OutpostError, OSError) as error:
                logger.warning("the repository could not be compared after run %s: %s", handle.run.id, error)
                handle.note(f"The repository could not be compared with what it was before the run: {error}")
        before.cancel()


async def _compare(workspace: Workspace, handle: RunHandle, before: Witness, changes: ChangeSet | None) -> None:
    repository = workspace.repository
    meanwhile = differences(before, await take_witness(repository))
    taken: Sequence[str] = ()
    if changes is not None and 0 < len(changes.files) <= _MOST_FILES:
        taken = await taken_over(repository, await versions_of(repository, changes))
    known = workspace.runs.details(handle.run.id)
    proof = {"changedMeanwhile": list(meanwhile), "takenOver": list(taken)}
    workspace.runs.save_details(handle.run.id, known | {"proof": proof})
    if meanwhile:
        handle.note(f"Changed in your repository while the run went on: {', '.join(meanwhile)}. {_who(workspace)}")
    if taken:
        more = f" and {len(taken) - _NAMED} more" if len(taken) > _NAMED else ""
        handle.note(
            f"In your checkout, although nothing was applied, is what the agent made: {', '.join(taken[:_NAMED])}{more}."
        )


def _who(workspace: Workspace) -> str:
    if workspace.settings.sandbox.shell == "unconfined":
        return "You, another program or a command of the agent did that: its commands were not confined."
    return "You or another program did that: nothing of a run writes there."
