"""Copies between the host and a sandbox's files: recursive, links as links, modes kept (LOCAL-03).

The invariant: a copy into the sandbox never follows a link out of it, and a copy out takes links as links. Blocking:
called in worker threads by leases.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from outpost_lsp.errors import OutpostError
from outpost_lsp.sandbox import paths
from outpost_lsp.sandbox.paths import refused


def upload(root: Path, source: Path, destination: str) -> None:
    """Copy a file or folder of the host to a path of the sandbox; parents are made, what stands there is overwritten."""
    if not os.path.lexists(source):
        raise OutpostError("workspace", f"{source} does not exist.", {"path": str(source), "reason": "missing"})
    relative = paths.normalise(destination, root)
    with paths.place(root, relative, follow_last=False, create=True) as place:
        # The folder is reached through its descriptor, so that nobody can put a link in its way meanwhile.
        _copy(source, Path(f"/proc/self/fd/{place.folder}") / (place.name or "."))


def download(root: Path, source: str, destination: Path) -> None:
    """Copy a file or folder of the sandbox to the host."""
    relative = paths.normalise(source, root)
    with paths.place(root, relative, follow_last=False) as place:
        if place.status() is None:
            raise refused(source, "missing", "there is no such file or folder.")
        destination.parent.mkdir(parents=True, exist_ok=True)
        _copy(Path(f"/proc/self/fd/{place.folder}") / (place.name or "."), destination)


def _copy(source: Path, target: Path) -> None:
    if os.path.lexists(target) and source.samefile(target) and not (source.is_symlink() or target.is_symlink()):
        return
    if source.is_dir() and not source.is_symlink():
        if target.is_symlink() or (os.path.lexists(target) and not target.is_dir()):
            target.unlink()
        target.mkdir(exist_ok=True)
        for entry in sorted(source.iterdir()):
            _copy(entry, target / entry.name)
        shutil.copymode(source, target)
        return
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    elif os.path.lexists(target):
        target.unlink()
    shutil.copy2(source, target, follow_symlinks=False)
