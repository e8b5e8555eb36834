"""Routing per step: the decision, the policy, and what is in force (ROUTE rules)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from outpost_lsp import (
    Agent,
    Choice,
    ContextStrategy,
    Continuation,
    Decision,
    Harness,
    Hook,
    Limits,
    ModelResult,
    ModelRouting,
    ModelSpec,
    ObservationHub,
    OutpostError,
    Score,
    ScriptedDecisionProvider,
    ScriptedModelProvider,
    Subagent,
    UsageLimits,
    focused_state,
    tool,
)
from outpost_lsp.domain.decision import DecisionProviderResult
from outpost_lsp.domain.message import ReasoningBlock, TextBlock
from outpost_lsp.domain.usage import Usage
from tests.harness.stage import Stage, calls, echo, provider, says, usage

DECISION = Decision({"route": Choice("Choose.", {"fast": "Routine", "deep": "Repairs"})})
MODELS = {"fast": ModelSpec("small", max_output_tokens=12), "deep": ModelSpec("large", "high", 30)}


def routing(*replies: Any, decider: Any = None, **changes: Any) -> ModelRouting:
    fields: dict[str, Any] = {
        "provider": decider or ScriptedDecisionProvider(replies),
        "model": "auto",
        "decision": DECISION,
        "question": "route",
        "models": MODELS,
        "fallback": "deep",
    }
    return ModelRouting(**{**fields, **changes})


def answered(label: str, confidence: float, **more: Any) -> DecisionProviderResult:
    other = "deep" if label == "fast" else "fast"
    answer = {"type": "choice", "choice": label, "probabilities": {label: 0.6, other: 0.4}, "confidence": confidence}
    more.setdefault("usage", Usage(input=1, output=0))
    return DecisionProviderResult(model="decider/1", answers={"route": answer}, **more)


def names(model: ScriptedModelProvider) -> list[str]:
    return [request.model for request in model.requests]


async def test_ROUTE_03_04_10_11_12_CTX_01_the_selected_model_is_in_force_for_exactly_its_step(stage: Stage) -> None:
    """The first edge case of section 11: `fast` then `deep`, with a declared model of its own settings."""
    compacted: list[str] = []
    hooked: list[str] = []
    tooled: list[str] = []

    @tool
    def look(context: Any = None) -> str:
        """Look."""
        return "seen"

    async def execute(_value: Any, context: Any) -> str:
        tooled.append(context.model.name)
        return "seen"

    from outpost_lsp import Tool

    model = provider(calls(("look", {})), says("done"))
    subject = Agent(
        ModelSpec("initial", "max", 100),
        Harness(
            model,
            tools=[Tool("look", "Look.", {"type": "object"}, execute)],
            hooks=[Hook("before-model", lambda given: hooked.append(given.model.name))],
            context=ContextStrategy("watch", lambda given: compacted.append(given.model.name)),
            routing=routing(("fast", 0.9), ("deep", 0.95)),
        ),
    )
    await stage.run(subject)
    asked = [(request.model, request.max_output_tokens, request.reasoning) for request in model.requests]
    assert asked == [("small", 12, None), ("large", 30, "high")]
    assert compacted == ["initial", "small"]
    assert hooked == ["small", "large"]
    assert tooled == ["small"]
    # ROUTE-15: the agent is not modified.
    assert subject.model.name == "initial"
    routes = stage.of("model-route")
    assert [(event.step, event.choice, event.reason, event.confidence) for event in routes] == [
        (1, "fast", "selected", 0.9),
        (2, "deep", "selected", 0.95),
    ]


@pytest.mark.parametrize(("confidence", "choice", "reason"), [(0.85, "fast", "selected"), (0.84, "deep", "confidence")])
async def test_ROUTE_30_36_52_low_confidence_selects_the_fallback(
    stage: Stage, confidence: float, choice: str, reason: str
) -> None:
    model = provider(says("done"))
    await stage.run(Agent("m", Harness(model, routing=routing(answered("fast", confidence)))))
    (event,) = stage.of("model-route")
    assert (event.choice, event.reason, event.confidence) == (choice, reason, confidence)
    assert names(model) == [MODELS[choice].name]


async def test_ROUTE_36_an_answer_that_names_the_fallback_is_selected(stage: Stage) -> None:
    await stage.run(Agent("m", Harness(provider(says("x")), routing=routing(answered("deep", 0.99)))))
    assert stage.of("model-route")[0].reason == "selected"


async def test_ROUTE_confidence_from_probabilities_keeps_both_numbers(stage: Stage) -> None:
    chosen = routing(answered("fast", 0.99), confidence_source="probabilities", min_confidence=0.1)
    await stage.run(Agent("m", Harness(provider(says("x")), routing=chosen)))
    (event,) = stage.of("model-route")
    assert event.confidence == pytest.approx(0.2)
    assert (event.reported_confidence, event.choice) == (0.99, "fast")


@pytest.mark.parametrize(
    "fault",
    [OutpostError("timeout", "slow"), OutpostError("provider", "HTTP 503", {"unavailable": "HTTP 503"})],
)
async def test_ROUTE_31_41_outage_selects_the_fallback_and_leaves_usage_incomplete(
    stage: Stage, fault: OutpostError
) -> None:
    model = provider(says("done"))
    result = await stage.run(Agent("m", Harness(model, routing=routing(fault))))
    (event,) = stage.of("model-route")
    assert (event.choice, event.reason, event.confidence) == ("deep", "unavailable", None)
    assert result.usage.complete is False
    assert f"routing: {fault.message}; deep took the step" in result.notes


async def test_ROUTE_32_on_error_fail_raises_the_outage(stage: Stage) -> None:
    fault = OutpostError("timeout", "slow")
    with pytest.raises(OutpostError) as caught:
        await stage.run(Agent("m", Harness(provider(), routing=routing(fault, on_error="fail"))))
    assert caught.value is fault


@pytest.mark.parametrize(
    "fault",
    [
        OutpostError("quota", "HTTP 429"),
        OutpostError("aborted", "stopped"),
        OutpostError("response", "nonsense"),
        OutpostError("configuration", "wrong"),
        OutpostError("provider", "HTTP 401"),
        RuntimeError("bug"),
    ],
)
async def test_ROUTE_33_everything_else_is_raised_as_the_same_object(stage: Stage, fault: Exception) -> None:
    model = provider(says("never"))
    with pytest.raises(type(fault)) as caught:
        await stage.run(Agent("m", Harness(model, routing=routing(fault))))
    assert caught.value is fault
    assert model.requests == []
    # ROUTE-53: no event when routing fails.
    assert stage.of("model-route") == []


async def test_ROUTE_34_a_cancelled_loop_raises_its_cancellation_first(stage: Stage) -> None:
    asked = asyncio.Event()
    ended: list[str] = []

    class Slow:
        name = "slow"

        async def request(self, _request: Any) -> DecisionProviderResult:
            asked.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ended.append("ended")
                raise OutpostError("quota", "late") from None
            raise AssertionError

    task = asyncio.ensure_future(stage.run(Agent("m", Harness(provider(), routing=routing(decider=Slow())))))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["ended"]


async def test_ROUTE_35_44_a_truncated_answer_is_refused_and_its_usage_counts(stage: Stage) -> None:
    with pytest.raises(OutpostError) as caught:
        await stage.run(Agent("m", Harness(provider(), routing=routing(answered("fast", 0.9, truncated=True)))))
    assert (caught.value.code, caught.value.details["truncated"]) == ("response", True)
    (event,) = stage.of("usage")
    assert (event.tokens.input, event.source) == (1, "decision")


async def test_ROUTE_42_a_strict_budget_does_not_accept_an_unknown_decision(stage: Stage) -> None:
    model = provider(says("never"))
    subject = Agent(
        "m",
        Harness(model, routing=routing(OutpostError("timeout", "slow")), limits=Limits(usage=UsageLimits(output=9))),
    )
    with pytest.raises(OutpostError) as caught:
        await stage.run(subject)
    assert caught.value.code == "configuration"
    assert model.requests == []


async def test_ROUTE_40_43_router_usage_is_counted_once_and_adds_up(stage: Stage) -> None:
    model = provider(calls(("echo", {"text": "x"}), tokens=usage(4, 1, 2)), says("x", tokens=usage(4, 1, 2)))
    result = await stage.run(
        Agent("m", Harness(model, tools=[echo], routing=routing(answered("fast", 0.9), answered("fast", 0.9))))
    )
    assert (result.usage.input, result.usage.output) == (10, 4)
    assert [event.source for event in stage.of("usage")] == ["decision", "model", "decision", "model"]


async def test_ROUTE_09_a_routed_child_is_charged_to_its_ancestors(stage: Stage) -> None:
    child = Agent(
        "m",
        Harness(
            provider(says("child", tokens=usage(3, 0, 1))),
            routing=routing(answered("fast", 0.9, usage=Usage(input=2, output=0))),
        ),
    )
    model = provider(calls(("review", {"prompt": "x"}), tokens=usage(1, 0, 1)), says("p"))
    parent = Agent(
        "p",
        Harness(model, tools=[Subagent("review", "Reviews.", child)], limits=Limits(usage=UsageLimits(input=4))),
    )
    with pytest.raises(OutpostError) as caught:
        await stage.run(parent)
    assert caught.value.details["limit"] == "usage"
    assert len(model.requests) == 1
    assert stage.of("model-route")[0].subagent_id == stage.of("subagent")[0].id


async def test_ROUTE_13_20_21_22_the_default_state(stage: Stage) -> None:
    decider = ScriptedDecisionProvider([("fast", 0.9), ("fast", 0.9)])
    first = ModelResult(
        content=(
            ReasoningBlock(provider="scripted", model="small", data={"secret": 1}, text="hm"),
            *calls(("echo", {"text": "x"})).blocks,
        ),
        usage=usage(1, 0, 1),
    )
    subject = Agent(
        "m",
        Harness(provider(first, says("done")), instructions="Be kind.", tools=[echo], routing=routing(decider=decider)),
    )
    await stage.run(subject)
    one, two = (request.state for request in decider.requests)
    assert set(one) == {"system", "messages", "tools", "step", "model"}
    assert (one["system"], one["step"], one["model"]) == ("Be kind.", 1, "m")
    # ROUTE-26: the model active before this selection.
    assert two["model"] == "small"
    assert one["messages"] == [{"role": "user", "content": [{"type": "text", "text": "go"}]}]
    assert one["tools"][0]["name"] == "echo"
    kinds = [[block["type"] for block in message["content"]] for message in two["messages"]]
    assert kinds == [["text"], ["tool-call"], ["tool-result"]]


async def test_ROUTE_07_23_a_derived_routing_sends_its_own_state(stage: Stage) -> None:
    decider = ScriptedDecisionProvider([("fast", 0.9)])
    derived = routing(decider=decider).replace(state=focused_state)
    await stage.run(Agent("m", Harness(provider(says("x")), routing=derived)))
    assert decider.requests[0].state == {"step": 1, "activeModel": "m", "recentText": ["go"]}
    assert (derived.kind, derived.fallback, derived.min_confidence) == ("model-routing", "deep", 0.85)
    with pytest.raises(OutpostError):
        derived.replace(states=None)


@pytest.mark.parametrize("state", [{1, 2}, {"x": float("nan")}, {"x": (1,)}, {1: "x"}])
async def test_ROUTE_25_a_state_that_is_no_lossless_json_is_refused_without_a_request(stage: Stage, state: Any) -> None:
    decider = ScriptedDecisionProvider([("fast", 0.9)])
    chosen = routing(decider=decider, state=lambda _context: state)
    with pytest.raises(OutpostError) as caught:
        await stage.run(Agent("m", Harness(provider(), routing=chosen)))
    assert caught.value.code == "configuration"
    assert decider.requests == []


async def test_ROUTE_25_an_exception_of_the_callback_propagates_whatever_its_code(stage: Stage) -> None:
    fault = OutpostError("timeout", "in the callback")

    async def state(_context: Any) -> Any:
        raise fault

    with pytest.raises(OutpostError) as caught:
        await stage.run(Agent("m", Harness(provider(), routing=routing(("fast", 0.9), state=state))))
    assert caught.value is fault


async def test_ROUTE_23_25_a_callback_that_is_cancelled_ends_the_run_without_asking_the_router(stage: Stage) -> None:
    building = asyncio.Event()
    decider = ScriptedDecisionProvider([("fast", 0.9)])

    async def state(_context: Any) -> Any:
        building.set()
        await asyncio.Event().wait()

    chosen = routing(decider=decider, state=state)
    task = asyncio.ensure_future(stage.run(Agent("m", Harness(provider(), routing=chosen))))
    await building.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert decider.requests == []
    assert stage.of("model-route") == []


@pytest.mark.parametrize(
    "changes",
    [
        {"question": "other"},
        {"decision": Decision({"route": Score("How?", ["low", "high"])})},
        {"models": {"fast": "a"}},
        {"models": {"fast": "a", "deep": "b", "more": "c"}},
        {"models": {"fast": "", "deep": "b"}},
        {"fallback": "none"},
        {"min_confidence": float("nan")},
        {"min_confidence": 1.1},
        {"min_confidence": True},
        {"min_confidence": "0.5"},
        {"on_error": "retry"},
        {"state": 7},
        {"model": " "},
        {"unknown": 1},
    ],
)
def test_ROUTE_02_06_a_wrong_declaration_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(OutpostError) as caught:
        routing(("fast", 0.9), **changes)
    assert caught.value.code == "configuration"


def test_ROUTE_05_every_candidate_is_validated_in_order_when_the_harness_is_made() -> None:
    seen: list[str] = []

    class Picky(ScriptedModelProvider):
        def validate(self, model: ModelSpec) -> None:
            seen.append(model.name)
            if model.name == "large":
                raise OutpostError("configuration", "no large one here")

    with pytest.raises(OutpostError, match="no large one here"):
        Harness(Picky([]), routing=routing(("fast", 0.9)))
    assert seen == ["small", "large"]


async def test_ROUTE_14_reasoning_of_another_model_stays_in_the_history(stage: Stage) -> None:
    first = ModelResult(
        content=(
            ReasoningBlock(provider="scripted", model="small", data=1),
            TextBlock(text="working"),
            *calls(("echo", {"text": "x"})).blocks,
        ),
        usage=usage(1, 0, 1),
    )
    model = provider(first, says("done"))
    await stage.run(Agent("m", Harness(model, tools=[echo], routing=routing(("fast", 0.9), ("deep", 0.9)))))
    assert model.requests[1].messages[1].content[0].model == "small"


async def test_ROUTE_60_61_a_routed_conversation_is_version_two_and_asks_anew(stage: Stage) -> None:
    decider = ScriptedDecisionProvider([("fast", 0.9)] * 3)
    model = provider(says("one"), says("two"), says("three"))
    subject = Agent("m", Harness(model, routing=routing(decider=decider)))
    first = await stage.run(subject)
    lines = (first.transcript or stage.repository).read_text().splitlines()
    assert '"version":2' in lines[0]
    assert any('"model-selection"' in line for line in lines)
    before = (first.transcript or stage.repository).read_bytes()
    forked = await stage.run(subject, "fork", continuation=Continuation(first.conversation or "", fork=True))
    assert (first.transcript or stage.repository).read_bytes() == before
    assert forked.conversation != first.conversation
    await stage.run(subject, "more", continuation=Continuation(first.conversation or ""))
    assert len(decider.requests) == 3


async def test_OBS_02_03_ROUTE_50_51_decisions_are_observed_and_details_need_a_verbose_hub(stage: Stage) -> None:
    for verbose, wanted in (
        (False, ["started", "finished"]),
        (True, ["started", "decision-request", "finished", "decision-response"]),
    ):
        seen: list[Any] = []
        hub = ObservationHub([seen.append], verbose=verbose)
        subject = Agent("m", Harness(provider(says("x")), routing=routing(answered("fast", 0.9))))
        await stage.run(subject, observation=hub)
        decisions = [one for one in seen if one.source == "decision"]
        assert [getattr(one.event, "status", one.event.kind) for one in decisions] == wanted
        assert all(one.scope.pass_ == 1 for one in decisions)
