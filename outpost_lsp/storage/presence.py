"""Files whose kernel lock tells that a process lives, for those who cannot see it.

A process id says nothing to a container or a machine that shares the folder: what both see is the lock on a file, which
ends with the process. The lock is taken before anything names the file, so a file that is not locked, or gone, is a dead
process's (LOCK-03, LOCK-05).
"""

from __future__ import annotations

import fcntl
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class Presence:
    """The kernel's lock on a file for a private folder, from construction until `close`; `name` is empty where none can be had."""

    def __init__(self, folder: Path) -> None:
        self.name = ""
        self._descriptor: int | None = None
        self._path = _beside(folder) / secrets.token_hex(8)
        try:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            self._descriptor = os.open(self._path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
            if hold(self._path, self._descriptor):
                self.name = self._path.name
        except OSError:
            # Whatever keeps it from being had: the process is then known by its id alone.
            self.close()

    def close(self) -> None:
        """Let go and remove the file; a second time nothing happens."""
        if self._descriptor is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = None

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)


def hold(path: Path, descriptor: int) -> bool:
    """Let a file that was just made tell that this process lives, until the descriptor is closed.

    `False` where a sweep came between the making and this. `OSError` where the file system has no locks.
    """
    fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def remove_if_free(path: Path) -> bool:
    """Remove a file that nobody holds; whether it is gone."""
    return _is_free(path, remove=True)


def is_present(folder: Path, name: str) -> bool:
    """Whether some process holds the file of that name; not to know counts as yes."""
    return not _is_free(_beside(folder) / name)


def sweep(folder: Path) -> None:
    """Remove the files that nobody holds."""
    with suppress(OSError):
        for path in _beside(folder).iterdir():
            _is_free(path, remove=True)


def _beside(folder: Path) -> Path:
    """Where the files for a folder are: beside it, since it is listed for what it is for."""
    return folder.with_name(f".{folder.name}-present")


def _is_free(path: Path, *, remove: bool = False) -> bool:
    try:
        descriptor = os.open(path, _FLAGS)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if remove:
            path.unlink(missing_ok=True)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
