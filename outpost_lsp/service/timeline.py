"""What happened in a run, told from its journal: steps with their tool calls, subagents, routes and usage per agent.

A journal is all that is read, so that a run of another process, or of last week, is told like one of now. A record that
is odd or of a newer version costs its own line only. Used by `outpost.show`, `outpost-lsp show` and the HTML page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pydantic import TypeAdapter, ValidationError

from outpost_lsp.domain.event import (
    AgentEvent,
    CompactionEvent,
    Event,
    FindingEvent,
    ModelRouteEvent,
    SteerEvent,
    StepEvent,
    SubagentEvent,
    TextEvent,
    ToolDeniedEvent,
    ToolEvent,
    ToolResultEvent,
    UsageEvent,
    WarningEvent,
)
from outpost_lsp.domain.record import Record
from outpost_lsp.domain.usage import ZERO, Usage
from outpost_lsp.storage.journal import JournalRecord

_EVENTS: Final[TypeAdapter[AgentEvent]] = TypeAdapter(AgentEvent)


class ToolCall(Record):
    """A tool call of a step and how it ended."""

    call_id: str
    name: str
    input: Any = None
    at: str
    status: Literal["running", "ok", "failed", "denied"] = "running"
    preview: str | None = None


class Step(Record):
    """One model request with what came of it. `subagent_id` is absent in the main loop."""

    index: int
    subagent_id: str | None = None
    at: str
    texts: tuple[str, ...] = ()
    tools: tuple[ToolCall, ...] = ()
    notes: tuple[str, ...] = ()
    usage: Usage = ZERO


class Subagent(Record):
    """A delegation."""

    id: str
    name: str
    parent_id: str | None = None
    call_id: str
    status: Literal["started", "finished", "failed"]
    conversation: str | None = None
    started_at: str
    finished_at: str | None = None


class Route(Record):
    """A routing selection."""

    step: int
    subagent_id: str | None = None
    at: str
    choice: str
    model: str
    reason: Literal["selected", "confidence", "unavailable"]
    confidence: float | None = None
    reported_confidence: float | None = None
    rule: str | None = None


class AgentUsage(Record):
    """What one loop used by itself, its children not counted."""

    subagent_id: str | None = None
    name: str | None = None
    usage: Usage


class Timeline(Record):
    """A run from its first step to its last."""

    steps: tuple[Step, ...] = ()
    subagents: tuple[Subagent, ...] = ()
    routes: tuple[Route, ...] = ()
    usage: tuple[AgentUsage, ...] = ()


@dataclass(slots=True)
class _Draft:
    """A step while its events arrive."""

    index: int
    subagent_id: str | None
    at: str
    texts: list[str] = field(default_factory=list)
    tools: dict[str, ToolCall] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    usage: Usage = ZERO

    def step(self) -> Step:
        return Step(
            index=self.index,
            subagent_id=self.subagent_id,
            at=self.at,
            texts=tuple(self.texts),
            tools=tuple(self.tools.values()),
            notes=tuple(self.notes),
            usage=self.usage,
        )


class _Teller:
    """Turns events into the timeline, in one pass."""

    def __init__(self) -> None:
        self._steps: list[_Draft] = []
        self._current: dict[str | None, _Draft] = {}
        self._subagents: dict[str, Subagent] = {}
        self._routes: list[Route] = []
        self._usage: dict[str | None, Usage] = {}
        self._found: dict[str, tuple[_Draft, int]] = {}
        """Where each finding is told."""

    def timeline(self) -> Timeline:
        names = {id: subagent.name for id, subagent in self._subagents.items()}
        return Timeline(
            steps=tuple(draft.step() for draft in self._steps),
            subagents=tuple(self._subagents.values()),
            routes=tuple(self._routes),
            usage=tuple(
                AgentUsage(subagent_id=id, name=None if id is None else names.get(id), usage=usage)
                for id, usage in self._usage.items()
            ),
        )

    def take(self, event: Event, at: str) -> None:
        owner = event.subagent_id
        match event:
            case StepEvent():
                self._current[owner] = _Draft(event.index, owner, at)
                self._steps.append(self._current[owner])
            case ModelRouteEvent():
                self._routes.append(_route(event, at))
            case SubagentEvent():
                self._delegation(event, at)
            case UsageEvent():
                self._count(event)
            case FindingEvent(finding=finding) if finding is not None and finding.id in self._found:
                # What was merged into it, or said of it again, makes it no second one.
                draft, place = self._found[finding.id]
                draft.notes[place] = _note(event) or draft.notes[place]
            case _ if (draft := self._current.get(owner)) is not None:
                _add_to_step(draft, event, at)
                if isinstance(event, FindingEvent) and event.finding is not None:
                    self._found[event.finding.id] = (draft, len(draft.notes) - 1)

    def _delegation(self, event: SubagentEvent, at: str) -> None:
        known = self._subagents.get(event.id)
        self._subagents[event.id] = Subagent(
            id=event.id,
            name=event.name,
            parent_id=event.subagent_id,
            call_id=event.call_id,
            status=event.status,
            conversation=event.conversation or (known.conversation if known else None),
            started_at=known.started_at if known else at,
            finished_at=None if event.status == "started" else at,
        )

    def _count(self, event: UsageEvent) -> None:
        owner = event.subagent_id
        self._usage[owner] = self._usage.get(owner, ZERO) + event.tokens
        if (draft := self._current.get(owner)) is not None:
            draft.usage = draft.usage + event.tokens


def timeline(records: Iterable[JournalRecord]) -> Timeline:
    """The timeline of the run that a journal tells of."""
    teller = _Teller()
    for record in records:
        event = _event(record.event)
        if event is not None:
            teller.take(event, record.at)
    return teller.timeline()


def _event(value: Mapping[str, Any]) -> Event | None:
    try:
        return _EVENTS.validate_python(value)
    except ValidationError:
        # An observation that is no agent event, or one of a newer version.
        return None


def _add_to_step(draft: _Draft, event: Event, at: str) -> None:
    match event:
        case TextEvent():
            draft.texts.append(event.text)
        case ToolEvent():
            call_id = event.call_id or f"call {len(draft.tools) + 1}"
            draft.tools[call_id] = ToolCall(call_id=call_id, name=event.name, input=event.input, at=at)
        case ToolResultEvent():
            _end_call(draft, event.call_id, event.name, "failed" if event.is_error else "ok", event.preview, at)
        case ToolDeniedEvent():
            _end_call(draft, event.call_id, event.name, "denied", event.reason, at)
        case _ if (note := _note(event)) is not None:
            draft.notes.append(note)


def _end_call(
    draft: _Draft, call_id: str, name: str, status: Literal["ok", "failed", "denied"], preview: str, at: str
) -> None:
    known = draft.tools.get(call_id) or ToolCall(call_id=call_id, name=name, at=at)
    # The result of a denied call is an error too; that it was denied says more.
    if known.status != "denied":
        draft.tools[call_id] = known.model_copy(update={"status": status, "preview": preview})


def _note(event: Event) -> str | None:
    match event:
        case FindingEvent(finding=finding) if finding is not None:
            return f"finding {finding.path}:{finding.span.start_line + 1}: {finding.severity}: {finding.title}"
        case FindingEvent(rejected=str(reason)):
            return f"finding refused: {reason}"
        case SteerEvent():
            return f"instruction {event.mode}: {event.text}"
        case CompactionEvent():
            return f"history shortened by {event.strategy}"
        case WarningEvent():
            return event.message
        case _:
            return None


def _route(event: ModelRouteEvent, at: str) -> Route:
    return Route(
        step=event.step,
        subagent_id=event.subagent_id,
        at=at,
        choice=event.choice,
        model=event.model.name,
        reason=event.reason,
        confidence=event.confidence,
        reported_confidence=event.reported_confidence,
        rule=event.rule,
    )
