"""The conversations of a repository, one file each (CONV and TRANS rules).

A conversation has one writer at a time, held by a lock from opening to closing. Opening repairs what a crash left: a
torn last line goes, calls without a result are answered as interrupted. Used by dispatches, and read by the faces.
"""

from __future__ import annotations

import copy
import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, Self, cast

from outpost_lsp.domain.message import History, Message
from outpost_lsp.errors import OutpostError
from outpost_lsp.storage.folding import fold, interrupted_results, messages_of
from outpost_lsp.storage.identifiers import is_safe_id, now_text
from outpost_lsp.storage.json_lines import MANGLED_SUFFIX, scan, set_aside
from outpost_lsp.storage.locks import Lock, LockFolder
from outpost_lsp.storage.private_files import (
    open_private,
    private_folder,
    read_private,
    replace_private,
    storage_fault,
)
from outpost_lsp.storage.transcript import Mask, Transcript, TranscriptVersion, compaction_line

_SUFFIX: Final = ".jsonl"
_TYPES: Final = frozenset(("session", "message", "compaction", "model-selection"))


class ConversationStore:
    """Transcripts in a folder, with their locks in another.

    An application that keeps conversations elsewhere as well overrides `capture`, which is called once a turn is over,
    and `locate`. What is located elsewhere is written to the native path before it is gone on with (CONV-18).
    """

    name: Final = "files"
    format: Literal["harness"] = "harness"

    def __init__(self, folder: Path, locks: LockFolder | Path, *, mask: Mask | None = None) -> None:
        self.folder = folder
        self._locks = locks if isinstance(locks, LockFolder) else LockFolder(locks)
        self._mask = mask

    def create(
        self,
        *,
        model: str,
        version: TranscriptVersion,
        parent: str | None = None,
        parent_conversation: str | None = None,
        parent_call_id: str | None = None,
    ) -> Transcript:
        """A new conversation. `parent` names the one it was forked from, the other two the subagent's caller."""
        return self._create(b"", model, version, parent, parent_conversation, parent_call_id)

    def open(self, id: str, *, version: TranscriptVersion) -> Transcript:
        """Go on with a conversation: `session` when it is missing or malformed, `conflict` when it is in use.

        A file of version 1 becomes version 2 when that is asked for; version 2 stays (TRANS-04).
        """
        self._existing(id)
        lock = self._lock(id)
        try:
            path = self._native(id)
            contents = self._usable(path, id)
            if contents.session["version"] < version:
                contents = contents.at_version(version)
                replace_private(path, contents.file)
            elif contents.torn_at is not None:
                _cut(path, contents.torn_at)
            transcript = self._transcript(id, path, contents, lock)
        except BaseException:
            lock.release()
            raise
        return self._answer_open_calls(transcript)

    def fork(self, id: str, *, model: str, version: TranscriptVersion) -> Transcript:
        """A new conversation with the history of another, whose file stays as it is (TRANS-05)."""
        contents = self._usable(self._existing(id), id)
        history = contents.history
        content = compaction_line(history) + b"\n" if len(history) else b""
        kept = cast("TranscriptVersion", max(version, contents.session["version"]))
        return self._answer_open_calls(self._create(content, model, kept, id, None, None))

    def exists(self, id: str) -> bool:
        """Whether there is such a conversation; an id that is no id names none."""
        return is_safe_id(id) and self.locate(id) is not None

    def locate(self, id: str) -> Path | None:
        """The file that holds a conversation now, which only its owner may read; `None` when there is none."""
        path = self.path(id)
        return path if path.is_file() else None

    def capture(self, id: str) -> Path:
        """Keep a conversation whose turn is over; gives the file to show for it (CONV-17). Here that is its own."""
        return self.path(id)

    def masking(self, mask: Mask) -> Self:
        """The same store for a writer whose secrets are masked in what it writes (CONV-19)."""
        first = self._mask
        store = copy.copy(self)
        store._mask = mask if first is None else lambda line: mask(first(line))
        return store

    def path(self, id: str) -> Path:
        """The native path of a conversation. `session` when the id could name something else (CONV-01)."""
        if not is_safe_id(id):
            raise OutpostError("session", f"{str(id)[:80]!r} is no conversation id")
        return self.folder / f"{id}{_SUFFIX}"

    def read(self, id: str) -> list[dict[str, Any]]:
        """The good records, the session first; nothing is locked or repaired."""
        return _contents(self._existing(id), id).records

    def messages(self, id: str) -> History:
        """The history as it stands now, for reading; nothing is locked or repaired on disk. See `readable`."""
        return _contents(self._existing(id), id).history

    def ids(self) -> Iterator[tuple[str, float]]:
        """All conversations with the time of their last change, for keeping or removing them (CONV-20)."""
        for path in sorted(self.folder.glob(f"*{_SUFFIX}")):
            try:
                yield path.name.removesuffix(_SUFFIX), path.stat().st_mtime
            except FileNotFoundError:
                continue

    def remove(self, id: str) -> bool:
        """Delete a conversation that nobody holds; whether there was one."""
        path = self.path(id)
        with self._lock(id):
            found = path.exists()
            path.unlink(missing_ok=True)
            path.with_name(path.name + MANGLED_SUFFIX).unlink(missing_ok=True)
        return found

    def hold(self, id: str) -> Lock:
        """The lock of a conversation: whoever has it is its one writer. `conflict` when somebody else has."""
        return self._lock(id)

    def _create(
        self,
        content: bytes,
        model: str,
        version: TranscriptVersion,
        parent: str | None,
        parent_conversation: str | None,
        parent_call_id: str | None,
    ) -> Transcript:
        private_folder(self.folder)
        id = str(uuid.uuid4())
        session = {
            "type": "session",
            "version": version,
            "id": id,
            "model": model,
            "createdAt": now_text(),
            "parent": parent,
            "parentConversation": parent_conversation,
            "parentCallId": parent_call_id,
        }
        session = {name: value for name, value in session.items() if value is not None}
        lock = self._lock(id)
        try:
            path = self.path(id)
            if self._mask is not None and content:
                content = self._mask(content)
            replace_private(path, json.dumps(session, separators=(",", ":")).encode() + b"\n" + content)
            return self._transcript(id, path, _contents(path, id), lock)
        except BaseException:
            lock.release()
            raise

    def _transcript(self, id: str, path: Path, contents: _Contents, lock: Lock) -> Transcript:
        return Transcript(
            id,
            path,
            version=contents.session["version"],
            session=contents.session,
            history=contents.history,
            lock=lock,
            mask=self._mask,
        )

    def _answer_open_calls(self, transcript: Transcript) -> Transcript:
        if calls := transcript.history.open_calls():
            try:
                transcript.append(interrupted_results(calls))
            except BaseException:
                transcript.close()
                raise
        return transcript

    def _existing(self, id: str) -> Path:
        # Checked here too: a store that locates by itself need not look at what an id is made of (CONV-01).
        self.path(id)
        path = self.locate(id)
        if path is None:
            raise OutpostError("session", f"there is no conversation {id}", {"conversation": id})
        return path

    def _native(self, id: str) -> Path:
        path, located = self.path(id), self._existing(id)
        if located != path:
            private_folder(self.folder)
            replace_private(path, read_private(located))
        return path

    def _lock(self, id: str) -> Lock:
        try:
            return self._locks.take(f"harness-conversation:{id}")
        except OutpostError as error:
            if error.code != "conflict":
                raise
            holder = error.details.get("pid")
            raise OutpostError(
                "conflict",
                f"conversation {id} is in use by process {holder}; go on with it when that has ended, or with a copy now",
                {**error.details, "conversation": id},
            ) from error

    def _usable(self, path: Path, id: str) -> _Contents:
        contents = _contents(path, id)
        for raw, why in contents.mangled:
            set_aside(path, raw, why)
        return contents


