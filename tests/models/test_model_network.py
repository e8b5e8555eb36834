"""Silence, cancelling, bounds, encryption and what else a network does (REL-05, REL-06, REL-08, HTTP-02, SEC-18, U-35)."""

from __future__ import annotations

import asyncio
import gc
import gzip
import resource
import socket
import ssl
import subprocess
import sys
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest

from outpost_lsp.domain.model import ModelRequest, TextDelta
from outpost_lsp.errors import OutpostError, unavailable_fault
from outpost_lsp.models.faults import Faults
from outpost_lsp.models.openai import OpenAIModelProvider
from outpost_lsp.models.service import ServiceProvider
from tests.models.asking import ASK, FORMS, KEY, MakeProvider, ask, chat, fault_of, responses
from tests.support.model_server import Answer, ModelServer

TLS = Path(__file__).parent.parent / "cases" / "tls"
CERTIFICATE = (TLS / "service.pem", TLS / "service.key")
MIB = 1024 * 1024
EVENT_STREAM = {"Content-Type": "text/event-stream"}
SILENCES: list[dict[str, Any]] = [{"silent": True}, {"hang_after": 0}, {"hang_after": 3}]
silences = pytest.mark.parametrize("silence", SILENCES, ids=["before the head", "after the head", "in the middle"])


@silences
@pytest.mark.parametrize("make", FORMS)
async def test_REL_06_silence_ends_in_a_timeout(make: MakeProvider, silence: dict[str, Any]) -> None:
    with ModelServer([Answer(text="hello there", **silence)]) as server:
        fault = await fault_of(make(server.base_url, timeout_s=0.3))
        await server.until(lambda: server.open_connections == 0)
    assert fault.code == "timeout"
    assert unavailable_fault(fault) is None
    assert "0.3 s" in fault.message
    assert "timeout_s" in fault.message
    assert len(server.requests) == 1


async def test_a_slow_answer_is_no_silent_one() -> None:
    with ModelServer([Answer(text="slow but steady", pieces=8, pause_s=0.3)]) as server:
        began = time.monotonic()
        assert (await ask(chat(server.base_url, timeout_s=3))).text == "slow but steady"
        assert time.monotonic() - began > 3


@silences
@pytest.mark.parametrize("make", FORMS)
async def test_REL_06_cancelling_closes_the_connection_at_once(make: MakeProvider, silence: dict[str, Any]) -> None:
    with ModelServer([Answer(text="hello there", **silence)]) as server:
        provider = make(server.base_url)
        task = asyncio.create_task(_consume(provider))
        await server.until(lambda: len(server.requests) == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.until(lambda: server.left_early == 1 and server.open_connections == 0)
        assert _tasks_left() == []
        await provider.aclose()


async def _consume(provider: ServiceProvider) -> None:
    async for _ in provider.stream(ASK):
        pass


def _tasks_left() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


async def test_a_cancel_scope_closes_the_connection_too() -> None:
    with ModelServer([Answer(text="hello there", hang_after=3)]) as server:
        provider = chat(server.base_url)
        with anyio.move_on_after(0.5) as scope:
            await _consume(provider)
        assert scope.cancelled_caught
        await server.until(lambda: server.open_connections == 0)
        assert _tasks_left() == []
        await provider.aclose()


async def test_a_stream_that_is_left_closes_its_connection() -> None:
    with ModelServer([Answer(text="hello there", hang_after=3)]) as server:
        provider = chat(server.base_url)
        async with aclosing(provider.stream(ASK)) as events:
            async for event in events:
                assert isinstance(event, TextDelta)
                break
        await server.until(lambda: server.open_connections == 0)
        assert _tasks_left() == []
        await provider.aclose()


async def test_cancelling_while_the_client_is_made_leaves_a_usable_provider() -> None:
    with ModelServer(["hello"]) as server:
        provider = chat(server.base_url)
        task = asyncio.create_task(_consume(provider))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await ask(provider)).text == "hello"


def test_a_provider_outlives_its_event_loop() -> None:
    with ModelServer([Answer(text="hello", times=0)]) as server:
        provider = chat(server.base_url)
        for _ in range(2):
            assert asyncio.run(ask(provider)).text == "hello"


