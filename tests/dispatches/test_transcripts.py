"""What a dispatch writes down of a conversation, and what another makes of it (TRANS rules, SUB-55, SUB-56)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp import (
    Agent,
    Choice,
    Continuation,
    Decision,
    Harness,
    ModelRouting,
    OutpostError,
    ScriptedDecisionProvider,
    Subagent,
    recovery_details,
)
from outpost_lsp.storage.conversations import ConversationStore
from tests.harness.stage import Stage, calls, echo, provider, says


def routing(*labels: str) -> ModelRouting:
    return ModelRouting(
        provider=ScriptedDecisionProvider([(label, 0.9) for label in labels]),
        model="auto",
        decision=Decision({"route": Choice("Choose.", {"fast": "a", "deep": "b"})}),
        question="route",
        models={"fast": "small", "deep": "large"},
        fallback="deep",
    )


def records(path: Path | None) -> list[dict[str, Any]]:
    assert path is not None
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_TRANS_01_04_a_routed_harness_makes_version_two_and_it_stays_so(stage: Stage) -> None:
    model = provider(*(says(str(number)) for number in range(3)))
    plain = Agent("m", Harness(model))
    first = await stage.run(plain)
    before = records(first.transcript)
    assert before[0]["version"] == 1
    routed = await stage.run(
        Agent("m", Harness(model, routing=routing("fast"))), continuation=first.conversation, brief="on"
    )
    assert routed.conversation == first.conversation
    after = records(routed.transcript)
    assert after[0] == {**before[0], "version": 2}
    assert after[1 : len(before)] == before[1:]
    assert [record["type"] for record in after[len(before) :]] == ["message", "model-selection", "message"]
    # Without a routing it is gone on with as what it is.
    again = await stage.run(plain, continuation=first.conversation, brief="and on")
    assert records(again.transcript)[0]["version"] == 2
    assert len(records(again.transcript)) == len(after) + 2


async def test_TRANS_05_a_fork_holds_the_folded_messages_and_no_selection(stage: Stage) -> None:
    model = provider(calls(("echo", {"text": "x"})), says("done"), says("aside"))
    subject = Agent("m", Harness(model, tools=[echo], routing=routing("fast", "deep", "fast")))
    first = await stage.run(subject)
    source = (first.transcript or Path()).read_bytes()
    fork = await stage.run(subject, "aside", continuation=Continuation(first.conversation or "", fork=True))
    assert (first.transcript or Path()).read_bytes() == source
    written = records(fork.transcript)
    assert [record["type"] for record in written] == ["session", "compaction", "message", "model-selection", "message"]
    assert written[0]["parent"] == first.conversation
    assert written[0]["version"] == 2
    held = [record["message"] for record in records(first.transcript) if record["type"] == "message"]
    assert written[1]["messages"] == held


async def test_TRANS_08_CONV_14_the_main_loop_tells_its_conversation_once_it_is_open(stage: Stage) -> None:
    child = Agent("c", Harness(provider(says("child"))))
    model = provider(calls(("ask", {"prompt": "x"})), says("done"))
    result = await stage.run(Agent("m", Harness(model, tools=[Subagent("ask", "Asks.", child)])))
    (event,) = stage.of("conversation")
    assert event.id == result.conversation
    kinds = stage.kinds()
    assert kinds.index("conversation") < kinds.index("step")
    stage.events.clear()
    await stage.run(Agent("m", Harness(provider(says("x")), conversations=None)))
    assert stage.of("conversation") == []


async def test_SUB_55_an_interrupted_delegation_comes_back_as_an_error_and_the_child_is_not_restarted(
    stage: Stage,
) -> None:
    child_model = provider(says("never asked again"))
    delegate = calls(("ask", {"prompt": "look"}, "call-7"))
    parent_model = provider(delegate, says("I know now"))
    parent = Agent("p", Harness(parent_model, tools=[Subagent("ask", "Asks.", Agent("c", Harness(child_model)))]))
    result = await stage.run(parent)
    # The process was killed in the middle of the delegation: its call is the last thing that was written.
    transcript = result.transcript or Path()
    lines = transcript.read_bytes().splitlines(keepends=True)
    transcript.write_bytes(b"".join(lines[:3]))
    again_model = provider(says("understood"))
    again = Agent("p", Harness(again_model, tools=parent.harness.tools))
    await stage.run(again, "go on", continuation=result.conversation)
    (answer,) = again_model.requests[0].messages[2].results
    assert (answer.call_id, answer.is_error) == ("call-7", True)
    assert "nterrupted" in answer.content
    assert again_model.requests[0].messages[3].text == "go on"
    assert len(child_model.requests) == 1


class Unwilling(ConversationStore):
    """A store that cannot keep anything when a turn is over."""

    def capture(self, id: str) -> Path:
        raise OutpostError("workspace", "the archive is full")


def unwilling(stage: Stage) -> Unwilling:
    return Unwilling(stage.layout.state / "mine", stage.layout.state / "locks")


async def test_SUB_56_57_a_child_that_cannot_be_captured_has_failed_and_its_lock_is_free(stage: Stage) -> None:
    child = Agent("c", Harness(provider(says("child"), says("more")), conversations=unwilling(stage)))
    model = provider(calls(("ask", {"prompt": "x"})), says("done"))
    result = await stage.run(Agent("p", Harness(model, tools=[Subagent("ask", "Asks.", child)])))
    (told,) = model.requests[1].messages[-1].results
    assert (told.content, told.is_error) == ("the archive is full", True)
    assert [event.status for event in stage.of("subagent")] == ["started", "failed"]
    assert result.text == "done"
    conversation = stage.of("subagent")[0].conversation
    with unwilling(stage).open(conversation, version=1) as transcript:
        assert transcript.history[-1].text == "child"


async def test_SUB_56_after_another_failure_the_capture_is_told_beside_it(stage: Stage) -> None:
    down = OutpostError("provider", "the service is down")
    child = Agent("c", Harness(provider(down), conversations=unwilling(stage)))
    model = provider(calls(("ask", {"prompt": "x"})), says("done"))
    await stage.run(Agent("p", Harness(model, tools=[Subagent("ask", "Asks.", child)])))
    (told,) = model.requests[1].messages[-1].results
    assert told.content == "the service is down"
    assert dict(recovery_details(down) or {}) == {
        "conversation": stage.of("subagent")[0].conversation,
        "capture": "the archive is full",
    }


@pytest.mark.parametrize("broken", [b"{", b"[]", b'"x"'])
async def test_TRANS_03_a_first_line_that_is_no_session_ends_a_continuation_before_anything(
    stage: Stage, broken: bytes
) -> None:
    """A broken line further on costs itself only: a conversation is worth more than the rule of the reference (REL-21)."""
    model = provider(says("one"), says("never"))
    subject = Agent("m", Harness(model))
    result = await stage.run(subject)
    transcript = result.transcript or Path()
    _, _, rest = transcript.read_bytes().partition(b"\n")
    transcript.write_bytes(broken + b"\n" + rest)
    with pytest.raises(OutpostError, match="first record is no session") as caught:
        await stage.run(subject, "on", continuation=result.conversation)
    assert caught.value.code == "session"
    assert len(model.requests) == 1
    assert transcript.read_bytes() == broken + b"\n" + rest
