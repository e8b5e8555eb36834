"""The files of a worktree on disk, as tools see them: `WorktreeFiles` over the walk of `paths`.

The invariant: nothing outside the root is read, listed or written, links or not; a write never follows a link in its last
component, lands whole through a rename, and keeps the file's mode (BTOOL-02, -03, -17, -18, -21, -23). All disk work runs
in worker threads. Made by leases.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Protocol

from anyio import to_thread

from outpost_lsp.domain.sandbox import EntryKind, GitResult, Listing
from outpost_lsp.errors import OutpostError
from outpost_lsp.sandbox import paths
from outpost_lsp.sandbox.paths import Place, refused

_PIECE = 1_048_576
_LONGEST_LISTING = 1 << 30


class GitRunner(Protocol):
    """The door to git, bound to a worktree."""

    def __call__(
        self,
        arguments: Sequence[str],
        *,
        stdin: bytes | None = None,
        max_output: int = 16 * 1024 * 1024,
        glob_pathspecs: bool = False,
        deadline_s: float = 120.0,
    ) -> Awaitable[GitResult]: ...


class WorktreeFilesOnDisk:
    """Confined access to the files below `root`, which is absolute and free of links."""

    def __init__(self, root: Path, git: GitRunner) -> None:
        self._root = root
        self._git = git
        self.touched: set[str] = set()
        """Every path that was written, removed or moved through here, links on the way resolved."""

    def normalise(self, path: str) -> str:
        return paths.normalise(path, self._root)

    async def read(self, path: str, *, limit: int) -> bytes:
        return await to_thread.run_sync(self._read, path, limit)

    async def write(self, path: str, data: bytes, *, expected: bytes | None = None, create: bool = True) -> None:
        await to_thread.run_sync(self._write, path, data, expected, create)

    async def delete(self, path: str) -> None:
        await to_thread.run_sync(self._delete, path)

    async def move(self, path: str, to: str) -> None:
        await to_thread.run_sync(self._move, path, to)

    async def kind(self, path: str) -> EntryKind | None:
        return await to_thread.run_sync(self._kind, path)

    async def listing(self, path: str) -> Listing:
        relative = await to_thread.run_sync(self._listed, path)
        if relative is None:
            return Listing(())
        # The tag tells which files a sparse checkout leaves out: they are in the index, and nowhere to be read.
        arguments = ["ls-files", "-z", "-t", "--cached", "--others", "--exclude-standard"]
        result = await self._git([*arguments, "--", relative or "."], max_output=_LONGEST_LISTING)
        if result.status != 0:
            raise OutpostError("workspace", f"git ls-files failed: {result.stderr.strip()}")
        gone = await self._git(["ls-files", "-z", "--deleted", "--", relative or "."], max_output=_LONGEST_LISTING)
        return await to_thread.run_sync(names_in, _without_tags(result.stdout), gone.stdout)

    def _relative(self, path: str) -> str:
        """The normalised path; the one with backslashes in its names where such a file stands."""
        relative = self.normalise(path)
        if "\\" in path:
            other = paths.literal(path)
            if other is not None and self._stands(other):
                return other
        return relative

    def _stands(self, relative: str) -> bool:
        try:
            with paths.place(self._root, relative, follow_last=False) as place:
                return place.status() is not None
        except OutpostError:
            return False

    def _read(self, path: str, limit: int) -> bytes:
        with paths.place(self._root, self._relative(path), follow_last=True) as place:
            return _contents(place, path, limit)

    def _write(self, path: str, data: bytes, expected: bytes | None, create: bool) -> None:
        relative = self._relative(path)
        if not relative:
            raise refused(path, "kind", "this is the repository itself, not a file.")
        with paths.place(self._root, relative, follow_last=False, create=create and expected is None) as place:
            status = _writable(place, path)
            if status is None and (expected is not None or not create):
                raise refused(path, "missing", "there is no such file.")
            if expected is not None and not _holds(place, path, expected):
                raise OutpostError(
                    "conflict",
                    f"{path} has changed meanwhile; nothing was written.",
                    {"path": path, "reason": "changed"},
                )
            self.touched.add(place.relative)
            _replace(place, path, data, None if status is None else stat.S_IMODE(status.st_mode))

    def _delete(self, path: str) -> None:
        with paths.place(self._root, self._relative(path), follow_last=False) as place:
            status = place.status()
            if status is None:
                raise refused(path, "missing", "there is no such file.")
            if not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
                raise refused(path, "kind", "only a file or a link can be deleted.")
            self.touched.add(place.relative)
            os.unlink(place.name, dir_fd=place.folder)

    def _move(self, path: str, to: str) -> None:
        target = self.normalise(to)
        with paths.place(self._root, self._relative(path), follow_last=False) as source:
            status = source.status()
            if status is None:
                raise refused(path, "missing", "there is no such file.")
            if not stat.S_ISREG(status.st_mode):
                raise refused(path, "link" if stat.S_ISLNK(status.st_mode) else "kind", "only a file can be moved.")
            with paths.place(self._root, target, follow_last=False, create=True) as place:
                if not place.name or place.status() is not None:
                    raise refused(to, "exists", "something stands there already.")
                self.touched |= {source.relative, place.relative}
                _rename_onto_nothing(source, place, to)

    def _kind(self, path: str) -> EntryKind | None:
        try:
            with paths.place(self._root, self._relative(path), follow_last=False) as place:
                status = place.status()
        except OutpostError as error:
            if error.details.get("reason") == "missing":
                return None
            raise
        return None if status is None else paths.kind_of(status)

    def _listed(self, path: str) -> str | None:
        """Where the listing of a path begins, links resolved; `None` when nothing is there."""
        try:
            with paths.place(self._root, self._relative(path), follow_last=True) as place:
                return place.relative if place.status() is not None else None
        except OutpostError as error:
            if error.details.get("reason") == "missing":
                return None
            raise


def _contents(place: Place, path: str, limit: int) -> bytes:
    try:
        # Not to block on a pipe; what is no regular file is refused right after.
        file = os.open(
            place.name or ".", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place.folder
        )
    except FileNotFoundError:
        raise refused(path, "missing", "there is no such file.") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise refused(path, "link", "it is a link.") from None
        raise refused(path, "kind", f"it cannot be opened: {os.strerror(error.errno or 0)}.") from error
    with os.fdopen(file, "rb", buffering=0) as opened:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
            raise refused(path, "kind", f"it is {kind}.")
        pieces = bytearray()
        while len(pieces) <= limit:
            piece = opened.read(min(_PIECE, limit + 1 - len(pieces)))
            if not piece:
                return bytes(pieces)
            pieces += piece
        size = max(status.st_size, len(pieces))
        raise refused(path, "size", f"the file has {size} bytes; the limit is {limit}.", size=size, limit=limit)


def _holds(place: Place, path: str, expected: bytes) -> bool:
    try:
        return _contents(place, path, len(expected)) == expected
    except OutpostError as error:
        if error.details.get("reason") == "size":
            return False  # It has grown.
        raise


def _writable(place: Place, path: str) -> os.stat_result | None:
    status = place.status()
    if status is None:
        return None
    if stat.S_ISLNK(status.st_mode):
        raise refused(path, "link", "it is a link; write to the file it leads to, or delete it first.")
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
        raise refused(path, "kind", f"it is {kind}.")
    return status


def _rename_onto_nothing(source: Place, place: Place, to: str) -> None:
    try:
        # A hard link fails where something appeared meanwhile, which a rename would overwrite.
        os.link(source.name, place.name, src_dir_fd=source.folder, dst_dir_fd=place.folder, follow_symlinks=False)
    except FileExistsError:
        raise refused(to, "exists", "something stands there already.") from None
    except OSError:
        os.rename(source.name, place.name, src_dir_fd=source.folder, dst_dir_fd=place.folder)
    else:
        os.unlink(source.name, dir_fd=source.folder)


def _replace(place: Place, path: str, data: bytes, mode: int | None) -> None:
    temporary = f".outpost-{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        file = os.open(temporary, flags, 0o666, dir_fd=place.folder)
        try:
            with os.fdopen(file, "wb", buffering=0) as opened:
                view = memoryview(data)
                while view:
                    view = view[opened.write(view) :]
                if mode is not None:
                    os.fchmod(file, mode)
            os.rename(temporary, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
        except BaseException:
            os.unlink(temporary, dir_fd=place.folder)
            raise
    except OSError as error:
        raise refused(path, "kind", f"it cannot be written: {os.strerror(error.errno or 0)}.") from error


def _without_tags(listing: bytes) -> bytes:
    """The names of a tagged listing, each once, without those of the index that have no file by intention."""
    entries = (entry.partition(b" ") for entry in listing.split(b"\0") if entry)
    return b"\0".join(dict.fromkeys(name for tag, _, name in entries if tag != b"S"))


def names_in(listing: bytes, gone: bytes) -> Listing:
    """The names of a NUL-separated listing without those of another."""
    deleted = set(gone.split(b"\0"))
    names = (name for name in listing.split(b"\0") if name and name not in deleted and not name.endswith(b"/"))
    return Listing(name.decode("utf-8", "surrogateescape") for name in names)
