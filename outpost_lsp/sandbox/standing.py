"""What stands at a path of the user's own folder, looked at without following a link on the way or at the end."""

from __future__ import annotations

import contextlib
import os
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


def place_of(root: Path, path: str) -> contextlib.AbstractContextManager[Place]:
    """The place of a path, its folder held open; refused where nothing may ever be applied."""
    for part in path.split("/"):
        if part in {"", ".", ".."} or is_git_name(part):
            raise refused(path, "git" if is_git_name(part) else "escape", "nothing is applied there.")
    return paths.place(root, path, follow_last=False, no_links=True)
