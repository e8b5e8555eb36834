"""Noticing a cancellation that somebody swallowed.

Cancelling a task raises once, at its next wait. A tool, a hook or a provider that catches this and carries on would
hide it from the loop; the loop therefore asks again at its borders (LOOP-18, DISP-16, ROUTE-34).
"""

from __future__ import annotations

import asyncio

import anyio.lowlevel


async def breathe() -> None:
    """Let others run between two pieces of work, so that one answer with much in it does not hold up an editor."""
    await asyncio.sleep(0)


async def checkpoint() -> None:
    """Let others run, and raise when this task was asked to end, even if somebody caught the first notice."""
    await anyio.lowlevel.checkpoint()
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
