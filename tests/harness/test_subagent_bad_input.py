"""What goes wrong around a child, and what its parent makes of it (SUB-03, -15, -51, -56, STEER-08, EVT-01)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp import Continuation, OutpostError, Steering, Subagent
from outpost_lsp.storage.conversations import ConversationStore
from tests.harness.stage import Stage, agent, calls, says


def delegate() -> Any:
    return calls(("review", {"prompt": "look"}))


def results(parent: Any) -> list[Any]:
    return list(parent.harness.model_provider.requests[-1].messages[-1].results)


async def test_a_child_that_answers_nothing_gives_an_empty_text(stage: Stage) -> None:
    child = agent(says(""))
    parent = agent(delegate(), says("nothing came"), tools=[Subagent("review", "Reviews.", child)])
    assert (await stage.run(parent)).text == "nothing came"
    [result] = results(parent)
    assert result.is_error is None
    assert json.loads(result.content)["text"] == ""
    assert [event.status for event in stage.of("subagent")] == ["started", "finished"]


async def test_a_child_whose_transcript_cannot_be_written_is_a_tool_error(stage: Stage, tmp_path: Path) -> None:
    """SUB-67: without a transcript there is no start, only a failure."""
    (tmp_path / "file").write_text("in the way")
    store = ConversationStore(tmp_path / "file" / "conversations", tmp_path / "locks")
    child = agent(says("never"), conversations=store)
    parent = agent(delegate(), says("it failed"), tools=[Subagent("review", "Reviews.", child)])
    assert (await stage.run(parent)).text == "it failed"
    [result] = results(parent)
    assert result.is_error
    assert [event.status for event in stage.of("subagent")] == ["failed"]
    assert child.harness.model_provider.requests == []


async def test_EVT_01_an_observer_that_raises_at_every_event_of_a_child_changes_nothing(stage: Stage) -> None:
    child = agent(says("fine"))
    parent = agent(delegate(), says("done"), tools=[Subagent("review", "Reviews.", child)])

    def broken(_event: Any) -> None:
        raise RuntimeError("no")

    result = await stage.run(parent, observe=broken)
    assert result.text == "done"
    assert any("no" in error for error in result.observer_errors)


async def test_STEER_08_a_text_for_a_child_that_has_ended_is_refused(stage: Stage) -> None:
    child = agent(says("fine"))
    steering = Steering()
    sent: list[Any] = []

    def late(event: Any) -> None:
        if event.kind == "subagent" and event.status == "finished":
            import asyncio

            sent.append(asyncio.ensure_future(steering.send("too late", subagent=event.id)))

    parent = agent(delegate(), says("done"), tools=[Subagent("review", "Reviews.", child)])
    assert (await stage.run(parent, observe=late, steering=steering)).text == "done"
    with pytest.raises(OutpostError) as refused:
        await sent[0]
    assert refused.value.code == "steering"
    assert refused.value.details["text"] == "too late"


@pytest.mark.parametrize("id", ["", "nothing", "../../etc/passwd", "0" * 32])
async def test_a_continuation_that_does_not_exist_is_refused(stage: Stage, id: str) -> None:
    with pytest.raises(OutpostError) as refused:
        await stage.run(agent(says("never")), continuation=Continuation(id))
    assert refused.value.code in ("configuration", "session")


@pytest.mark.parametrize("tools", [0, 1])
def test_SUB_05_two_tools_of_one_name_are_refused(tools: int) -> None:
    review = Subagent("review", "Reviews.", agent(says("x")))
    other = Subagent("review", "Reviews, too.", agent(says("x")))
    with pytest.raises(OutpostError, match="review"):
        agent(says("x"), tools=[review, other] if tools else [review, review])
