"""One client's connection: bytes in, messages out, both bounded.

Messages are handed on in the order in which they came. What is sent never blocks the event loop: it goes to the
operating system at once or waits in a buffer, and while too much waits, nothing more is read from a client that does
not read. The transports make connections; the server uses them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

from outpost_lsp.lsp.framing import MAX_BODY, FrameFault, FrameReader, frame

logger = logging.getLogger(__name__)

HIGH_WATER: Final = 1024 * 1024
"""Bytes that may wait for a slow client before nothing more is read from it, and less important news is left out."""

MOST_WAITING: Final = 256 * 1024 * 1024
"""Bytes that may wait before the client counts as dead."""

_SLICE_S: Final = 0.005
"""How long messages are worked on before something else gets its turn."""

Received = Callable[[bytes | FrameFault], None]


class Connection(Protocol):
    """What the server needs of a client's connection."""

    @property
    def is_congested(self) -> bool:
        """Whether the client reads more slowly than the server writes."""

    def send(self, body: bytes) -> None:
        """Send one message; silently nothing when the connection is gone."""

    def on_relief(self, call: Callable[[], None]) -> None:
        """Call `call` whenever congestion ends."""

    async def close(self) -> None:
        """Send what waits, within a second, and close."""


class StreamConnection(asyncio.Protocol):
    """A connection over byte streams: a pipe for each direction, or one socket."""

    def __init__(self, received: Received, ended: Callable[[], None], frames: FrameReader | None = None) -> None:
        self._received = received
        self._ended = ended
        self._frames = frames or FrameReader()
        self._inbox: deque[bytes | FrameFault] = deque()
        self._is_working = False
        self._is_paused = False
        self._is_over = False
        self._reads: asyncio.ReadTransport | None = None
        self._writes: asyncio.WriteTransport | None = None
        self._relief: list[Callable[[], None]] = []

    # Reading

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._reads = cast("asyncio.ReadTransport", transport)
        if self._writes is None and isinstance(transport, asyncio.WriteTransport):
            self.write_to(transport)

    def data_received(self, data: bytes) -> None:
        self._inbox.extend(self._frames.feed(data))
        if not self._is_working:
            self._work()

    def eof_received(self) -> bool:
        self._end()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            logger.info("the client's connection broke: %s", exc)
        self._end()

    def trust(self) -> None:
        """Accept messages of every size from now on."""
        self._frames.max_body = MAX_BODY

    def hang_up(self) -> None:
        """Close once what was sent has gone out; nothing that still comes is read."""
        self._inbox.clear()
        if self._reads is not None and not self._reads.is_closing():
            self._reads.close()

    def _work(self) -> None:
        """Handle what came in, in order; after a while let others have a turn, then go on."""
        deadline = time.monotonic() + _SLICE_S
        self._is_working = True
        while self._inbox:
            if time.monotonic() > deadline:
                asyncio.get_running_loop().call_soon(self._work)
                return
            item = self._inbox.popleft()
            try:
                self._received(item)
            except Exception:
                logger.exception("a message could not be handled")
        self._is_working = False
        if self._is_over:
            self._end()

    def _end(self) -> None:
        self._is_over = True
        if not self._inbox:
            self._ended()

    # Writing

    def write_to(self, transport: asyncio.WriteTransport) -> None:
        """Send through this transport from now on."""
        self._writes = transport
        transport.set_write_buffer_limits(high=HIGH_WATER)

    @property
    def is_congested(self) -> bool:
        return self._is_paused

    def send(self, body: bytes) -> None:
        if self._writes is None or self._writes.is_closing():
            return
        if self._writes.get_write_buffer_size() > MOST_WAITING:
            logger.error(
                "the client does not read: %d bytes wait, giving up on it", self._writes.get_write_buffer_size()
            )
            self._writes.abort()
            return
        self._writes.write(frame(body))

    def on_relief(self, call: Callable[[], None]) -> None:
        self._relief.append(call)

    def pause_writing(self) -> None:
        self._is_paused = True
        if self._reads is not None and self._reads.is_reading():
            self._reads.pause_reading()

    def resume_writing(self) -> None:
        self._is_paused = False
        if self._reads is not None and not self._reads.is_closing():
            self._reads.resume_reading()
        for call in self._relief:
            call()

    async def close(self) -> None:
        writes = self._writes
        if writes is not None and not writes.is_closing():
            deadline = time.monotonic() + 1.0
            # A transport does not tell when its buffer is empty.
            while writes.get_write_buffer_size() and time.monotonic() < deadline:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            if writes.get_write_buffer_size():
                logger.warning("the client did not read the last messages")
                writes.abort()
            else:
                writes.close()
        if self._reads is not None:
            self._reads.close()


class OutputProtocol(asyncio.BaseProtocol):
    """The writing half of a pair of pipes; it passes flow control and a lost reader on."""

    def __init__(self, connection: StreamConnection) -> None:
        self._connection = connection

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)


def dump(value: Any, default: Callable[[Any], Any] | None = None, mask: Callable[[str], str] | None = None) -> bytes:
    """The compact JSON of a message. Characters beyond ASCII are escaped, so that lone surrogates can be sent."""
    return encoded(json.dumps(value, separators=(",", ":"), default=default), mask)


def encoded(text: str, mask: Callable[[str], str] | None = None) -> bytes:
    """The bytes of a message that is JSON in ASCII already."""
    return (text if mask is None else mask(text)).encode("ascii")
