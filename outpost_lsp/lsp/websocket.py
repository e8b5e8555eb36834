"""Listening for a client that speaks WebSocket (RFC 6455), for editors in a browser (SEC-22).

The token is part of the URL; `Host` and `Origin` have to be this machine's, so that no web page can reach the server
through somebody's browser, whatever name it has bound to a loopback address. Only what the editor protocol needs of
WebSocket is here: text and binary messages, fragments, ping and close.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import parse_qs, urlsplit

from outpost_lsp.lsp.connection import HIGH_WATER, MOST_WAITING
from outpost_lsp.lsp.framing import MAX_BODY, FrameFault
from outpost_lsp.lsp.network import ADMISSION_S, MOST_VISITORS, Door, Reception, announce, is_loopback

if TYPE_CHECKING:
    from outpost_lsp.lsp.front import FrontDoor

logger = logging.getLogger(__name__)

_MAX_HEAD: Final = 16 * 1024
_ACCEPT_KEY: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
_PROTOCOL_ERROR, _TOO_BIG = 1002, 1009


async def listen_websocket(front: FrontDoor, door: Door) -> Callable[[], Awaitable[None]]:
    """Listen until the process ends; the result closes everything."""
    reception = Reception(front)
    visitors: list[WebSocketConnection] = []

    def welcome() -> asyncio.Protocol:
        visitor = WebSocketConnection(reception, door)
        visitors[:] = [other for other in visitors if not other.has_left]
        visitors.append(visitor)
        return visitor

    listening = await asyncio.get_running_loop().create_server(welcome, door.host, door.port)
    await announce(listening)

    async def close() -> None:
        listening.close()
        for visitor in visitors:
            await visitor.close()

    return close


class WebSocketConnection(asyncio.Protocol):
    """One connection, from its handshake on."""

    def __init__(self, reception: Reception, door: Door) -> None:
        self._reception = reception
        self._door = door
        self._buffer = bytearray()
        self._message = bytearray()
        self._is_open = False
        self._is_paused = False
        self._relief: list[Callable[[], None]] = []
        self._transport: asyncio.Transport | None = None
        self.has_left = False
        reception.visitors += 1
        self._patience = asyncio.get_running_loop().call_later(ADMISSION_S, self._hang_up)

    # Reading

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER)
        if self._reception.visitors > MOST_VISITORS:
            self._hang_up()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._is_open:
            self._read_head()
        while self._is_open and self._read_frame():
            pass

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            logger.info("the client's connection broke: %s", exc)
        if self.has_left:
            return
        self.has_left = True
        self._patience.cancel()
        if self._reception.client is self:
            self._reception.left(self)
        else:
            self._reception.visitors -= 1

    def _read_head(self) -> None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > _MAX_HEAD:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request is too large")
            return
        request, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        fault = self._fault(request, headers)
        if fault is not None:
            self._refuse(*fault)
        elif not self._reception.take(self):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "another client is served")
        else:
            self._open(headers["sec-websocket-key"])

    def _fault(self, request: str, headers: dict[str, str]) -> tuple[HTTPStatus, str] | None:
        method, _, rest = request.partition(" ")
        target = rest.rpartition(" ")[0]
        if method != "GET" or headers.get("upgrade", "").lower() != "websocket" or not headers.get("sec-websocket-key"):
            return HTTPStatus.BAD_REQUEST, "a WebSocket handshake is expected"
        if headers.get("sec-websocket-version") != "13":
            return HTTPStatus.UPGRADE_REQUIRED, "WebSocket version 13 is expected"
        if not self._is_ours(headers.get("host", "")):
            return HTTPStatus.FORBIDDEN, "Host: not the address this server listens on"
        origin = headers.get("origin")
        if origin is not None and not self._is_ours(urlsplit(origin).netloc):
            return HTTPStatus.FORBIDDEN, "Origin: pages of other hosts may not connect"
        tokens = parse_qs(urlsplit(target).query).get("token", [""])
        if not self._door.admits(tokens[0]):
            return HTTPStatus.UNAUTHORIZED, "token: missing or wrong"
        return None

    def _is_ours(self, place: str) -> bool:
        try:
            host = urlsplit(f"//{place}").hostname or ""
        except ValueError:
            return False
        return is_loopback(host) or (not is_loopback(self._door.host) and host == self._door.host.lower())

    def _open(self, key: str) -> None:
        accept = base64.b64encode(hashlib.sha1(key.encode("latin-1") + _ACCEPT_KEY, usedforsecurity=False).digest())
        self._write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
        )
        self._is_open = True
        self._patience.cancel()
        self._reception.visitors -= 1
        self._reception.front.attach(self)

    def _refuse(self, status: HTTPStatus, reason: str) -> None:
        body = reason.encode()
        self._write(
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
            + body
        )
        self._hang_up()

    def _read_frame(self) -> bool:
        """Handle one whole frame of the buffer; `False` when more bytes are needed."""
        buffer = self._buffer
        if len(buffer) < 2:
            return False
        size, head = buffer[1] & 0x7F, 2
        if size > 125:
            width = 2 if size == 126 else 8
            if len(buffer) < 2 + width:
                return False
            size, head = int.from_bytes(buffer[2 : 2 + width], "big"), 2 + width
        if not buffer[1] & 0x80 or buffer[0] & 0x70:
            return self._fail(_PROTOCOL_ERROR)
        if size + len(self._message) > MAX_BODY:
            return self._fail(_TOO_BIG)
        end = head + 4 + size
        if len(buffer) < end:
            return False
        payload = _unmasked(bytes(buffer[head : head + 4]), bytes(buffer[head + 4 : end]))
        is_last, kind = bool(buffer[0] & 0x80), buffer[0] & 0x0F
        del buffer[:end]
        return self._handle(kind, is_last, payload)

    def _handle(self, kind: int, is_last: bool, payload: bytes) -> bool:
        if kind == _PING:
            self._write(_frame(_PONG, payload))
        elif kind == _CLOSE:
            self._write(_frame(_CLOSE, payload[:2]))
            self._hang_up()
            return False
        elif kind in (_TEXT, _BINARY, _CONTINUATION):
            self._message += payload
            if is_last:
                body = bytes(self._message)
                self._message.clear()
                self._reception.front.receive(body or FrameFault("an empty message"))
        elif kind != _PONG:
            return self._fail(_PROTOCOL_ERROR)
        return True

    def _fail(self, code: int) -> bool:
        self._write(_frame(_CLOSE, code.to_bytes(2, "big")))
        self._hang_up()
        return False

    # Writing

    @property
    def is_congested(self) -> bool:
        return self._is_paused

    def send(self, body: bytes) -> None:
        if self._is_open:
            self._write(_frame(_TEXT, body))

    def on_relief(self, call: Callable[[], None]) -> None:
        self._relief.append(call)

    def pause_writing(self) -> None:
        self._is_paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._is_paused = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        for call in self._relief:
            call()

    async def close(self) -> None:
        if self._is_open and not self.has_left:
            self._write(_frame(_CLOSE, (1000).to_bytes(2, "big")))
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.close()
            # A moment for the system to take the last bytes.
            await asyncio.sleep(0)

    def _write(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if transport.get_write_buffer_size() > MOST_WAITING:
            logger.error("the client does not read; giving up on it")
            transport.abort()
            return
        transport.write(data)

    def _hang_up(self) -> None:
        self._is_open = False
        if self._transport is not None:
            self._transport.close()


def _frame(kind: int, payload: bytes) -> bytes:
    size = len(payload)
    if size < 126:
        head = bytes((0x80 | kind, size))
    elif size < 1 << 16:
        head = bytes((0x80 | kind, 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x80 | kind, 127)) + size.to_bytes(8, "big")
    return head + payload


def _unmasked(mask: bytes, payload: bytes) -> bytes:
    if not payload:
        return payload
    size = len(payload)
    key = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")).to_bytes(size, "big")
