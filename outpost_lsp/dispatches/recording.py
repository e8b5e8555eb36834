"""A recorded dispatch, read from its journal (RPL-01, RPL-02)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import ValidationError

from outpost_lsp.dispatches.gaps import GapFinder
from outpost_lsp.domain.usage import ZERO, Usage
from outpost_lsp.errors import OutpostError, configuration
from outpost_lsp.storage.journal import JournalRecord, read_journal

Divergence = Literal["fail", "warn"]
_NOT_REPLAYED: Final = frozenset({"phase", "prompt", "summary", "fallback"})


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """From a `prompt` event to its `summary`. Several when a fallback agent handed over."""

    prompt: str
    events: tuple[JournalRecord, ...]
    usage: Usage
    duration_ms: int
    gaps: tuple[str, ...] = ()
    """What is missing from it for certain, in words for people."""


@dataclass(slots=True)
class _Recording:
    turns: list[RecordedTurn] = field(default_factory=list)
    commits: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None


class ReplayAgent:
    """The recorded turns of one dispatch, to be used once (RPL-09)."""

    def __init__(self, journal: str | Path | Iterable[JournalRecord], divergence: Divergence = "fail") -> None:
        if divergence not in ("fail", "warn"):
            raise configuration("ReplayAgent: divergence: fail or warn is expected")
        if not isinstance(journal, str | Path | Iterable):
            raise configuration("ReplayAgent: journal: a path or the records of a journal are expected")
        records = read_journal(journal) if isinstance(journal, str | Path) else journal
        recording = _recorded(records)
        if not recording.turns:
            raise configuration(
                "ReplayAgent: journal: it holds no recorded turn: the run was killed before its first one ended, or the "
                "journal is damaged"
            )
        self.divergence = divergence
        self.commits = recording.commits
        self.error = recording.error
        self._turns = recording.turns
        self._used = False

    @property
    def remaining_turns(self) -> int:
        """How many recorded turns were not replayed yet."""
        return len(self._turns)

    def begin(self) -> None:
        """A dispatch begins to use the recording."""
        if self._used:
            raise configuration("ReplayAgent: a recording is replayed once; make another")
        self._used = True

    def next_turn(self) -> RecordedTurn:
        """The next recorded turn; `replay` (`exhausted`) when there is none."""
        if not self._turns:
            raise OutpostError("replay", "the recording has no further turn", {"kind": "exhausted"})
        return self._turns.pop(0)


def _recorded(records: Iterable[JournalRecord]) -> _Recording:
    recording = _Recording()
    prompt: str | None = None
    events: list[JournalRecord] = []
    finder = GapFinder()
    for record in records:
        if record.kind == "prompt":
            prompt, events, finder = str(record.event.get("text", "")), [], GapFinder()
        elif record.kind == "summary" and prompt is not None:
            usage = _usage(record.event.get("tokens"), record.seq)
            duration_ms = record.event.get("durationMs")
            took = duration_ms if isinstance(duration_ms, int) else 0
            recording.turns.append(RecordedTurn(prompt, tuple(events), usage, took, tuple(finder.end(usage))))
            prompt = None
        elif record.kind == "workspace-commits":
            recording.commits = record.event
        elif record.kind == "dispatch-finished":
            recording.error = record.event.get("error") if record.event.get("status") != "done" else None
        elif prompt is not None and record.kind not in _NOT_REPLAYED:
            finder.take(record)
            events.append(record)
    return recording


def _usage(value: Any, seq: int) -> Usage:
    if value is None:
        return ZERO
    try:
        return Usage.model_validate(value)
    except ValidationError as error:
        raise configuration(f"journal: the usage of record {seq} is malformed") from error