async def test_REL_06_connecting_has_its_own_limit() -> None:
    # A listener whose queue is full takes no connection and refuses none.
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        fillers = [socket.socket() for _ in range(8)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        fault = await fault_of(chat(f"http://127.0.0.1:{port}/v1", timeout_s=60, connect_timeout_s=0.4))
        for filler in fillers:
            filler.close()
    assert fault.code == "timeout"
    assert "no connection within 0.4 s" in fault.message


@pytest.mark.parametrize("make", FORMS)
async def test_REL_08_one_event_beyond_the_bound_is_refused(make: MakeProvider) -> None:
    line = b"data: " + b"x" * (9 * MIB)
    with ModelServer([Answer(body=line, headers=EVENT_STREAM)]) as server:
        fault = await fault_of(make(server.base_url))
    assert fault.code == "response"
    assert "one event" in fault.message
    assert "8 MiB" in fault.message


@pytest.mark.parametrize("make", FORMS)
async def test_REL_08_a_stream_beyond_the_bound_is_refused_in_little_memory(make: MakeProvider) -> None:
    filling = b": " + b"x" * (MIB - 4) + b"\n\n"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    with ModelServer([Answer(raw=head + filling * 65)]) as server:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        fault = await fault_of(make(server.base_url))
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert fault.code == "response"
    assert "64 MiB" in fault.message
    assert grown < 230, f"{grown} MiB"


async def test_REL_08_a_plain_body_beyond_the_bound_is_refused() -> None:
    with ModelServer([Answer(body="x" * 3000, headers={"Content-Type": "application/json"})]) as server:
        fault = await fault_of(chat(server.base_url, max_response_bytes=2000))
    assert fault.code == "response"
    assert "2000 bytes" in fault.message


async def test_an_answer_that_comes_compressed_all_the_same_is_read() -> None:
    def compressed(_: object) -> Answer:
        events = b'data: {"choices":[{"delta":{"content":"hello"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
        return Answer(body=gzip.compress(events), headers={**EVENT_STREAM, "Content-Encoding": "gzip"})

    broken = Answer(body=b"nonsense", headers={**EVENT_STREAM, "Content-Encoding": "gzip"})
    with ModelServer([compressed, broken]) as server:
        provider = chat(server.base_url)
        assert (await ask(provider)).text == "hello"
        assert (await fault_of(provider)).code == "response"


async def test_U_35_a_certificate_nobody_trusts_is_refused_and_the_option_named() -> None:
    with ModelServer(["never"], certificate=CERTIFICATE) as server:
        fault = await fault_of(responses(server.base_url))
        assert not server.requests
    assert (fault.code, "unavailable" in fault.details) == ("provider", True)
    assert "ca_file" in fault.message
    assert "certificate" in fault.message


async def test_U_35_ca_file_adds_an_authority() -> None:
    with ModelServer(["hello", "hello"], certificate=CERTIFICATE) as server:
        for path in (TLS / "authority.pem", str(TLS / "authority.pem")):
            assert (await ask(responses(server.base_url, ca_file=path))).text == "hello"
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


async def test_U_35_a_certificate_of_another_name_is_not_blamed_on_its_authority() -> None:
    with ModelServer(["never"], certificate=(TLS / "elsewhere.pem", TLS / "elsewhere.key")) as server:
        fault = await fault_of(responses(server.base_url, ca_file=TLS / "elsewhere.pem"))
    assert "check base_url: whose name or address is in it?" in fault.message
    assert "ca_file" not in fault.message


@pytest.mark.parametrize(
    ("verify_code", "told"), [(9, "the clock"), (10, "the clock"), (62, "base_url"), (64, "base_url"), (18, "ca_file")]
)
def test_U_35_each_reason_to_refuse_a_certificate_has_its_own_remedy(verify_code: int, told: str) -> None:
    import httpx

    cause = ssl.SSLCertVerificationError()
    cause.verify_code, cause.verify_message = verify_code, "this is wrong with it"
    error = httpx.ConnectError("no")
    error.__cause__ = cause
    fault = Faults("local", "https://model.invalid/v1").of_transport(error, connect_s=10, silence_s=10)
    remedy = fault.message.partition("this is wrong with it; ")[2]
    assert [word for word in ("the clock", "base_url", "ca_file") if word in remedy] == [told]


async def test_cancelling_an_encrypted_answer_closes_its_connection() -> None:
    with ModelServer([Answer(text="hello there", hang_after=3)], certificate=CERTIFICATE) as server:
        provider = chat(server.base_url, ca_file=TLS / "authority.pem")
        task = asyncio.create_task(_consume(provider))
        await server.until(lambda: len(server.requests) == 1)
        began = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - began < 20
        await server.until(lambda: server.open_connections == 0)
        await provider.aclose()


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
async def test_a_ca_file_that_cannot_be_used_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_bytes(content)
    provider = OpenAIModelProvider("https://localhost:1/v1", KEY, ca_file=path)
    for _ in range(2):
        fault = await fault_of(provider)
        assert fault.code == "configuration"
        assert str(path) in fault.message


async def test_SEC_18_a_service_on_this_machine_is_never_asked_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with ModelServer(["never"]) as proxy, ModelServer(["hello"]) as server:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.origin)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert (await ask(chat(server.base_url))).text == "hello"
        assert not proxy.connections


