"""What answers come to, in all three forms (MODEL-05 to MODEL-08, OAR, OAC and ANT rules)."""

from __future__ import annotations

import asyncio
import json

import pytest

from outpost_lsp.domain.message import Message, ReasoningBlock, TextBlock, ToolCallBlock, ToolResultBlock, user
from outpost_lsp.domain.model import Completed, ModelRequest, ModelResult, ReasoningDelta, TextDelta
from outpost_lsp.domain.usage import Usage
from outpost_lsp.errors import OutpostError
from tests.models.asking import ASK, FORMS, MakeProvider, ask, chat, fault_of, listen, messages
from tests.support.model_server import Answer, ModelServer, Received

pytestmark = pytest.mark.parametrize("make", FORMS)
CALL = {"name": "search", "input": {"pattern": "wörd", "limit": 3}, "id": "call_of_this_very_answer"}


async def answered(make: MakeProvider, answer: Answer, request: ModelRequest = ASK) -> ModelResult:
    with ModelServer([answer]) as server:
        return await ask(make(server.base_url, max_retries=0), request)


async def refused(make: MakeProvider, answer: Answer) -> OutpostError:
    with ModelServer([answer]) as server:
        return await fault_of(make(server.base_url, max_retries=0))


async def test_text_streams_in_pieces_and_ends_whole(make: MakeProvider) -> None:
    with ModelServer([Answer(text="Grüße 🌍, all of you", pieces=5, pause_s=0.02)]) as server:
        events, fault = await listen(make(server.base_url))
    assert fault is None
    deltas = [event.text for event in events if isinstance(event, TextDelta)]
    assert len(deltas) > 1
    assert "".join(deltas) == "Grüße 🌍, all of you"
    assert isinstance(events[-1], Completed)
    assert events[-1].result.text == "Grüße 🌍, all of you"
    assert sum(isinstance(event, Completed) for event in events) == 1


async def test_pieces_of_one_read_are_one_event(make: MakeProvider) -> None:
    text = "x" * 400
    with ModelServer([Answer(text=text, pieces=400)]) as server:
        events, _ = await listen(make(server.base_url))
    deltas = [event for event in events if isinstance(event, TextDelta)]
    assert "".join(delta.text for delta in deltas) == text
    assert len(deltas) < 400


async def test_a_slow_listener_misses_nothing(make: MakeProvider) -> None:
    with ModelServer([Answer(text="one two three", pieces=13, pause_s=0.01)]) as server:
        provider = make(server.base_url)
        heard = ""
        async for event in provider.stream(ASK):
            if isinstance(event, TextDelta):
                if not heard:
                    # Whatever reads the network has ended when this is the only task left.
                    while len(asyncio.all_tasks()) > 1:
                        await asyncio.sleep(0.01)
                heard += event.text
        await provider.aclose()
    assert heard == "one two three"


async def test_calls_come_with_their_decoded_input_and_a_stop_reason(make: MakeProvider) -> None:
    got = await answered(make, Answer(text="Let me look.", calls=[CALL, {"name": "list_files"}]))
    assert got.reason == "tool-calls"
    assert got.blocks[0] == TextBlock(text="Let me look.")
    first, second = [block for block in got.blocks if isinstance(block, ToolCallBlock)]
    assert (first.id, first.name, first.input) == (CALL["id"], "search", CALL["input"])
    assert (second.name, second.input) == ("list_files", {})
    assert got.model == "small"


async def test_TEXEC_12_broken_input_stays_a_text(make: MakeProvider) -> None:
    broken = ['{"path": ', "[1, 2", '{"n": NaN}', '{"n": 1e999}', '{"n": 99999999999999999999}', "nonsense"]
    got = await answered(make, Answer(calls=[{"name": "search", "input": text} for text in broken]))
    if make is messages:  # That form sends an empty object first, and the text in pieces.
        assert len(got.blocks) == len(broken)
    assert [block.input for block in got.blocks if isinstance(block, ToolCallBlock)] == broken


async def test_readable_reasoning_is_shown_and_kept_where_the_form_has_a_place(make: MakeProvider) -> None:
    with ModelServer([Answer(reasoning="First think.", text="Then speak.")]) as server:
        provider = make(server.base_url)
        events, _ = await listen(provider)
    assert "".join(event.text for event in events if isinstance(event, ReasoningDelta)) == "First think."
    assert isinstance(events[-1], Completed)
    kept = [block for block in events[-1].result.blocks if isinstance(block, ReasoningBlock)]
    if make is chat:
        assert not kept
    else:
        assert [(block.provider, block.model, block.text) for block in kept] == [
            (provider.identity, "small", "First think.")
        ]


