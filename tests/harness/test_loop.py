"""The loop: the order of a step, its ends, and what it refuses (LOOP, LIM and EVT rules)."""

from __future__ import annotations

import asyncio

import pytest

from outpost_lsp import (
    Agent,
    ContextStrategy,
    Harness,
    Hook,
    Limits,
    ModelResult,
    ModelSpec,
    OutpostError,
    UsageLimits,
)
from outpost_lsp.domain.model import Completed, TextDelta
from tests.harness.stage import Stage, agent, calls, echo, provider, says, thinks, usage


async def test_LOOP_01_INSTR_02_03_HOOK_02_instructions_are_resolved_once_a_turn_and_hooks_add_to_them(
    stage: Stage,
) -> None:
    asked = []

    async def dynamic(context: object) -> str:
        asked.append(context)
        return "second"

    model = provider(calls(("echo", {"text": "a"})), says("done"))
    subject = Agent(
        "scripted",
        Harness(
            model,
            instructions=["first", _instructions(dynamic), _instructions(lambda _context: "  ")],
            tools=[echo],
            hooks=[Hook("session-start", lambda given: {"instructions": f"prompt was {given.prompt}"})],
        ),
    )
    await stage.run(subject, "go")
    assert len(asked) == 1
    assert [request.system for request in model.requests] == ["first\n\nsecond\n\nprompt was go"] * 2
    assert stage.of("instructions-loaded")[0].count == 2


def _instructions(source: object):
    from outpost_lsp import Instructions

    return Instructions(source)  # type: ignore[arg-type]


async def test_LOOP_02_the_prompt_is_the_first_user_message(stage: Stage) -> None:
    model = provider(says("done"))
    await stage.run(Agent("scripted", Harness(model)), "look around")
    (message,) = model.requests[0].messages
    assert (message.role, message.text) == ("user", "look around")


async def test_LOOP_03_no_instructions_and_no_tools_are_left_out(stage: Stage) -> None:
    model = provider(says("done"))
    await stage.run(Agent("scripted", Harness(model)))
    assert model.requests[0].system is None
    assert model.requests[0].tools == ()


async def test_LOOP_22_a_step_runs_in_the_exact_order_of_the_rules(stage: Stage) -> None:
    seen: list[str] = []

    def note(name: str):
        def run(_given: object) -> None:
            seen.append(name)

        return run

    subject = agent(
        calls(("echo", {"text": "a"}), text="working"),
        says("done"),
        tools=[echo],
        hooks=[Hook("before-model", note("before-model")), Hook("after-model", note("after-model"))],
        context=ContextStrategy("look", lambda _given: seen.append("compact")),
    )
    await stage.run(subject)
    assert seen == ["compact", "before-model", "after-model"] * 2
    wanted = ["step", "hook", "usage", "hook", "text", "tool", "tool-result", "step", "hook", "usage", "hook", "text"]
    first = stage.kinds().index("step")
    kinds = [kind for kind in stage.kinds()[first:] if kind != "text-delta"]
    assert kinds[: len(wanted)] == wanted
    assert kinds[len(wanted) :] == ["result", "finished", "summary"]


async def test_LOOP_10_11_MODEL_01_content_and_stop_reason_are_filled_in(stage: Stage) -> None:
    subject = agent(ModelResult(text="plain", usage=usage(1, 0, 1)))
    result = await stage.run(subject)
    assert result.text == "plain"


async def test_LOOP_12_HOOK_03_a_stop_hook_makes_the_agent_go_on(stage: Stage) -> None:
    answers = iter([{"continue": "check again"}, None])
    model = provider(says("first"), says("second"))
    subject = Agent("scripted", Harness(model, hooks=[Hook("stop", lambda _given: next(answers))]))
    result = await stage.run(subject)
    assert result.text == "second"
    assert [message.text for message in model.requests[1].messages] == ["go", "first", "check again"]
    assert stage.of("stop-prevented")[0].message == "check again"


async def test_HOOK_03_a_stop_hook_that_always_continues_ends_at_the_step_limit(stage: Stage) -> None:
    subject = agent(
        *[says("again")] * 5, hooks=[Hook("stop", lambda _given: {"continue": "more"})], limits=Limits(max_steps=3)
    )
    with pytest.raises(OutpostError) as caught:
        await stage.run(subject)
    assert (caught.value.code, caught.value.details["limit"]) == ("limit", "maxSteps")


async def test_LOOP_13_TEXEC_05_results_follow_the_assistant_message_in_call_order(stage: Stage) -> None:
    model = provider(calls(("echo", {"text": "a"}), ("echo", {"text": "b"})), says("done"))
    await stage.run(Agent("scripted", Harness(model, tools=[echo])))
    results = model.requests[1].messages[-1].results
    assert [(result.call_id, result.content) for result in results] == [("call-1", "echo: a"), ("call-2", "echo: b")]


