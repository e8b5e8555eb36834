"""A language server inside the test's own process: the same conversation as with a process of its own, and much sooner.

What concerns the process (its pipes, its end, its exit status, its environment) is tested with `running_server`.
"""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from outpost_lsp.lsp.server import OutpostServer
from tests.lsp.server_process import KEY, PATIENCE_S, ServerProcess

_CLOSE_S = 30.0


class _Wire:
    """The server's side of a connection that never breaks and is never congested."""

    is_congested = False

    def __init__(self, received: Callable[[bytes], None]) -> None:
        self._received = received

    def send(self, body: bytes) -> None:
        self._received(body)

    def on_relief(self, call: Callable[[], None]) -> None:
        """There is never any need for it."""

    async def close(self) -> None:
        """There is nothing to close."""


class InsideServer(ServerProcess):
    """The server and the conversation with it."""

    def __init__(self) -> None:
        self.received = []
        self.answers = {}
        self.stray = None
        self.log = b""
        self.ended_event = asyncio.Event()
        self.server = OutpostServer(self.ended_event, lambda session: None)
        self.server.protocol.attach(_Wire(self._arrived))
        self._next = 0
        self._news = asyncio.Condition()
        self._inbox: asyncio.Queue[bytes] = asyncio.Queue()
        self._reading = [asyncio.create_task(self._read())]

    def _arrived(self, body: bytes) -> None:
        self._inbox.put_nowait(body)

    async def _read(self) -> None:
        while True:
            await self._take(json.loads(await self._inbox.get()))

    def send(self, message: Any) -> None:
        # As over a pipe: not in the middle of what the test does, and in the order in which it was sent.
        body = json.dumps(message).encode()
        asyncio.get_running_loop().call_soon(self.server.protocol.receive, body)

    async def shut_down(self) -> int:
        await self.request("shutdown")
        self.notify("exit")
        async with asyncio.timeout(PATIENCE_S):
            await self.ended_event.wait()
        return 0 if self.server.protocol.is_shut_down else 1


@asynccontextmanager
async def inside_server() -> AsyncIterator[InsideServer]:
    """A server; when the block ends everything of it has ended."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SERVICE_KEY", KEY)
        inside = InsideServer()
        try:
            yield inside
            assert KEY not in json.dumps(inside.received)
        finally:
            if (desk := inside.server._if_open()) is not None:
                await desk.drain(_CLOSE_S)
            await inside.server.close(_CLOSE_S)
            for task in inside._reading:
                task.cancel()
            await asyncio.wait(inside._reading)
            gc.unfreeze()
