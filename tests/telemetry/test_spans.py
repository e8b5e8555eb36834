"""Spans of dispatches, collected by OpenTelemetry's own in-memory exporter."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from outpost_lsp import (
    Agent,
    Choice,
    Decision,
    Harness,
    Limits,
    ModelRouting,
    ModelSpec,
    ObservationHub,
    OutpostError,
    ScriptedDecisionProvider,
    Subagent,
    UsageLimits,
    summarize_history,
    tool,
)
from outpost_lsp.domain.decision import DecisionProviderResult
from outpost_lsp.domain.usage import Usage
from outpost_lsp.telemetry.spans import SpanSink
from tests.harness.conftest import stage
from tests.harness.stage import Stage, agent, calls, echo, provider, says, usage

__all__ = ["stage"]

SECRET = "a-very-secret-word"


class Spans:
    """What was recorded, found by name."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")

    def hub(self, **options: Any) -> ObservationHub:
        return ObservationHub([SpanSink(self.tracer, **options)])

    @property
    def all(self) -> list[ReadableSpan]:
        return sorted(self.exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        [span] = self.named(name)
        return span

    def path(self, span: ReadableSpan) -> list[str]:
        """The names of the spans around one, the outermost first."""
        by_id = {one.context.span_id: one for one in self.all}
        names: list[str] = []
        around: ReadableSpan | None = span
        while around is not None:
            names.insert(0, around.name)
            around = by_id.get(around.parent.span_id) if around.parent is not None else None
        return names

    def check_nesting(self) -> None:
        """Every span has ended, and lies within the one around it."""
        by_id = {one.context.span_id: one for one in self.all}
        for span in self.all:
            assert span.start_time is not None
            assert span.end_time is not None
            assert span.start_time <= span.end_time, span.name
            around = by_id.get(span.parent.span_id) if span.parent is not None else None
            if around is not None:
                # Times of tool calls are told in milliseconds.
                assert (around.start_time or 0) - 1_000_000 <= span.start_time, span.name
                assert span.end_time <= (around.end_time or 0) + 1_000_000, span.name


@pytest.fixture
def spans() -> Iterator[Spans]:
    found = Spans()
    yield found
    found.provider.shutdown()


def routed(label: str, **more: Any) -> DecisionProviderResult:
    answer = {"type": "choice", "choice": label, "probabilities": {"fast": 0.5, "deep": 0.5}, "confidence": 0.9}
    return DecisionProviderResult(model="decider/1", answers={"route": answer}, **more)


def routing(*replies: Any) -> ModelRouting:
    return ModelRouting(
        provider=ScriptedDecisionProvider(replies),
        model="auto",
        decision=Decision({"route": Choice("Choose.", {"fast": "Routine", "deep": "Repairs"})}),
        question="route",
        models={"fast": ModelSpec("small", max_output_tokens=12), "deep": ModelSpec("large")},
        fallback="deep",
    )


async def test_a_dispatch_with_a_child_is_a_tree_of_agents_steps_requests_decisions_and_tools(
    stage: Stage, spans: Spans
) -> None:
    child = agent(calls(("echo", {"text": SECRET})), says(SECRET), tools=[echo])
    decisions = [routed("fast", usage=Usage(input=5, output=1)), routed("deep")]
    parent = Agent(
        "initial",
        Harness(
            provider(calls(("review", {"prompt": SECRET}), text=SECRET), says(SECRET)),
            instructions=SECRET,
            tools=[Subagent("review", "Delegates.", child)],
            routing=routing(*decisions),
        ),
    )
    await stage.run(parent, SECRET, observation=spans.hub(providers={"small": "openai"}), label="coordinator")
    spans.check_nesting()

    top = spans.one("invoke_agent coordinator")
    assert top.parent is None
    assert dict(top.attributes or {}) | {"outpost.run.id": "", "gen_ai.conversation.id": ""} == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "coordinator",
        "gen_ai.conversation.id": "",
        "outpost.run.id": "",
        "gen_ai.usage.input_tokens": 2 + 2 + 2 + 2 + 5,
        "gen_ai.usage.output_tokens": 1 + 1 + 1 + 1 + 1,
        "outpost.usage.complete": False,
    }
    chat = spans.one("chat small")
    assert chat.kind is SpanKind.CLIENT
    assert dict(chat.attributes or {}) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "small",
        "gen_ai.request.max_tokens": 12,
        "gen_ai.usage.input_tokens": 2,
        "gen_ai.usage.output_tokens": 1,
    }
    first, second = spans.named("decide auto")
    assert dict(first.attributes or {}) == {
        "gen_ai.operation.name": "decide",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "auto",
        "gen_ai.response.model": "decider/1",
        "gen_ai.usage.input_tokens": 5,
        "gen_ai.usage.output_tokens": 1,
    }
    # Unknown is not zero.
    assert not [name for name in second.attributes or {} if "tokens" in name]
    assert (second.attributes or {})["outpost.usage.complete"] is False
    step = spans.named("step 1")[0]
    assert (step.attributes or {})["outpost.route"] == "fast"
    assert (step.attributes or {})["outpost.route.reason"] == "selected"

    inner = spans.one("invoke_agent review")
    assert (inner.attributes or {})["gen_ai.agent.name"] == "review"
    assert spans.path(inner) == ["invoke_agent coordinator", "step 1", "execute_tool review", "invoke_agent review"]
    assert spans.path(spans.one("execute_tool echo")) == [*spans.path(inner), "step 1", "execute_tool echo"]
    assert (spans.one("execute_tool echo").attributes or {}) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "echo",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "call-1",
    }
    assert SECRET not in "".join(span.to_json() for span in spans.all), "no content unless it is asked for"