async def test_LOOP_14_REL_10_an_answer_cut_by_its_output_limit_runs_no_call(stage: Stage) -> None:
    cut = calls(("echo", {"text": "a"}))
    subject = agent(ModelResult(content=cut.content, stop_reason="max-tokens", usage=usage(1, 0, 9)), tools=[echo])
    with pytest.raises(OutpostError) as caught:
        await stage.run(subject)
    assert caught.value.code == "limit"
    assert caught.value.details == {"limit": "maxOutputTokens", "step": 1}
    assert "tool" not in stage.kinds()


async def test_LOOP_15_a_refusal_is_a_response_fault_with_its_step(stage: Stage) -> None:
    subject = agent(ModelResult(text="no", stop_reason="refusal", usage=usage(1, 0, 1)))
    with pytest.raises(OutpostError) as caught:
        await stage.run(subject)
    assert (caught.value.code, caught.value.details["step"]) == ("response", 1)


class _Streams:
    """A provider whose stream gives exactly these events."""

    name = "streams"
    identity = "streams"

    def __init__(self, *events: object) -> None:
        self.events = events

    async def stream(self, _request: object):
        for event in self.events:
            yield event


@pytest.mark.parametrize(("count", "code"), [(0, "response"), (2, "configuration")])
async def test_LOOP_16_MODEL_01_a_stream_gives_exactly_one_result(stage: Stage, count: int, code: str) -> None:
    events = [TextDelta("a"), *[Completed(says("a"))] * count]
    with pytest.raises(OutpostError) as caught:
        await stage.run(Agent("m", Harness(_Streams(*events))))  # type: ignore[arg-type]
    assert caught.value.code == code


async def test_LOOP_17_a_failed_request_says_so_before_the_fault(stage: Stage) -> None:
    fault = OutpostError("provider", "HTTP 401")
    with pytest.raises(OutpostError) as caught:
        await stage.run(agent(fault))
    assert caught.value is fault
    assert stage.of("model-error")[0].message == "HTTP 401"


async def test_LOOP_18_EVT_04_an_answer_after_cancellation_is_not_counted(stage: Stage) -> None:
    asked, release = asyncio.Event(), asyncio.Event()

    class Late:
        name = identity = "late"

        async def request(self, _request: object) -> ModelResult:
            asked.set()
            try:
                await release.wait()
            except asyncio.CancelledError:
                return says("too late")
            raise AssertionError

    task = asyncio.ensure_future(stage.run(Agent("m", Harness(Late()))))  # type: ignore[arg-type]
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stage.receipts == []
    assert stage.of("stopped")[0].reason == "aborted"
    assert "result" not in stage.kinds()


async def test_LOOP_19_TBUD_a_final_answer_over_the_budget_fails_the_turn(stage: Stage) -> None:
    subject = agent(says("done", output=3), limits=Limits(usage=UsageLimits(output=2)))
    with pytest.raises(OutpostError) as caught:
        await stage.run(subject, label="reviewer")
    assert (caught.value.code, caught.value.details["limit"]) == ("limit", "usage")
    assert caught.value.message == "reviewer exceeded its limit of 2 output tokens: 3 used"
    # TBUD-06: what was spent is visible even so.
    assert stage.receipts[-1].total.output == 3


async def test_LIM_04_a_limit_is_exceeded_strictly_above(stage: Stage) -> None:
    result = await stage.run(agent(says("done", output=2), limits=Limits(usage=UsageLimits(output=2))))
    assert result.text == "done"


async def test_LIM_01_02_BOUND_02_the_last_allowed_step_may_answer(stage: Stage) -> None:
    result = await stage.run(
        agent(calls(("echo", {"text": "a"})), says("done"), tools=[echo], limits=Limits(max_steps=2))
    )
    assert result.text == "done"
    with pytest.raises(OutpostError) as caught:
        await stage.run(
            agent(
                calls(("echo", {"text": "a"})),
                calls(("echo", {"text": "a"})),
                says("x"),
                tools=[echo],
                limits=Limits(max_steps=2),
            )
        )
    assert caught.value.details["limit"] == "maxSteps"


