"""Noticing an agent that goes round in circles (WATCH rules). Works on events as they are made, before redaction."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator

from outpost_lsp.domain.event import Event, FileChangeEvent, StuckEvent, ToolEvent
from outpost_lsp.domain.lossless import lossless_fault
from outpost_lsp.domain.record import Declaration, NonBlank, PositiveInt
from outpost_lsp.errors import OutpostError


class Intervention(Declaration):
    """An instruction for an agent that repeats itself, and how often it may be given."""

    instruction: NonBlank
    max_interventions: PositiveInt = 1


class Watchdog(Declaration):
    """How many like activities, among the latest `window`, count as stuck, and what to do then."""

    window: Annotated[int, Field(strict=True, ge=2, le=10_000)] = 20
    max_repeats: Annotated[int, Field(strict=True, ge=2)] = 3
    on_stuck: Literal["stop", "warn"] | Intervention = "stop"

    @model_validator(mode="after")
    def _repeats_fit(self) -> Watchdog:
        if self.max_repeats > self.window:
            raise ValueError("max_repeats: must not exceed window")
        return self

    @classmethod
    def of(cls, value: Watchdog | Mapping[str, Any] | None) -> Watchdog | None:
        """The watchdog itself, or the one a mapping describes."""
        if value is None or isinstance(value, Watchdog):
            return value
        if not isinstance(value, Mapping):
            raise OutpostError("configuration", "watchdog: a Watchdog or a mapping is expected")
        fields = dict(value)
        if isinstance(repetition := fields.pop("repetition", None), Mapping):
            fields = {**repetition, **fields}
        if isinstance(fields.get("on_stuck"), Mapping):
            fields["on_stuck"] = Intervention(**fields["on_stuck"])
        return cls(**fields)


class Repetition:
    """The window of one pass. `saw` says that an agent is stuck by returning the alert."""

    def __init__(self, watchdog: Watchdog, is_waiting: Callable[[], bool]) -> None:
        self._watchdog = watchdog
        self._is_waiting = is_waiting
        self._window: deque[tuple[str, str | None, str | None]] = deque(maxlen=watchdog.window)
        self.interventions = 0

    def clear(self) -> None:
        """A new pass begins."""
        self._window.clear()

    def saw(self, event: Event) -> StuckEvent | None:
        """Take an event in; the alert when its activity has now been seen too often (WATCH-06)."""
        activity = _activity(event)
        if activity is None:
            return None
        kind, name, scope, payload, call_id = activity
        if call_id is not None and any(seen[0] == scope + kind and seen[2] == call_id for seen in self._window):
            return None
        fingerprint = None if payload is None else f"{kind}\0{name}\0{scope}\0{payload}"
        self._window.append((scope + kind, fingerprint, call_id))
        repeats = 0 if fingerprint is None else sum(1 for seen in self._window if seen[1] == fingerprint)
        if repeats < self._watchdog.max_repeats or self._is_waiting():
            return None
        self._window.clear()
        return StuckEvent(
            activity=kind,
            name=name,
            repeats=repeats,
            window=self._watchdog.window,
            action=self._action(),
            subagent_id=event.subagent_id,
        )

    def _action(self) -> Literal["stop", "warn", "steer"]:
        policy = self._watchdog.on_stuck
        if not isinstance(policy, Intervention):
            return policy
        if self.interventions >= policy.max_interventions:
            return "stop"
        self.interventions += 1
        return "steer"


_MISSING: Final = "missing"
_Activity = tuple[Literal["tool", "file-change"], str | None, str, str | None, str | None]


def _activity(event: Event) -> _Activity | None:
    if isinstance(event, ToolEvent):
        scope = event.subagent_id or event.parent_call_id or "main"
        given = "input" in event.model_fields_set
        return "tool", event.name, scope, _canonical(event.input) if given else _MISSING, event.call_id
    if isinstance(event, FileChangeEvent):
        changes = [dict(change) for change in event.changes]
        return "file-change", None, event.subagent_id or "main", _canonical(changes), event.call_id
    return None


def _canonical(payload: Any) -> str | None:
    # What is not lossless JSON advances the window and never matches (WATCH-04).
    return None if lossless_fault(payload) else json.dumps(payload, sort_keys=True)
