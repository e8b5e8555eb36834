"""Files and folders that only their owner can read, and how they are written.

What is created here has mode 0700 or 0600 under any umask, a link or a thing of another owner is refused by name
(SEC-10), and no file ends half-written under its own name (REL-02). Every store writes through these functions.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from outpost_lsp.errors import OutpostError
from outpost_lsp.storage.presence import hold, remove_if_free

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
UNFINISHED_SUFFIX: Final = ".unfinished"
"""What a file is called while it is written; a leftover of a crash, never read."""

_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A planted pipe must not hang the opening, hence O_NONBLOCK; it changes nothing for a regular file.
_FILE_FLAGS: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def private_folder(path: Path) -> Path:
    """Make `path` and what is missing above it, or check that what is there is the owner's own; returns `path`."""
    try:
        try:
            path.mkdir(FOLDER_MODE)
        except FileExistsError:
            pass
        except FileNotFoundError:
            _make_missing_parents(path.parent)
            path.mkdir(FOLDER_MODE, exist_ok=True)
        descriptor = os.open(path, _FOLDER_FLAGS)
    except OSError as error:
        if path.is_symlink():
            raise _refusal(path, "is a link") from error
        raise storage_fault(error, path) from error
    try:
        _check_owner(path, os.fstat(descriptor))
        if stat.S_IMODE(os.fstat(descriptor).st_mode) != FOLDER_MODE:
            os.fchmod(descriptor, FOLDER_MODE)
    except OSError as error:
        raise storage_fault(error, path) from error
    finally:
        os.close(descriptor)
    return path


def open_private(path: Path, flags: int) -> int:
    """Open a regular file of the owner's own, without following a link; the descriptor is the caller's to close.

    Raises `FileNotFoundError` and `FileExistsError` as `os.open` does, an `OutpostError` for everything else.
    """
    try:
        descriptor = os.open(path, flags | _FILE_FLAGS, FILE_MODE)
    except (FileNotFoundError, FileExistsError):
        raise
    except OSError as error:
        if path.is_symlink():
            raise _refusal(path, "is a link") from error
        raise storage_fault(error, path.parent) from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _refusal(path, "is no regular file")
        _check_owner(path, status)
        if stat.S_IMODE(status.st_mode) & 0o077:
            os.fchmod(descriptor, FILE_MODE)
    except OSError as error:
        os.close(descriptor)
        raise storage_fault(error, path.parent) from error
    except OutpostError:
        os.close(descriptor)
        raise
    return descriptor


def read_private(path: Path, *, limit: int | None = None) -> bytes:
    """The whole content; `FileNotFoundError` when there is none, `workspace` beyond `limit` bytes."""
    descriptor = open_private(path, os.O_RDONLY)
    with os.fdopen(descriptor, "rb") as file:
        try:
            if limit is None:
                return file.read()
            content = file.read(limit + 1)
        except OSError as error:
            raise storage_fault(error, path.parent) from error
    if len(content) > limit:
        raise OutpostError("workspace", f"{path}: the file is larger than {limit} bytes", {"path": str(path)})
    return content


def replace_private(path: Path, content: bytes) -> None:
    """Write `content` aside and put it in place of `path` in one step."""
    with written_aside(path, content) as aside:
        aside.replace(path)


@contextmanager
def written_aside(path: Path, content: bytes) -> Iterator[Path]:
    """A new file beside `path` with the content, for as long as the context lasts: whoever wants it to stay moves it.

    No sweep takes it before that, in whatever container or on whatever machine (LOCK-05). An `OSError` of the block is
    the folder's fault.
    """
    aside, descriptor = _made_aside(path)
    try:
        write_all(descriptor, content)
        yield aside
    except OSError as error:
        raise storage_fault(error, path.parent) from error
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        os.close(descriptor)


def _made_aside(path: Path) -> tuple[Path, int]:
    while True:
        aside = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{UNFINISHED_SUFFIX}")
        descriptor = open_private(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            if hold(aside, descriptor):
                return aside, descriptor
        except BlockingIOError:
            pass  # A sweep has just opened it, and takes it away.
        except OSError:
            # No locks here, so no sweep takes anything either.
            return aside, descriptor
        os.close(descriptor)


def write_all(descriptor: int, content: bytes) -> None:
    """Write every byte, or raise the `OSError` that stopped it."""
    written = os.write(descriptor, content)
    while written < len(content):
        written += os.write(descriptor, content[written:])


def sweep_unfinished(folder: Path) -> int:
    """Remove what a dead process was writing aside in `folder`; the count of files removed."""
    return sum(remove_if_free(path) for path in folder.glob(f".*{UNFINISHED_SUFFIX}"))


def storage_fault(error: OSError, folder: Path) -> OutpostError:
    """The fault for a folder that cannot be used: it names the folder, the reason and a way out (REL-02)."""
    reason = error.strerror or str(error)
    remedy = "free some space there and try again" if is_full(error) else "check the folder and its permissions"
    return OutpostError(
        "workspace", f"cannot use {folder}: {reason}; {remedy}", {"folder": str(folder), "reason": reason}, cause=error
    )


def is_full(error: OSError) -> bool:
    """Whether the disk, the quota or the file size limit is used up."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _make_missing_parents(path: Path) -> None:
    if not path.exists():
        _make_missing_parents(path.parent)
        path.mkdir(FOLDER_MODE, exist_ok=True)


def _check_owner(path: Path, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        raise _refusal(path, f"belongs to another user (id {status.st_uid})")


def _refusal(path: Path, why: str) -> OutpostError:
    return OutpostError(
        "workspace",
        f"{path} {why}, so nothing private is kept there; remove it or choose another folder",
        {"path": str(path)},
    )
