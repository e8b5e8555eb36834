"""Clients over TCP and WebSocket: who may come in, and that they are served (SEC-22)."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

_PATIENCE_S = 60.0


class Listening:
    """A server process that listens, and what it told its starter."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.told = ""
        self.port = 0

    async def start(self) -> None:
        assert self.process.stderr is not None
        async with asyncio.timeout(_PATIENCE_S):
            while not self.port:
                line = (await self.process.stderr.readline()).decode()
                assert line, f"the server is gone: {self.told}"
                self.told += line
                if found := re.search(r"listening on .*:(\d+)", line):
                    self.port = int(found[1])

    @property
    def token(self) -> str:
        found = re.search(r"^token: (\S+)$", self.told, re.MULTILINE)
        assert found is not None, self.told
        return found[1]

    async def ended(self) -> int:
        async with asyncio.timeout(_PATIENCE_S):
            return await self.process.wait()


@asynccontextmanager
async def listening(*arguments: str) -> AsyncIterator[Listening]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "outpost_lsp", "serve", *arguments,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    server = Listening(process)
    try:
        await server.start()
        yield server
    finally:
        if process.returncode is None:
            process.kill()
        output, _ = await process.communicate()
        assert output == b""


def _initialize(token: Any = None, message_id: int = 1) -> dict[str, Any]:
    options = {} if token is None else {"token": token}
    params = {"processId": None, "capabilities": {}, "initializationOptions": options}
    return {"jsonrpc": "2.0", "id": message_id, "method": "initialize", "params": params}


class Tcp:
    """A client over TCP."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, port: int) -> Tcp:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def send(self, message: Any) -> None:
        body = json.dumps(message).encode()
        self.writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        await self.writer.drain()

    async def read(self) -> Any:
        async with asyncio.timeout(_PATIENCE_S):
            try:
                head = await self.reader.readuntil(b"\r\n\r\n")
                return json.loads(await self.reader.readexactly(int(head.split(b":")[1])))
            except (asyncio.IncompleteReadError, ConnectionError):
                return None

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


async def test_a_tcp_client_with_the_token_is_served_to_its_end() -> None:
    async with listening("--tcp", "0") as server:
        client = await Tcp.connect(server.port)
        await client.send(_initialize(server.token))
        assert (await client.read())["result"]["serverInfo"]["name"] == "outpost-lsp"
        await client.send({"jsonrpc": "2.0", "id": 2, "method": "shutdown"})
        assert (await client.read()) == {"jsonrpc": "2.0", "id": 2, "result": None}
        await client.send({"jsonrpc": "2.0", "method": "exit"})
        assert await client.read() is None
        assert await server.ended() == 0
        await client.close()


async def test_a_tcp_client_without_the_token_is_sent_away_and_another_is_served() -> None:
    async with listening("--tcp", "127.0.0.1:0") as server:
        for token in (None, "", "wrong", 3, ["x"]):
            stranger = await Tcp.connect(server.port)
            await stranger.send(_initialize(token))
            assert (await stranger.read())["error"]["code"] == -32600
            assert await stranger.read() is None
            await stranger.close()
        client = await Tcp.connect(server.port)
        await client.send(_initialize(server.token))
        assert "result" in await client.read()
        second = await Tcp.connect(server.port)
        await second.send(_initialize(server.token))
        assert "another client" in (await second.read())["error"]["message"]
        await second.close()
        await client.close()
        assert await server.ended() == 1


async def test_bytes_of_a_stranger_reach_nothing() -> None:
    async with listening("--tcp", "0", "--no-token") as server:
        for data in (
            b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{}",
            b"GET / HTTP/1.1\r\n\r\n",
            b'Content-Length: 44\r\n\r\n{"jsonrpc":"2.0","id":1,"method":"shutdown"} ',
            b"Content-Length: 99999999\r\n\r\n",
            b"x" * 100_000,
        ):
            stranger = await Tcp.connect(server.port)
            stranger.writer.write(data)
            answer = await stranger.read()
            assert answer is None or "error" in answer
            assert answer is None or await stranger.read() is None
            await stranger.close()
        client = await Tcp.connect(server.port)
        await client.send(_initialize())
        assert "result" in await client.read()
        await client.close()
        assert await server.ended() == 1


async def test_a_chosen_token_is_not_told_and_no_token_needs_none() -> None:
    async with listening("--tcp", "0", "--token", "chosen") as server:
        assert "token:" not in server.told
        client = await Tcp.connect(server.port)
        await client.send(_initialize("chosen"))
        assert "result" in await client.read()
        await client.close()
    async with listening("--tcp", "0", "--no-token") as server:
        assert "token:" not in server.told


@pytest.mark.parametrize(
    "arguments",
    [
        ("--tcp", "0.0.0.0:0"),
        ("--ws", "0.0.0.0:0"),
        ("--tcp", "0.0.0.0:0", "--allow-remote", "--no-token"),
        ("--tcp", "example.invalid:0"),
        ("--tcp", "port"),
        ("--tcp", "70000"),
    ],
)
async def test_what_may_not_be_listened_on_is_refused_in_one_sentence(arguments: tuple[str, ...]) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "outpost_lsp", "serve", *arguments,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, told = await process.communicate()
    assert process.returncode == 2
    assert output == b""
    assert b"Traceback" not in told
    assert told.strip()


# WebSocket


class WebSocket:
    """A client over WebSocket, frame by frame."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, status: int) -> None:
        self.reader, self.writer, self.status = reader, writer, status

    @classmethod
    async def connect(cls, port: int, target: str = "/", **headers: str) -> WebSocket:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        sent = {
            "Host": f"127.0.0.1:{port}",
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
            "Sec-WebSocket-Version": "13",
        } | headers
        lines = [f"GET {target} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items() if value), "", ""]
        writer.write("\r\n".join(lines).encode())
        async with asyncio.timeout(_PATIENCE_S):
            head = await reader.readuntil(b"\r\n\r\n")
        return cls(reader, writer, int(head.split(b" ")[1]))

    def frame(self, kind: int, payload: bytes, *, is_last: bool = True) -> None:
        mask = os.urandom(4)
        size = len(payload)
        if size < 126:
            length = bytes([0x80 | size])
        else:
            length = b"\xfe" + size.to_bytes(2, "big") if size < 1 << 16 else b"\xff" + size.to_bytes(8, "big")
        masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))
        self.writer.write(bytes([(0x80 if is_last else 0) | kind]) + length + mask + masked)

    async def read(self) -> tuple[int, bytes] | None:
        async with asyncio.timeout(_PATIENCE_S):
            try:
                first, second = await self.reader.readexactly(2)
                size = second & 0x7F
                if size > 125:
                    size = int.from_bytes(await self.reader.readexactly(2 if size == 126 else 8), "big")
                return first & 0x0F, await self.reader.readexactly(size)
            except (asyncio.IncompleteReadError, ConnectionError):
                return None

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


