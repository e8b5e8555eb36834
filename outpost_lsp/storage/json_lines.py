"""Files of one JSON object a line: appended as things happen, read with tolerance.

A record is written by one call and whole or not at all: what a full disk cut is taken back. Reading costs the mangled
record only; it is kept in a file of its own beside, and reported once (REL-21). A torn last line, left by a crash in
the middle of a write, is dropped (CONV-05).
"""

from __future__ import annotations

import copy
import json
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from outpost_lsp.domain.record import Record
from outpost_lsp.errors import OutpostError
from outpost_lsp.storage.private_files import open_private, storage_fault, write_all

_log = logging.getLogger(__name__)
MANGLED_SUFFIX: Final = ".mangled"
Stored = TypeVar("Stored", bound=Record)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file. `value` is `None` when it is no JSON object; `is_torn` when the file ends inside it."""

    offset: int
    raw: bytes
    value: dict[str, Any] | None
    is_torn: bool = False


class AppendedFile:
    """A file with one writer at a time, open for appending."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = open_private(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            self._size = os.fstat(self._descriptor).st_size
            if self._size and os.pread(self._descriptor, 1, self._size - 1) != b"\n":
                # A crash left the last line open; what follows must not be glued to it.
                self.append(b"\n")
        except OSError as error:
            self.close()
            raise storage_fault(error, path.parent) from error

    @property
    def size(self) -> int:
        """How many bytes the file has."""
        return self._size

    def append(self, content: bytes) -> None:
        """Add `content`, or take back the part that was written and raise the `OSError`."""
        try:
            write_all(self._descriptor, content)
        except OSError:
            os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(content)

    def close(self) -> None:
        """Close it; a second time does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def encoded(record: Record) -> bytes:
    """One line for a record, without the line end. Half a surrogate pair, which models do send, is escaped."""
    try:
        return record.to_line()
    except (PydanticSerializationError, UnicodeEncodeError):
        value = record.model_dump(by_alias=True, exclude_none=True, serialize_as_any=True)
        return json.dumps(value, separators=(",", ":")).encode()


def parse_object(raw: bytes) -> dict[str, Any] | None:
    """The JSON object that `raw` holds, else `None`."""
    try:
        value = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def tolerant(kind: type[Stored], value: object) -> Stored:
    """A record from JSON; fields of a newer version are passed over. `ValueError` when it is none."""
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        if any(fault["type"] != "extra_forbidden" for fault in faults):
            raise
        value = copy.deepcopy(value)
        for fault in faults:
            place: Any = value
            for part in fault["loc"][:-1]:
                place = place[part]
            place.pop(fault["loc"][-1])
        return kind.model_validate(value)


def scan(path: Path, offset: int = 0) -> Iterator[Line]:
    """The lines of a file from `offset` on, blank ones left out; `FileNotFoundError` when there is no file."""
    with os.fdopen(open_private(path, os.O_RDONLY), "rb") as file:
        file.seek(offset)
        try:
            for raw in file:
                if raw.strip():
                    value = parse_object(raw)
                    yield Line(offset, raw.rstrip(b"\n"), value, value is None and not raw.endswith(b"\n"))
                offset += len(raw)
        except OSError as error:
            raise storage_fault(error, path.parent) from error


def set_aside(path: Path, raw: bytes, why: str) -> None:
    """Keep a mangled record of `path` beside the file and report it, unless that was done before."""
    beside = path.with_name(path.name + MANGLED_SUFFIX)
    try:
        with os.fdopen(open_private(beside, os.O_RDWR | os.O_CREAT | os.O_APPEND), "rb+") as file:
            if raw in (line.rstrip(b"\n") for line in file):
                return
            file.write(raw + b"\n")
    except (OSError, OutpostError) as error:
        _log.warning("%s: a mangled record could not be set aside: %s", path, error)
    _log.warning("%s: a record was left out (%s); it is kept in %s", path, why, beside.name)
