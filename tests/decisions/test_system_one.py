"""The System One provider on a real socket: what is sent, what is read, and what each failure becomes."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import socket
import sys
import time
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from outpost_lsp.decisions.decide import decide
from outpost_lsp.decisions.system_one import SystemOneDecisionProvider
from outpost_lsp.domain.decision import Choice, Decision, DecisionResult, Noul, NoulAnswer, Score, ScoreAnswer
from outpost_lsp.domain.message import user
from outpost_lsp.domain.routing_state import RoutingState
from outpost_lsp.domain.usage import UNKNOWN, Usage
from outpost_lsp.errors import OutpostError, quota_fault, unavailable_fault
from tests.support.system_one_server import (
    CERTIFICATE,
    Connection,
    SeenRequest,
    SystemOneServer,
    answer,
    by_request,
    choice,
    http,
    routed,
)

ROUTE = Decision({"route": Choice("Which model takes the next step?", {"fast": "Routine", "deep": "Reasoning"})})
CANARY = "canary-key-73d1"
SECRET_STATE = "canary-state-9f2c"
SECRET_BODY = "canary-body-5ab0"


@asynccontextmanager
async def connected(server: SystemOneServer, **options: Any) -> AsyncIterator[SystemOneDecisionProvider]:
    provider = SystemOneDecisionProvider(server.base_url, **options)
    try:
        yield provider
    finally:
        await provider.aclose()


async def ask(
    server: SystemOneServer,
    *,
    state: Any = SECRET_STATE,
    model: str = "jev-latest",
    decision: Decision = ROUTE,
    **options: Any,
) -> DecisionResult:
    async with connected(server, **options) as provider:
        return await decide(provider, model, decision, state)


async def failing(server: SystemOneServer, **options: Any) -> OutpostError:
    """The fault of a decision, which must have been counted once and must hold nothing that is not ours to tell."""
    receipts: list[Usage] = []
    decision = options.pop("decision", ROUTE)
    model, state = options.pop("model", "jev-latest"), options.pop("state", SECRET_STATE)
    async with connected(server, **options) as provider:
        with pytest.raises(OutpostError) as caught:
            await decide(provider, model, decision, state, account=receipts.append)
    assert len(receipts) == 1
    shown = "".join(traceback.format_exception(caught.value)) + repr(dict(caught.value.details))
    assert not any(secret in shown for secret in (CANARY, SECRET_STATE, SECRET_BODY))
    return caught.value


def raw(*parts: bytes) -> Any:
    """Send some bytes and close."""

    def reply(connection: Connection) -> None:
        for part in parts:
            connection.send(part)

    return reply


def hang(connection: Connection) -> None:
    connection.wait()


@pytest.mark.parametrize(
    "url",
    [
        "",
        " ",
        None,
        5,
        "127.0.0.1:8000/v1",
        "/v1",
        "ftp://127.0.0.1/v1",
        "http:///v1",
        "http:127.0.0.1/v1",
        "http://user@127.0.0.1/v1",
        "http://user:secret@127.0.0.1/v1",
        "http://@127.0.0.1/v1",
        "http://127.0.0.1/v1?",
        "http://127.0.0.1/v1?key=secret",
        "http://127.0.0.1/v1#",
        "http://127.0.0.1/v1#part",
        "http://127.0.0.1:99999/v1",
        "http://127.0.0.1:port/v1",
        "http://127.0.0.1/v 1",
        "http://127.0.0.1\\@example.invalid/v1",
        "http://127.0.0.1/v1\n",
        "http://[::1/v1",
    ],
)
def test_SYS_01_a_base_url_is_absolute_http_without_credentials_query_or_fragment(url: Any) -> None:
    with pytest.raises(OutpostError, match="base_url") as caught:
        SystemOneDecisionProvider(url)
    assert caught.value.code == "configuration"
    assert "secret" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("url", "accepted"),
    [
        ("http://127.0.0.1:8000/v1", True),
        ("http://127.3.2.1/v1", True),
        ("http://localhost:1/v1", True),
        ("http://[::1]:8000/v1", True),
        ("https://router.example/v1", True),
        ("HTTPS://router.example/v1", True),
        ("http://router.example/v1", False),
        ("http://127.0.0.1.example.invalid/v1", False),
        ("http://localhost.example.invalid/v1", False),
        ("http://10.0.0.1/v1", False),
        ("http://0.0.0.0/v1", False),
        ("http://2130706433/v1", False),
    ],
)
def test_SEC_17_plain_http_is_for_loopback_hosts_only(url: str, accepted: bool) -> None:
    if accepted:
        SystemOneDecisionProvider(url)
        return
    with pytest.raises(OutpostError, match="loopback"):
        SystemOneDecisionProvider(url)


async def test_SYS_02_the_endpoint_is_the_base_without_trailing_slashes_and_keeps_its_prefix() -> None:
    with SystemOneServer() as server:
        for suffix in ("", "/", "///"):
            provider = SystemOneDecisionProvider(f"http://127.0.0.1:{server.port}/gateway/v1{suffix}")
            await decide(provider, "m", ROUTE, "s")
            await provider.aclose()
    assert [request.path for request in server.requests] == ["/gateway/v1/systemone"] * 3


@pytest.mark.parametrize("key", ["", "  ", "a\nb", "a\r", "a\x00b", " padded ", 5, True, ["k"], b"k"])
def test_SYS_03_a_key_is_text_without_line_ends(key: Any) -> None:
    with pytest.raises(OutpostError, match="api_key") as caught:
        SystemOneDecisionProvider("http://127.0.0.1:1/v1", key)
    assert caught.value.code == "configuration"


@pytest.mark.parametrize("key", [None, False])
async def test_SYS_03_without_a_key_no_authorization_is_sent(key: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("TYPESAFE_API_KEY", "SYSTEM_ONE_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(variable, CANARY)
    with SystemOneServer() as server:
        await ask(server, api_key=key)
    assert "authorization" not in server.requests[0].headers


async def test_SYS_03_a_key_is_sent_as_a_bearer() -> None:
    with SystemOneServer() as server:
        await ask(server, api_key=CANARY)
    assert server.requests[0].headers["authorization"] == f"Bearer {CANARY}"


async def test_SYS_03_a_function_gives_the_key_of_each_request() -> None:
    keys = iter(["first", "second"])
    with SystemOneServer() as server:
        async with connected(server, api_key=lambda: next(keys)) as provider:
            await decide(provider, "m", ROUTE, "s")
            await decide(provider, "m", ROUTE, "s")
        assert [request.headers["authorization"] for request in server.requests] == ["Bearer first", "Bearer second"]
        async with connected(server, api_key=lambda: None) as provider:
            await decide(provider, "m", ROUTE, "s")
        assert "authorization" not in server.requests[2].headers
        error = await failing(server, api_key=lambda: f"{CANARY}\n")
        assert error.code == "configuration"
        assert len(server.requests) == 3


async def test_SYS_03_a_proxy_in_the_environment_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    with SystemOneServer() as server:
        assert (await ask(server)).model == "router-checkpoint"


@pytest.mark.parametrize(("proxy", "told"), [("socks5://127.0.0.1:9", "httpx[socks]"), ("nonsense://x", "proxy")])
async def test_a_proxy_that_cannot_be_used_is_named(proxy: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "socksio", None)  # As on a machine without it.
    provider = SystemOneDecisionProvider("http://127.0.0.1:9/v1", False, proxy=proxy)
    with pytest.raises(OutpostError) as caught:
        await decide(provider, "m", ROUTE, "s")
    assert caught.value.code == "configuration"
    assert told in caught.value.message


async def test_a_proxy_that_was_given_is_used() -> None:
    with SystemOneServer() as proxy:
        provider = SystemOneDecisionProvider("http://127.0.0.1:9/v1", proxy=f"http://127.0.0.1:{proxy.port}")
        await decide(provider, "m", ROUTE, "s")
        await provider.aclose()
    assert proxy.requests[0].path == "http://127.0.0.1:9/v1/systemone"


def test_SYS_04_name_and_identity() -> None:
    provider = SystemOneDecisionProvider("http://127.0.0.1:8000/v1/")
    assert provider.name == "system-one"
    assert provider.identity == "system-one:http://127.0.0.1:8000/v1/systemone"


@pytest.mark.parametrize("timeout_s", [0, -1, True, "5", None, float("nan"), float("inf"), 2_147_483.648])
def test_SYS_04_a_timeout_is_a_positive_number_with_an_upper_bound(timeout_s: Any) -> None:
    with pytest.raises(OutpostError, match="timeout_s"):
        SystemOneDecisionProvider("http://127.0.0.1:1/v1", timeout_s=timeout_s)
    SystemOneDecisionProvider("http://127.0.0.1:1/v1", timeout_s=2_147_483.647)


@pytest.mark.parametrize("size", [0, -1, 1.5, True, None, "8"])
def test_SYS_04_a_byte_limit_is_a_positive_integer(size: Any) -> None:
    with pytest.raises(OutpostError, match="max_response_bytes"):
        SystemOneDecisionProvider("http://127.0.0.1:1/v1", max_response_bytes=size)


def test_a_provider_shows_its_endpoint_and_not_its_key() -> None:
    provider = SystemOneDecisionProvider("http://127.0.0.1:1/v1", CANARY)
    assert "systemone" in repr(provider)
    assert CANARY not in repr(provider) + repr(vars(provider))


async def test_the_request_is_a_plain_json_post_with_three_fields() -> None:
    state = {"step": 4, "recentText": ["zwei Tests schlagen fehl ✗", "日本"], "nothing": None}
    with SystemOneServer() as server:
        await ask(server, state=state)
    request = server.requests[0]
    assert (request.method, request.path) == ("POST", "/v1/systemone")
    assert request.headers["content-type"] == "application/json"
    assert "content-encoding" not in request.headers
    assert "cookie" not in request.headers
    assert request.headers["accept-encoding"] == "identity"
    assert request.json == {"model": "jev-latest", "state": state, "questions": ROUTE.to_json()}
    assert list(request.json) == ["model", "state", "questions"]


async def test_three_kinds_of_questions_are_asked_and_answered() -> None:
    decision = Decision(
        {"route": ROUTE.questions["route"], "risk": Score("How risky?", ["Low", "High"]), "flag": Noul("Flag?")}
    )
    body = {
        "model": "checkpoint-name",
        "answers": {
            "route": choice("fast", 0.9),
            "risk": {
                "type": "score",
                "score": 1,
                "probabilities": {"1": 1},
                "confidence": 1,
                "legend": {"0": "Low", "1": "High"},
            },
            "flag": {"type": "noul", "noul": 0.8},
        },
        "usage": {"input_tokens": 12, "output_tokens": 3, "truncated": False},
        "truncated": False,
    }
    with SystemOneServer([answer(body)]) as server:
        result = await ask(server, decision=decision)
    assert result.model == "checkpoint-name"
    assert result.provider == "system-one"
    assert result.answers["risk"] == ScoreAnswer(1, {"1": 1}, 1, {"0": "Low", "1": "High"})
    assert result.answers["flag"] == NoulAnswer(0.8)
    assert result.truncated is False
    assert server.requests[0].json["questions"]["flag"] == {"type": "noul", "instructions": "Flag?"}


async def test_the_default_routing_state_is_sent_whole() -> None:
    messages = [user("a" * 200_000), *[]]
    state = RoutingState(system="S", messages=messages, tools=(), step=3, model="small")
    with SystemOneServer() as server:
        await ask(server, state=state)
    assert server.requests[0].json["state"] == state.value()


async def test_any_media_type_and_any_order_of_keys_is_accepted() -> None:
    body = json.dumps(dict(reversed(routed("deep", x_more=[1]).items()))).encode()
    with SystemOneServer([http(body, headers={"Content-Type": "text/plain"})]) as server:
        assert (await ask(server)).answers["route"].type == "choice"


@pytest.mark.parametrize("status", [200, 201, 203, 299])
async def test_every_2xx_is_an_answer(status: int) -> None:
    with SystemOneServer([answer(routed("fast"), status)]) as server:
        assert (await ask(server)).model == "router-checkpoint"


async def test_DEC_10_a_list_is_refused_before_any_request() -> None:
    with SystemOneServer() as server:
        error = await failing(server, state=[1, 2])
    assert error.code == "configuration"
    assert "list" in error.message
    assert server.requests == []


@pytest.mark.parametrize("state", ["half a pair \ud83d", {"a": ["\udc00"]}, {"\ud800": 1}])
async def test_text_that_is_no_unicode_is_refused_before_any_request(state: Any) -> None:
    with SystemOneServer() as server:
        error = await failing(server, state=state)
    assert error.code == "configuration"
    assert "surrogate" in error.message
    assert server.requests == []


async def test_a_state_without_end_is_refused_before_any_request() -> None:
    state: dict[str, Any] = {}
    for _ in range(50_000):
        state = {"inner": state}
    with SystemOneServer() as server:
        error = await failing(server, state=state)
    assert (error.code, server.requests) == ("configuration", [])
    while state:
        state = state["inner"]


async def test_SYS_10_usage_is_mapped() -> None:
    with SystemOneServer([answer(routed("fast", usage={"input_tokens": 12, "output_tokens": 3, "cost": 1}))]) as server:
        assert (await ask(server)).usage == Usage(input=12, cached=0, output=3)


async def test_SYS_10_absent_usage_is_an_absent_receipt() -> None:
    body = routed("fast")
    del body["usage"]
    with SystemOneServer([answer(body)]) as server:
        assert (await ask(server)).usage == UNKNOWN


@pytest.mark.parametrize(
    "usage",
    [
        None,
        [],
        "12",
        {},
        {"input_tokens": 1},
        {"input_tokens": 1.0, "output_tokens": 0},
        {"input_tokens": -1, "output_tokens": 0},
        {"input_tokens": True, "output_tokens": 0},
        {"input_tokens": 2**53, "output_tokens": 0},
        {"input_tokens": None, "output_tokens": 0},
    ],
)
async def test_SYS_10_an_invalid_usage_is_a_response_fault(usage: Any) -> None:
    with SystemOneServer([answer(routed("fast", usage=usage))]) as server:
        error = await failing(server)
    assert error.code == "response"
    assert "usage" in error.message


def with_truncation(inside: Any = ..., outside: Any = ...) -> dict[str, Any]:
    body = routed("fast")
    if inside is not ...:
        body["usage"]["truncated"] = inside
    if outside is not ...:
        body["truncated"] = outside
    return body


@pytest.mark.parametrize(
    ("inside", "outside", "said"),
    [(..., ..., None), (False, ..., False), (..., False, False), (False, False, False)],
)
async def test_SYS_11_truncation_is_read_in_both_places(inside: Any, outside: Any, said: bool | None) -> None:
    with SystemOneServer([answer(with_truncation(inside, outside))]) as server:
        assert (await ask(server)).truncated is said


@pytest.mark.parametrize(("inside", "outside"), [(True, ...), (..., True), (True, True)])
async def test_SYS_11_a_truncated_answer_is_refused_after_its_usage_was_counted(inside: Any, outside: Any) -> None:
    receipts: list[Usage] = []
    with SystemOneServer([answer(with_truncation(inside, outside))]) as server:
        async with connected(server) as provider:
            with pytest.raises(OutpostError) as caught:
                await decide(provider, "m", ROUTE, "s", account=receipts.append)
    assert (caught.value.code, caught.value.details["truncated"]) == ("response", True)
    assert receipts == [Usage(input=12, output=3)]


@pytest.mark.parametrize(
    ("inside", "outside"),
    [(True, False), (False, True), (1, ...), (3, ...), ("yes", ...), (None, ...), (..., None), (..., 0), (True, 1)],
)
async def test_SYS_11_truncation_that_is_no_boolean_or_conflicts_is_refused(inside: Any, outside: Any) -> None:
    with SystemOneServer([answer(with_truncation(inside, outside))]) as server:
        error = await failing(server)
    assert error.code == "response"
    assert "truncated" in error.message
    assert "truncated" not in error.details


async def test_SYS_12_the_whole_native_body_becomes_metadata() -> None:
    body = routed("fast", routing={"model": "english"}, x_rule="clean-step", latency_ms=1)
    with SystemOneServer([answer(body)]) as server:
        assert (await ask(server)).metadata == body


@pytest.mark.parametrize(
    "silence",
    [
        pytest.param(hang, id="before the status"),
        pytest.param(lambda c: (c.send(b"HTTP/1.1 200 OK\r\nContent-Le"), c.wait()), id="within the head"),
        pytest.param(lambda c: (c.send(http(b'{"model"')[:-2]), c.wait()), id="within the body"),
    ],
)
async def test_SYS_13_the_deadline_covers_the_head_and_the_body(silence: Any) -> None:
    with SystemOneServer([silence]) as server:
        error = await failing(server, timeout_s=0.3)
    assert error.code == "timeout"
    assert "timeout_s" in error.message


async def test_SYS_13_the_deadline_covers_a_body_that_trickles() -> None:
    def trickle(connection: Connection) -> None:
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        try:
            while not connection.stopping.wait(0.02):
                connection.send(b" ")
        except OSError:
            return

    with SystemOneServer([trickle]) as server:
        assert (await failing(server, timeout_s=0.5)).code == "timeout"


async def test_SYS_13_the_deadline_covers_connecting() -> None:
    # A full queue of connections that nobody accepts: further ones wait.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        waiting = [socket.socket() for _ in range(8)]
        try:
            for each in waiting:
                each.setblocking(False)
                each.connect_ex(listener.getsockname())
            provider = SystemOneDecisionProvider(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", timeout_s=0.5)
            with pytest.raises(OutpostError) as caught:
                await decide(provider, "m", ROUTE, "s")
            await provider.aclose()
        finally:
            for each in waiting:
                each.close()
    assert caught.value.code == "timeout"


async def test_SYS_13_a_cancellation_ends_the_request_and_closes_the_connection() -> None:
    gone = anyio.Event()
    loop = asyncio.get_running_loop()

    def until_the_client_leaves(connection: Connection) -> None:
        connection.wait()
        if not connection.stopping.is_set():
            loop.call_soon_threadsafe(gone.set)

    receipts: list[Usage] = []
    with SystemOneServer([until_the_client_leaves]) as server:
        async with connected(server) as provider, anyio.create_task_group() as group:

            async def ask_until_cancelled() -> None:
                await decide(provider, "m", ROUTE, "s", account=receipts.append)

            group.start_soon(ask_until_cancelled)
            with anyio.fail_after(30):
                while not server.requests:
                    await anyio.sleep(0.01)
            group.cancel_scope.cancel()
        with anyio.fail_after(30):
            await gone.wait()
    assert receipts == [UNKNOWN]


@pytest.mark.parametrize("first", ["deadline", "cancellation"])
async def test_SYS_13_a_cancellation_wins_over_a_deadline_that_passed_too(first: str) -> None:
    with SystemOneServer([hang]) as server:
        async with connected(server, timeout_s=1.5) as provider:
            task = asyncio.ensure_future(decide(provider, "m", ROUTE, "s"))
            with anyio.fail_after(30):
                while not server.requests:
                    await anyio.sleep(0.001)
            # The loop is held up on purpose, so that both are due before the task is told of either.
            if first == "deadline":
                asyncio.get_running_loop().call_later(1.6, task.cancel)
                time.sleep(1.7)
            else:
                time.sleep(1.6)
                task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task


async def test_U_35_a_private_authority_is_accepted_when_it_is_named() -> None:
    with SystemOneServer(tls=True) as server:
        assert (await ask(server, ca_file=str(CERTIFICATE))).model == "router-checkpoint"


async def test_U_35_an_unknown_authority_is_refused_and_the_option_named() -> None:
    with SystemOneServer(tls=True) as server:
        error = await failing(server, api_key=CANARY)
        assert error.code == "provider"
        assert "ca_file" in error.message
        assert unavailable_fault(error) is not None
        assert server.requests == []


@pytest.mark.parametrize("content", [None, "not a certificate"])
async def test_U_35_a_ca_file_without_certificates_is_refused_by_name(content: str | None, tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    with SystemOneServer(tls=True) as server:
        error = await failing(server, ca_file=str(file))
    assert error.code == "configuration"
    assert "ca_file" in error.message


async def test_plain_http_behind_an_https_address_is_an_outage() -> None:
    async def complain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(complain, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        provider = SystemOneDecisionProvider(f"https://127.0.0.1:{port}/v1")
        with pytest.raises(OutpostError, match="TLS") as caught:
            await decide(provider, "m", ROUTE, "s")
        await provider.aclose()
    assert unavailable_fault(caught.value) is not None


async def test_SYS_14_a_body_over_the_limit_is_refused_while_it_is_read() -> None:
    sent = 0

    def endless(connection: Connection) -> None:
        nonlocal sent
        connection.send(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while not connection.stopping.is_set():
                connection.send(b"x" * 65536)
                sent += 65536
        except OSError:
            return

    with SystemOneServer([endless]) as server:
        error = await failing(server, max_response_bytes=1_000_000)
    assert error.code == "response"
    assert "max_response_bytes" in error.message
    assert sent < 64_000_000


async def test_SYS_14_nine_megabytes_are_over_the_default_limit() -> None:
    body = json.dumps(routed("fast", x_padding="x" * (9 * 1024 * 1024))).encode()
    with SystemOneServer([http(body)]) as server:
        error = await failing(server)
    assert (error.code, "max_response_bytes" in error.message) == ("response", True)


async def test_SYS_14_a_body_of_exactly_the_limit_is_read_and_one_byte_more_is_not() -> None:
    body = json.dumps(routed("fast")).encode()
    with SystemOneServer([http(body)]) as server:
        assert (await ask(server, max_response_bytes=len(body))).model == "router-checkpoint"
        assert (await failing(server, max_response_bytes=len(body) - 1)).code == "response"


async def test_SYS_14_a_large_valid_body_is_read() -> None:
    with SystemOneServer([answer(routed("fast", x_padding=["x" * 100] * 10_000))]) as server:
        assert (await ask(server)).model == "router-checkpoint"


GOOD = json.dumps(routed("fast")).encode()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"<html>canary-body-5ab0</html>", "not JSON"),
        (b")]}'\n" + GOOD, "not JSON"),
        (GOOD + b"{}", "not JSON"),
        (b"\xef\xbb\xbf" + GOOD, "not JSON"),
        (GOOD[:-1] + b', "x": "canary-body-5ab0 \xff"}', "UTF-8"),
        (GOOD.decode().encode("utf-16"), "UTF-8"),
        (GOOD[:-1] + b', "x": NaN}', "not finite"),
        (GOOD[:-1] + b', "x": [-Infinity]}', "not finite"),
        (GOOD[:-1] + b', "x": 1e999}', "not finite"),
        (GOOD[:-1] + b', "model": "canary-body-5ab0"}', "twice"),
        (GOOD[:-1] + b', "x": {"a": 1, "a": 1}}', "twice"),
        (GOOD[:-1] + b', "x": "\\ud83d"}', "surrogate"),
        (GOOD[:-1] + b', "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested"),
        (GOOD[:-1] + b', "x": ' + b"9" * 10_000 + b"}", "not JSON"),
        (GOOD[:-1] + b', "x": 9007199254740992}', "2^53"),
        (b"[]", "object"),
        (b"null", "object"),
        (b'"text"', "object"),
        (b"{}", "model"),
        (b'{"error": {"message": "canary-body-5ab0"}}', "model"),
        (b'{"model": "m"}', "answers"),
        (b'{"model": " ", "answers": {}}', "model"),
    ],
)
async def test_SYS_14_a_body_that_is_no_answer_is_a_response_fault(body: bytes, says: str) -> None:
    with SystemOneServer([http(body)]) as server:
        error = await failing(server)
    assert error.code == "response"
    assert says in error.message
    assert unavailable_fault(error) is None


@pytest.mark.parametrize("zero", [b"-0.0", b"-0", b"-0e5", b"-1e-999"])
async def test_DEC_21_negative_zero_is_refused_in_an_answer_and_kept_as_zero_elsewhere(zero: bytes) -> None:
    with SystemOneServer([http(GOOD[:-1] + b', "x": [' + zero + b", -0.5]}")]) as server:
        kept = (await ask(server)).metadata["x"]
    assert str(kept[0]) in ("0", "0.0")
    assert kept[1] == -0.5
    if zero == b"-0":
        return  # An integer zero has no sign to begin with.
    body = b'{"model": "m", "answers": {"q": {"type": "noul", "noul": ' + zero + b"}}}"
    with SystemOneServer([http(body)]) as server:
        error = await failing(server, decision=Decision({"q": Noul("Done?")}))
    assert (error.code, "noul" in error.message) == ("response", True)


async def test_a_pair_of_surrogates_is_text() -> None:
    with SystemOneServer([http(GOOD[:-1] + b', "x": "\\ud83d\\ude00"}')]) as server:
        assert (await ask(server)).metadata["x"] == "😀"


async def test_a_compressed_answer_is_refused() -> None:
    with SystemOneServer([http(b"\x1f\x8b", headers={"Content-Encoding": "gzip"})]) as server:
        error = await failing(server)
    assert (error.code, "compressed" in error.message) == ("response", True)


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504, 529])
async def test_SYS_15_an_overloaded_or_broken_service_is_unavailable(status: int) -> None:
    with SystemOneServer([http(SECRET_BODY.encode(), status, {"Retry-After": "1"})]) as server:
        error = await failing(server)
    assert error.code == "provider"
    assert dict(error.details) == {"status": status, "unavailable": f"HTTP {status}", "retryAfterMs": 1000}
    assert unavailable_fault(error) is not None
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 405, 409, 410, 413, 415, 418, 422, 451, 501, 505, 599])
async def test_SYS_15_other_failures_are_not_an_outage(status: int) -> None:
    with SystemOneServer([http(SECRET_BODY.encode(), status)]) as server:
        error = await failing(server)
    assert (error.code, dict(error.details)) == ("provider", {"status": status})
    assert unavailable_fault(error) is None
    assert quota_fault(error) is None


async def test_SYS_15_too_many_requests_is_a_quota_with_its_end() -> None:
    with SystemOneServer([http(b"", 429, {"Retry-After": "90"})]) as server:
        before = datetime.now(UTC)
        error = await failing(server)
    assert error.code == "quota"
    assert error.details["retryAfterMs"] == 90_000
    reset_at = datetime.fromisoformat(error.details["resetAt"])
    assert before + timedelta(seconds=89) < reset_at < datetime.now(UTC) + timedelta(seconds=91)
    quota = quota_fault(error)
    assert quota is not None
    assert quota.reset_at == error.details["resetAt"]


@pytest.mark.parametrize("header", [{}, {"Retry-After": "soon"}, {"Retry-After": "-5"}, {"Retry-After": ""}])
async def test_SYS_15_a_quota_without_a_readable_end_names_none(header: dict[str, str]) -> None:
    with SystemOneServer([http(b"", 429, header)]) as server:
        error = await failing(server)
    assert (error.code, dict(error.details)) == ("quota", {"status": 429})


async def test_SYS_15_a_wait_beyond_the_calendar_is_ten_years() -> None:
    with SystemOneServer([http(b"", 429, {"Retry-After": "999999999999"})]) as server:
        error = await failing(server)
    assert error.code == "quota"
    assert error.details["retryAfterMs"] == 10 * 365 * 86_400_000
    assert datetime.fromisoformat(error.details["resetAt"]).year <= datetime.now(UTC).year + 10


async def test_SYS_15_the_body_of_a_failed_answer_is_not_read() -> None:
    def endless_failure(connection: Connection) -> None:
        connection.send(b"HTTP/1.1 500 Broken\r\nContent-Length: 1000000000\r\n\r\n")
        connection.wait()

    with SystemOneServer([endless_failure]) as server:
        assert (await failing(server, timeout_s=60)).details["status"] == 500


async def nothing_listens() -> OutpostError:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    provider = SystemOneDecisionProvider(f"http://127.0.0.1:{port}/v1", CANARY)
    with pytest.raises(OutpostError) as caught:
        await decide(provider, "m", ROUTE, "s")
    await provider.aclose()
    return caught.value


async def test_SYS_16_a_refused_connection_is_an_outage() -> None:
    error = await nothing_listens()
    assert error.code == "provider"
    fault = unavailable_fault(error)
    assert fault is not None
    assert "could not be reached" in fault.message


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(raw(), id="closed at once"),
        pytest.param(raw(b"HTTP/1.1 200 OK\r\nConte"), id="half a head"),
        pytest.param(raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"), id="half a body"),
        pytest.param(raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"), id="half a chunk"),
        pytest.param(raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), id="no chunk"),
        pytest.param(raw(b"SSH-2.0-canary-body-5ab0\r\n\r\n"), id="another protocol"),
        pytest.param(raw(b"HTTP/1.1 200 OK\r\ncanary-body-5ab0\x00: x\r\n\r\n"), id="an illegal header"),
        pytest.param(raw(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 500_000 + b"\r\n\r\n"), id="an endless header"),
        pytest.param(lambda c: c.reset(), id="reset"),
        pytest.param(
            lambda c: (c.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"), c.reset()), id="reset in body"
        ),
    ],
)
async def test_SYS_16_a_broken_connection_is_an_outage(broken: Any) -> None:
    with SystemOneServer([broken]) as server:
        error = await failing(server, api_key=CANARY)
    assert error.code == "provider"
    assert unavailable_fault(error) is not None
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308, 304, 300])
async def test_SYS_16_a_redirect_is_refused_and_not_followed(status: int) -> None:
    with SystemOneServer() as elsewhere:
        target = {"Location": f"{elsewhere.base_url}/systemone"}
        with SystemOneServer([http(b"", status, target)]) as server:
            error = await failing(server, api_key=CANARY)
    assert error.code == "provider"
    assert error.details["status"] == status
    assert unavailable_fault(error) is not None
    assert (len(server.requests), len(elsewhere.requests)) == (1, 0)


@pytest.mark.parametrize(
    ("reply", "timeout_s"), [(http(b"", 503), 60), (http(b"", 429), 60), (raw(), 60), (http(b"{"), 60), (hang, 3)]
)
async def test_SYS_17_one_call_is_one_request(reply: Any, timeout_s: float) -> None:
    with SystemOneServer([reply]) as server:
        await failing(server, timeout_s=timeout_s)
    assert len(server.requests) == 1
    assert server.connections == 1


async def test_requests_one_after_the_other_share_a_connection() -> None:
    with SystemOneServer() as server:
        async with connected(server) as provider:
            for _ in range(5):
                await decide(provider, "m", ROUTE, "s")
    assert (len(server.requests), server.connections) == (5, 1)


async def test_requests_at_the_same_time_do_not_wait_for_each_other() -> None:
    arrived: list[SeenRequest] = []

    @by_request
    def when_both_are_here(request: SeenRequest) -> Any:
        arrived.append(request)

        def reply(connection: Connection) -> None:
            while len(arrived) < 2 and not connection.stopping.wait(0.01):
                pass
            connection.send(answer(routed("fast")))

        return reply

    with SystemOneServer([when_both_are_here]) as server:
        async with connected(server) as provider, anyio.create_task_group() as group:
            for _ in range(2):
                group.start_soon(decide, provider, "m", ROUTE, "s")
    assert len(server.requests) == 2


def test_a_provider_serves_one_event_loop_after_the_other() -> None:
    with SystemOneServer() as server:
        provider = SystemOneDecisionProvider(server.base_url)

        async def once() -> str:
            try:
                return (await decide(provider, "m", ROUTE, "s")).model
            finally:
                await provider.aclose()

        assert [asyncio.run(once()) for _ in range(2)] == ["router-checkpoint"] * 2


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_provider_that_was_not_closed_serves_the_next_event_loop_too() -> None:
    def close_each(connection: Connection) -> None:
        connection.send(answer(routed("fast")))

    with SystemOneServer([close_each]) as server:
        provider = SystemOneDecisionProvider(server.base_url)

        async def once() -> str:
            return (await decide(provider, "m", ROUTE, "s")).model

        assert [asyncio.run(once()) for _ in range(3)] == ["router-checkpoint"] * 3
        asyncio.run(provider.aclose())
    assert server.connections == 3
    # Here, where it is expected, and not in a later test, the sockets of the dead loops are reported as not closed.
    gc.collect()


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("", 404, "must include the version prefix"),
        ("", 405, "must include the version prefix"),
        ("/v1", 404, "check base_url"),
        ("/v1", 413, "reduced state"),
        ("/v1", 413, 'state = "focused"'),
        ("/v1", 401, "api_key"),
        ("/v1", 403, "api_key"),
        ("/v1", 422, "does not accept"),
    ],
)
async def test_a_fault_names_its_remedy(path: str, status: int, says: str) -> None:
    with SystemOneServer([http(b"", status)]) as server:
        provider = SystemOneDecisionProvider(f"http://127.0.0.1:{server.port}{path}")
        with pytest.raises(OutpostError, match=says) as caught:
            await decide(provider, "jev-latest", ROUTE, "s")
        await provider.aclose()
    assert "auto" not in caught.value.message


@pytest.mark.parametrize("status", [400, 404, 422])
async def test_a_service_that_does_not_know_auto_is_told_apart(status: int) -> None:
    with SystemOneServer([http(b"", status)]) as server:
        error = await failing(server, model="auto")
    assert "'jev-latest'" in error.message
    assert error.details["status"] == status


async def test_ERR_06_nothing_secret_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with SystemOneServer([answer(routed("fast", x=SECRET_BODY)), http(SECRET_BODY.encode(), 500)]) as server:
        await ask(server, api_key=CANARY)
        await failing(server, api_key=CANARY)
    assert caplog.records
    assert not any(secret in caplog.text for secret in (CANARY, SECRET_STATE, SECRET_BODY))
