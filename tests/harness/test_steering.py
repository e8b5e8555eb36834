"""A person's text for a running agent (STEER rules that need no child)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from outpost_lsp import Agent, Harness, Hook, OutpostError, Steering, Tool
from tests.harness.stage import Stage, calls, provider, says

ANY: dict[str, Any] = {"type": "object"}


async def test_STEER_04_boundaries_after_tool_results_and_when_about_to_finish(stage: Stage) -> None:
    steering = Steering()
    sent: list[asyncio.Future[Any]] = []

    async def during(_value: Any, _context: Any) -> str:
        sent.append(asyncio.ensure_future(steering.send("after the tool")))
        await asyncio.sleep(0)
        return "ok"

    async def at_the_end(given: Any) -> None:
        if given.text == "almost done":
            sent.append(asyncio.ensure_future(steering.send("not yet")))
            await asyncio.sleep(0)

    model = provider(calls(("during", {})), says("almost done"), says("done"))
    subject = Agent("m", Harness(model, tools=[Tool("during", "D.", ANY, during)], hooks=[Hook("stop", at_the_end)]))
    result = await stage.run(subject, steering=steering)
    assert [(await one).mode for one in sent] == ["injected", "injected"]
    assert model.requests[1].messages[-1].text == "after the tool"
    assert model.requests[1].messages[-1].results[0].content == "ok"
    assert [message.text for message in model.requests[2].messages[-2:]] == ["almost done", "not yet"]
    assert result.text == "done"


async def test_STEER_06_a_text_after_the_answer_resumes_the_conversation(stage: Stage) -> None:
    steering = Steering()
    sent: list[asyncio.Future[Any]] = []
    model = provider(says("one"), says("two"))

    def observe(event: Any) -> None:
        stage.events.append(event)
        # The loop has met its last boundary; the dispatch has not ended.
        if event.kind == "result" and not sent:
            sent.append(asyncio.ensure_future(steering.send("and then?", subagent=None)))

    class Waiting:
        """A provider that lets the sender run before the dispatch looks again."""

        name = identity = "waiting"

        async def request(self, request: Any) -> Any:
            return [event async for event in model.stream(request)][-1].result

    async def slow_end(_given: Any) -> None:
        await asyncio.sleep(0)

    subject = Agent("m", Harness(Waiting(), hooks=[Hook("stop", slow_end)]))  # type: ignore[arg-type]
    result = await stage.run(subject, steering=steering, observe=observe)
    delivered = await asyncio.gather(*sent, return_exceptions=True)
    if isinstance(delivered[0], OutpostError):
        # The sender came after the very end; then nothing is lost silently either (STEER-09).
        assert delivered[0].details["text"] == "and then?"
        return
    assert delivered[0].mode == "resumed"
    assert result.text == "one\ntwo"
    assert len(result.turns) == 2
    assert len({event.id for event in stage.of("conversation")}) == 1


async def test_STEER_07_a_text_waits_for_the_next_dispatch(stage: Stage) -> None:
    steering = Steering()
    assert steering.state == "idle"
    sent = asyncio.ensure_future(steering.send("remember"))
    await asyncio.sleep(0)
    assert not sent.done()
    model = provider(says("ok"))
    await stage.run(Agent("m", Harness(model)), steering=steering)
    assert (await sent).mode == "injected"
    assert [block.text for block in model.requests[0].messages[0].content] == ["go", "remember"]


async def test_STEER_09_15_what_was_not_delivered_is_refused_with_its_text(stage: Stage) -> None:
    steering = Steering()
    sent: list[asyncio.Future[Any]] = []

    async def during(_value: Any, _context: Any) -> str:
        sent.append(asyncio.ensure_future(steering.send("for nobody", subagent="no-such-run")))
        await asyncio.sleep(0)
        return "ok"

    model = provider(calls(("during", {})), says("done"))
    await stage.run(Agent("m", Harness(model, tools=[Tool("during", "D.", ANY, during)])), steering=steering)
    with pytest.raises(OutpostError) as caught:
        await sent[0]
    assert caught.value.code == "steering"
    assert caught.value.details == {"text": "for nobody", "subagent": "no-such-run"}
    assert steering.state == "idle"
    steering.detach()
    assert steering.state == "idle"


async def test_STEER_10_one_dispatch_at_a_time(stage: Stage) -> None:
    steering = Steering()
    codes: list[str] = []

    async def another(_value: Any, _context: Any) -> str:
        assert steering.state == "active"
        with pytest.raises(OutpostError) as caught:
            await stage.run(Agent("m", Harness(provider(says("x")))), steering=steering)
        codes.append(caught.value.code)
        return "ok"

    model = provider(calls(("another", {})), says("done"))
    await stage.run(Agent("m", Harness(model, tools=[Tool("another", "A.", ANY, another)])), steering=steering)
    assert codes == ["configuration"]
    steering.close()
    with pytest.raises(OutpostError) as caught:
        await stage.run(Agent("m", Harness(provider(says("x")))), steering=steering)
    assert caught.value.code == "configuration"


async def test_STEER_11_a_resumed_result_does_not_inherit_the_controller(stage: Stage) -> None:
    steering = Steering()
    model = provider(says("one"), says("two"))
    result = await stage.run(Agent("m", Harness(model)), steering=steering)
    waiting = asyncio.ensure_future(steering.send("for later"))
    await asyncio.sleep(0)
    await result.resume("more")
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_STEER_12_a_replay_cannot_be_steered(stage: Stage, tmp_path: Any) -> None:
    from outpost_lsp import Journal, ReplayAgent

    path = tmp_path / "journal.jsonl"
    await stage.run(Agent("m", Harness(provider(says("x")))), journal=Journal(path=path))
    with pytest.raises(OutpostError) as caught:
        await stage.run(ReplayAgent(path), steering=Steering())
    assert caught.value.code == "configuration"
