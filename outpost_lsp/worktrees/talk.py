"""A started git process that is asked one thing after another, with its pipes read by the event loop itself.

The invariant: nothing is read that nobody waits for, so a long answer stays in the pipe until it is asked for.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Final

from outpost_lsp.worktrees.spawned import Spawned

_PIECE: Final = 1_048_576


class Talk:
    """The process and this side's ends of its pipes; it must have been started with a pipe for its input.

    One question at a time. `EOFError` from every method once the process has closed its side.
    """

    def __init__(self, process: Spawned) -> None:
        self._loop = asyncio.get_running_loop()
        self._process = process
        self._heard = bytearray()
        for descriptor in (process.given, process.out):
            os.set_blocking(descriptor, False)

    async def send(self, question: bytes) -> None:
        """Write a question whole."""
        rest = memoryview(question)
        while rest:
            try:
                rest = rest[os.write(self._process.given, rest) :]
            except (BlockingIOError, InterruptedError):
                await self._ready(self._process.given, self._loop.add_writer, self._loop.remove_writer)
            except OSError as error:
                raise EOFError from error

    async def receive_until(self, end: bytes, most: int) -> bytes:
        """What comes before `end`, which is taken too; `EOFError` also when it does not come within `most` bytes."""
        seen = 0
        while (found := self._heard.find(end, seen)) < 0:
            if len(self._heard) > most:
                raise EOFError
            seen = max(0, len(self._heard) - len(end) + 1)
            await self._hear()
        return self._take(found, len(end))

    async def receive_exactly(self, count: int) -> bytes:
        """The next `count` bytes."""
        while len(self._heard) < count:
            await self._hear()
        return self._take(count, 0)

    def close(self) -> None:
        """Close this side's ends; a process that only waits for questions ends by that."""
        for descriptor in (self._process.given, self._process.out, self._process.error):
            if descriptor >= 0:
                os.close(descriptor)

    def _take(self, count: int, more: int) -> bytes:
        taken = bytes(self._heard[:count])
        del self._heard[: count + more]
        return taken

    async def _hear(self) -> None:
        while True:
            try:
                piece = os.read(self._process.out, _PIECE)
            except (BlockingIOError, InterruptedError):
                await self._ready(self._process.out, self._loop.add_reader, self._loop.remove_reader)
                continue
            if not piece:
                raise EOFError
            self._heard += piece
            return

    async def _ready(
        self,
        descriptor: int,
        watch: Callable[[int, Callable[[], None]], object],
        leave: Callable[[int], object],
    ) -> None:
        is_ready: asyncio.Future[None] = self._loop.create_future()

        def tell() -> None:
            if not is_ready.done():
                is_ready.set_result(None)

        watch(descriptor, tell)
        try:
            await is_ready
        finally:
            leave(descriptor)
