"""Handing this process's terminal over to a program, and taking it back whatever happens.

The program is the terminal's foreground group while it runs, so that its interrupts are its own; afterwards, and after a
cancellation, nothing of the group is left and this process has the terminal again. Called by leases.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import termios
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio

from outpost_lsp.errors import configuration
from outpost_lsp.sandbox.process import start_program

_TERMINAL: Final = 0
_GRACE_S: Final = 0.5


async def run_on_terminal(arguments: Sequence[str], *, cwd: Path, environment: Mapping[str, str]) -> int:
    """Run a program on the terminal that standard input is; its exit status, `128 + n` when signal n ended it.

    `configuration` when standard input is no terminal, `process` when the program cannot start.
    """
    if not os.isatty(_TERMINAL):
        raise configuration("attach: standard input is no terminal")
    with _lent_terminal():
        process = await start_program(
            arguments, cwd=cwd, environment=environment, stdin=0, stdout=1, stderr=2, on_terminal=True
        )
        try:
            status = await process.wait()
        finally:
            with anyio.CancelScope(shield=True):
                await _end_group(process)
    return status if status >= 0 else 128 - status


@contextlib.contextmanager
def _lent_terminal() -> Iterator[None]:
    """Whatever the program does to the terminal is undone, and the terminal listens to this process again."""
    before = termios.tcgetattr(_TERMINAL)
    group = os.tcgetpgrp(_TERMINAL)
    try:
        yield
    finally:
        # Who takes the terminal from the background is stopped otherwise.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        with contextlib.suppress(OSError, termios.error):
            os.tcsetpgrp(_TERMINAL, group)
            termios.tcsetattr(_TERMINAL, termios.TCSADRAIN, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


async def _end_group(process: asyncio.subprocess.Process) -> None:
    """What is left of the program's group: HUP as from a terminal that closes, half a second, KILL."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGHUP)
        os.killpg(process.pid, signal.SIGCONT)
        with anyio.move_on_after(_GRACE_S):
            await process.wait()
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
