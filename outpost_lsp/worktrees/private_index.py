"""A private copy of an index, and the turn that writers of one repository take.

The invariant: an index that is not the product's own is read once, as a file, and never locked or written (SEC-06); of
the calls that write shared repository state, one runs at a time in this process (CONC-04). Used by snapshots, change
sets and worktrees.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

import anyio
from anyio import to_thread

from outpost_lsp.worktrees.git import Repository

_turns: Final[WeakValueDictionary[tuple[Path, int], anyio.Lock]] = WeakValueDictionary()


@asynccontextmanager
async def private_index(repository: Repository) -> AsyncIterator[Path]:
    """A copy of the repository's index in a folder of its own, gone afterwards.

    The copy keeps the time stamp of the original: git takes an entry that is as young as its index for possibly changed
    and looks again, which a younger copy would undo. It keeps the stat data too, so that only what changed is read.
    """
    folder = Path(await to_thread.run_sync(tempfile.mkdtemp, None, "outpost-index-"))
    try:
        index = folder / "index"
        await to_thread.run_sync(_copy, repository.git_dir / "index", index)
        yield index
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


def _copy(source: Path, target: Path) -> None:
    try:
        with source.open("rb") as original, target.open("xb") as copy:
            status = os.fstat(original.fileno())
            shutil.copyfileobj(original, copy, 1_048_576)
    except FileNotFoundError:
        return  # Nothing was ever added: git takes the missing file for an empty index.
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
