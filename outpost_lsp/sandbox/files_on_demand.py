"""Files of a worktree that is filled on demand: whatever is asked for is laid out first, then the disk answers.

The invariant: who asks cannot tell it from a full checkout. Only the folders and files on the way to what is asked for
are laid out, links on the way included; what stands on the disk counts before the snapshot. Made by a dispatch for large
repositories, in place of `WorktreeFilesOnDisk`.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Protocol

import anyio
from anyio import to_thread

from outpost_lsp.domain.sandbox import EntryKind, Listing
from outpost_lsp.errors import OutpostError
from outpost_lsp.sandbox import paths
from outpost_lsp.sandbox.files import GitRunner, WorktreeFilesOnDisk, names_in

_MOST_STEPS = 4_096
_LONGEST_LISTING = 1 << 30


class SnapshotSource(Protocol):
    """Where the files come from; paths are relative to the root and free of links (`worktrees.on_demand`)."""

    @property
    def is_full(self) -> bool: ...

    async def look(self, path: str) -> EntryKind | None:
        """What the snapshot has there, and nobody has removed."""

    async def content(self, path: str) -> tuple[bytes, bool] | None:
        """A file's bytes or a link's target, and whether it is executable; `None` when it was laid out meanwhile."""

    async def listing(self, path: str) -> Listing:
        """The files of the snapshot at and below a path."""

    async def removed(self, path: str) -> None:
        """A file was taken away."""


class FilesOnDemand(WorktreeFilesOnDisk):
    """Confined access to the files below `root`, which come from `source` when they are needed."""

    def __init__(self, root: Path, git: GitRunner, source: SnapshotSource) -> None:
        super().__init__(root, git)
        self._source = source
        self._turn = anyio.Lock()

    async def read(self, path: str, *, limit: int) -> bytes:
        await self._bring(path, follow_last=True)
        return await super().read(path, limit=limit)

    async def write(self, path: str, data: bytes, *, expected: bytes | None = None, create: bool = True) -> None:
        await self._bring(path)
        await super().write(path, data, expected=expected, create=create)

    async def delete(self, path: str) -> None:
        await self._bring(path)
        where = await to_thread.run_sync(self._where, path)
        await super().delete(path)
        await self._source.removed(where)

    async def move(self, path: str, to: str) -> None:
        await self._bring(path)
        await self._bring(to)
        where = await to_thread.run_sync(self._where, path)
        await super().move(path, to)
        await self._source.removed(where)

    async def kind(self, path: str) -> EntryKind | None:
        unfilled = await self._bring(path, lay_out_last=False)
        return unfilled or await super().kind(path)

    async def listing(self, path: str) -> Listing:
        if self._source.is_full:
            return await super().listing(path)
        unfilled = await self._bring(path, follow_last=True, lay_out_last=False)
        if unfilled == "file":
            await self._bring(path, follow_last=True)
        relative = await to_thread.run_sync(self._listed, path)
        if relative is None:
            if unfilled is None:
                return Listing(())
            relative = await to_thread.run_sync(partial(self._where, path, follow_last=True))
        known = await self._source.listing(relative)
        arguments = ["ls-files", "-z", "--others", "--exclude-standard", "--", relative or "."]
        others = await self._git(arguments, max_output=_LONGEST_LISTING)
        if others.status != 0:
            raise OutpostError("workspace", f"git ls-files failed: {others.stderr.strip()}")
        return await to_thread.run_sync(lambda: known.with_more(names_in(others.stdout, b"")))

    async def _bring(self, path: str, *, follow_last: bool = False, lay_out_last: bool = True) -> EntryKind | None:
        """Lay out what the snapshot has on the way to a path and, unless told otherwise, at its end.

        The kind of what stands at the end in the snapshot alone.
        """
        if self._source.is_full:
            return None
        relative = self.normalise(path)
        spelled = paths.literal(path)
        for candidate in dict.fromkeys((spelled or relative, relative)):
            async with self._turn:
                unfilled = await self._bring_one(candidate, follow_last=follow_last, lay_out_last=lay_out_last)
            if unfilled is not None or await to_thread.run_sync(self._stands, candidate):
                return unfilled
        return None

    async def _bring_one(self, relative: str, *, follow_last: bool, lay_out_last: bool) -> EntryKind | None:
        for _ in range(_MOST_STEPS):
            missing = await to_thread.run_sync(_first_missing, self._root, relative, follow_last)
            if missing is None:
                return None
            at, is_last = missing
            kind = await self._source.look(at)
            if kind is None:
                return None
            if is_last and not lay_out_last and not (follow_last and kind == "link"):
                return kind
            if kind == "directory":
                await to_thread.run_sync(_lay_out, self._root, at, None, False)
            else:
                found = await self._source.content(at)
                if found is not None:
                    data, is_executable = found
                    await to_thread.run_sync(_lay_out, self._root, at, data, is_executable, kind == "link")
        return None

    def _where(self, path: str, *, follow_last: bool = False) -> str:
        """The path with the links on the way resolved, whether or not something stands there."""
        try:
            with paths.place(self._root, self._relative(path), follow_last=follow_last) as place:
                return place.relative
        except OutpostError:
            return self._relative(path)


def _first_missing(root: Path, relative: str, follow_last: bool) -> tuple[str, bool] | None:
    """The first thing on the way that is not on the disk, and whether it is the last one; `None` when nothing is."""
    try:
        with paths.place(root, relative, follow_last=follow_last) as place:
            return (place.relative, True) if place.status() is None else None
    except OutpostError as error:
        at = error.details.get("at")
        if error.details.get("reason") != "missing" or at is None:
            return None  # What is wrong with the path is said by the access itself.
        return str(at), False


def _lay_out(root: Path, relative: str, data: bytes | None, is_executable: bool, is_link: bool = False) -> None:
    with paths.place(root, relative, follow_last=False) as place:
        try:
            if data is None:
                os.mkdir(place.name, dir_fd=place.folder)
            elif is_link:
                os.symlink(data, os.fsencode(place.name), dir_fd=place.folder)
            else:
                _write_new(place, data, 0o777 if is_executable else 0o666)
        except FileExistsError:
            return  # A command or another reader was faster.


def _write_new(place: paths.Place, data: bytes, mode: int) -> None:
    """A file that appears whole: it is written beside its place and linked there."""
    temporary = f".outpost-{os.urandom(8).hex()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(temporary, flags, mode, dir_fd=place.folder), "wb") as opened:
        opened.write(data)
    try:
        os.link(temporary, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder, follow_symlinks=False)
    finally:
        os.unlink(temporary, dir_fd=place.folder)
