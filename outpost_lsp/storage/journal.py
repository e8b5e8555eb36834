"""The journal of a dispatch: one JSON line for each observation (JRN rules).

A line is written by one call as the observation arrives, before anybody is shown it, so that a killed process loses
none. A full disk cuts the journal and never the run: the cut is told once, and the file says where something is
missing. `JournalWriter` is a sink of a hub; the timeline, the replay and the faces read with `read_journal`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from outpost_lsp.domain.observation import Observation
from outpost_lsp.errors import OutpostError
from outpost_lsp.storage.json_lines import AppendedFile, encoded, scan, set_aside
from outpost_lsp.storage.private_files import private_folder, storage_fault

_log = logging.getLogger(__name__)

VERBOSE_KINDS: Final = frozenset(
    (
        "decision-request",
        "decision-response",
        "raw",
        "text-delta",
        "stderr",
        "reasoning",
        "model-request",
        "model-response",
        "tool-output",
        "command-output",
    )
)
"""Left out of a journal that is not verbose (JRN-02)."""

REPLAY_KINDS: Final = frozenset(("workspace-commits",))
"""Left out of a journal that is not replayable (JRN-04)."""


class JournalWriter:
    """A sink that writes the observations of one dispatch to a file.

    `note_cut` is told once, with a sentence for people, when the journal cannot be written; without it the fault is
    raised instead, also once. Either way later observations are tried again.
    """

    def __init__(
        self,
        path: Path,
        *,
        verbose: bool = False,
        replayable: bool = True,
        note_cut: Callable[[str], None] | None = None,
        mask: Callable[[bytes], bytes] | None = None,
    ) -> None:
        self.path = path
        self._left_out = (frozenset() if verbose else VERBOSE_KINDS) | (frozenset() if replayable else REPLAY_KINDS)
        self._note_cut = note_cut
        self._mask = mask
        self._file: AppendedFile | None = None
        self._is_closed = False
        self._missing = 0
        self._was_cut = False

    def __call__(self, observation: Observation) -> None:
        """Write one observation, unless its kind is left out."""
        if self._is_closed or observation.event.kind in self._left_out:
            return
        line = encoded(observation)
        if self._mask is not None:
            line = self._mask(line)
        try:
            file = self._opened()
            # The gap is told in the same call as the line that follows it, so that both stand or neither.
            file.append((self._gap(observation) if self._missing else b"") + line + b"\n")
        except OSError as error:
            self._cut(storage_fault(error, self.path.parent))
        except OutpostError as fault:
            self._cut(fault)
        else:
            self._missing = 0

    @property
    def is_cut(self) -> bool:
        """Whether anything is missing from the journal."""
        return self._was_cut

    def close(self) -> None:
        """Close the file; later observations are ignored."""
        self._is_closed = True
        if self._file is not None:
            self._file.close()

    def _opened(self) -> AppendedFile:
        if self._file is None:
            private_folder(self.path.parent)
            self._file = AppendedFile(self.path)
        return self._file

    def _gap(self, observation: Observation) -> bytes:
        message = f"{self._missing} events before this one are missing: the journal could not be written"
        head = {"seq": observation.seq, "at": observation.at, "source": "recovery", "scope": {}}
        return json.dumps({**head, "event": {"kind": "warning", "message": message}}).encode() + b"\n"

    def _cut(self, fault: OutpostError) -> None:
        self._missing += 1
        if self._was_cut:
            return
        self._was_cut = True
        if self._note_cut is None:
            raise fault
        _log.warning("journal %s: %s", self.path, fault)
        self._note_cut(f"the journal of this run is cut: {fault}")


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """A line of a journal. `event` and `scope` are as they were written, fields of newer versions included."""

    seq: int
    at: str
    source: str
    scope: Mapping[str, Any]
    event: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """The kind of the event."""
        return str(self.event["kind"])


def read_journal(path: Path | str) -> Iterator[JournalRecord]:
    """The records of a journal in order. A mangled one costs itself only (REL-21), and so does a torn end.

    `session` when there is no such file.
    """
    path = Path(path)
    try:
        for line in scan(path):
            record = None if line.value is None else _record(line.value)
            if record is not None:
                yield record
            elif line.is_torn:
                _log.warning("%s: the last line is torn and was left out", path)
            else:
                set_aside(path, line.raw, "it is no journal record")
    except FileNotFoundError as error:
        raise OutpostError("session", f"there is no journal {path}", {"path": str(path)}) from error


def _record(value: Mapping[str, Any]) -> JournalRecord | None:
    seq, at, source, scope, event = (value.get(name) for name in ("seq", "at", "source", "scope", "event"))
    if not (type(seq) is int and isinstance(at, str) and isinstance(source, str)):
        return None
    if not (isinstance(scope, dict) and isinstance(event, dict) and isinstance(event.get("kind"), str)):
        return None
    return JournalRecord(seq, at, source, scope, event)
