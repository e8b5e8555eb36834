"""Tool calls that outlived their deadline and do not heed their cancellation.

A call is let go of when its time is over (TOOL-11). What still runs then may be cleaning up, so it is given until the end
of the turn and a little longer; after that it is ended, since an event loop waits at its own end for whatever runs in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import anyio

_GRACE_S: Final = 2.0
_TRIES: Final = 3


async def end_abandoned(calls: Sequence[tuple[str, asyncio.Task[Any]]], note: Callable[[str], None]) -> None:
    """End the calls (tool name and task) that still run, and tell people which did not stop."""
    running = [task for _, task in calls if not task.done()]
    if not running:
        return
    with anyio.CancelScope(shield=True):
        for task in running:
            task.cancel()
        await asyncio.wait(running, timeout=_GRACE_S)
        for name, task in calls:
            if not task.done():
                note(f"the tool {name} did not stop when it was cancelled, and was ended")
                await _ended(task)


async def _ended(task: asyncio.Task[Any]) -> None:
    coroutine = task.get_coro()
    for _ in range(_TRIES):
        # It waits for something; there it is left, which it cannot take for a cancellation.
        with suppress(BaseException):
            coroutine.close()
            break
    # What it waited for wakes the task, which finds its coroutine at an end.
    task.cancel()
    await asyncio.wait((task,), timeout=_GRACE_S)
    if not task.done():
        # It swallows even this; the event loop is made to forget it, and it ends with the loop.
        asyncio._unregister_task(task)
