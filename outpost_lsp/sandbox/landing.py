"""Carrying out operations on the user's own files: all of them, or none.

The invariant: every file is checked against what the operation expects right before it changes, no link is followed on
the way or at the end, each file changes by a rename, and a failure puts back what had changed (SEC-23, REL-02). Called
for `apply` on the disk, with the user's folder as root.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from outpost_lsp.domain.landing import FileOperation, Present
from outpost_lsp.errors import OutpostError
from outpost_lsp.sandbox import paths
from outpost_lsp.sandbox.names import is_git_name
from outpost_lsp.sandbox.paths import Place, refused


async def present_on_disk(root: Path, path: str) -> Present:
    """What stands at a path below `root`; a path behind a link is `other`."""
    return await to_thread.run_sync(_present, root, path)


async def land(root: Path, operations: Sequence[FileOperation]) -> None:
    """Carry out all operations below `root`; on a fault (`conflict` when a file changed meanwhile) nothing has changed."""
    await to_thread.run_sync(_land, root, operations)


@dataclass(slots=True)
class _Step:
    """One name of one folder that changes, with the new content beside it and then the old one."""

    path: str
    expected: Present
    staged: str = ""
    kept: str = ""


def _present(root: Path, path: str) -> Present:
    try:
        with _place(root, path) as place:
            return _look(place)
    except OutpostError as error:
        return Present("absent" if error.details.get("reason") == "missing" else "other")


def _look(place: Place) -> Present:
    status = place.status()
    if status is None:
        return Present("absent")
    kind = paths.kind_of(status)
    if kind == "link":
        return Present("link", os.fsencode(os.readlink(place.name, dir_fd=place.folder)))
    if kind != "file":
        return Present(kind)
    file = os.open(place.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place.folder)
    with os.fdopen(file, "rb") as opened:
        return Present("file", opened.read())


def _land(root: Path, operations: Sequence[FileOperation]) -> None:
    steps: list[_Step] = []
    made: list[str] = []
    try:
        for operation in operations:
            steps += _stage(root, operation, made)
        for step in steps:
            _exchange(root, step)
    except BaseException:
        for step in reversed(steps):
            _put_back(root, step)
        for folder in reversed(made):
            with contextlib.suppress(OSError):
                (root / folder).rmdir()
        raise
    for step in steps:
        if step.kept:
            with contextlib.suppress(OSError, OutpostError), _place(root, step.path) as place:
                os.unlink(step.kept, dir_fd=place.folder)


def _stage(root: Path, operation: FileOperation, made: list[str]) -> list[_Step]:
    """Write the new content beside its place; nothing that the user sees has changed yet."""
    kind = "link" if operation.is_link else "file"
    steps = []
    source = operation.moved_from
    here = operation.before if source is None else None
    step = _Step(operation.path, Present("absent") if here is None else _found(root, operation.path, here))
    steps.append(step)
    if source is not None:
        steps.append(_Step(source, _found(root, source, operation.before or b"")))
    if operation.after is None:
        return steps
    _make_parents(root, operation.path, made)
    with _place(root, operation.path) as place:
        step.staged = f".outpost-{secrets.token_hex(8)}.new"
        if kind == "link":
            os.symlink(operation.after, os.fsencode(step.staged), dir_fd=place.folder)
            return steps
        mode = _mode(root, source or operation.path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(step.staged, flags, 0o666, dir_fd=place.folder), "wb") as opened:
            opened.write(operation.after)
            opened.flush()
            own = stat.S_IMODE(os.fstat(opened.fileno()).st_mode) if mode is None else mode
            os.fchmod(opened.fileno(), _with_bit(own, operation.is_executable))
            os.fsync(opened.fileno())
    return steps


def _found(root: Path, path: str, expected: bytes) -> Present:
    found = _present(root, path)
    if found.content != expected:
        raise _changed(path)
    return found


def _exchange(root: Path, step: _Step) -> None:
    """Put the new content in place, if the old one is still what was expected, and keep the old one beside it."""
    with _place(root, step.path) as place:
        if _look(place) != step.expected:
            raise _changed(step.path)
        if step.expected.kind != "absent":
            kept = f".outpost-{secrets.token_hex(8)}.old"
            os.rename(place.name, kept, src_dir_fd=place.folder, dst_dir_fd=place.folder)
            step.kept = kept
        if step.staged:
            # A hard link, not a rename: what somebody puts there at this very moment is not overwritten.
            _link_or_rename(step.staged, place)
        step.expected = Present("other")  # Changed from here on; see _put_back.


def _link_or_rename(staged: str, place: Place) -> None:
    try:
        os.link(staged, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder, follow_symlinks=False)
    except FileExistsError:
        raise _changed(place.relative) from None
    except OSError:
        os.rename(staged, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
        return
    os.unlink(staged, dir_fd=place.folder)


def _put_back(root: Path, step: _Step) -> None:
    with contextlib.suppress(OSError, OutpostError), _place(root, step.path) as place:
        if step.kept:
            os.rename(step.kept, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
        elif step.expected.kind == "other":
            os.unlink(place.name, dir_fd=place.folder)
        if step.staged:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(step.staged, dir_fd=place.folder)


def _place(root: Path, path: str) -> contextlib.AbstractContextManager[Place]:
    for part in path.split("/"):
        if part in {"", ".", ".."} or is_git_name(part):
            raise refused(path, "git" if is_git_name(part) else "escape", "nothing is applied there.")
    return paths.place(root, path, follow_last=False, no_links=True)


def _make_parents(root: Path, path: str, made: list[str]) -> None:
    parts = path.split("/")[:-1]
    for depth in range(1, len(parts) + 1):
        folder = "/".join(parts[:depth])
        with _place(root, folder) as place:
            if place.status() is None:
                os.mkdir(place.name, dir_fd=place.folder)
                made.append(folder)


def _mode(root: Path, path: str) -> int | None:
    try:
        with _place(root, path) as place:
            status = place.status()
    except OutpostError:
        return None
    return None if status is None or not stat.S_ISREG(status.st_mode) else stat.S_IMODE(status.st_mode)


def _with_bit(mode: int, is_executable: bool | None) -> int:
    if is_executable is None:
        return mode
    return mode | (mode & 0o444) >> 2 if is_executable else mode & ~0o111


def _changed(path: str) -> OutpostError:
    return OutpostError("conflict", f"{path} has changed meanwhile; nothing was applied.", {"path": path})
