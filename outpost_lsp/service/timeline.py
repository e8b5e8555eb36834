"""What happened in a run, told from its journal: steps with their tool calls, subagents, routes and usage per agent.

A journal is all that is read, so that a run of another process, or of last week, is told like one of now. A record that
is odd or of a newer version costs its own line only. What a request used that left no receipt, as that of a killed
process, is unknown and never 0. Used by `outpost.show`, `outpost-lsp show` and the HTML page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
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
from outpost_lsp.domain.finding import Finding
from outpost_lsp.domain.price import ModelPriceTable, usage_cost
from outpost_lsp.domain.run import Cost, Run
from outpost_lsp.domain.usage import UNKNOWN, ZERO, Usage
from outpost_lsp.errors import OutpostError
from outpost_lsp.service.timeline_shape import AgentUsage, Reported, Route, Step, Subagent, Timeline, ToolCall
from outpost_lsp.storage.journal import JournalRecord

_Ended = Literal["ok", "failed", "denied"]
_EVENTS: Final[TypeAdapter[AgentEvent]] = TypeAdapter(AgentEvent)


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
    is_answered: bool = False
    """Whether there is a receipt of the model that took the step."""
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
        self._is_whole = False
        """Whether the dispatch ended, and knew all that it used."""
        self._sources: set[str] = set()

    def timeline(self) -> Timeline:
        if not self._is_whole:
            self._mark_unanswered()
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
            untold=self._untold(),
        )

    def read(self, record: JournalRecord) -> None:
        """Take the next record of a journal."""
        self._sources.add(record.source)
        if record.kind == "dispatch-finished":
            usage = record.event.get("usage")
            self._is_whole = isinstance(usage, dict) and usage.get("complete") is not False
        elif (event := _event(record.event)) is not None:
            self.take(event, record.at)

    def _mark_unanswered(self) -> None:
        """A step without a receipt asked for something that nobody can tell the price of."""
        for draft in self._steps:
            if not draft.is_answered:
                draft.usage = draft.usage + UNKNOWN
                self._usage[draft.subagent_id] = self._usage.get(draft.subagent_id, ZERO) + UNKNOWN

    def _untold(self) -> str | None:
        if self._steps:
            return None
        if not self._sources:
            return "its journal is empty, or holds no record that can be read; run it again to have one"
        if "agent" in self._sources:
            return "its agent is a program of its own, which tells no steps"
        return "it ended before its agent's first step" if self._is_whole else "its agent has not begun a step"

    def take(self, event: Event, at: str) -> None:
        """Take the next event of an agent."""
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
            draft.is_answered = draft.is_answered or event.source in ("model", None)


def timeline(records: Iterable[JournalRecord], prices: ModelPriceTable | None = None) -> Timeline:
    """The timeline of the run that a journal tells of; with costs when there are prices."""
    teller = _Teller(prices)
    for record in records:
        teller.read(record)
    return teller.timeline()


def without_journal(run: Run, path: Path) -> str:
    """Why a run without a journal has no timeline."""
    if run.kind == "replay":
        return "a replay keeps no journal: the run that it went through has the steps"
    if not run.is_finished:
        return f"it is {run.status} and has written no journal so far; ask again when its agent works"
    return (
        f"there is no journal {path}: it ended before its agent began, or the file was removed; run it again to have "
        "one, or put the file back"
    )


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
