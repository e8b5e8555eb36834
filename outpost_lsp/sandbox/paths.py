"""Walking to a file inside a root, component by component, without ever following a link out of it.

The invariant: every folder on the way is opened relative to the one before with no-follow, so that what was checked is
what is used, also while somebody swaps folders for links (SEC-07, BTOOL-01 to -05). Links are read and walked by hand;
one that stays inside is followed, one that leaves is a fault. Blocking: called in worker threads by `files`.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from outpost_lsp.errors import OutpostError
from outpost_lsp.sandbox.names import is_device_name, is_git_name

Reason = Literal["escape", "git", "missing", "kind", "link", "size", "exists"]

_MOST_LINKS = 40
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DRIVE = re.compile(r"[A-Za-z]:")


def refused(path: str, reason: Reason, text: str, **details: object) -> OutpostError:
    """The `workspace` fault of a path: `text` says why, after the path."""
    return OutpostError("workspace", f"{path}: {text}", {"path": path, "reason": reason, **details})


def normalise(path: str, root: Path) -> str:
    """The repository-relative POSIX form of a path as a model writes it; `.` gives the empty string (BTOOL-01, -04)."""
    if "\0" in path or not _is_text(path):
        raise refused(repr(path), "escape", "a path cannot hold a NUL character or half a surrogate pair.")
    text = path.replace("\\", "/")
    if text.startswith("/"):
        below = text.removeprefix(str(root))
        if below == text or (below and not below.startswith("/")):
            raise refused(path, "escape", "the path is absolute; give it relative to the repository.")
        text = below
    elif _DRIVE.match(text):
        raise refused(path, "escape", "the path names a drive; give it relative to the repository.")
    return "/".join(_components(text, path))


def literal(path: str) -> str | None:
    """The path with its backslashes as part of names, where that differs; a file may really be called so."""
    if "\\" not in path or path.startswith("/") or _DRIVE.match(path):
        return None
    return "/".join(_components(path, path))


@dataclass(slots=True)
class Place:
    """The folder that holds a name, opened, and the name in it; `relative` is where that is, links resolved."""

    folder: int
    name: str
    relative: str

    def status(self) -> os.stat_result | None:
        """What stands there, links not followed; `None` when nothing does."""
        try:
            return os.stat(self.name or ".", dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return None


@contextmanager
def place(
    root: Path, relative: str, *, follow_last: bool, create: bool = False, no_links: bool = False
) -> Iterator[Place]:
    """Walk to `relative` (normalised) and hold its folder open; the name is empty for the root itself.

    With `follow_last` a final link is walked too. With `create` missing folders are made. With `no_links` no link on the
    way is walked, wherever it leads.
    """
    shown = relative or "."
    try:
        walk = _Walk(root, relative, create=create, no_links=no_links)
        try:
            yield walk.to_the_end(follow_last=follow_last)
        finally:
            walk.close()
    except FileNotFoundError:
        raise refused(shown, "missing", "there is no such file or folder.") from None
    except OSError as error:
        raise refused(shown, "kind", f"the system refuses: {os.strerror(error.errno or 0)}.") from error


def kind_of(status: os.stat_result) -> Literal["file", "directory", "link", "other"]:
    """The kind of an entry by its mode."""
    if stat.S_ISREG(status.st_mode):
        return "file"
    if stat.S_ISDIR(status.st_mode):
        return "directory"
    return "link" if stat.S_ISLNK(status.st_mode) else "other"


def _is_text(path: str) -> bool:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _components(text: str, path: str) -> list[str]:
    parts: list[str] = []
    for part in text.split("/"):
        if part in {"", "."}:
            continue
        if part == "..":
            if not parts:
                raise refused(path, "escape", "the path leads out of the repository.")
            parts.pop()
            continue
        _check_name(part, path)
        parts.append(part)
    return parts


def _check_name(part: str, path: str) -> None:
    if is_git_name(part):
        raise refused(path, "git", "git's own folder is not for tools.")
    if is_device_name(part):
        raise refused(path, "kind", f"{part} is the name of a device on Windows.")


class _Walk:
    """The opened folders from the root downwards and the components still to go."""

    def __init__(self, root: Path, relative: str, *, create: bool, no_links: bool) -> None:
        self._root = root
        self._path = relative or "."
        self._todo = relative.split("/")[::-1] if relative else []
        self._create = create
        self._no_links = no_links
        self._folders = [os.open(root, _FOLDER)]
        self._names: list[str] = []
        self._links = 0

    def to_the_end(self, *, follow_last: bool) -> Place:
        while len(self._todo) > 1:
            self._enter(self._todo.pop())
        name = self._todo.pop() if self._todo else ""
        if name and follow_last:
            target = self._link(name)
            if target is not None:
                self._splice(target)
                return self.to_the_end(follow_last=True)
        if name == "..":
            self._leave()
            name = ""
        return Place(self._folders[-1], name, "/".join((*self._names, name) if name else self._names))

    def close(self) -> None:
        for folder in self._folders:
            os.close(folder)
        self._folders.clear()

    def _enter(self, name: str) -> None:
        if name == "..":
            self._leave()
            return
        try:
            folder = os.open(name, _FOLDER, dir_fd=self._folders[-1])
        except FileNotFoundError:
            if not self._create:
                at = "/".join((*self._names, name))
                raise refused(self._path, "missing", "there is no such file or folder.", at=at) from None
            self._make(name)
            folder = os.open(name, _FOLDER, dir_fd=self._folders[-1])
        except OSError as error:
            if error.errno not in {errno.ELOOP, errno.ENOTDIR}:
                raise refused(
                    self._path, "kind", f"{name} cannot be opened: {os.strerror(error.errno or 0)}."
                ) from error
            target = self._link(name)
            if target is None:
                raise refused(self._path, "missing", f"{name} is not a folder.") from error
            self._splice(target)
            return
        self._folders.append(folder)
        self._names.append(name)

    def _make(self, name: str) -> None:
        try:
            os.mkdir(name, 0o777, dir_fd=self._folders[-1])
        except FileExistsError:
            return  # Somebody was faster; what stands there is opened without following it.

    def _leave(self) -> None:
        if not self._names:
            raise refused(self._path, "escape", "a link on the way leads out of the repository.")
        self._names.pop()
        os.close(self._folders.pop())

    def _link(self, name: str) -> str | None:
        try:
            return os.readlink(name, dir_fd=self._folders[-1])
        except OSError:
            return None

    def _splice(self, target: str) -> None:
        """Put a link's target in place of its name."""
        if self._no_links:
            raise refused(self._path, "link", "a link stands on the way.")
        self._links += 1
        if self._links > _MOST_LINKS:
            raise refused(self._path, "link", "its links go round in a circle.")
        if target.startswith("/"):
            below = os.path.normpath(target).removeprefix(str(self._root))
            if below == os.path.normpath(target) or (below and not below.startswith("/")):
                raise refused(self._path, "escape", "a link on the way leads out of the repository.")
            for folder in self._folders[1:]:
                os.close(folder)
            del self._folders[1:]
            self._names.clear()
            target = below
        parts = [part for part in target.split("/") if part not in {"", "."}]
        for part in parts:
            if part != "..":
                _check_name(part, self._path)
        self._todo.extend(reversed(parts))
