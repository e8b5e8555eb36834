"""A started git process that is asked one thing, until its end, with its pipes read by the event loop itself.

A dispatch starts about eight of them, one after another, so what each costs in this process is felt in every first step:
transports, protocols and a task per pipe were two thirds of it. The invariant: when `see_through` returns or raises, the
process and what stayed in its group is gone, and so are its pipes (CMD-01, SEC-14).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import Final, NamedTuple

import anyio

from outpost_lsp.worktrees.spawned import Spawned

_PIECE: Final = 262_144
_MOST_ERRORS: Final = 65_536
_GRACE_S: Final = 0.5
_CLEAN_UP_S: Final = 10.0
_FIRST_LOOK_S: Final = 0.001
_LAST_LOOK_S: Final = 0.05


class Ended(NamedTuple):
    """How a process ended: its status (`128 + n` for signal n), and the bytes that were kept of its two channels.

    Output beyond the limit ends the process: it is `truncated` then, and its status 0.
    """

    status: int
    stdout: bytes
    stderr: bytes
    truncated: bool


async def see_through(process: Spawned, stdin: bytes | None, *, max_output: int, deadline_s: float) -> Ended:
    """Give it `stdin` and wait for its end; `TimeoutError` after `deadline_s`.

    The process has a pipe for its input where `stdin` is not None, and a session of its own.
    """
    loop = asyncio.get_running_loop()
    child = _Child(loop, process, stdin, max_output)
    deadline = loop.call_later(deadline_s, child.fail, TimeoutError())
    try:
        await child.finished
    finally:
        deadline.cancel()
        child.close()
        if process.returncode is None:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_CLEAN_UP_S):
                await end(process)
    status = 0 if child.truncated else process.returncode or 0
    return Ended(128 - status if status < 0 else status, bytes(child.stdout), bytes(child.stderr), child.truncated)


class _Child:
    """The process and the event loop's hold on its pipes; `finished` is set when it has ended or has said too much."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        process: Spawned,
        stdin: bytes | None,
        max_output: int,
    ) -> None:
        self.finished: asyncio.Future[None] = loop.create_future()
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.truncated = False
        self._loop = loop
        self._max_output = max_output
        self._given = memoryview(stdin or b"")
        self._look_s = _FIRST_LOOK_S
        self._look: asyncio.TimerHandle | None = None
        self._end_seen: int | None = None
        self._process = process
        self._out = process.out
        self._readers = {process.out, process.error}
        for descriptor in self._readers:
            os.set_blocking(descriptor, False)
            loop.add_reader(descriptor, self._read, descriptor)
        self._writer: int | None = None
        if process.given >= 0:
            self._writer = process.given
            os.set_blocking(self._writer, False)
            loop.add_writer(self._writer, self._write)

    def fail(self, error: Exception) -> None:
        if not self.finished.done():
            self.finished.set_exception(error)

    def close(self) -> None:
        """Let go of everything but the process. May be called once more."""
        self._stop_writing()
        for descriptor in tuple(self._readers):
            self._stop_reading(descriptor)
        if self._look is not None:
            self._look.cancel()
        if self._end_seen is not None:
            self._loop.remove_reader(self._end_seen)
            os.close(self._end_seen)
            self._end_seen = None

    def _read(self, descriptor: int) -> None:
        try:
            piece = os.read(descriptor, _PIECE)
        except (BlockingIOError, InterruptedError):
            return
        if not piece:
            self._stop_reading(descriptor)
            if not self._readers:
                self._await_end()
            return
        kept, most = (self.stdout, self._max_output) if descriptor == self._out else (self.stderr, _MOST_ERRORS)
        room = most - len(kept)
        kept += piece[:room]
        if len(piece) > room and descriptor == self._out:
            self.truncated = True
            self._finish()

    def _write(self) -> None:
        assert self._writer is not None
        try:
            self._given = self._given[os.write(self._writer, self._given[:_PIECE]) :] if self._given else self._given
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            # Git has read as much as it wanted.
            self._given = self._given[:0]
        if not self._given:
            self._stop_writing()

    def _await_end(self) -> None:
        """Its channels are closed: it is ending, and mostly a moment behind."""
        if self._process.poll() is not None:
            self._finish()
            return
        try:
            self._end_seen = os.pidfd_open(self._process.pid)
        except (AttributeError, OSError):
            # Not Linux, an old kernel, or a container that forbids it.
            self._look_again()
        else:
            self._loop.add_reader(self._end_seen, self._look_now)

    def _look_now(self) -> None:
        if self._process.poll() is not None:
            self._finish()

    def _look_again(self) -> None:
        if self._process.poll() is not None:
            self._finish()
            return
        self._look = self._loop.call_later(self._look_s, self._look_again)
        self._look_s = min(self._look_s * 2, _LAST_LOOK_S)

    def _finish(self) -> None:
        if not self.finished.done():
            self.finished.set_result(None)

    def _stop_reading(self, descriptor: int) -> None:
        self._readers.discard(descriptor)
        self._loop.remove_reader(descriptor)
        os.close(descriptor)

    def _stop_writing(self) -> None:
        if self._writer is None:
            return
        self._loop.remove_writer(self._writer)
        os.close(self._writer)
        self._writer = None


async def end(process: Spawned) -> None:
    """See to it that a process that has not ended is gone, and whatever it started; git gets the time to remove its lock files."""
    _signal_group(process, signal.SIGTERM)
    with anyio.move_on_after(_GRACE_S):
        await _wait(process)
    _signal_group(process, signal.SIGKILL)  # A helper of git may have outlived it.
    await _wait(process)


async def _wait(process: Spawned) -> None:
    pause = _FIRST_LOOK_S
    while process.poll() is None:
        await anyio.sleep(pause)
        pause = min(pause * 2, _LAST_LOOK_S)


def _signal_group(process: Spawned, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
