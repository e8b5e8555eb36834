"""Each stream case comes to what it says, whole, cut at every byte, and over a real connection (REL-07)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from outpost_lsp.domain.message import Message, ReasoningBlock, ToolResultBlock, user
from outpost_lsp.domain.model import Completed, ModelRequest, ModelResult, Retry, StreamEvent, TextDelta
from outpost_lsp.errors import OutpostError, quota_fault, unavailable_fault
from outpost_lsp.models.service import ServiceProvider
from tests.models.stream_cases import CASES, REQUEST, StreamCase, outcome
from tests.support.model_server import Answer, ModelServer

STREAMED = [case for case in CASES if case.name != "s07-error-as-200"]
named = {"ids": lambda case: case.name}


def check(case: StreamCase, got: ModelResult | OutpostError) -> None:
    expected = case.expected
    if isinstance(got, OutpostError):
        check_fault(expected, got)
        return
    assert expected["outcome"] in {"complete", "length"}
    assert got.text == expected["text"]
    assert (got.reason == "max-tokens") == (expected["outcome"] == "length")
    calls = [block for block in got.blocks if block.type == "tool-call"]
    assert [call.name for call in calls] == [call["name"] for call in expected["tool_calls"]]
    assert len({call.id for call in calls}) == len(calls)
    for call, wanted in zip(calls, expected["tool_calls"], strict=True):
        assert wanted["id"] in {call.id, None}
        assert call.id
        assert isinstance(call.input, dict) == wanted["run"]
        if wanted["arguments"] is not None:
            assert call.input == wanted["arguments"]
    if expected["usage"] is None:
        assert got.usage is None
    else:
        assert got.usage is not None
        assert (got.usage.input, got.usage.output) == (expected["usage"]["input"], expected["usage"]["output"])


def check_fault(expected: dict[str, Any], fault: OutpostError) -> None:
    assert expected["outcome"] in {"error", "truncated"}, fault.message
    error = expected["error"]
    assert fault.code == "provider"
    assert error["says"] in fault.message
    assert quota_fault(fault) is None
    assert (unavailable_fault(fault) is not None) == error["retry"]
    if error["class"] == "context_length":
        assert fault.details["reason"] == "context-length"


@pytest.mark.parametrize("case", CASES, **named)
def test_a_case_read_whole_comes_to_what_it_says(case: StreamCase) -> None:
    is_json = case.name == "s07-error-as-200"
    check(case, outcome(case.reader(), [case.body], json_body=is_json))


@pytest.mark.parametrize("case", STREAMED, **named)
def test_a_case_cut_at_every_byte_comes_to_the_same(case: StreamCase) -> None:
    body = case.body
    for place in range(1, len(body)):
        check(case, outcome(case.reader(), [body[:place], body[place:]]))
    check(case, outcome(case.reader(), [body[at : at + 1] for at in range(len(body))]))


@pytest.mark.parametrize("case", STREAMED, **named)
def test_no_beginning_of_a_case_gives_calls_that_the_whole_does_not(case: StreamCase) -> None:
    whole = outcome(case.reader(), [case.body])
    known = [] if isinstance(whole, OutpostError) else [(call.name, call.input) for call in _calls(whole)]
    for length in range(len(case.body)):
        got = outcome(case.reader(), [case.body[:length]])
        if isinstance(got, OutpostError):
            assert got.code in {"provider", "response"}
        elif got.reason == "tool-calls":
            assert [(call.name, call.input) for call in _calls(got)] == known


def _calls(result: ModelResult) -> list[Any]:
    return [block for block in result.blocks if block.type == "tool-call"]


async def collect(
    provider: ServiceProvider, request: ModelRequest = REQUEST
) -> tuple[list[StreamEvent], OutpostError | None]:
    events: list[StreamEvent] = []
    try:
        async for event in provider.stream(request):
            events.append(event)
    except OutpostError as fault:
        return events, fault
    finally:
        await provider.aclose()
    return events, None


@pytest.mark.parametrize("byte_by_byte", [False, True], ids=["as cut", "byte by byte"])
@pytest.mark.parametrize("case", CASES, **named)
async def test_a_case_served_on_a_connection_comes_to_what_it_says(case: StreamCase, byte_by_byte: bool) -> None:
    with ModelServer([Answer(raw=case.http, byte_by_byte=byte_by_byte)]) as server:
        events, fault = await asyncio.wait_for(collect(case.provider(server.base_url, max_retries=0)), 60)
    shown = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert shown == case.expected["text"]
    if fault is not None:
        check_fault(case.expected, fault)
    else:
        assert isinstance(events[-1], Completed)
        check(case, events[-1].result)


async def test_s05_an_error_midway_is_retried_and_its_count_is_reported_as_a_lower_bound() -> None:
    case = next(case for case in CASES if case.name == "s05-error-midway")
    with ModelServer([Answer(raw=case.http), "Whole at last."]) as server:
        events, fault = await collect(case.provider(server.base_url))
    assert fault is None
    retry = next(event for event in events if isinstance(event, Retry))
    assert retry.usage is not None
    assert retry.usage.to_json() == {**case.expected["usage"], "cached": 0}
    assert isinstance(events[-1], Completed)
    assert events[-1].result.text == "Whole at last."
    assert len(server.requests) == 2


async def test_s07_a_full_context_is_not_sent_again() -> None:
    case = next(case for case in CASES if case.name == "s07-error-as-200")
    with ModelServer([Answer(raw=case.http), "never asked for"]) as server:
        _, fault = await collect(case.provider(server.base_url))
    assert fault is not None
    assert "8192" not in fault.message
    assert len(server.requests) == 1


async def test_s04_signed_thinking_goes_back_unchanged() -> None:
    case = next(case for case in CASES if case.name == "s04-empty-input")
    with ModelServer([Answer(raw=case.http), "done"]) as server:
        provider = case.provider(server.base_url)
        events = [event async for event in provider.stream(REQUEST)]
        assert isinstance(events[-1], Completed)
        answer = events[-1].result.blocks
        results = tuple(ToolResultBlock(call_id=call.id, content="x") for call in _calls(events[-1].result))
        messages = [user("go"), Message(role="assistant", content=answer), Message(role="user", content=results)]
        await collect(provider, ModelRequest(model="case-model", messages=messages, max_output_tokens=9))
    assert isinstance(answer[0], ReasoningBlock)
    sent = server.requests[1].json["messages"][1]["content"][0]
    assert sent == {"type": "thinking", "thinking": "List first.", "signature": "c2ln"}


async def test_s02_the_answer_is_whole_at_its_end_mark_though_the_connection_stays_open() -> None:
    case = next(case for case in CASES if case.name == "s02-empty-choices")
    with ModelServer([Answer(raw=case.http)]) as server:
        async with asyncio.timeout(10):
            _, fault = await collect(case.provider(server.base_url, timeout_s=30))
        await server.until(lambda: server.open_connections == 0)
    assert fault is None
