"""A program that one talks to: its input and output stay open while it runs.

The invariant: it runs in a session of its own with exactly the environment it is given, and after `end` nothing of that
session is left, whoever else holds its pipes (MCP-02, SEC-13, SEC-14). Reading stops when the program has ended, even
when a grandchild keeps the output open. Started by leases; used by MCP servers and external agents.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio

from outpost_lsp.errors import OutpostError
from outpost_lsp.sandbox.process import CapturedChannel, Observe, end_program, kill_program, start_program

_PIECE: Final = 65_536
_LAST_WORDS_S: Final = 0.1


async def start_live(
    arguments: Sequence[str],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    retain: int = 4_096,
    observe: Observe | None = None,
) -> LiveProgram:
    """Start a program to talk to. `retain` and `observe` are for its error output; `process` when it cannot start."""
    given, input_end = os.pipe2(os.O_CLOEXEC)
    output_end, taken = os.pipe2(os.O_CLOEXEC)
    errors = CapturedChannel("stderr", retain, observe)
    try:
        process = await start_program(
            arguments, cwd=cwd, environment=environment, stdin=given, stdout=taken, stderr=errors.writing
        )
    except BaseException:
        errors.close()
        os.close(input_end)
        os.close(output_end)
        raise
    finally:
        os.close(given)
        os.close(taken)
        os.close(errors.writing)
    return LiveProgram(arguments[0], process, input_end, output_end, errors)


class LiveProgram:
    """A running program. One task reads at a time; any number may write."""

    def __init__(
        self,
        name: str,
        process: asyncio.subprocess.Process,
        input_end: int,
        output_end: int,
        errors: CapturedChannel,
    ) -> None:
        self.on_end: Callable[[LiveProgram], None] = lambda _program: None
        self._name = name
        self._process = process
        self._input = input_end
        self._output = output_end
        self._errors = errors
        self._buffer = bytearray()
        self._looked_at = 0
        self._ended = False
        self._writing = anyio.Lock()
        self._wakes: set[asyncio.Event] = set()
        os.set_blocking(input_end, False)
        os.set_blocking(output_end, False)
        self._exit = asyncio.ensure_future(self._exited())

    @property
    def stderr(self) -> str:
        return self._errors.text

    async def send(self, data: bytes) -> None:
        view = memoryview(data)
        async with self._writing:
            while view:
                if self._input < 0 or self._exit.done():
                    raise self._gone()
                try:
                    view = view[os.write(self._input, view) :]
                except BlockingIOError:
                    await self._wait(self._input, asyncio.get_running_loop().add_writer)
                except OSError as error:
                    raise self._gone() from error

    async def line(self, limit: int) -> bytes | None:
        while True:
            end = self._buffer.find(b"\n", self._looked_at)
            if end > limit or (end < 0 and len(self._buffer) > limit):
                raise OutpostError(
                    "response", f"{self._name} sent a line of more than {limit} bytes.", {"limit": limit}
                )
            if end >= 0:
                found = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                self._looked_at = 0
                return found
            self._looked_at = len(self._buffer)
            data = await self._read()
            if not data:
                found = bytes(self._buffer)
                self._buffer.clear()
                self._looked_at = 0
                return found or None
            self._buffer += data

    async def status(self, within_s: float) -> int | None:
        await asyncio.wait((self._exit,), timeout=within_s)
        code = self._process.returncode
        return None if code is None else code if code >= 0 else 128 - code

    async def end(self, grace_s: float = 2.0) -> None:
        if self._ended:
            await asyncio.shield(self._exit)
            return
        self._ended = True
        with anyio.CancelScope(shield=True):
            self._close_input()
            # A program that still writes must not be held up by a pipe that nobody empties.
            draining = asyncio.ensure_future(self._drain())
            await asyncio.wait((self._exit,), timeout=grace_s)
            await end_program(self._process)
            await self._exit
            draining.cancel()
            await asyncio.wait((draining,))
            self._errors.close()
            self._wake_all()
            os.close(self._output)
            self._output = -1
        self.on_end(self)

    def kill(self) -> None:
        if not self._ended:
            kill_program(self._process)

    async def _exited(self) -> None:
        await self._process.wait()
        # What it wrote before it ended is in the pipe already; a grandchild may hold it for ever.
        await asyncio.sleep(_LAST_WORDS_S)
        self._wake_all()

    def _close_input(self) -> None:
        if self._input >= 0:
            asyncio.get_running_loop().remove_writer(self._input)
            os.close(self._input)
            self._input = -1
            self._wake_all()

    async def _read(self) -> bytes:
        while self._output >= 0:
            try:
                return os.read(self._output, _PIECE)
            except BlockingIOError:
                if self._exit.done():
                    break
                await self._wait(self._output, asyncio.get_running_loop().add_reader)
            except OSError:
                break
        return b""

    async def _drain(self) -> None:
        while await self._read():
            pass

    async def _wait(self, descriptor: int, watch: Callable[..., None]) -> None:
        """Until the descriptor is ready, the program has ended or its input was closed."""
        loop = asyncio.get_running_loop()
        is_output = descriptor == self._output
        wake = asyncio.Event()
        self._wakes.add(wake)
        watch(descriptor, wake.set)
        try:
            await wake.wait()
        finally:
            self._wakes.discard(wake)
            if is_output and self._output == descriptor:
                loop.remove_reader(descriptor)
            elif not is_output and self._input == descriptor:
                loop.remove_writer(descriptor)

    def _wake_all(self) -> None:
        for wake in tuple(self._wakes):
            wake.set()

    def _gone(self) -> OutpostError:
        code = self._process.returncode
        details = {"executable": self._name} | ({} if code is None else {"status": code if code >= 0 else 128 - code})
        return OutpostError("process", f"{self._name} no longer reads its input.", details)
