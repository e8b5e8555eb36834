"""What happened in a run, told from its journal: steps with their tool calls, subagents, routes and usage per agent.

A journal is all that is read, so that a run of another process, or of last week, is told like one of now. A record that
is odd or of a newer version costs its own line only. Used by `outpost.show`, `outpost-lsp show` and the HTML page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
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
from outpost_lsp.domain.finding import Finding, Severity
from outpost_lsp.domain.price import ModelPriceTable, usage_cost
from outpost_lsp.domain.record import Record
from outpost_lsp.domain.run import Cost
from outpost_lsp.domain.usage import ZERO, Usage
from outpost_lsp.errors import OutpostError
from outpost_lsp.storage.journal import JournalRecord

_Ended = Literal["ok", "failed", "denied"]
_EVENTS: Final[TypeAdapter[AgentEvent]] = TypeAdapter(AgentEvent)


class ToolCall(Record):
    """A tool call of a step and how it ended. `duration_ms` is its own time, without what it waited for others."""

    call_id: str
    name: str
    input: Any = None
    at: str
    status: Literal["running", "ok", "failed", "denied"] = "running"
    preview: str | None = None
    duration_ms: int | None = None


class Reported(Record):
    """A finding where it was reported."""

    id: str
    path: str
    line: int
    severity: Severity
    title: str


class Step(Record):
    """One model request with what came of it. `subagent_id` is absent in the main loop.

    `duration_ms` reaches to the last thing that happened in it; `cost` is there when prices are.
    """

    index: int
    subagent_id: str | None = None
    at: str
    duration_ms: int = 0
    cost: Cost | None = None
    findings: tuple[Reported, ...] = ()
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
    cost: Cost | None = None


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
    findings: dict[str, Reported] = field(default_factory=dict)
    usage: Usage = ZERO
    last: str = ""

    def step(self, prices: ModelPriceTable | None) -> Step:
        return Step(
            index=self.index,
            subagent_id=self.subagent_id,
            at=self.at,
            duration_ms=_milliseconds(self.at, self.last),
            cost=_cost(self.usage, prices),
            findings=tuple(self.findings.values()),
            texts=tuple(self.texts),
            tools=tuple(self.tools.values()),
            notes=tuple(self.notes),
            usage=self.usage.model_copy(update={"models": None}),
        )


class _Teller:
    """Turns events into the timeline, in one pass."""

    def __init__(self, prices: ModelPriceTable | None) -> None:
        self._prices = prices
        self._steps: list[_Draft] = []
        self._current: dict[str | None, _Draft] = {}
        self._subagents: dict[str, Subagent] = {}
        self._routes: list[Route] = []
        self._usage: dict[str | None, Usage] = {}
        self._found: dict[str, tuple[_Draft, int]] = {}
        """Where each finding is told."""
        self._early: dict[str | None, list[str]] = {}
        """What was told of a loop before its first step, such as an instruction that came with the brief."""

    def timeline(self) -> Timeline:
        names = {id: subagent.name for id, subagent in self._subagents.items()}
        return Timeline(
            steps=tuple(draft.step(self._prices) for draft in self._steps),
            subagents=tuple(self._subagents.values()),
            routes=tuple(self._routes),
            usage=tuple(
                AgentUsage(
                    subagent_id=id,
                    name=None if id is None else names.get(id),
                    usage=usage.model_copy(update={"models": None}),
                    cost=_cost(usage, self._prices),
                )
                for id, usage in self._usage.items()
            ),
        )

    def take(self, event: Event, at: str) -> None:
        owner = event.subagent_id
        if not isinstance(event, StepEvent) and (current := self._current.get(owner)) is not None:
            current.last = at
        match event:
            case StepEvent():
                self._current[owner] = _Draft(event.index, owner, at, notes=self._early.pop(owner, []))
                self._steps.append(self._current[owner])
            case ModelRouteEvent():
                self._routes.append(_route(event, at))
            case SubagentEvent():
                self._delegation(event, at)
            case UsageEvent():
                self._count(event)
            case FindingEvent(finding=finding) if finding is not None and finding.id in self._found:
                # What was merged into it, or said of it again, makes it no second one.
                known, place = self._found[finding.id]
                known.notes[place] = _note(event) or known.notes[place]
                known.findings[finding.id] = _reported(finding)
            case _ if (draft := self._current.get(owner)) is not None:
                _add_to_step(draft, event, at)
                if isinstance(event, FindingEvent) and event.finding is not None:
                    self._found[event.finding.id] = (draft, len(draft.notes) - 1)
                    draft.findings[event.finding.id] = _reported(event.finding)
            case _ if (note := _note(event)) is not None:
                self._early.setdefault(owner, []).append(note)

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
        used = event.tokens if event.model is None else event.tokens.attributed(event.model)
        self._usage[owner] = self._usage.get(owner, ZERO) + used
        if (draft := self._current.get(owner)) is not None:
            draft.usage = draft.usage + used


def timeline(records: Iterable[JournalRecord], prices: ModelPriceTable | None = None) -> Timeline:
    """The timeline of the run that a journal tells of; with costs when there are prices."""
    teller = _Teller(prices)
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
            status: _Ended = "failed" if event.is_error else "ok"
            _end_call(draft, event.call_id, event.name, status, event.preview, at, event.duration_ms)
        case ToolDeniedEvent():
            _end_call(draft, event.call_id, event.name, "denied", event.reason, at)
        case _ if (note := _note(event)) is not None:
            draft.notes.append(note)


def _end_call(
    draft: _Draft, call_id: str, name: str, status: _Ended, preview: str, at: str, duration_ms: int | None = None
) -> None:
    known = draft.tools.get(call_id) or ToolCall(call_id=call_id, name=name, at=at)
    # The result of a denied call is an error too; that it was denied says more.
    if known.status != "denied":
        draft.tools[call_id] = known.model_copy(
            update={"status": status, "preview": preview, "duration_ms": duration_ms}
        )


def _milliseconds(start: str, end: str) -> int:
    try:
        return max(round((datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds() * 1000), 0)
    except (ValueError, TypeError):
        # A step in which nothing happened yet, or times of another make.
        return 0


def _cost(usage: Usage, prices: ModelPriceTable | None) -> Cost | None:
    if prices is None:
        return None
    try:
        estimate = usage_cost(usage, prices)
    except OutpostError:
        # Counts that contradict each other have no price.
        return Cost(amount=0, currency=prices.currency, complete=False)
    return Cost(amount=estimate.amount, currency=estimate.currency, complete=estimate.complete)


def _reported(finding: Finding) -> Reported:
    return Reported(
        id=finding.id,
        path=finding.path,
        line=finding.span.start_line + 1,
        severity=finding.severity,
        title=finding.title,
    )


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