async def test_LIM_03_TEXEC_13_calls_are_counted_before_any_runs(stage: Stage) -> None:
    subject = agent(
        calls(("echo", {"text": "a"}), ("nothing", {}), ("echo", 1)), tools=[echo], limits=Limits(max_tool_calls=2)
    )
    with pytest.raises(OutpostError) as caught:
        await stage.run(subject)
    assert caught.value.details["limit"] == "maxToolCalls"
    assert "tool" not in stage.kinds()


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda: Limits(max_steps=0), "max_steps"),
        (lambda: Limits(max_steps=True), "max_steps"),
        (lambda: Limits(max_tool_calls=1.5), "max_tool_calls"),  # type: ignore[arg-type]
        (lambda: Limits(max_delegation_depth=-1), "max_delegation_depth"),
        (lambda: UsageLimits(output=-1), "output"),
        (lambda: UsageLimits(output=0.5), "output"),  # type: ignore[arg-type]
        (lambda: UsageLimits(tokens=1), "tokens"),  # type: ignore[call-arg]
        (lambda: Limits(usage={"outputs": 1}), "outputs"),  # type: ignore[arg-type]
    ],
)
def test_LIM_06_BOUND_01_a_wrong_limit_is_refused_by_name(build, field: str) -> None:
    with pytest.raises(OutpostError) as caught:
        build()
    assert caught.value.code == "configuration"
    assert field in caught.value.message


async def test_LIM_07_MODEL_02_the_provider_may_refuse_a_model_when_the_agent_is_made(stage: Stage) -> None:
    class Picky:
        name = identity = "picky"

        def validate(self, model: ModelSpec) -> None:
            raise OutpostError("configuration", f"no {model.name} here")

        async def request(self, _request: object) -> ModelResult:
            raise AssertionError

    with pytest.raises(OutpostError, match="no big here"):
        Agent("big", Harness(Picky()))  # type: ignore[arg-type]


async def test_LIM_08_an_agent_needs_a_model() -> None:
    with pytest.raises(OutpostError) as caught:
        Agent("", Harness(provider()))
    assert caught.value.code == "configuration"


async def test_USE_06_a_request_without_usage_goes_on_and_is_incomplete(stage: Stage) -> None:
    result = await stage.run(agent(ModelResult(text="done")))
    assert result.usage.complete is False
    assert stage.of("usage")[0].tokens.to_json() | {"models": None} == {
        "input": 0, "cached": 0, "output": 0, "complete": False, "models": None,
    }  # fmt: skip


async def test_TBUD_04_EXEC_07_a_token_limit_needs_complete_receipts(stage: Stage) -> None:
    with pytest.raises(OutpostError) as caught:
        await stage.run(agent(ModelResult(text="done"), limits=Limits(usage=UsageLimits(output=5))))
    assert caught.value.code == "configuration"
    assert "usage" in caught.value.message


async def test_EVT_01_an_observer_that_raises_changes_nothing(stage: Stage) -> None:
    def observe(_event: object) -> None:
        raise RuntimeError("observer")

    result = await stage.run(agent(says("done")), observe=observe)
    assert result.text == "done"
    assert any("observer" in text for text in result.observer_errors)


async def test_EVT_02_03_USE_08_each_request_is_one_usage_event_and_counts_once(stage: Stage) -> None:
    result = await stage.run(
        agent(calls(("echo", {"text": "a"}), tokens=usage(4, 1, 2)), says("d", tokens=usage(4, 1, 2)), tools=[echo])
    )
    assert len(stage.of("usage")) == 2
    assert (result.usage.input, result.usage.cached, result.usage.output) == (8, 2, 4)


async def test_readable_reasoning_is_an_event_and_opaque_data_stays_in_the_history(stage: Stage) -> None:
    await stage.run(agent(thinks("scripted", "scripted", "done")))
    assert [event.text for event in stage.of("reasoning")] == ["hm"]


async def test_LOOP_21_EXEC_06_a_turn_has_a_deadline(stage: Stage) -> None:
    class Silent:
        name = identity = "silent"

        async def request(self, _request: object) -> ModelResult:
            await asyncio.Event().wait()
            raise AssertionError

    with pytest.raises(OutpostError) as caught:
        await stage.run(Agent("m", Harness(Silent())), deadline_s=0.2)  # type: ignore[arg-type]
    assert caught.value.code == "timeout"
    assert stage.of("stopped")[0].reason == "deadline"


async def test_LOOP_21_EXEC_05_silence_warns_and_then_ends_the_turn(stage: Stage) -> None:
    class Silent:
        name = identity = "silent"

        async def request(self, _request: object) -> ModelResult:
            await asyncio.Event().wait()
            raise AssertionError

    with pytest.raises(OutpostError) as caught:
        await stage.run(Agent("m", Harness(Silent())), idle_s=0.5, idle_warning_s=0.2)  # type: ignore[arg-type]
    assert (caught.value.code, caught.value.details["stopReason"]) == ("timeout", "idle-timeout")
    assert stage.of("stopped")[0].reason == "idle-timeout"
    assert len(stage.of("warning")) == 2
