"""How failures of a service are told and which are tried again (HTTP-01 to HTTP-06, ERR-05, REL-05, REL-09)."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from outpost_lsp.domain.model import Completed, TextDelta
from outpost_lsp.errors import quota_fault, unavailable_fault
from outpost_lsp.models.openai import OpenAIModelProvider
from tests.models.asking import ASK, FORMS, KEY, MakeProvider, ask, chat, fault_of, listen, messages, responses, retries
from tests.support.model_answers import wire_body
from tests.support.model_server import Answer, ModelServer, Received

OVERLOADED = {"type": "overloaded_error", "code": "overloaded_error", "message": "busy"}


@pytest.mark.parametrize(
    ("status", "code", "unavailable"),
    [
        *((status, "provider", True) for status in (408, 500, 502, 503, 504, 529)),
        *((status, "provider", False) for status in (400, 401, 402, 403, 404, 405, 413, 422, 451, 501)),
        (429, "quota", False),
    ],
)
async def test_ERR_05_HTTP_03_each_status_has_its_fault(status: int, code: str, unavailable: bool) -> None:
    with ModelServer([Answer(status=status, body="the body")]) as server:
        fault = await fault_of(chat(server.base_url, max_retries=0))
    assert fault.code == code
    assert fault.details["status"] == status
    assert (unavailable_fault(fault) is not None) == unavailable
    if unavailable:
        assert fault.details["unavailable"] == f"HTTP {status}"
    assert set(fault.details) - {"reason"} == ({"status", "unavailable"} if unavailable else {"status"})
    assert f"HTTP {status}" in fault.message
    assert server.base_url in fault.message
    assert len(server.requests) == 1


@pytest.mark.parametrize("make", FORMS)
@pytest.mark.parametrize(
    "error",
    [
        {"code": "context_length_exceeded", "message": "too long: SECRET TEXT"},
        {"type": "exceed_context_size_error", "message": "x"},
        {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000 maximum"},
        {"message": "This model's maximum context length is 8192 tokens. You sent SECRET TEXT."},
    ],
)
async def test_CTX_11_a_full_context_is_recognised_and_not_quoted(make: MakeProvider, error: dict[str, str]) -> None:
    with ModelServer([Answer(status=400, json={"error": error})]) as server:
        fault = await fault_of(make(server.base_url))
    assert (fault.code, fault.details["reason"]) == ("provider", "context-length")
    assert "maximum context length" in fault.message
    assert "SECRET" not in fault.message
    assert len(server.requests) == 1


async def test_CTX_11_a_body_that_never_ends_does_not_hold_up_the_fault() -> None:
    head = b"HTTP/1.1 400 Bad\r\nContent-Type: application/json\r\nContent-Length: 900000\r\n\r\n{"
    with ModelServer([Answer(raw=head, keep_open=True)]) as server:
        async with asyncio.timeout(30):
            fault = await fault_of(chat(server.base_url))
    assert fault.details == {"status": 400}


async def test_a_body_that_never_ends_does_not_hold_up_other_faults_either() -> None:
    head = b"HTTP/1.1 503 Busy\r\nContent-Type: text/plain\r\nContent-Length: 900000\r\n\r\nx"
    with ModelServer([Answer(raw=head, keep_open=True)]) as server:
        began = time.monotonic()
        await fault_of(chat(server.base_url, max_retries=0, timeout_s=60))
        assert time.monotonic() - began < 30
        await server.until(lambda: server.open_connections == 0)


@pytest.mark.parametrize("make", FORMS)
async def test_an_unavailable_service_is_asked_again_until_it_answers(make: MakeProvider) -> None:
    with ModelServer([Answer(status=503), Answer(status=529), Answer(text="Here I am.")]) as server:
        events, fault = await listen(make(server.base_url))
    assert fault is None
    assert [retry.attempt for retry in retries(events)] == [1, 2]
    assert all("HTTP 5" in (retry.message or "") for retry in retries(events))
    assert isinstance(events[-1], Completed)
    bodies = {seen.body for seen in server.requests}
    assert len(server.requests) == 3
    assert len(bodies) == 1


async def test_retries_end_with_the_fault_and_the_number_of_tries() -> None:
    with ModelServer([Answer(status=503, times=0)]) as server:
        events, fault = await listen(chat(server.base_url))
    assert fault is not None
    assert len(retries(events)) == 2
    assert len(server.requests) == 3
    assert "tried 3 times" in fault.message
    assert fault.details["unavailable"] == "HTTP 503"


@pytest.mark.parametrize("status", [400, 401, 404, 422, 501])
async def test_what_would_fail_again_is_not_sent_again(status: int) -> None:
    with ModelServer([Answer(status=status, times=0)]) as server:
        await fault_of(chat(server.base_url))
    assert len(server.requests) == 1


async def test_SEC_18_a_redirect_is_not_followed() -> None:
    with (
        ModelServer(["never"]) as other,
        ModelServer([Answer(status=307, headers={"Location": other.base_url})]) as server,
    ):
        fault = await fault_of(chat(server.base_url))
        assert not other.connections
    assert (fault.code, fault.details["unavailable"]) == ("provider", "HTTP 307")
    assert "redirect" in fault.message
    assert len(server.requests) == 1


async def test_REL_09_retry_after_is_a_floor() -> None:
    with ModelServer([Answer(status=429, headers={"Retry-After": "1"}), "done"]) as server:
        began = time.monotonic()
        events, fault = await listen(chat(server.base_url))
        assert time.monotonic() - began >= 1
    assert fault is None
    assert [retry.wait_s for retry in retries(events)] == [1.0]


@pytest.mark.parametrize("as_date", [False, True])
async def test_REL_09_HTTP_03_more_than_a_minute_is_not_waited_for(as_date: bool) -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=900), usegmt=True)
    with ModelServer([Answer(status=429, headers={"Retry-After": later if as_date else "900"})]) as server:
        events, fault = await listen(chat(server.base_url))
    assert not events
    assert fault is not None
    quota = quota_fault(fault)
    assert quota is not None
    assert quota.reset_at is not None
    wait = datetime.fromisoformat(quota.reset_at) - datetime.now(UTC)
    assert 800 < wait.total_seconds() <= 901
    assert 890_000 < fault.details["retryAfterMs"] <= 900_000
    assert quota.reset_at in fault.message
    assert len(server.requests) == 1


async def test_REL_09_a_long_wait_of_an_unavailable_service_says_when_to_come_back() -> None:
    with ModelServer([Answer(status=503, headers={"Retry-After": "900"})]) as server:
        fault = await fault_of(chat(server.base_url))
    assert (fault.code, fault.details["unavailable"]) == ("provider", "HTTP 503")
    assert fault.details["resetAt"] in fault.message
    assert len(server.requests) == 1


async def test_waiting_for_a_retry_ends_at_once_when_cancelled() -> None:
    with ModelServer([Answer(status=429, headers={"Retry-After": "50"})]) as server:
        provider = chat(server.base_url)
        waiting = asyncio.Event()

        async def run() -> None:
            async for _ in provider.stream(ASK):
                waiting.set()

        task = asyncio.create_task(run())
        await waiting.wait()
        task.cancel()
        began = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - began < 20
        await provider.aclose()
    assert len(server.requests) == 1


@pytest.mark.parametrize("make", FORMS)
@pytest.mark.parametrize("kind", ["rate_limit_error", "rate_limit_exceeded", "insufficient_quota"])
async def test_HTTP_05_a_quota_error_within_a_stream_is_a_quota(make: MakeProvider, kind: str) -> None:
    error = {"type": kind, "code": kind, "message": f"key {KEY} is over"}
    with ModelServer([Answer(text="So far", error=error, times=0)]) as server:
        events, fault = await listen(make(server.base_url))
    assert fault is not None
    assert fault.code == "quota"
    assert KEY not in fault.message
    assert len(server.requests) == (1 if kind == "insufficient_quota" else 3)
    assert len(retries(events)) == len(server.requests) - 1


@pytest.mark.parametrize("make", FORMS)
@pytest.mark.parametrize(
    ("kind", "unavailable"),
    [("overloaded_error", True), ("api_error", True), ("server_error", True), ("invalid_prompt", False)],
)
async def test_HTTP_05_other_errors_within_a_stream(make: MakeProvider, kind: str, unavailable: bool) -> None:
    with ModelServer([Answer(error={"type": kind, "code": kind, "message": "x"}, times=0)]) as server:
        fault = await fault_of(make(server.base_url))
    assert fault.code == "provider"
    assert (unavailable_fault(fault) is not None) == unavailable
    assert len(server.requests) == (3 if unavailable else 1)


@pytest.mark.parametrize("make", FORMS)
@pytest.mark.parametrize("way", ["cut_after", "reset_after"])
async def test_REL_05_a_cut_answer_is_asked_for_again_and_none_of_it_counts(make: MakeProvider, way: str) -> None:
    cut = {"text": "Half of", "calls": [{"name": "write_file", "input": {}}], way: 5, "pause_s": 0.02}
    with ModelServer([Answer(**cut), Answer(text="The whole.")]) as server:
        events, fault = await listen(make(server.base_url))
    assert fault is None
    at = events.index(retries(events)[0])
    assert "".join(event.text for event in events[at:] if isinstance(event, TextDelta)) == "The whole."
    last = events[-1]
    assert isinstance(last, Completed)
    assert [block.type for block in last.result.blocks] == ["text"]
    assert last.result.usage is not None
    assert (last.result.usage.input, last.result.usage.output) == (10, 5)


async def test_what_a_cut_answer_had_reported_travels_with_the_retry_and_with_the_last_fault() -> None:
    with ModelServer([Answer(text="Half of", cut_after=4, times=0)]) as server:
        events, fault = await listen(messages(server.base_url, max_retries=1))
    assert [retry.usage.to_json() for retry in retries(events) if retry.usage] == [
        {"input": 10, "cached": 0, "cacheCreated": 0, "output": 1, "complete": False}
    ]
    assert fault is not None
    assert fault.details["usage"]["complete"] is False


async def test_a_refused_connection_is_unavailable_and_says_where() -> None:
    with ModelServer() as server:
        base_url = server.base_url
    events, fault = await listen(responses(base_url))
    assert fault is not None
    assert fault.code == "provider"
    assert unavailable_fault(fault) is not None
    assert base_url in fault.message
    assert "running" in fault.message
    assert len(retries(events)) == 2


async def test_an_unknown_host_is_unavailable() -> None:
    provider = OpenAIModelProvider("https://no-such-host.invalid/v1", KEY, max_retries=0, proxy=None, timeout_s=20)
    fault = await fault_of(provider)
    assert fault.code == "provider"
    assert unavailable_fault(fault) is not None
    assert "no-such-host.invalid" in fault.message


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Answer(body="<html>", headers={"Content-Type": "text/html"}), "text/html"),
        (Answer(body="[1]", headers={"Content-Type": "application/json"}), "not a JSON object"),
        (Answer(body="{", headers={"Content-Type": "application/json"}), "not JSON"),
        (Answer(body="data: {\n\n", headers={"Content-Type": "text/event-stream"}), "not JSON"),
        (Answer(body="data: [1]\n\n", headers={"Content-Type": "text/event-stream"}), "not a JSON object"),
        (Answer(body="", headers={"Content-Type": "text/event-stream"}), "no answer in it"),
    ],
)
@pytest.mark.parametrize("make", FORMS)
async def test_what_is_no_answer_is_a_response_fault(make: MakeProvider, answer: Answer, told: str) -> None:
    with ModelServer([answer]) as server:
        fault = await fault_of(make(server.base_url))
    assert fault.code == "response"
    assert told in fault.message
    assert server.base_url in fault.message
    assert len(server.requests) == 1


@pytest.mark.parametrize("make", FORMS)
async def test_a_provider_is_usable_after_any_failure(make: MakeProvider) -> None:
    answers = [Answer(status=401), Answer(cut_after=1), Answer(text="x", error=OVERLOADED), Answer(body="x"), "Well."]
    with ModelServer(answers) as server:
        provider = make(server.base_url, max_retries=0)
        for _ in answers[:-1]:
            await fault_of(provider)
        assert (await ask(provider)).text == "Well."


@pytest.mark.parametrize("make", FORMS)
async def test_SEC_16_FAULT_06_the_key_shows_up_nowhere(make: MakeProvider, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    error = {"type": "x", "code": "x", "message": f"wrong key {KEY} in: the canary of the request"}
    request = replace(ASK, prompt="the canary of the request", system="the canary of the instructions")
    answers = [
        Answer(status=401, body=KEY),
        Answer(status=400, json={"error": error}),
        Answer(json={"error": error}),
        Answer(text="x", error=error),
        Answer(body=KEY, headers={"Content-Type": "text/html"}),
    ]
    with ModelServer(answers) as server:
        provider = make(server.base_url, max_retries=0)
        for _ in answers:
            fault = await fault_of(provider, request)
            shown = f"{fault} {fault!r} {dict(fault.details)} {fault.__cause__!r} {fault.__context__!r}"
            assert KEY not in shown
            assert "canary" not in shown
        assert KEY not in repr(provider)
        assert KEY not in repr(vars(provider))
    assert KEY not in caplog.text
    assert "canary" not in caplog.text


@pytest.mark.parametrize("make", FORMS)
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream", "text/plain", ""])
async def test_an_error_body_under_status_200_is_an_error_whatever_it_is_called(make: MakeProvider, kind: str) -> None:
    for error, words in (
        ({"type": "invalid_request_error", "code": "model_not_found", "message": "SECRET"}, "the model's name"),
        ({"type": "authentication_error", "message": "SECRET"}, "the key was refused"),
        ({"message": "SECRET"}, "the service's own log"),
        ("SECRET", "the service's own log"),
    ):
        body = json.dumps({"error": error}, indent=1)
        with ModelServer([Answer(body=body, headers={"Content-Type": kind})]) as server:
            fault = await fault_of(make(server.base_url))
        assert fault.code == "provider"
        assert words in fault.message
        assert "SECRET" not in fault.message
        assert len(server.requests) == 1


@pytest.mark.parametrize("make", FORMS)
async def test_an_answer_in_one_piece_is_read_under_the_name_of_a_stream_too(make: MakeProvider) -> None:
    def whole(request: Received) -> Answer:
        assert request.form is not None
        body = json.dumps(wire_body(request.form, Answer(text="In one piece."), 1, "small"))
        return Answer(body=body, headers={"Content-Type": "text/event-stream"})

    with ModelServer([whole]) as server:
        assert (await ask(make(server.base_url))).text == "In one piece."


async def test_FAULT_06_what_a_service_says_of_its_body_is_not_quoted() -> None:
    with ModelServer([Answer(body="x", headers={"Content-Type": f"text/{KEY}"})]) as server:
        fault = await fault_of(chat(server.base_url))
    assert KEY not in f"{fault} {dict(fault.details)}"
    assert "something else" in fault.message
