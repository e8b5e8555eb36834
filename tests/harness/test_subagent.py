"""Delegation: an agent as another's tool (SUB, TBUD and STEER rules)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from outpost_lsp import (
    Agent,
    Continuation,
    Harness,
    Hook,
    Limits,
    ModelResult,
    OutpostError,
    PermissionRule,
    Permissions,
    Steering,
    Subagent,
    Tool,
    ToolExecution,
    UsageLimits,
)
from outpost_lsp.storage.conversations import ConversationStore
from tests.harness.stage import Stage, calls, echo, provider, says, usage

ANY: dict[str, Any] = {"type": "object"}


def review(child: Agent, name: str = "review") -> Subagent:
    return Subagent(name=name, description="Reviews files.", agent=child)


def delegate(prompt: str = "look", name: str = "review", call_id: str = "call-1") -> ModelResult:
    return calls((name, {"prompt": prompt}, call_id), tokens=usage(4, 1, 2))


def store(stage: Stage) -> ConversationStore:
    folders = stage.layout.for_repository(stage.repository / ".git")
    return ConversationStore(folders.conversations, folders.locks)


async def parent_results(stage: Stage, parent: Agent, **options: Any) -> list[Any]:
    await stage.run(parent, **options)
    last = parent.harness.model_provider.requests[-1].messages[-1]
    return list(last.results)


async def test_SUB_01_04_10_11_12_19_20_a_child_starts_anew_and_answers_with_one_result(stage: Stage) -> None:
    child_model = provider(says("2 risks", tokens=usage(4, 1, 2)))
    child = Agent("small", Harness(child_model, instructions="Inspect.", tools=[echo]))
    model = provider(delegate("look at a.py"), says("all fine", tokens=usage(4, 1, 2)))
    parent = Agent("large", Harness(model, instructions="Coordinate.", tools=[review(child)]))
    result = await stage.run(parent, "please review")
    assert result.text == "all fine"
    (message,) = child_model.requests[0].messages
    assert message.text == "look at a.py"
    assert child_model.requests[0].system == "Inspect."
    answer = json.loads(model.requests[1].messages[-1].results[0].content)
    assert answer["text"] == "2 risks"
    assert store(stage).exists(answer["conversation"])
    assert (result.usage.input, result.usage.cached, result.usage.output) == (12, 3, 6)


async def test_SUB_13_TBUD_01_two_requests_each_give_sixteen_four_eight(stage: Stage) -> None:
    tokens = usage(4, 1, 2)
    child = Agent("c", Harness(provider(calls(("echo", {"text": "x"}), tokens=tokens), says("c", tokens=tokens)), tools=[echo]))  # fmt: skip
    parent = Agent("p", Harness(provider(delegate(), says("p", tokens=tokens)), tools=[review(child)]))
    result = await stage.run(parent)
    assert (result.usage.input, result.usage.cached, result.usage.output) == (16, 4, 8)
    assert len(stage.of("usage")) == 4


@pytest.mark.parametrize("what", [None, "text", object(), {"model": "m"}])
def test_SUB_02_only_built_in_agents_are_accepted(what: Any) -> None:
    with pytest.raises(OutpostError) as caught:
        Subagent("review", "Reviews.", what)
    assert caught.value.code == "configuration"
    assert "agent" in caught.value.message


def test_SUB_02_there_is_no_other_option() -> None:
    child = Agent("m", Harness(provider()))
    with pytest.raises(OutpostError) as caught:
        Subagent(name="review", description="Reviews.", agent=child, model="x")  # type: ignore[call-arg]
    assert caught.value.code == "configuration"


@pytest.mark.parametrize(
    "given", [{"prompt": ""}, {"prompt": "  "}, {}, {"prompt": "x", "more": 1}, "text", {"prompt": 1}]
)
async def test_SUB_03_the_only_input_is_a_prompt(stage: Stage, given: Any) -> None:
    child_model = provider()
    child = Agent("m", Harness(child_model))
    parent = Agent("m", Harness(provider(calls(("review", given)), says("p")), tools=[review(child)]))
    (result,) = await parent_results(stage, parent)
    assert result.is_error
    assert child_model.requests == []


async def test_SUB_05_a_subagent_cannot_be_run_by_hand_and_names_are_unique() -> None:
    child = Agent("m", Harness(provider()))
    with pytest.raises(OutpostError) as caught:
        review(child).execute({"prompt": "x"}, None)  # type: ignore[arg-type]
    assert caught.value.code == "configuration"
    with pytest.raises(OutpostError):
        Harness(provider(), tools=[review(child), review(child)])


async def test_SUB_14_65_TOOL_05_TEXEC_04_delegations_run_one_at_a_time(stage: Stage) -> None:
    running, peak = 0, 0

    class Counting:
        name = identity = "counting"

        async def request(self, _request: Any) -> ModelResult:
            nonlocal running, peak
            running += 1
            peak = max(peak, running)
            for _ in range(5):
                await asyncio.sleep(0)
            running -= 1
            return says("child")

    child = Agent("c", Harness(Counting(), conversations=None))  # type: ignore[arg-type]
    model = provider(calls(("review", {"prompt": "a"}), ("review", {"prompt": "b"})), says("p"))
    parent = Agent("p", Harness(model, tools=[review(child)]))
    results = await parent_results(stage, parent)
    assert peak == 1
    assert [result.call_id for result in results] == ["call-1", "call-2"]
    # SUB-52: nothing is kept, so there is nothing to continue from.
    assert all("conversation" not in json.loads(result.content) for result in results)
    ids = {event.id for event in stage.of("subagent")}
    assert len(ids) == 2


async def test_SUB_15_60_a_child_error_is_a_tool_error(stage: Stage) -> None:
    child = Agent("c", Harness(provider(OutpostError("provider", "HTTP 401"))))
    parent = Agent("p", Harness(provider(delegate(), says("p")), tools=[review(child)]))
    (result,) = await parent_results(stage, parent)
    assert (result.content, result.is_error) == ("HTTP 401", True)
    assert [event.status for event in stage.of("subagent")] == ["started", "failed"]


async def test_SUB_15_unless_the_parent_says_fail(stage: Stage) -> None:
    fault = OutpostError("provider", "HTTP 401")
    child = Agent("c", Harness(provider(fault)))
    parent = Agent(
        "p", Harness(provider(delegate()), tools=[review(child)], tool_execution=ToolExecution(on_error="fail"))
    )
    with pytest.raises(OutpostError) as caught:
        await stage.run(parent)
    assert caught.value is fault


async def test_SUB_16_cancelling_reaches_the_child_and_tells_nothing_more(stage: Stage) -> None:
    """PY-03: what is below is cancelled with it."""
    asked, cancelled = asyncio.Event(), asyncio.Event()

    class Waiting:
        name = identity = "waiting"

        async def request(self, _request: Any) -> ModelResult:
            asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
            raise AssertionError

    child = Agent("c", Harness(Waiting()))  # type: ignore[arg-type]
    parent = Agent("p", Harness(provider(delegate()), tools=[review(child)]))
    task = asyncio.ensure_future(stage.run(parent))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cancelled.is_set()
    # SUB-67: a cancelled parent emits no `failed`.
    assert [event.status for event in stage.of("subagent")] == ["started"]
    # SUB-57: the child's lock is free.
    conversation = stage.of("subagent")[0].conversation
    store(stage).open(conversation, version=1).close()


async def test_SUB_17_18_the_parents_deadline_covers_the_whole_delegation(stage: Stage) -> None:
    """PY-03: what is above is not cancelled with it."""
    seen: list[str] = []

    class Slow:
        name = identity = "slow"

        async def request(self, _request: Any) -> ModelResult:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise
            raise AssertionError

    child = Agent("c", Harness(Slow()))  # type: ignore[arg-type]
    parent = Agent(
        "p",
        Harness(provider(delegate(), says("p")), tools=[review(child)], tool_execution=ToolExecution(deadline_s=0.1)),
    )
    (result,) = await parent_results(stage, parent)
    assert result.is_error
    assert "review" in result.content
    assert seen == ["cancelled"]
    kinds = [event.kind if event.kind != "subagent" else event.status for event in stage.events]
    assert kinds.index("failed") < kinds.index("tool-result")


async def test_SUB_30_31_32_33_depth_ceilings(stage: Stage) -> None:
    leaf_model = provider(says("leaf"))
    leaf = Agent("l", Harness(leaf_model))
    child_model = provider(calls(("deeper", {"prompt": "x"})), says("child"))
    child = Agent("c", Harness(child_model, tools=[review(leaf, "deeper")], limits=Limits(max_delegation_depth=10)))
    parent = Agent(
        "p", Harness(provider(delegate(), says("p")), tools=[review(child)], limits=Limits(max_delegation_depth=1))
    )
    await stage.run(parent)
    assert leaf_model.requests == []
    refused = child_model.requests[-1].messages[-1].results[0]
    assert refused.is_error
    # SUB-32: no lifecycle event for a refused delegation.
    assert [event.status for event in stage.of("subagent")] == ["started", "finished"]


async def test_SUB_30_zero_disables_delegation(stage: Stage) -> None:
    child = Agent("c", Harness(provider()))
    parent = Agent(
        "p", Harness(provider(delegate(), says("p")), tools=[review(child)], limits=Limits(max_delegation_depth=0))
    )
    (result,) = await parent_results(stage, parent)
    assert result.is_error
    assert stage.of("subagent") == []


async def test_SUB_61_62_63_64_events_carry_the_innermost_run_id_in_order(stage: Stage) -> None:
    leaf = Agent("l", Harness(provider(says("leaf"))))
    child = Agent("c", Harness(provider(calls(("deeper", {"prompt": "x"})), says("child")), tools=[review(leaf, "deeper")]))  # fmt: skip
    parent = Agent("p", Harness(provider(delegate(), says("p")), tools=[review(child)]))
    await stage.run(parent)
    lifecycle = stage.of("subagent")
    outer, inner = lifecycle[0], lifecycle[1]
    assert [event.status for event in lifecycle] == ["started", "started", "finished", "finished"]
    assert outer.subagent_id is None
    # SUB-64: the child's loop emits the grandchild's lifecycle.
    assert inner.subagent_id == outer.id
    leaf_steps = [event for event in stage.of("step") if event.subagent_id == inner.id]
    assert len(leaf_steps) == 1
    kinds = [(event.kind, getattr(event, "status", None)) for event in stage.events]
    first_tool = kinds.index(("tool", None))
    assert first_tool < kinds.index(("subagent", "started"))
    # SUB-66: a child emits no conversation event.
    assert len(stage.of("conversation")) == 1


async def test_SUB_40_PERM_08_all_ancestors_permissions_apply_also_to_rewritten_input(stage: Stage) -> None:
    write = Tool(
        "write_file",
        "Write.",
        ANY,
        lambda value, _context: f"wrote {value['path']}",
        resources=lambda value: {"paths": [value["path"]]},
    )
    child_model = provider(
        calls(
            ("write_file", {"path": "secret/a"}), ("write_file", {"path": "src/a"}), ("write_file", {"path": "src/b"})
        ),
        says("child"),
    )

    def rewrite(given: Any) -> Any:
        return {"input": {"path": "secret/b"}} if given.call.input["path"] == "src/b" else None

    child = Agent(
        "c",
        Harness(
            child_model, tools=[write], permissions=Permissions(default="allow"), hooks=[Hook("before-tool", rewrite)]
        ),
    )
    parent = Agent(
        "p",
        Harness(
            provider(delegate(), says("p")),
            tools=[review(child)],
            permissions=Permissions([PermissionRule("deny", paths=["secret/**"], reason="secret")]),
        ),
    )
    await stage.run(parent)
    results = child_model.requests[-1].messages[-1].results
    assert [bool(result.is_error) for result in results] == [True, False, True]
    assert results[0].content == "Denied: secret"
    assert results[2].content == "Denied: secret"


async def test_SUB_41_HOOK_06_hooks_are_private_to_their_harness(stage: Stage) -> None:
    seen: list[str] = []
    hook = Hook("before-tool", lambda given: seen.append(given.call.name))
    child = Agent("c", Harness(provider(calls(("echo", {"text": "x"})), says("child")), tools=[echo]))
    parent = Agent("p", Harness(provider(delegate(), says("p")), tools=[review(child)], hooks=[hook]))
    await stage.run(parent)
    assert seen == ["review"]


async def test_SUB_50_51_53_the_childs_transcript_names_its_caller_and_continues_alone(stage: Stage) -> None:
    child = Agent("c", Harness(provider(says("first"), says("second"))))
    parent = Agent("p", Harness(provider(delegate(call_id="c-9"), says("p")), tools=[review(child)]))
    result = await stage.run(parent)
    conversation = stage.of("subagent")[0].conversation
    session = store(stage).read(conversation)[0]
    assert session["parentConversation"] == result.conversation
    assert session["parentCallId"] == "c-9"
    again = await stage.run(child, "go on", continuation=Continuation(conversation))
    assert again.text == "second"
    messages = child.harness.model_provider.requests[-1].messages
    assert [message.text for message in messages] == ["look", "first", "go on"]


async def test_SUB_54_CONV_11_resuming_the_parent_does_not_run_the_child_again(stage: Stage) -> None:
    child_model = provider(says("child"))
    child = Agent("c", Harness(child_model))
    model = provider(delegate(), says("p"), says("again"))
    parent = Agent("p", Harness(model, tools=[review(child)]))
    result = await stage.run(parent)
    await stage.run(parent, "more", continuation=Continuation(result.conversation or ""))
    assert len(child_model.requests) == 1
    assert len(model.requests[-1].messages) == 5


async def test_TBUD_02_03_07_09_an_ancestors_breach_ends_the_ancestor(stage: Stage) -> None:
    child = Agent("c", Harness(provider(says("child", tokens=usage(1, 0, 2)))))
    model = provider(delegate(), says("p"))
    parent = Agent("p", Harness(model, tools=[review(child)], limits=Limits(usage=UsageLimits(output=3))))
    with pytest.raises(OutpostError) as caught:
        await stage.run(parent, label="coordinator")
    assert caught.value.code == "limit"
    assert caught.value.details["agent"] == "coordinator"
    assert len(model.requests) == 1


async def test_TBUD_08_a_childs_own_breach_is_a_tool_error(stage: Stage) -> None:
    child = Agent(
        "c", Harness(provider(says("child", tokens=usage(1, 0, 2))), limits=Limits(usage=UsageLimits(output=1)))
    )
    parent = Agent(
        "p",
        Harness(
            provider(delegate(), says("p", tokens=usage(1, 0, 2))),
            tools=[review(child)],
            limits=Limits(usage=UsageLimits(output=10)),
        ),
    )
    result = await stage.run(parent)
    assert result.usage.output == 6
    assert stage.of("tool-result")[0].is_error
    assert "review exceeded its limit of 1 output tokens: 2 used" in stage.of("tool-result")[0].preview


async def test_TBUD_04_unknown_usage_of_a_child_fails_a_limited_parent(stage: Stage) -> None:
    child = Agent("c", Harness(provider(ModelResult(text="child"))))
    parent = Agent(
        "p", Harness(provider(delegate()), tools=[review(child)], limits=Limits(usage=UsageLimits(output=10)))
    )
    with pytest.raises(OutpostError) as caught:
        await stage.run(parent)
    assert caught.value.code == "configuration"


async def test_receipts_name_the_agent_and_the_chain_of_budgets(stage: Stage) -> None:
    child = Agent("c", Harness(provider(says("child")), limits=Limits(usage=UsageLimits(output=9))))
    parent = Agent(
        "p",
        Harness(provider(delegate(), says("p")), tools=[review(child)], limits=Limits(usage=UsageLimits(output=50))),
    )
    await stage.run(parent, label="coordinator")
    of_child = next(receipt for receipt in stage.receipts if receipt.agent == "review")
    assert [budget.agent for budget in of_child.budgets] == ["coordinator", "review"]
    assert of_child.subagent_id == stage.of("subagent")[0].id


async def test_SUB_68_STEER_01_03_04_13_15_a_text_with_the_run_id_reaches_that_child_only(stage: Stage) -> None:
    steering = Steering()
    sent: list[asyncio.Future[Any]] = []

    async def look(_value: Any, _context: Any) -> str:
        run = stage.of("subagent")[0].id
        sent.append(asyncio.ensure_future(steering.send("be quick", subagent=run)))
        sent.append(asyncio.ensure_future(steering.send("for the main loop", subagent=None)))
        await asyncio.sleep(0)
        return "looked"

    child_model = provider(calls(("look", {})), says("child"))
    child = Agent("c", Harness(child_model, tools=[Tool("look", "Look.", ANY, look)]))
    model = provider(delegate(), says("p"))
    parent = Agent("p", Harness(model, tools=[review(child)]))
    await stage.run(parent, steering=steering)
    assert [(await one).mode for one in sent] == ["injected", "injected"]
    assert child_model.requests[1].messages[-1].text == "be quick"
    assert model.requests[1].messages[-1].text == "for the main loop"
    assert [(event.text, event.subagent_id is None) for event in stage.of("steer")] == [
        ("be quick", False),
        ("for the main loop", True),
    ]
    assert steering.state == "idle"


async def test_STEER_08_a_text_for_a_run_that_ended_is_refused(stage: Stage) -> None:
    steering = Steering()
    sent: list[asyncio.Future[Any]] = []

    class Answering:
        name = identity = "answering"

        async def request(self, _request: Any) -> ModelResult:
            return says("child")

    def after(_given: Any) -> None:
        return None

    async def stop(_given: Any) -> None:
        # The child has met its last boundary before this text is sent.
        run = stage.of("subagent")[0].id
        sent.append(asyncio.ensure_future(steering.send("too late", subagent=run)))

    child = Agent("c", Harness(Answering()))  # type: ignore[arg-type]
    parent = Agent(
        "p", Harness(provider(delegate(), says("p")), tools=[review(child)], hooks=[Hook("after-tool", stop)])
    )
    await stage.run(parent, steering=steering)
    with pytest.raises(OutpostError) as caught:
        await sent[0]
    assert caught.value.code == "steering"
    assert caught.value.details["text"] == "too late"


async def test_STEER_08_a_text_for_a_run_that_ended_is_refused_while_its_parent_goes_on(stage: Stage) -> None:
    steering = Steering()
    refused: list[OutpostError] = []

    async def after(_given: Any) -> None:
        # The child is over and the parent is not: nobody may wait for the end of the parent to be told so.
        run = stage.of("subagent")[0].id
        with pytest.raises(OutpostError) as caught:
            await asyncio.wait_for(steering.send("too late", subagent=run), 5)
        refused.append(caught.value)

    child = Agent("c", Harness(provider(says("child"))))
    parent = Agent(
        "p", Harness(provider(delegate(), says("p")), tools=[review(child)], hooks=[Hook("after-tool", after)])
    )
    assert (await stage.run(parent, steering=steering)).text == "p"
    assert [error.code for error in refused] == ["steering"]
    assert refused[0].message == "the instruction was not delivered: that run has ended"


async def test_STEER_05_06_before_and_after_the_agent(stage: Stage) -> None:
    steering = Steering()
    early = asyncio.ensure_future(steering.send("mind the tests"))
    await asyncio.sleep(0)
    model = provider(says("first"), says("second"))
    late: list[asyncio.Future[Any]] = []

    def observe(event: Any) -> None:
        stage.events.append(event)
        if event.kind == "finished" and not late:
            late.append(asyncio.ensure_future(steering.send("one more thing")))

    result = await stage.run(Agent("p", Harness(model)), steering=steering, observe=observe)
    assert (await early).mode == "injected"
    assert [block.text for block in model.requests[0].messages[0].content] == ["go", "mind the tests"]
    if late[0].done() and late[0].exception() is None:
        assert late[0].result().mode == "resumed"
        assert result.text == "first\nsecond"
    else:
        with pytest.raises(OutpostError):
            await late[0]


async def test_STEER_02_10_wrong_targets_blank_texts_and_closed_controllers() -> None:
    steering = Steering()
    for text, target in (("", None), ("  ", None), ("x", 7), ("x", "")):
        with pytest.raises(OutpostError) as caught:
            await steering.send(text, subagent=target)  # type: ignore[arg-type]
        assert caught.value.code == "configuration"
    waiting = asyncio.ensure_future(steering.send("hello"))
    await asyncio.sleep(0)
    steering.close()
    with pytest.raises(OutpostError) as caught:
        await waiting
    assert caught.value.code == "steering"
    with pytest.raises(OutpostError):
        await steering.send("again")
    assert steering.state == "closed"


async def test_STEER_16_a_cancelled_sender_withdraws_its_text(stage: Stage) -> None:
    steering = Steering()
    waiting = asyncio.ensure_future(steering.send("never mind"))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    model = provider(says("done"))
    await stage.run(Agent("p", Harness(model)), steering=steering)
    assert model.requests[0].messages[0].text == "go"