async def test_content_is_there_when_it_is_asked_for_and_what_is_masked_stays_masked(
    stage: Stage, spans: Spans
) -> None:
    subject = agent(calls(("echo", {"text": "hello"}), text="I look."), says(f"The key is {SECRET}."), tools=[echo])
    await stage.run(subject, "Look.", observation=spans.hub(content=True, masks=[re.compile(SECRET)]))
    chats = [
        json.loads(str((span.attributes or {})["gen_ai.output.messages"])) for span in spans.named("chat scripted")
    ]
    assert chats[0] == [
        {
            "role": "assistant",
            "parts": [
                {"type": "text", "content": "I look."},
                {"type": "tool_call", "id": "call-1", "name": "echo", "arguments": {"text": "hello"}},
            ],
        }
    ]
    assert chats[1][0]["parts"] == [{"type": "text", "content": "The key is [redacted]."}]
    call = spans.one("execute_tool echo").attributes or {}
    assert call["gen_ai.tool.call.arguments"] == '{"text": "hello"}'
    assert call["gen_ai.tool.call.result"] == "echo: hello"
    [top] = [span for span in spans.all if span.parent is None]
    assert json.loads(str((top.attributes or {})["gen_ai.input.messages"]))[0]["parts"][0]["content"].startswith(
        "Look."
    )
    assert SECRET not in "".join(span.to_json() for span in spans.all)


async def test_calls_of_one_answer_have_their_own_times(stage: Stage, spans: Spans) -> None:
    import asyncio

    @tool(read_only=True)
    async def slow() -> str:
        """Take a moment."""
        await asyncio.sleep(0.05)
        return "slow"

    @tool(read_only=True)
    async def quick() -> str:
        """Take none."""
        return "quick"

    subject = agent(calls(("slow", {}), ("quick", {}), ("nothing", {})), says("done"), tools=[slow, quick])
    await stage.run(subject, observation=spans.hub())
    spans.check_nesting()
    took = {span.name: (span.end_time or 0) - (span.start_time or 0) for span in spans.all}
    assert took["execute_tool slow"] >= 45_000_000
    assert took["execute_tool quick"] < took["execute_tool slow"]
    unknown = spans.one("execute_tool nothing")
    assert unknown.status.status_code is StatusCode.ERROR
    assert (unknown.attributes or {})["error.type"] == "tool_error"


