"""Carrying one turn within its time limits, and saying why when it is stopped (LOOP-21, LOOP-22, EXEC-04 to -06)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

import anyio

from outpost_lsp.domain.event import Event, StopCause, StoppedEvent, WarningEvent
from outpost_lsp.errors import OutpostError
from outpost_lsp.harness.runtime import Activity

_UNWIND_S: Final = 10.0


async def carried(
    turn: Coroutine[Any, Any, str],
    *,
    activity: Activity,
    deadline_s: float,
    idle_s: float,
    idle_warning_s: float,
    emit: Callable[[Event], None],
) -> str:
    """Run a turn to its answer.

    Raises `timeout` when the turn lasts longer than `deadline_s`, or is silent for `idle_s` while nothing holds the
    idle clock. Whatever ends it early, one `stopped` event names the cause and the turn has unwound before this returns.
    """
    task = asyncio.ensure_future(turn)
    ends_at = time.monotonic() + deadline_s
    warned = 0
    try:
        while True:
            silence_s = activity.silence_s
            warned = min(warned, int(silence_s // idle_warning_s))
            until_warning = (warned + 1) * idle_warning_s - silence_s
            left_s = min(ends_at - time.monotonic(), idle_s - silence_s, until_warning)
            done, _ = await asyncio.wait((task,), timeout=max(left_s, 0.001))
            if done:
                break
            if time.monotonic() >= ends_at:
                fault = OutpostError("timeout", f"the turn did not end within {deadline_s:g} s")
                await _stopped(task, emit, "deadline")
                raise fault
            silence_s = activity.silence_s
            if silence_s >= idle_s:
                fault = OutpostError("timeout", f"nothing happened for {idle_s:g} s", {"stopReason": "idle-timeout"})
                await _stopped(task, emit, "idle-timeout")
                raise fault
            if silence_s >= (warned + 1) * idle_warning_s:
                warned += 1
                last = activity.last
                emit(WarningEvent(message=f"nothing has happened for {silence_s:.0f} s"))
                # The warning itself is no sign of life.
                activity.last = last
    except asyncio.CancelledError:
        await _stopped(task, emit, "aborted")
        raise
    if task.cancelled():
        raise OutpostError("aborted", "the turn was cancelled from inside")
    try:
        return task.result()
    except OutpostError as error:
        if error.code == "stuck":
            emit(StoppedEvent(reason="stuck"))
        raise


async def _stopped(task: asyncio.Future[Any], emit: Callable[[Event], None], reason: StopCause) -> None:
    task.cancel()
    with anyio.CancelScope(shield=True):
        await asyncio.wait((task,), timeout=_UNWIND_S)
    if task.done() and not task.cancelled():
        task.exception()
    emit(StoppedEvent(reason=reason))
