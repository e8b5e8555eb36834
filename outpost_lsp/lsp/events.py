"""The agent event stream as the client subscribed to it; pieces of text are joined to at most 20 a second and run.

Order is kept: whatever comes after a piece of text is sent after it. While the client does not keep up, pieces are left
out; everything else is sent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, get_args

from outpost_lsp.domain.event import (
    AgentEvent,
    Event,
    ReasoningEvent,
    TextDeltaEvent,
    ToolOutputEvent,
)
from outpost_lsp.lsp.client import EventLevel

INTERVAL_S: Final = 0.05
_STREAM: Final[tuple[type[Event], ...]] = get_args(get_args(AgentEvent)[0])
_PIECES: Final = (TextDeltaEvent, ReasoningEvent, ToolOutputEvent)
_LEFT_OUT: Final = frozenset(("text-delta", "reasoning", "tool-output", "stderr", "raw"))
_MOST_TEXT: Final = 64 * 1024


@dataclass(slots=True)
class _Pending:
    """Pieces of one run that wait, and when the last were sent."""

    events: list[dict[str, Any]] = field(default_factory=list)
    last: float = 0.0
    timer: asyncio.TimerHandle | None = None


class EventStream:
    """Sends the events of all runs of one client."""

    def __init__(self, send: Callable[[str, dict[str, Any]], None], is_congested: Callable[[], bool]) -> None:
        self._send = send
        self._is_congested = is_congested
        self._pending: dict[str, _Pending] = {}

    def take(self, run_id: str, event: Event, level: EventLevel) -> None:
        """Send an event now or soon, if it was subscribed to."""
        if level == "off" or not isinstance(event, _STREAM) or (level == "summary" and event.kind in _LEFT_OUT):
            return
        if isinstance(event, _PIECES):
            self._take_piece(run_id, event.to_json())
        else:
            self.flush(run_id)
            self._send(run_id, event.to_json())

    def flush(self, run_id: str) -> None:
        """Send the pieces of a run that wait."""
        pending = self._pending.get(run_id)
        if pending is None:
            return
        if pending.timer is not None:
            pending.timer.cancel()
            pending.timer = None
        events, pending.events = pending.events, []
        if not events:
            return
        pending.last = time.monotonic()
        if not self._is_congested():
            for event in events:
                self._send(run_id, event)

    def forget(self, run_id: str) -> None:
        """The run has ended."""
        self.flush(run_id)
        self._pending.pop(run_id, None)

    def _take_piece(self, run_id: str, piece: dict[str, Any]) -> None:
        pending = self._pending.setdefault(run_id, _Pending())
        last = pending.events[-1] if pending.events else None
        if last is not None and _same_stream(last, piece):
            last["text"] += piece["text"]
            last["at"] = piece.get("at", last.get("at"))
        else:
            pending.events.append(piece)
        if pending.timer is not None:
            return
        wait = pending.last + INTERVAL_S * max(1, len(pending.events)) - time.monotonic()
        if wait <= 0:
            self.flush(run_id)
        else:
            pending.timer = asyncio.get_running_loop().call_later(wait, self.flush, run_id)


def _same_stream(left: dict[str, Any], right: dict[str, Any]) -> bool:
    """Whether two pieces are parts of one text."""
    names = (left.keys() | right.keys()) - {"text", "at"}
    return len(left["text"]) < _MOST_TEXT and all(left.get(name) == right.get(name) for name in names)