async def test_faults_mark_the_spans_they_broke_with_their_kind_and_not_with_their_words(
    stage: Stage, spans: Spans
) -> None:
    child = agent(OutpostError("provider", f"HTTP 500 {SECRET}", {"unavailable": "HTTP 500"}))
    parent = agent(
        calls(("review", {"prompt": "x"})),
        OutpostError("quota", "wait"),
        tools=[Subagent("review", "Delegates.", child)],
    )
    with pytest.raises(OutpostError):
        await stage.run(parent, observation=spans.hub())
    spans.check_nesting()
    broken = {
        " / ".join(spans.path(span)[-2:]): (span.attributes or {})["error.type"]
        for span in spans.all
        if span.status.status_code is StatusCode.ERROR
    }
    [top] = [span for span in spans.all if span.parent is None]
    assert broken == {
        top.name: "quota",
        "step 2 / chat scripted": "_OTHER",
        "step 1 / execute_tool review": "tool_error",
        "execute_tool review / invoke_agent review": "_OTHER",
        "step 1 / chat scripted": "_OTHER",
    }
    requests = [span.attributes or {} for span in spans.all if span.name.startswith("chat")]
    assert {(one["gen_ai.operation.name"], one["gen_ai.request.model"]) for one in requests} == {("chat", "scripted")}
    assert SECRET not in "".join(span.to_json() for span in spans.all)


async def test_a_breached_budget_and_a_summary_are_told(stage: Stage, spans: Spans) -> None:
    subject = agent(
        calls(("echo", {"text": "x" * 400})),
        calls(("echo", {"text": "y" * 400})),
        says("a summary", tokens=usage(7, 0, 2)),
        says("never", tokens=usage(1, 0, 90)),
        tools=[echo],
        context=summarize_history(trigger_characters=300, keep_recent_messages=2),
        limits=Limits(usage=UsageLimits(output=50)),
    )
    with pytest.raises(OutpostError, match="output"):
        await stage.run(subject, observation=spans.hub())
    spans.check_nesting()
    summary = [span for span in spans.all if (span.attributes or {}).get("outpost.request.purpose") == "summary"]
    assert [(span.attributes or {})["gen_ai.usage.input_tokens"] for span in summary] == [7]
    assert [event.name for span in spans.named("step 3") for event in span.events] == ["outpost.compaction"]
    [top] = [span for span in spans.all if span.parent is None]
    assert (top.attributes or {})["error.type"] == "limit"
    assert (top.attributes or {})["gen_ai.usage.output_tokens"] == 94


async def test_a_cancelled_dispatch_leaves_no_span_open(stage: Stage, spans: Spans) -> None:
    import asyncio

    began = asyncio.Event()

    @tool
    async def hang() -> str:
        """Never end."""
        began.set()
        await asyncio.Event().wait()
        return ""

    child = agent(calls(("hang", {})), tools=[hang])
    parent = agent(calls(("review", {"prompt": "x"})), tools=[Subagent("review", "Delegates.", child)])
    running = asyncio.ensure_future(stage.run(parent, observation=spans.hub()))
    await began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    spans.check_nesting()
    [top] = [span for span in spans.all if span.parent is None]
    assert (top.attributes or {})["error.type"] == "aborted"
    assert len(spans.named("execute_tool hang")) == 1
    assert len(spans.named("invoke_agent review")) == 1


async def test_a_dispatch_belongs_to_the_span_that_was_current_where_it_began(stage: Stage, spans: Spans) -> None:
    with spans.tracer.start_as_current_span("the application's"):
        await stage.run(agent(says("done")), observation=spans.hub())
    [top] = [span for span in spans.all if span.name.startswith("invoke_agent")]
    assert spans.path(top)[0] == "the application's"


async def test_one_sink_follows_dispatches_that_run_at_once(stage: Stage, spans: Spans) -> None:
    import asyncio

    hub = spans.hub()
    subjects = [agent(calls(("echo", {"text": "x"})), says("done"), tools=[echo]) for _ in range(3)]
    await asyncio.gather(*(stage.run(subject, observation=hub) for subject in subjects))
    spans.check_nesting()
    tops = [span for span in spans.all if span.parent is None]
    assert len(tops) == 3
    for top in tops:
        mine = [span for span in spans.all if span.context.trace_id == top.context.trace_id]
        assert sorted(span.name for span in mine if span is not top) == sorted(
            ["step 1", "step 2", "chat scripted", "chat scripted", "execute_tool echo"]
        )
