"""Locks between processes: files that name their owner (LOCK rules).

Taking a lock never waits. A lock whose owner is dead is replaced in one step, under a kernel lock on the very file, so
that two takers never both believe they have it. `exclusive` is the short kernel lock around a read and its write.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from outpost_lsp.errors import OutpostError
from outpost_lsp.storage.owners import Owner, owner_in, record_of, this_process
from outpost_lsp.storage.presence import Presence
from outpost_lsp.storage.presence import sweep as sweep_presences
from outpost_lsp.storage.private_files import open_private, private_folder, replace_private, written_aside

_log = logging.getLogger(__name__)
_UNREADABLE_IS_STALE_AFTER_S: Final = 10.0
_LOCK_BYTES: Final = 4096


class Lock:
    """A lock that is held. Releasing twice does nothing the second time (LOCK-06)."""

    def __init__(self, path: Path, key: str, nonce: str, presence: Presence) -> None:
        self._presence = presence
        self.path = path
        self.key = key
        self._nonce = nonce

    def release(self) -> None:
        """Give it up; a lock that somebody else took over meanwhile is left alone."""
        found = _read(self.path)
        if found is not None and found.get("nonce") == self._nonce:
            self.path.unlink(missing_ok=True)
        self._presence.close()

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class LockFolder:
    """The locks of one repository."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, key: str) -> Path:
        """The file that stands for `key` (LOCK-01)."""
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:20]}.json"

    def take(self, key: str) -> Lock:
        """The lock for `key`, or `conflict` at once with its path and its owner's pid (LOCK-03)."""
        private_folder(self.folder)
        path, nonce = self.path(key), secrets.token_hex(16)
        presence = Presence(self.folder)
        content = json.dumps(record_of(this_process(), presence) | {"nonce": nonce, "key": key}).encode()
        try:
            for _ in range(2):
                if _create(path, content) or _take_over(path, content):
                    return Lock(path, key, nonce, presence)
        except BaseException:
            presence.close()
            raise
        presence.close()
        pid = (_read(path) or {}).get("pid")
        raise OutpostError(
            "conflict",
            f"{key} is in use by process {pid if pid is not None else 'unknown'} (lock {path})",
            {"lock": str(path), "pid": pid},
        )

    def owner(self, key: str) -> Owner | None:
        """Who holds the lock for `key` now; `None` when nobody alive does."""
        found = owner_in(_read(self.path(key)), self.folder)
        return found if found is not None and found.is_alive else None

    def stale(self) -> dict[Path, str]:
        """The locks whose owner is dead, each with its key; they are left where they are."""
        found = ((path, _read(path)) for path in sorted(self.folder.glob("*.json")))
        return {path: str((content or {}).get("key", path.name)) for path, content in found if _is_stale(path, content)}

    def sweep(self) -> list[str]:
        """Remove the locks of dead owners; their keys."""
        removed = []
        for path in sorted(self.folder.glob("*.json")):
            content = _read(path)
            if _is_stale(path, content) and _remove_stale(path):
                removed.append(str((content or {}).get("key", path.name)))
        sweep_presences(self.folder)
        return removed


@contextmanager
def exclusive(path: Path, *, wait_s: float = 5.0) -> Iterator[None]:
    """Hold the kernel's lock on the file `path`, made when missing. Waits at most `wait_s`, then `conflict` (REL-12).

    The kernel frees it when its holder dies, so nothing stale can block.
    """
    with _kernel_lock(path, fcntl.LOCK_EX, wait_s):
        yield


@contextmanager
def shared(path: Path, *, wait_s: float = 5.0) -> Iterator[None]:
    """Hold the same lock together with others: whoever wants it for itself has to wait for all of them."""
    with _kernel_lock(path, fcntl.LOCK_SH, wait_s):
        yield


@contextmanager
def _kernel_lock(path: Path, kind: int, wait_s: float) -> Iterator[None]:
    descriptor = open_private(path, os.O_RDWR | os.O_CREAT)
    try:
        deadline = time.monotonic() + wait_s
        while not _flock(descriptor, kind):
            if time.monotonic() >= deadline:
                raise OutpostError("conflict", f"{path} stayed locked for {wait_s:g} s", {"lock": str(path)})
            time.sleep(0.002)
        yield
    finally:
        os.close(descriptor)


def _create(path: Path, content: bytes) -> bool:
    # Made aside and linked into place: whoever sees the lock sees its whole content.
    with written_aside(path, content) as aside:
        try:
            os.link(aside, path, follow_symlinks=False)
        except FileExistsError:
            return False
    return True


def _take_over(path: Path, content: bytes) -> bool:
    with _stale(path) as is_ours:
        if is_ours:
            _log.warning("lock %s: its owner is gone, taken over", path)
            replace_private(path, content)
    return is_ours


def _remove_stale(path: Path) -> bool:
    with _stale(path) as is_ours:
        if is_ours:
            path.unlink(missing_ok=True)
    return is_ours


@contextmanager
def _stale(path: Path) -> Iterator[bool]:
    """Whether the lock at `path` is stale and nobody else can replace it before the block ends."""
    try:
        descriptor = open_private(path, os.O_RDWR)
    except FileNotFoundError:
        yield False
        return
    try:
        if not _flock(descriptor) or not _is_at(path, descriptor):
            yield False
        else:
            yield _is_stale(path, _parse(os.pread(descriptor, _LOCK_BYTES, 0)))
    finally:
        os.close(descriptor)


def _flock(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _is_stale(path: Path, content: dict[str, Any] | None) -> bool:
    owner = owner_in(content, path.parent)
    if owner is not None:
        return not owner.is_alive
    try:
        return time.time() - path.lstat().st_mtime > _UNREADABLE_IS_STALE_AFTER_S
    except FileNotFoundError:
        return False


def _read(path: Path) -> dict[str, Any] | None:
    try:
        descriptor = open_private(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        return _parse(os.pread(descriptor, _LOCK_BYTES, 0))
    finally:
        os.close(descriptor)


def _parse(content: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(content)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
