"""Spans of runs, made from their events: what an observation hub is given to be followed by OpenTelemetry.

`ObservationHub([SpanSink()])` is all. A dispatch and every delegation become `invoke_agent`, with a span for each step,
and under it the decision, the model requests (`chat`) and the tool calls (`execute_tool`). They carry names, counts,
times and faults; prompts, answers and what tools were given and gave only with `content`. The extra `otel` is needed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.trace import SpanKind, Tracer

from outpost_lsp.domain.event import (
    CompactionEvent,
    ConversationEvent,
    Event,
    FallbackEvent,
    FindingEvent,
    HookEvent,
    ModelErrorEvent,
    ModelRetryEvent,
    ModelRouteEvent,
    PhaseEvent,
    PromptEvent,
    ReasoningEvent,
    ResultEvent,
    SteerEvent,
    StepEvent,
    StuckEvent,
    SubagentEvent,
    TextDeltaEvent,
    TextEvent,
    ToolDeniedEvent,
    ToolEvent,
    ToolResultEvent,
    UsageEvent,
)
from outpost_lsp.domain.observation import (
    DecisionEvent,
    DispatchFinishedEvent,
    DispatchStartEvent,
    Observation,
)
from outpost_lsp.telemetry import attributes as names
from outpost_lsp.telemetry.open_spans import Answered, Call, OpenLoop, failed, nanoseconds

_OF_THE_ANSWER: Final = (TextEvent, ReasoningEvent, TextDeltaEvent, UsageEvent, ToolEvent, ToolDeniedEvent)
"""What may follow a request and still belongs to its answer."""

Run = dict[str | None, OpenLoop]
"""The loops of a dispatch by the id of the delegation; the main one under `None`."""


class SpanSink:
    """A synchronous sink of an observation hub; one may follow any number of dispatches.

    `tracer` makes the spans, that of the global provider when absent; a dispatch's span is a child of the span that is
    current where it starts. `providers` says which kind of service has which model, by the service's own model name.
    `masks` are patterns of what no text shows.
    """

    def __init__(
        self,
        tracer: Tracer | None = None,
        *,
        content: bool = False,
        providers: Mapping[str, str] | None = None,
        masks: Sequence[re.Pattern[str]] = (),
    ) -> None:
        self._tracer = tracer or trace.get_tracer("outpost_lsp")
        self._content = content
        self._providers = providers or {}
        self._masks = masks
        self._runs: dict[str | None, Run] = {}

    def __call__(self, observation: Observation) -> None:
        """Take one observation."""
        event, dispatch = observation.event, observation.scope.dispatch_id
        if isinstance(event, DispatchStartEvent):
            self._begin(dispatch)
            return
        run = self._runs.get(dispatch)
        if run is None:
            return
        if isinstance(event, DispatchFinishedEvent):
            del self._runs[dispatch]
            _finish(run, event, self._text)
            return
        owner = event.subagent_id or observation.scope.subagent_id
        loop = run.get(owner) or run[None]
        if not isinstance(event, _OF_THE_ANSWER):
            loop.settle()
        self._take(run, loop, event)

    def _begin(self, dispatch: str | None) -> None:
        attributes = {names.OPERATION: "invoke_agent"} | ({names.RUN_ID: dispatch} if dispatch else {})
        span = self._tracer.start_span("invoke_agent", kind=SpanKind.INTERNAL, attributes=attributes)
        self._runs[dispatch] = {None: OpenLoop(self._tracer, span)}

    def _take(self, run: Run, loop: OpenLoop, event: Event) -> None:
        match event:
            case StepEvent():
                loop.begin_step(event.index)
            case UsageEvent():
                self._used(loop, event)
            case ModelErrorEvent():
                self._request(loop, event.model or "", names.OTHER, event.message)
            case ToolEvent():
                self._called(loop, event)
            case ToolDeniedEvent():
                if (call := loop.waiting(event.call_id)) is not None:
                    call.is_denied = True
            case ToolResultEvent():
                self._returned(loop, event)
            case SubagentEvent():
                self._delegated(run, loop, event)
            case DecisionEvent():
                self._decided(loop, event)
            case ModelRouteEvent():
                _routed(loop, event)
            case TextEvent() if self._content and loop.answered is not None:
                self._said(loop.answered, names.text_part(event.text))
            case PhaseEvent() | ConversationEvent() | PromptEvent() | ResultEvent():
                self._of_the_agent(loop.span, event)
            case _:
                _noted(loop, event)

    def _of_the_agent(self, span: trace.Span, event: Event) -> None:
        match event:
            case PhaseEvent(agent=str(agent)):
                span.update_name(f"invoke_agent {agent}")
                span.set_attribute(names.AGENT_NAME, agent)
            case ConversationEvent():
                span.set_attribute(names.CONVERSATION, event.id)
            case PromptEvent() if self._content:
                self._tell(span, names.INPUT_MESSAGES, names.message("user", [names.text_part(event.text)]))
            case ResultEvent() if self._content:
                self._tell(span, names.OUTPUT_MESSAGES, names.message("assistant", [names.text_part(event.text)]))
            case _:
                pass

    # Requests

    def _used(self, loop: OpenLoop, event: UsageEvent) -> None:
        if event.source == "decision":
            # The decision's own event tells it.
            return
        answered = loop.answered
        if answered is None or not answered.is_failed:
            loop.settle()
            answered = self._request(loop, event.model or "")
        elif event.model:
            answered.span.update_name(f"chat {event.model}")
            answered.span.set_attributes(self._model(event.model))
        answered.span.set_attributes(names.usage_attributes(event.tokens))
        if event.source == "summary":
            answered.span.set_attribute(names.PURPOSE, "summary")

    def _request(self, loop: OpenLoop, model: str, fault: str | None = None, message: str | None = None) -> Answered:
        span = loop.start(
            f"chat {model}".rstrip(),
            SpanKind.CLIENT,
            {names.OPERATION: "chat", **self._model(model)},
            at=loop.asked,
        )
        if loop.max_output_tokens is not None:
            span.set_attribute(names.REQUEST_MAX_TOKENS, loop.max_output_tokens)
        if fault is not None:
            failed(span, fault, self._text(message))
        loop.now()
        loop.answered = Answered(span, loop.asked, is_failed=fault is not None)
        return loop.answered

    def _model(self, model: str) -> dict[str, str]:
        provider = self._providers.get(model)
        return ({names.REQUEST_MODEL: model} if model else {}) | ({names.PROVIDER: provider} if provider else {})

    def _said(self, answered: Answered, part: dict[str, Any]) -> None:
        answered.parts.append(part)
        self._tell(answered.span, names.OUTPUT_MESSAGES, names.message("assistant", answered.parts))

    def _decided(self, loop: OpenLoop, event: DecisionEvent) -> None:
        if event.status == "started":
            loop.decision = loop.start(
                f"decide {event.model}",
                SpanKind.CLIENT,
                {names.OPERATION: "decide", names.PROVIDER: event.provider, names.REQUEST_MODEL: event.model},
            )
            return
        span, loop.decision = loop.decision, None
        if span is None:
            return
        if event.usage is not None:
            span.set_attributes(names.usage_attributes(event.usage))
        if event.truncated is not None:
            span.set_attribute(names.TRUNCATED, event.truncated)
        if event.status == "failed":
            failed(span, event.code or names.OTHER)
        else:
            span.set_attribute(names.RESPONSE_MODEL, event.model)
        span.end()
        loop.now()

    # Tools

    def _called(self, loop: OpenLoop, event: ToolEvent) -> None:
        call = Call(event.name, event.input, loop.asked)
        loop.call(event.call_id, call)
        if self._content and loop.answered is not None:
            self._said(loop.answered, names.call_part(event.call_id, event.name, event.input))

    def _returned(self, loop: OpenLoop, event: ToolResultEvent) -> None:
        call = loop.take(event.call_id)
        if call is None:
            return
        began = nanoseconds(event.started_at)
        if began is not None and call.ended is None:
            call.ended = began + (event.duration_ms or 0) * 1_000_000
        span = loop.work(event.call_id, call, at=began or call.announced)
        if event.is_error:
            failed(span, "denied" if call.is_denied else "tool_error", self._text(event.preview))
        if self._content:
            self._tell(span, names.TOOL_ARGUMENTS, names.as_json(call.input))
            self._tell(span, names.TOOL_RESULT, event.preview)
        span.end(call.ended)

    def _delegated(self, run: Run, parent: OpenLoop, event: SubagentEvent) -> None:
        if event.status == "started":
            call = parent.waiting(event.call_id)
            within = parent.inner if call is None else trace.set_span_in_context(parent.work(event.call_id, call))
            attributes = {
                names.OPERATION: "invoke_agent",
                names.AGENT_NAME: event.name,
                names.SUBAGENT_ID: event.id,
            } | ({names.CONVERSATION: event.conversation} if event.conversation else {})
            span = self._tracer.start_span(f"invoke_agent {event.name}", within, SpanKind.INTERNAL, attributes)
            run[event.id] = OpenLoop(self._tracer, span, event.id)
        elif (child := run.pop(event.id, None)) is not None:
            child.end(names.OTHER if event.status == "failed" else None)
            if (call := parent.waiting(event.call_id)) is not None:
                call.ended = time.time_ns()

    # Texts

    def _text(self, text: str | None) -> str | None:
        return names.masked(text, self._masks) if self._content and text else None

    def _tell(self, span: trace.Span, name: str, text: str) -> None:
        span.set_attribute(name, names.masked(text, self._masks))


def _routed(loop: OpenLoop, event: ModelRouteEvent) -> None:
    loop.max_output_tokens = event.model.max_output_tokens
    span = loop.step or loop.span
    span.set_attributes({names.ROUTE: event.choice, names.ROUTE_REASON: event.reason})
    if event.confidence is not None:
        span.set_attribute(names.ROUTE_CONFIDENCE, event.confidence)
    if event.rule is not None:
        span.set_attribute(names.ROUTE_RULE, event.rule)
    loop.now()


def _noted(loop: OpenLoop, event: Event) -> None:
    """What is a moment and not a stretch: an event of the step, without its words."""
    span = loop.step or loop.span
    match event:
        case HookEvent(phase="before-model"):
            loop.now()
        case CompactionEvent():
            span.add_event("outpost.compaction", {"strategy": event.strategy, "messages": event.messages})
            loop.now()
        case ModelRetryEvent():
            span.add_event("outpost.retry", {"attempt": event.attempt})
        case FindingEvent(finding=finding) if finding is not None:
            span.add_event("outpost.finding", {"severity": finding.severity, "code": finding.code})
        case FindingEvent():
            span.add_event("outpost.finding.refused")
        case SteerEvent():
            span.add_event("outpost.steered", {"mode": event.mode})
        case StuckEvent():
            span.add_event("outpost.stuck", {"repeats": event.repeats, "action": event.action})
        case FallbackEvent():
            span.add_event(
                "outpost.fallback", {"from": event.from_.name, "to": event.to.name, "failure": event.failure}
            )
        case _:
            pass


def _finish(run: Run, event: DispatchFinishedEvent, text: Any) -> None:
    main = run.pop(None)
    # Children that were cut off, the innermost first.
    for child in reversed(run.values()):
        child.end("aborted" if event.status == "cancelled" else names.OTHER)
    main.span.set_attributes(names.usage_attributes(event.usage))
    error = event.error or {}
    if event.status == "done":
        main.end()
    elif event.status == "cancelled":
        main.end("aborted")
    else:
        main.end(str(error.get("code") or names.OTHER), text(str(error.get("message", ""))))
