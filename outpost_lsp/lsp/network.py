"""Listening for a client on a TCP port (SEC-22).

One client is served, and the process ends with it. Whoever connects has to send `initialize` with the token first;
until then nothing it sends reaches the server, little of it is kept, and it has half a minute.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import logging
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from outpost_lsp.lsp.connection import StreamConnection, dump
from outpost_lsp.lsp.framing import FrameFault, FrameReader

if TYPE_CHECKING:
    from outpost_lsp.lsp.front import FrontDoor

logger = logging.getLogger(__name__)

ADMISSION_S: Final = 30.0
MOST_VISITORS: Final = 32
_FIRST_MESSAGE: Final = 4 * 1024 * 1024
_INVALID_REQUEST: Final = -32600


@dataclass(frozen=True, slots=True)
class Door:
    """Where to listen and what to ask for; an empty token asks for nothing."""

    host: str
    port: int
    token: str

    def admits(self, token: object) -> bool:
        """Whether somebody who shows this may come in."""
        return not self.token or (isinstance(token, str) and hmac.compare_digest(token.encode(), self.token.encode()))


def host_and_port(address: str) -> tuple[str, int]:
    """The parts of `[HOST:]PORT`; the host is 127.0.0.1 when none is named."""
    host, _, port = address.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise OSError(f"{address!r} is not [HOST:]PORT")
    return host.strip("[]") or "127.0.0.1", int(port)


def is_loopback(host: str) -> bool:
    """Whether the host is this machine by every account."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class Reception:
    """Keeps the one place for a client, and counts those who wait at the door."""

    def __init__(self, front: FrontDoor) -> None:
        self.front = front
        self.client: object | None = None
        self.visitors = 0

    def take(self, visitor: object) -> bool:
        """Give the place to this visitor, when it is free."""
        if self.client is None:
            self.client = visitor
        return self.client is visitor

    def left(self, visitor: object) -> None:
        """The server ends with its client."""
        if self.client is visitor:
            self.front.ended.set()


async def announce(listening: asyncio.Server) -> None:
    """Say where the server listens; with port 0 only the system knows."""
    host, port = listening.sockets[0].getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    print(f"listening on {shown}:{port}", file=sys.stderr, flush=True)  # noqa: T201 - told to the starter


async def listen_tcp(front: FrontDoor, door: Door) -> Callable[[], Awaitable[None]]:
    """Listen until the process ends; the result closes everything."""
    reception = Reception(front)
    visitors: list[_Visitor] = []

    def welcome() -> asyncio.Protocol:
        visitor = _Visitor(reception, door)
        visitors[:] = [other for other in visitors if not other.has_left]
        visitors.append(visitor)
        return visitor.connection

    listening = await asyncio.get_running_loop().create_server(welcome, door.host, door.port)
    await announce(listening)

    async def close() -> None:
        listening.close()
        for visitor in visitors:
            await visitor.connection.close()

    return close


class _Visitor:
    """A connection until it has shown that it is the client, and after."""

    def __init__(self, reception: Reception, door: Door) -> None:
        self._reception = reception
        self._door = door
        self.has_left = False
        self.connection = StreamConnection(
            self._received, self._left, frames=FrameReader(max_body=_FIRST_MESSAGE, strict=True)
        )
        reception.visitors += 1
        self._patience = asyncio.get_running_loop().call_later(ADMISSION_S, self._turn_away)
        if reception.visitors > MOST_VISITORS:
            asyncio.get_running_loop().call_later(0.1, self._turn_away)

    def _received(self, item: bytes | FrameFault) -> None:
        if self._reception.client is self:
            self._reception.front.receive(item)
            return
        message_id, token = _first_words(item)
        if message_id is None or not self._door.admits(token):
            self._turn_away(message_id, "initialize with the right token in initializationOptions has to come first")
        elif not self._reception.take(self):
            self._turn_away(message_id, "another client is served")
        else:
            self._patience.cancel()
            self._reception.visitors -= 1
            self.connection.trust()
            self._reception.front.attach(self.connection)
            self._reception.front.receive(item)

    def _turn_away(self, message_id: Any = None, reason: str = "") -> None:
        if reason:
            error = {"code": _INVALID_REQUEST, "message": reason}
            self.connection.send(dump({"jsonrpc": "2.0", "id": message_id, "error": error}))
        self.connection.hang_up()

    def _left(self) -> None:
        if self.has_left:
            return
        self.has_left = True
        if self._reception.client is self:
            self._reception.left(self)
        else:
            self._patience.cancel()
            self._reception.visitors -= 1
            self.connection.hang_up()


def _first_words(item: bytes | FrameFault) -> tuple[Any, object]:
    """The id and the token of an `initialize` request; (`None`, `None`) when it is something else."""
    if isinstance(item, FrameFault):
        return None, None
    try:
        message = json.loads(item)
    except (ValueError, RecursionError):
        return None, None
    if not isinstance(message, dict) or message.get("method") != "initialize":
        return None, None
    params = message.get("params")
    options = params.get("initializationOptions") if isinstance(params, dict) else None
    return message.get("id"), options.get("token") if isinstance(options, dict) else None
