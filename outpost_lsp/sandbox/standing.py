"""What stands at a path of the user's own folder, looked at without following a link on the way or at the end."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from anyio import to_thread

from outpost_lsp.domain.landing import Present
from outpost_lsp.errors import OutpostError
from outpost_lsp.sandbox import paths
from outpost_lsp.sandbox.names import is_git_name
from outpost_lsp.sandbox.paths import Place, refused


async def present_on_disk(root: Path, path: str) -> Present:
    """What stands at a path below `root`; a path behind a link is `other`."""
    return await to_thread.run_sync(present, root, path)


def present(root: Path, path: str) -> Present:
    """What stands at a path below `root`; a path behind a link is `other`."""
    try:
        with place_of(root, path) as place:
            return look(place)
    except OutpostError as error:
        return Present("absent" if error.details.get("reason") == "missing" else "other")


async def mode_on_disk(root: Path, path: str) -> int | None:
    """The permissions of the file at a path below `root`; `None` where no file stands there."""
    return await to_thread.run_sync(mode, root, path)


def mode(root: Path, path: str) -> int | None:
    """The permissions of the file at a path below `root`; `None` where no file stands there."""
    try:
        with place_of(root, path) as place:
            status = place.status()
    except OutpostError:
        return None
    return None if status is None or not stat.S_ISREG(status.st_mode) else stat.S_IMODE(status.st_mode)


def look(place: Place) -> Present:
    """What stands at a place."""
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


async def names_on_disk(root: Path, path: str) -> tuple[str, ...]:
    """The paths, from `root`, of all that a folder holds at any depth; folders count where nothing is in them."""
    return await to_thread.run_sync(_names, root, path)


def _names(root: Path, path: str) -> tuple[str, ...]:
    with place_of(root, path) as place:
        return tuple(f"{path}/{found.relative}" for found in within(place))


def within(folder: Place) -> Iterator[Place]:
    """The places of all that a folder holds, links not followed, relative to it; each is good until the next one."""

    def fail(error: OSError) -> None:
        raise error

    for at, folders, files, descriptor in os.fwalk(folder.name, dir_fd=folder.folder, onerror=fail):
        inner = at[len(folder.name) + 1 :]
        if inner and not folders and not files:
            yield Place(descriptor, "", inner)
        for name in (*folders, *files):
            found = Place(descriptor, name, f"{inner}/{name}" if inner else name)
            status = found.status()
            if status is not None and not stat.S_ISDIR(status.st_mode):
                yield found


def place_of(root: Path, path: str, *, create: bool = False) -> contextlib.AbstractContextManager[Place]:
    """The place of a path, its folder held open; refused where nothing may ever be applied.

    With `create` the folders on the way are made.
    """
    for part in path.split("/"):
        if part in {"", ".", ".."} or is_git_name(part):
            raise refused(path, "git" if is_git_name(part) else "escape", "nothing is applied there.")
    return paths.place(root, path, follow_last=False, create=create, no_links=True)