@dataclass(frozen=True, slots=True)
class _Contents:
    """What a file holds: the good records with the session first, and what is wrong with the rest."""

    records: list[dict[str, Any]]
    messages: list[tuple[Message, ...]]
    raw_lines: list[bytes]
    mangled: list[tuple[bytes, str]]
    torn_at: int | None

    @property
    def session(self) -> dict[str, Any]:
        return self.records[0]

    @property
    def history(self) -> History:
        return fold(zip(self.records, self.messages, strict=True))

    @property
    def file(self) -> bytes:
        return b"".join(raw + b"\n" for raw in self.raw_lines)

    def at_version(self, version: int) -> _Contents:
        """The same records, byte for byte, under a session record of another version."""
        session = {**self.session, "version": version}
        raw = json.dumps(session, separators=(",", ":")).encode()
        return replace(
            self,
            records=[session, *self.records[1:]],
            raw_lines=[raw, *self.raw_lines[1:]],
            torn_at=None,
        )


def _contents(path: Path, id: str) -> _Contents:
    contents = _Contents([], [], [], [], None)
    for line in scan(path):
        messages: tuple[Message, ...] = ()
        if not contents.records:
            if fault := _session_fault(line.value):
                raise OutpostError("session", f"conversation {id}: {fault}", {"conversation": id})
        elif line.is_torn:
            # The record was never acknowledged, so nothing is lost; it is kept aside like a mangled one.
            mangled = [*contents.mangled, (line.raw, "it was torn by a crash")]
            return replace(contents, mangled=mangled, torn_at=line.offset)
        else:
            try:
                messages = _messages(line.value, id)
            except ValueError as error:
                contents.mangled.append((line.raw, str(error)))
                continue
        contents.records.append(cast("dict[str, Any]", line.value))
        contents.messages.append(messages)
        contents.raw_lines.append(line.raw)
    if not contents.records:
        raise OutpostError("session", f"conversation {id}: the file is empty", {"conversation": id})
    return contents


def _session_fault(record: dict[str, Any] | None) -> str | None:
    if record is None or record.get("type") != "session":
        return "its first record is no session"
    version = record.get("version")
    if type(version) is not int or version not in (1, 2):
        newer = "; a newer outpost-lsp wrote it, update this one" if type(version) is int and version > 2 else ""
        return f"version {version!r} is not known{newer}; it was left as it is"
    return None


def _messages(record: dict[str, Any] | None, id: str) -> tuple[Message, ...]:
    """The messages of a record; `ValueError` when it is mangled.

    A type that is not known is no damage but another product's file (TRANS-03).
    """
    if record is None:
        raise ValueError("it is no JSON object")
    kind = record.get("type")
    if kind not in _TYPES:
        raise OutpostError(
            "session", f"conversation {id}: a record has the unknown type {kind!r}", {"conversation": id}
        )
    return messages_of(record)


def _cut(path: Path, size: int) -> None:
    descriptor = open_private(path, os.O_RDWR)
    try:
        os.ftruncate(descriptor, size)
    except OSError as error:
        raise storage_fault(error, path.parent) from error
    finally:
        os.close(descriptor)
