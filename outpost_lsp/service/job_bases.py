"""The bases of repositories that a worker keeps: brought once, used by every later job, dropped when there are too many.

The invariant: one job changes a base at a time, whatever processes jobs are; a base is never dropped while a job uses it,
and no owner of jobs works with what another one brought. The kernel holds the locks, so that a killed job leaves none.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Final

from anyio import to_thread

from outpost_lsp.domain.job import JobRecord
from outpost_lsp.errors import OutpostError
from outpost_lsp.storage.locks import exclusive, shared
from outpost_lsp.storage.private_files import private_folder
from outpost_lsp.worktrees.git import Repository
from outpost_lsp.worktrees.portable import has_commit, open_store, store_pack

logger = logging.getLogger(__name__)

MOST_BASE_BYTES: Final = 20 * 1024 * 1024 * 1024
"""Of all bases of a worker together, unless its operator says otherwise."""
MOST_PACKS: Final = 500
"""Each delta is a pack more; a base with so many is brought anew, because git becomes slow."""
_STORE_S: Final = 600.0


class JobBases:
    """A folder of bases. Each has its locks beside it, which outlive it."""

    def __init__(self, folder: Path, *, most_bytes: int = MOST_BASE_BYTES, most_packs: int = MOST_PACKS) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._most_packs = most_packs

    @asynccontextmanager
    async def used(self, owner: str, job: JobRecord) -> AsyncIterator[JobBase]:
        """The base of a job's repository, which stays as long as this is open."""
        await to_thread.run_sync(private_folder, self._folder)
        name = hashlib.sha256(f"{owner}\0{job.needs.repository}".encode()).hexdigest()[:20]
        base = JobBase(self, self._folder / name, job)
        await to_thread.run_sync(self._drop_worn, base.folder)
        async with _held(shared(base.folder.with_suffix(".used"), wait_s=_STORE_S)):
            await base.open()
            yield base

    def drop_unused(self) -> None:
        """Drop the bases that were not used for longest until the others are few enough; one in use is left."""
        found = sorted((_used_at(folder), _size(folder), folder) for folder in _bases(self._folder))
        total = sum(size for _, size, _ in found)
        for _, size, folder in found:
            if total <= self._most_bytes:
                return
            if self._drop(folder):
                total -= size

    def _drop_worn(self, folder: Path) -> None:
        if len(list((folder / "git" / "objects" / "pack").glob("*.pack"))) > self._most_packs:
            self._drop(folder)

    def _drop(self, folder: Path) -> bool:
        try:
            with exclusive(folder.with_suffix(".used"), wait_s=0):
                shutil.rmtree(folder, ignore_errors=True)
        except OutpostError:
            return False
        logger.info("the base %s was dropped", folder.name)
        return True


class JobBase:
    """The base that one job uses."""

    store: Repository
    """Known once it is open."""

    def __init__(self, bases: JobBases, folder: Path, job: JobRecord) -> None:
        self._bases = bases
        self.folder = folder
        self._job = job
        self._commit = job.base or job.snapshot

    async def open(self) -> None:
        """Make its store, when there is none."""
        async with self._alone():
            self.store = await open_store(self.folder, sha256=len(self._commit) == 64)
        await to_thread.run_sync(os.utime, self.folder)

    async def lacks(self) -> bool:
        """Whether the base has to be brought first."""
        return not await has_commit(self.store, self._commit)

    async def take(self, pack: Path) -> None:
        """Take the base, unless another job of this machine was sooner."""
        async with self._alone():
            if not await has_commit(self.store, self._commit):
                await store_pack(self.store, pack, [self._commit])
        await to_thread.run_sync(self._bases.drop_unused)

    async def take_delta(self, delta: bytes) -> None:
        """Take what the job brings besides."""
        async with self._alone():
            await store_pack(self.store, delta, self._job.commits)

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Nobody else changes the base meanwhile: the other jobs of this machine are other processes."""
        async with _held(exclusive(self.folder.with_suffix(".lock"), wait_s=_STORE_S)):
            yield


@asynccontextmanager
async def _held(lock: AbstractContextManager[None]) -> AsyncIterator[None]:
    """A lock that may have to be waited for; the event loop goes on meanwhile."""
    await to_thread.run_sync(lock.__enter__)
    try:
        yield
    finally:
        lock.__exit__(None, None, None)


def _bases(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(FileNotFoundError):
        yield from (each for each in folder.iterdir() if each.is_dir())


def _used_at(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0


def _size(folder: Path) -> int:
    size = 0
    for each in folder.rglob("*"):
        with contextlib.suppress(OSError):
            size += each.lstat().st_size
    return size
