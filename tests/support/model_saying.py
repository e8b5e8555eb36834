"""How a loopback model service says an answer on a connection: whole, in pieces, slowly, or not at all."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.support.model_answers import FORMS, Answer, wire_body, wire_events


@dataclass(frozen=True)
class Received:
    """A request as it came over the wire."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def form(self) -> str | None:
        return FORMS.get(self.path.removeprefix("/v1"))


class Saying:
    """Says one answer on one connection."""

    def __init__(self, writer: asyncio.StreamWriter, request: Received, answer: Answer, number: int) -> None:
        self._writer = writer
        self._request = request
        self._answer = answer
        self._number = number

    async def say(self) -> bool:
        """The result is whether the connection can take another request."""
        answer = self._answer
        if answer.silent:
            await asyncio.Event().wait()
        await asyncio.sleep(answer.delay_s)
        if answer.raw is not None:
            return await self._say_raw(answer.raw)
        request = self._request
        if request.form is None or answer.status != 200 or answer.body is not None or answer.json is not None:
            await self._say_plain()
            return True
        model = request.json.get("model", "")
        if not request.json.get("stream"):
            self._answer = replace(answer, json=wire_body(request.form, answer, self._number, model))
            await self._say_plain()
            return True
        return await self._say_stream(wire_events(request.form, answer, self._number, model))

    async def _say_plain(self) -> None:
        answer = self._answer
        kind = "text/plain"
        body = answer.body if answer.body is not None else b""
        if answer.json is not None:
            kind, body = "application/json", json.dumps(answer.json)
        content = body.encode() if isinstance(body, str) else body
        headers = {"Content-Type": kind, "Content-Length": str(len(content)), **answer.headers}
        await self._write(_head(answer.status, headers) + content)

    async def _say_stream(self, events: Iterable[bytes]) -> bool:
        answer = self._answer
        headers = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked", **answer.headers}
        await self._write(_head(answer.status, headers))
        for count, event in enumerate(events):
            if count == answer.hang_after:
                await asyncio.Event().wait()
            if count == answer.cut_after:
                return False
            if count == answer.reset_after:
                self._reset()
                return False
            if answer.pause_s and not answer.byte_by_byte:
                await asyncio.sleep(answer.pause_s)
            await self._write(b"%x\r\n%s\r\n" % (len(event), event))
        if answer.keep_open:
            await asyncio.Event().wait()
        await self._write(b"0\r\n\r\n")
        return True

    async def _say_raw(self, raw: bytes) -> bool:
        for piece in _pieces(raw):
            await self._write(piece)
            await asyncio.sleep(self._answer.pause_s)
        if self._answer.keep_open or b"\r\nx-case-hold:" in raw.partition(b"\r\n\r\n")[0].lower():
            await asyncio.Event().wait()
        return False

    async def _write(self, data: bytes) -> None:
        for piece in [data[at : at + 1] for at in range(len(data))] if self._answer.byte_by_byte else [data]:
            self._writer.write(piece)
            await self._writer.drain()
            if self._answer.byte_by_byte:
                await asyncio.sleep(self._answer.pause_s)

    def _reset(self) -> None:
        connection = self._writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


async def write_json(writer: asyncio.StreamWriter, status: int, value: Any) -> None:
    """Say a JSON body, whatever the script says."""
    body = json.dumps(value).encode()
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body))}
    writer.write(_head(status, headers) + body)
    await writer.drain()


def _pieces(raw: bytes) -> Sequence[bytes]:
    head, separator, rest = raw.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" not in head.lower():
        return [raw]
    pieces = [head + separator]
    while rest:
        size = rest.partition(b"\r\n")[0]
        end = len(size) + 2 + int(size, 16) + 2
        pieces.append(rest[:end])
        rest = rest[end:]
    return pieces


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