@pytest.mark.parametrize("named_by", ["option", "environment"])
async def test_the_proxy_is_asked_for_services_elsewhere(named_by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    heard: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        proxy = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        if named_by == "environment":
            monkeypatch.setenv("HTTPS_PROXY", proxy)
        options: dict[str, Any] = {"proxy": proxy} if named_by == "option" else {}
        fault = await fault_of(OpenAIModelProvider("https://model.invalid/v1", KEY, max_retries=0, **options))
    assert heard[0].startswith(b"CONNECT model.invalid:443 ")
    assert KEY.encode() not in heard[0]
    assert fault.code == "provider"
    assert "proxy" in fault.message


async def test_U_35_a_proxy_of_the_environment_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    # The port of discard, where nothing listens.
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    fault = await fault_of(OpenAIModelProvider("https://model.invalid/v1", KEY, max_retries=0))
    assert "the proxy that HTTPS_PROXY or ALL_PROXY names" in fault.message
    monkeypatch.setenv("NO_PROXY", "model.invalid")
    fault = await fault_of(OpenAIModelProvider("https://model.invalid/v1", KEY, max_retries=0))
    assert "HTTPS_PROXY" not in fault.message


async def test_a_proxy_that_is_no_url_is_named() -> None:
    fault = await fault_of(OpenAIModelProvider("https://model.invalid/v1", KEY, proxy="nonsense://x"))
    assert fault.code == "configuration"
    assert "proxy" in fault.message


@pytest.mark.parametrize("named_by", ["option", "environment"])
async def test_a_socks_proxy_without_the_package_for_it_is_told_with_the_remedy(
    named_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "socksio", None)  # As on a machine without it.
    proxy = "socks5://127.0.0.1:9"
    if named_by == "environment":
        monkeypatch.setenv("ALL_PROXY", proxy)
    options: dict[str, Any] = {"proxy": proxy} if named_by == "option" else {}
    fault = await fault_of(OpenAIModelProvider("https://model.invalid/v1", KEY, max_retries=0, **options))
    assert fault.code == "configuration"
    assert "httpx[socks]" in fault.message


async def test_a_long_stream_leaves_the_event_loop_to_others() -> None:
    events = b"".join(
        b'data: {"choices":[{"index":0,"delta":{"content":"word %d "},"finish_reason":null}]}\n\n' % at
        for at in range(20_000)
    )
    end = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    with ModelServer([Answer(body=events + end, headers=EVENT_STREAM)]) as server:
        provider = chat(server.base_url)
        beside = asyncio.create_task(others())
        got = await ask(provider, ModelRequest(model="small", prompt="go"))
        beside.cancel()
    assert got.text.startswith("word 0 word 1 ")
    assert turns > 20_000 / 32


def test_importing_the_providers_does_not_import_the_http_library() -> None:
    program = (
        "import sys, outpost_lsp.models.openai, outpost_lsp.models.anthropic, outpost_lsp.models.scripted;"
        "provider = outpost_lsp.models.openai.OpenAIModelProvider('https://x.example/v1', 'key');"
        "sys.exit(' '.join({'httpx', 'h11', 'certifi'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (0, "")


@pytest.mark.parametrize(("reasoning", "silence_s"), [(None, 120), ("low", 120), ("high", 300), ("max", 300)])
def test_long_thinking_may_be_silent_longer_unless_a_limit_is_set(reasoning: str | None, silence_s: float) -> None:
    assert OpenAIModelProvider("https://x.example", KEY)._endpoint.silence_s(reasoning) == silence_s
    assert OpenAIModelProvider("https://x.example", KEY, timeout_s=7)._endpoint.silence_s(reasoning) == 7


async def test_HTTP_02_a_fault_of_the_key_is_no_transport_fault() -> None:
    def broken() -> str:
        raise KeyError("nothing here")

    with pytest.raises(KeyError):
        await ask(chat("http://127.0.0.1:9/v1", api_key=broken))
    with pytest.raises(OutpostError, match="blank"):
        await ask(chat("http://127.0.0.1:9/v1", api_key=lambda: " "))


def test_a_scripted_service_that_stops_leaves_no_socket_of_who_came_at_the_last_moment() -> None:
    for _ in range(20):
        server = ModelServer().start()
        port = int(server.origin.rpartition(":")[2])
        clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(2)]
        server.stop()
        for client in clients:
            client.close()
    # What was left open is told of when it is collected, and fails this test.
    gc.collect()