async def test_usage_counts_the_cache_as_part_of_the_input(make: MakeProvider) -> None:
    got = await answered(make, Answer(text="x", usage={"input": 100, "output": 7, "cached": 60}))
    assert got.usage is not None
    assert (got.usage.input, got.usage.cached, got.usage.output, got.usage.complete) == (100, 60, 7, None)


async def test_USE_06_usage_that_was_not_reported_stays_absent(make: MakeProvider) -> None:
    assert (await answered(make, Answer(text="x", usage=None))).usage is None


async def test_more_cached_than_read_cannot_be(make: MakeProvider) -> None:
    fault = await refused(make, Answer(text="x", usage={"input": 5, "output": 7, "cached": 60}))
    assert fault.code == "response"


async def test_MODEL_07_an_answer_cut_off_by_its_limit_gives_no_usable_call(make: MakeProvider) -> None:
    got = await answered(make, Answer(text="I will", calls=[CALL], stop="max-tokens"))
    assert got.reason == "max-tokens"
    calls = [block for block in got.blocks if isinstance(block, ToolCallBlock)]
    assert [json.loads(call.input) for call in calls] == [CALL["input"]]


async def test_a_refusal_is_said_to_be_one(make: MakeProvider) -> None:
    assert (await answered(make, Answer(text="no", stop="refusal"))).reason == "refusal"


async def test_MODEL_06_an_end_with_calls_is_a_tool_call(make: MakeProvider) -> None:
    assert (await answered(make, Answer(calls=[CALL], stop="end"))).reason == "tool-calls"


async def test_an_answer_in_one_piece_is_understood_where_a_service_does_not_stream(make: MakeProvider) -> None:
    def whole(request: Received) -> Answer:
        from tests.support.model_answers import wire_body

        answer = Answer(text="In one piece.", calls=[CALL], usage={"input": 9, "output": 2})
        assert request.form is not None
        return Answer(json=wire_body(request.form, answer, 1, "small"))

    with ModelServer([whole]) as server:
        got = await ask(make(server.base_url))
    assert got.text == "In one piece."
    assert got.reason == "tool-calls"
    assert [block.input for block in got.blocks if isinstance(block, ToolCallBlock)] == [CALL["input"]]
    assert got.usage == Usage(input=9, output=2, cache_created=0 if make is messages else None)


async def test_an_id_that_the_conversation_has_already_is_replaced(make: MakeProvider) -> None:
    earlier = Message(role="assistant", content=(ToolCallBlock(id="call_0", name="search", input={}),))
    result = Message(role="user", content=(ToolResultBlock(call_id="call_0", content="x"),))
    request = ModelRequest(model="small", messages=[user("go"), earlier, result], max_output_tokens=9)
    again = [{**CALL, "id": "call_0"}, {**CALL, "id": "call_1"}, {**CALL, "id": "call_1"}]
    got = await answered(make, Answer(calls=again), request)
    ids = [block.id for block in got.blocks if isinstance(block, ToolCallBlock)]
    assert len(set(ids)) == 3
    assert "call_0" not in ids
    assert "call_1" in ids


async def test_more_than_256_calls_are_refused(make: MakeProvider) -> None:
    assert (await answered(make, Answer(calls=[{"name": "search"}] * 256))).reason == "tool-calls"
    fault = await refused(make, Answer(calls=[{"name": "search"}] * 257))
    assert fault.code == "response"
    assert "256" in fault.message


async def test_a_provider_serves_many_requests_at_once_over_one_client(make: MakeProvider) -> None:
    with ModelServer([Answer(text="hello", pause_s=0.01, times=0)]) as server:
        provider = make(server.base_url)

        async def one() -> str:
            events = [event async for event in provider.stream(ASK)]
            assert isinstance(events[-1], Completed)
            return events[-1].result.text

        assert await asyncio.gather(*(one() for _ in range(8))) == ["hello"] * 8
        assert server.connections <= 8
        first = server.connections
        assert await one() == "hello"
        assert server.connections == first, "the connections were not kept"
        await provider.aclose()
        await server.until(lambda: server.open_connections == 0)
        assert await one() == "hello"
        await provider.aclose()
