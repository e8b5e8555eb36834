"""A run as it is told: steps with their tool calls, subagents, routes and usage per agent. `timeline` makes it."""

from __future__ import annotations

from typing import Any, Literal

from outpost_lsp.domain.finding import Severity
from outpost_lsp.domain.record import Record
from outpost_lsp.domain.run import Cost
from outpost_lsp.domain.usage import ZERO, Usage


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
    untold: str | None = None
    """Why there is no step in it, in a sentence for people."""
