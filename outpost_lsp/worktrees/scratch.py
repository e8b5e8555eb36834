"""Folders in the system's temporary folder that live for one call, and clearing those of processes that were killed.

The invariant: only folders of this user whose name says that a dead process made them are removed (SEC-10, REL-01).
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from pathlib import Path

from outpost_lsp.errors import OutpostError
from outpost_lsp.worktrees.registration import process_is_alive, start_time

_NAME = re.compile(r"outpost-(?:index|merge|result|review)-(\d+)-(\d+)-(\d+|unknown)-\w+")


def scratch_folder(kind: str) -> Path:
    """A new folder that only the user can enter; whoever asked removes it. `kind`: `index`, `merge`, `result`, `review`."""
    own = os.getpid()
    try:
        return Path(tempfile.mkdtemp(prefix=f"outpost-{kind}-{_world()}-{own}-{start_time(own)}-"))
    except OSError as error:
        raise _unusable(error) from error


def _world() -> int:
    """Stands for the processes that can see each other: containers may share a folder and count processes apart."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def write_scratch(file: Path, data: bytes) -> None:
    """Write a file of a scratch folder; `workspace`, and the folder's name, when there is no space."""
    try:
        file.write_bytes(data)
    except OSError as error:
        raise _unusable(error) from error


def _unusable(error: OSError) -> OutpostError:
    place = tempfile.gettempdir()
    return OutpostError(
        "workspace", f"cannot use the temporary folder {place}: {error.strerror}; free some space there"
    )


def sweep_scratch() -> None:
    """Remove what dead processes left."""
    world = _world()
    for path in Path(tempfile.gettempdir()).glob("outpost-*"):
        found = _NAME.fullmatch(path.name)
        if found is None or int(found[1]) != world or process_is_alive(int(found[2]), found[3]):
            continue
        try:
            status = path.lstat()
        except OSError:
            continue
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
            shutil.rmtree(path, ignore_errors=True)
