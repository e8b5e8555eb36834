"""A table kept as a log of changes, which several processes append to and follow.

Changes are appended in one write under the kernel's lock, so that no process loses another's; a log that holds mostly
history is written anew. `FindingStore` and `DismissalStore` keep their tables on it.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from outpost_lsp.storage.json_lines import AppendedFile, scan, set_aside
from outpost_lsp.storage.locks import exclusive
from outpost_lsp.storage.private_files import open_private, private_folder, replace_private, storage_fault

_SMALL_LOG: Final = 256
"""Lines below which a log is never written anew."""

_HEAD_KEY: Final = "log"
_HEAD_BYTES: Final = 32
"""A log that was written anew is told by another first line; inode numbers are given out again at once."""


class OperationLog:
    """The log in `path`. `apply` is told each change, `reset` that the table begins again from nothing."""

    def __init__(self, path: Path, *, apply: Callable[[dict[str, Any]], bool], reset: Callable[[], None]) -> None:
        self.path = path
        self._apply = apply
        self._reset = reset
        self._offset = 0
        self._lines = 0
        self._head = b""

    def refresh(self) -> bool:
        """Apply what was appended since the last time, by whomever; whether there was anything."""
        head = self._read_head()
        was_replaced = head != self._head
        if was_replaced:
            self._reset()
            self._offset, self._lines, self._head = 0, 0, head
        if not head:
            return was_replaced
        before = self._offset
        for line in scan(self.path, self._offset):
            if line.is_torn:
                # Another process may be in the middle of writing it; it is looked at again the next time.
                break
            is_known = line.value is not None and (_HEAD_KEY in line.value or self._apply(line.value))
            if not is_known:
                set_aside(self.path, line.raw, "it is no change of this table")
            self._offset = line.offset + len(line.raw) + 1
            self._lines += 1
        return was_replaced or self._offset != before

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else changes the log meanwhile."""
        private_folder(self.path.parent)
        with exclusive(self.path.with_name(f".{self.path.name}.lock")):
            yield

    def append(self, lines: list[bytes]) -> None:
        """Add changes that were applied already; only while it is `locked` and right after `refresh`."""
        try:
            file = AppendedFile(self.path)
            try:
                is_followed = file.size == self._offset
                head = b"" if file.size else _new_head()
                file.append(head + b"".join(line + b"\n" for line in lines))
            finally:
                file.close()
        except OSError as error:
            raise storage_fault(error, self.path.parent) from error
        if is_followed and self._offset:
            self._offset = file.size
            self._lines += len(lines)
        else:
            self.refresh()

    def is_mostly_history(self, count: int) -> bool:
        """Whether the log has far more lines than the table has entries."""
        return self._lines > _SMALL_LOG and self._lines > 2 * count

    def write_anew(self, lines: Iterable[bytes]) -> None:
        """Put a log with these lines in place; only while it is `locked`."""
        content = list(lines)
        whole = _new_head() + b"".join(line + b"\n" for line in content)
        replace_private(self.path, whole)
        self._offset, self._lines, self._head = len(whole), len(content), self._read_head()

    def _read_head(self) -> bytes:
        try:
            descriptor = open_private(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return b""
        try:
            return os.pread(descriptor, _HEAD_BYTES, 0)
        except OSError as error:
            raise storage_fault(error, self.path.parent) from error
        finally:
            os.close(descriptor)


def _new_head() -> bytes:
    return json.dumps({_HEAD_KEY: secrets.token_hex(12)}, separators=(",", ":")).encode() + b"\n"
