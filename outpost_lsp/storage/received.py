"""Conversations that are held on another machine, kept here line by line as they arrive, so that they can be gone on with.

The invariant: what arrives is added to a conversation of its own, never to one that is here already, except the one that
is being gone on with; each is locked while it is received.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from outpost_lsp.errors import OutpostError
from outpost_lsp.storage.conversations import ConversationStore
from outpost_lsp.storage.json_lines import AppendedFile
from outpost_lsp.storage.locks import Lock
from outpost_lsp.storage.private_files import private_folder


class ReceivedConversations:
    """The conversations of one run elsewhere. `continued` names the one that is gone on with."""

    def __init__(self, store: ConversationStore, continued: str | None = None) -> None:
        self._store = store
        self._held: dict[str, tuple[AppendedFile, Lock]] = {}
        if continued is not None:
            self._open(continued)

    def append(self, id: str, lines: Sequence[str]) -> None:
        """Add lines to a conversation. `session` for one that is not this run's, or that does not begin as one."""
        records = [line for line in lines if isinstance(_object(line), dict)]
        if id not in self._held:
            if self._store.exists(id):
                raise OutpostError("session", f"the worker sent a conversation that is here already: {id}")
            first = _object(records[0]) if records else None
            if not isinstance(first, dict) or first.get("type") != "session" or first.get("id") != id:
                raise OutpostError("session", f"the worker sent no conversation under the id {id[:80]!r}")
            self._open(id)
        self._held[id][0].append(b"".join(line.encode() + b"\n" for line in records))

    def close(self) -> None:
        """Free all of them."""
        for file, lock in self._held.values():
            file.close()
            lock.release()
        self._held.clear()

    def _open(self, id: str) -> None:
        path = self._store.path(id)
        private_folder(path.parent)
        lock = self._store.hold(id)
        try:
            self._held[id] = (AppendedFile(path), lock)
        except BaseException:
            lock.release()
            raise


def _object(line: str) -> Any:
    if "\n" in line or "\r" in line:
        return None
    try:
        return json.loads(line)
    except ValueError:
        return None
