"""The spans that are open while a loop works: its own, its step's, its requests' and its calls'.

A loop is the main agent or one delegation. Spans end in the order in which they began to nest, whatever happens, so
that none is lost and none ends before what it holds.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from outpost_lsp.telemetry import attributes as names


@dataclass(slots=True)
class Call:
    """A tool call that was announced. Its span is made when its work begins, or when its result tells when it began."""

    name: str
    input: Any
    announced: int
    span: Span | None = None
    ended: int | None = None
    is_denied: bool = False


@dataclass(slots=True)
class Answered:
    """A model request that is over, held open for what the answer said."""

    span: Span
    ended: int
    is_failed: bool
    parts: list[dict[str, Any]] = field(default_factory=list)


class OpenLoop:
    """One agent at work. `subagent_id` is absent for the main one."""

    def __init__(self, tracer: Tracer, span: Span, subagent_id: str | None = None) -> None:
        self.span = span
        self.subagent_id = subagent_id
        self.step: Span | None = None
        self.decision: Span | None = None
        self.answered: Answered | None = None
        self.asked = time.time_ns()
        """When the next request began, as far as anybody was told."""
        self.max_output_tokens: int | None = None
        self._calls: dict[str | None, deque[Call]] = {}
        self._tracer = tracer

    @property
    def inner(self) -> Context:
        """Where the next span belongs: under the step, or under the agent when it makes none."""
        return set_span_in_context(self.step or self.span)

    def start(self, name: str, kind: SpanKind, attributes: Mapping[str, Any], *, at: int | None = None) -> Span:
        """A span within the current step."""
        return self._tracer.start_span(name, self.inner, kind, attributes, start_time=at)

    def begin_step(self, index: int) -> None:
        """The next step, after the one before."""
        self.end_step()
        within = set_span_in_context(self.span)
        self.step = self._tracer.start_span(f"step {index}", within, SpanKind.INTERNAL, {names.STEP: index})
        self.now()

    def now(self) -> None:
        """Whatever comes before a request is over: it begins here."""
        self.asked = time.time_ns()

    def call(self, call_id: str | None, call: Call) -> None:
        """Remember a call; a service may use an id twice within one answer (TOOL-16)."""
        self._calls.setdefault(call_id, deque()).append(call)

    def waiting(self, call_id: str | None) -> Call | None:
        """The first call with this id that has no result yet."""
        calls = self._calls.get(call_id)
        return calls[0] if calls else None

    def work(self, call_id: str | None, call: Call, *, at: int | None = None) -> Span:
        """The span of a call's work, begun now or at `at`."""
        if call.span is None:
            attributes = {names.OPERATION: "execute_tool", names.TOOL_NAME: call.name, names.TOOL_TYPE: "function"}
            if call_id is not None:
                attributes[names.TOOL_CALL] = call_id
            call.span = self.start(f"execute_tool {call.name}", SpanKind.INTERNAL, attributes, at=at)
        return call.span

    def take(self, call_id: str | None) -> Call | None:
        """The first call with this id, which is over now."""
        calls = self._calls.get(call_id)
        return calls.popleft() if calls else None

    def settle(self) -> None:
        """The answer to the last request is complete."""
        if self.answered is not None:
            self.answered.span.end(self.answered.ended)
            self.answered = None

    def end_step(self) -> None:
        """End what the step holds, and the step."""
        self.settle()
        if self.decision is not None:
            self.decision.end()
            self.decision = None
        for call_id, calls in self._calls.items():
            for call in calls:
                self.work(call_id, call, at=call.announced).end()
        self._calls.clear()
        if self.step is not None:
            self.step.end()
            self.step = None

    def end(self, failure: str | None = None, message: str | None = None) -> None:
        """End everything, the agent's own span last."""
        self.end_step()
        if failure is not None:
            failed(self.span, failure, message)
        self.span.end()


def failed(span: Span, kind: str, message: str | None = None) -> None:
    """Mark a span as failed."""
    span.set_attribute(names.ERROR_TYPE, kind)
    span.set_status(Status(StatusCode.ERROR, message))


def nanoseconds(moment: str | None) -> int | None:
    """An RFC 3339 time in nanoseconds; `None` for one that is absent or odd."""
    if moment is None:
        return None
    try:
        return int(datetime.fromisoformat(moment).timestamp() * 1e9)
    except ValueError:
        return None
