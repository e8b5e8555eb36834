"""One conversation while it is held: its file, its lock and its history.

A record is on disk before the history in memory changes (TRANS-07), and a message that may not stand in the history is
refused before it is written. Made by `ConversationStore`; used by the loop that owns the conversation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal

from outpost_lsp.domain.message import History, Message
from outpost_lsp.errors import OutpostError
from outpost_lsp.storage.json_lines import AppendedFile, encoded
from outpost_lsp.storage.locks import Lock
from outpost_lsp.storage.private_files import storage_fault

_NOT_OF_A_SELECTION: Final = frozenset(("kind", "pass", "at", "subagentId"))

TranscriptVersion = Literal[1, 2]
Mask = Callable[[bytes], bytes]
"""Replaces secrets in a line before it is written; what it returns is still one JSON object in one line."""


class Transcript:
    """The single writer of a conversation, from its opening to `close`."""

    def __init__(
        self,
        id: str,
        path: Path,
        *,
        version: TranscriptVersion,
        session: Mapping[str, Any],
        history: History,
        lock: Lock,
        mask: Mask | None,
    ) -> None:
        self.id = id
        self.path = path
        self.version = version
        self.session = session
        """The first record, as it stands in the file."""
        self.history = history
        self._lock = lock
        self._mask = mask
        self._file = AppendedFile(path)

    def append(self, message: Message) -> None:
        """Write a message, then add it to the history."""
        self.history.check(message)
        self._write(b'{"type":"message","message":' + encoded(message) + b"}")
        self.history.append(message)

    def compact(self, messages: Iterable[Message]) -> None:
        """Write a history that replaces everything before, then replace the history."""
        replacement = History(messages)
        self._write(compaction_line(replacement))
        self.history.replace(replacement)

    def record_selection(self, selection: Mapping[str, Any]) -> None:
        """Write the fields of a `model-route` event; only a version 2 transcript holds them (TRANS-01)."""
        if self.version < 2:
            raise OutpostError("configuration", "transcript: a version 1 transcript holds no model selections")
        fields = {name: value for name, value in selection.items() if name not in _NOT_OF_A_SELECTION}
        self._write(json.dumps({"type": "model-selection", **fields}, separators=(",", ":")).encode())

    def close(self) -> None:
        """Give up the file and the lock; a second time does nothing."""
        self._file.close()
        self._lock.release()

    def __enter__(self) -> Transcript:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, line: bytes) -> None:
        if self._mask is not None:
            line = self._mask(line)
        try:
            self._file.append(line + b"\n")
        except OSError as error:
            raise storage_fault(error, self.path.parent) from error


def compaction_line(messages: Iterable[Message]) -> bytes:
    """A compaction record, without the line end."""
    return b'{"type":"compaction","messages":[' + b",".join(encoded(message) for message in messages) + b"]}"
