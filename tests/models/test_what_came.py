"""What a service sends is told by what it is, whatever it is called; and a spent quota by its body (HTTP-01 to HTTP-08)."""

from __future__ import annotations

import asyncio
import json

import pytest

from outpost_lsp.domain.model import Completed, TextDelta
from outpost_lsp.errors import quota_fault, unavailable_fault
from tests.models.asking import FORMS, KEY, MakeProvider, ask, chat, fault_of, listen, retries
from tests.support.model_answers import wire_body
from tests.support.model_server import Answer, ModelServer, Received


@pytest.mark.parametrize("make", FORMS)
@pytest.mark.parametrize("byte_by_byte", [False, True], ids=["as cut", "byte by byte"])
async def test_a_stream_of_events_under_the_name_of_json_is_read_as_one(make: MakeProvider, byte_by_byte: bool) -> None:
    named = {"Content-Type": "application/json; charset=utf-8"}
    with ModelServer([Answer(text="Streamed all the same.", headers=named, byte_by_byte=byte_by_byte)]) as server:
        events, fault = await listen(make(server.base_url))
    assert fault is None
    assert isinstance(events[-1], Completed)
    assert events[-1].result.text == "Streamed all the same."
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Streamed all the same."


@pytest.mark.parametrize("make", FORMS)
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_blanks_and_a_byte_order_mark_before_an_answer_change_nothing(make: MakeProvider, kind: str) -> None:
    def whole(request: Received) -> Answer:
        assert request.form is not None
        body = json.dumps(wire_body(request.form, Answer(text="In one piece."), 1, "small"), indent=1)
        padded = "\n\n" + body.replace("\n", "\n\n") + "\n\n"
        return Answer(body="\ufeff" + padded, headers={"Content-Type": kind}, byte_by_byte=True)

    with ModelServer([whole]) as server:
        assert (await ask(make(server.base_url))).text == "In one piece."


@pytest.mark.parametrize("make", FORMS)
@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Answer(status=204), "HTTP 204 came with an empty body"),
        (Answer(body="", headers={"Content-Type": "application/json"}), "HTTP 200 came with an empty body"),
        (Answer(body=" \r\n ", headers={"Content-Type": "text/event-stream"}), "HTTP 200 came with an empty body"),
        (Answer(body="<!doctype html>", headers={"Content-Type": "application/json"}), "it looks like HTML"),
        (Answer(body="<!doctype html>", headers={"Content-Type": "text/plain"}), "it looks like HTML"),
        (Answer(body="so sorry", headers={"Content-Type": "application/json"}), "not JSON, and no stream of events"),
        (Answer(body="data: x", headers={"Content-Type": "application/json"}), "there is no answer in it"),
    ],
)
async def test_an_answer_that_holds_nothing_says_what_came_and_what_to_check(
    make: MakeProvider, answer: Answer, told: str
) -> None:
    with ModelServer([answer]) as server:
        fault = await fault_of(make(server.base_url))
    assert fault.code == "response"
    assert told in fault.message
    assert "check base_url and `api`" in fault.message
    assert len(server.requests) == 1


@pytest.mark.parametrize("make", FORMS)
@pytest.mark.parametrize(
    ("words", "told"),
    [
        ('model "qwen" not found, try pulling it first', "the model's name"),
        ("Unauthorized", "the key was refused"),
        ("something broke: SECRET", "in words alone, which are not shown; check the model's name and that `api`"),
    ],
)
async def test_HTTP_05_an_error_in_words_alone_says_what_to_check(make: MakeProvider, words: str, told: str) -> None:
    with ModelServer([Answer(json={"error": words})]) as server:
        fault = await fault_of(make(server.base_url))
    assert fault.code == "provider"
    assert unavailable_fault(fault) is None
    assert told in fault.message
    assert "SECRET" not in fault.message
    assert "qwen" not in fault.message
    assert len(server.requests) == 1


@pytest.mark.parametrize("make", FORMS)
@pytest.mark.parametrize(
    "body",
    [
        {"error": {"type": "insufficient_quota", "code": "insufficient_quota", "message": f"{KEY} is over"}},
        {"error": {"code": "insufficient_quota"}},
        {"code": "insufficient_quota", "message": KEY},
    ],
)
@pytest.mark.parametrize("headers", [{}, {"Retry-After": "1"}])
async def test_HTTP_06_a_spent_quota_under_429_fails_at_once_and_says_so(
    make: MakeProvider, body: dict[str, object], headers: dict[str, str]
) -> None:
    with ModelServer([Answer(status=429, json=body, headers=headers)]) as server:
        events, fault = await listen(make(server.base_url))
    assert not events
    assert fault is not None
    assert quota_fault(fault) is not None
    assert fault.details["status"] == 429
    assert "HTTP 429" in fault.message
    assert "the quota of the account is used up" in fault.message
    assert KEY not in f"{fault} {dict(fault.details)}"
    assert len(server.requests) == 1


@pytest.mark.parametrize("body", [b"{", b"[" * 9000, b'{"error": {"code": 5}}', b'{"error": {"code": "slow_down"}}'])
async def test_HTTP_06_any_other_429_is_tried_again(body: bytes) -> None:
    with ModelServer([Answer(status=429, body=body.decode()), "done"]) as server:
        events, fault = await listen(chat(server.base_url))
    assert fault is None
    assert len(retries(events)) == 1


async def test_HTTP_06_a_429_whose_body_never_ends_is_tried_again() -> None:
    head = b"HTTP/1.1 429 Slow\r\nContent-Type: application/json\r\nContent-Length: 900000\r\n\r\n{"
    with ModelServer([Answer(raw=head, keep_open=True), "done"]) as server:
        async with asyncio.timeout(60):
            events, fault = await listen(chat(server.base_url))
    assert fault is None
    assert len(retries(events)) == 1


async def test_HTTP_01_the_body_of_a_429_that_says_to_wait_for_long_stays_unread() -> None:
    head = b"HTTP/1.1 429 Slow\r\nRetry-After: 900\r\nContent-Length: 900000\r\n\r\n{"
    with ModelServer([Answer(raw=head, keep_open=True)]) as server:
        async with asyncio.timeout(60):
            fault = await fault_of(chat(server.base_url))
    assert fault.code == "quota"
    assert fault.details["resetAt"] in fault.message