async def test_a_websocket_client_with_the_token_is_served() -> None:
    async with listening("--ws", "0") as server:
        client = await WebSocket.connect(
            server.port, f"/?token={server.token}", Origin=f"http://localhost:{server.port}"
        )
        assert client.status == 101
        client.frame(1, json.dumps(_initialize()).encode())
        answer = await client.read()
        assert answer is not None
        assert answer[0] == 1
        assert json.loads(answer[1])["result"]["serverInfo"]["name"] == "outpost-lsp"
        client.frame(9, b"are you there")
        assert await client.read() == (10, b"are you there")
        body = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "outpost/" + "x" * 70_000}).encode()
        client.frame(1, body[:100], is_last=False)
        client.frame(0, body[100:])
        answer = await client.read()
        assert answer is not None
        assert json.loads(answer[1])["error"]["code"] == -32601
        client.frame(1, b"")
        answer = await client.read()
        assert answer is not None
        assert json.loads(answer[1])["error"]["code"] == -32700
        client.frame(8, (1000).to_bytes(2, "big"))
        assert (await client.read() or (8,))[0] == 8
        assert await server.ended() == 1
        await client.close()


async def test_a_handshake_has_to_come_from_this_machine_and_bring_the_token() -> None:
    refused: list[tuple[str, dict[str, str], int]] = [
        ("/?token=t", {"Origin": "https://evil.example"}, 403),
        ("/?token=t", {"Origin": "null"}, 403),
        ("/?token=t", {"Origin": "http://127.0.0.1.evil.example"}, 403),
        ("/?token=t", {"Host": "evil.example"}, 403),
        ("/?token=t", {"Host": ""}, 403),
        ("/?token=t", {"Sec-WebSocket-Version": "8"}, 426),
        ("/?token=t", {"Sec-WebSocket-Key": ""}, 400),
        ("/?token=t", {"Upgrade": ""}, 400),
        ("/", {}, 401),
        ("/?token=", {}, 401),
        ("/?token=wrong", {}, 401),
        ("/?other=t", {}, 401),
        ("/t", {}, 401),
    ]
    async with listening("--ws", "0", "--token", "t") as server:
        for target, headers, status in refused:
            client = await WebSocket.connect(server.port, target, **headers)
            assert client.status == status, (target, headers)
            await client.close()
        client = await WebSocket.connect(server.port, "/?token=t", Origin="http://127.0.0.1:3000")
        assert client.status == 101
        await client.close()


@pytest.mark.parametrize("host", ["localhost", "[::1]:80"])
async def test_every_name_of_this_machine_will_do(host: str) -> None:
    async with listening("--ws", "0", "--token", "t") as server:
        client = await WebSocket.connect(server.port, "/?token=t", Host=host)
        assert client.status == 101
        await client.close()


async def test_frames_that_break_the_rules_end_the_connection() -> None:
    async with listening("--ws", "0", "--no-token") as server:
        client = await WebSocket.connect(server.port)
        client.writer.write(b"\x81\x02{}")
        answer = await client.read()
        assert answer == (8, (1002).to_bytes(2, "big"))
        assert await client.read() is None
        assert await server.ended() == 1
        await client.close()
