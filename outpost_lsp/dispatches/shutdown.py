"""Running a program that dispatches agents so that a signal ends it in order (SHUT-01, SHUT-02).

The invariant: on SIGINT or SIGTERM whatever is open is closed, the newest first, once, and before the process ends; what
goes wrong on the way changes neither the order nor the exit status. The contexts of sandboxes and workspaces are what is
closed: cancelling the program unwinds them. Signal handlers are set here only, and only while `run` runs.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

Result = TypeVar("Result")
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a program to its end and give its result, like `asyncio.run`.

    A signal cancels it; when everything is closed the process ends with status 130 (SIGINT) or 143 (SIGTERM). Further
    signals do not disturb the closing. Any other end keeps its own result, exception or exit status.
    """
    received: list[int] = []
    try:
        result = asyncio.run(_carried(main, received))
    except BaseException:
        if received:
            raise SystemExit(128 + received[0]) from None
        raise
    if received:
        raise SystemExit(128 + received[0])
    return result


async def _carried(main: Coroutine[Any, Any, Result], received: list[int]) -> Result:
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()

    def end(number: int) -> None:
        if not received:
            received.append(number)
            task.cancel()

    for number in _SIGNALS:
        loop.add_signal_handler(number, end, int(number))
    try:
        return await main
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
