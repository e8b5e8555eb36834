"""A private index, and the turn that writers of one repository take.

The invariant: an index that is not the product's own is only read, and never locked or written (SEC-06); of the calls that
write shared repository state, one runs at a time in this process (CONC-04). Used by snapshots, change sets and worktrees.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

import anyio
from anyio import to_thread

from outpost_lsp.worktrees.git import Repository
from outpost_lsp.worktrees.scratch import scratch_folder

_turns: Final[WeakValueDictionary[tuple[Path, int], anyio.Lock]] = WeakValueDictionary()


@asynccontextmanager
async def private_index() -> AsyncIterator[Path]:
    """The path of an empty index in a folder that only the user can enter, gone afterwards."""
    folder = await to_thread.run_sync(scratch_folder, "index")
    try:
        yield folder / "index"
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(shutil.rmtree, folder, True)


@asynccontextmanager
async def writing(repository: Repository) -> AsyncIterator[None]:
    """The turn to write objects or registrations of the repository, shared by all views of it in this event loop."""
    key = (repository.common_dir, id(anyio.lowlevel.current_token()))
    turn = _turns.get(key)
    if turn is None:
        turn = _turns[key] = anyio.Lock()
    async with turn:
        yield
