"""The server with an instrument at its event loop: how long each callback holds it.

SIGUSR1 begins to count anew; at the end the slices are written as JSON to the file that `SLICES` names. Processor time
of the loop's thread is counted, for the wall clock of a busy machine counts what others do; the collector's pauses are
part of it, as they happen inside callbacks.
"""

from __future__ import annotations

import asyncio.events
import gc
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

_SLOW_NS = 1_000_000
_SHOWN_FRAMES = 4

slices: list[int] = []
walls: list[int] = []
collections: list[int] = []
slow: list[tuple[float, str]] = []


def label_of(handle: Any) -> str:
    """Where the task of a callback waits now, innermost last: what it did before that is what took so long."""
    task = getattr(handle._callback, "__self__", None)
    if not isinstance(task, asyncio.Task):
        return str(getattr(handle._callback, "__qualname__", handle._callback))
    waiting: Any = task.get_coro()
    places = []
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "ag_frame", None)
        if frame is not None:
            places.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "ag_await", None)
    return " > ".join(places[-_SHOWN_FRAMES:]) or f"{task.get_coro().__qualname__}, ended"  # type: ignore[union-attr]


def _measure() -> None:
    run = asyncio.events.Handle._run

    def measured(handle: Any) -> None:
        began, wall = time.thread_time_ns(), time.perf_counter_ns()
        run(handle)
        took = time.thread_time_ns() - began
        slices.append(took)
        walls.append(time.perf_counter_ns() - wall)
        if took > _SLOW_NS:
            slow.append((took / 1e6, label_of(handle)))

    asyncio.events.Handle._run = measured  # type: ignore[method-assign]
    began = [0]

    def collected(phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            began[0] = time.perf_counter_ns()
        else:
            collections.append(time.perf_counter_ns() - began[0])

    gc.callbacks.append(collected)


def _forget(*_: Any) -> None:
    for counted in (slices, walls, collections, slow):
        counted.clear()


def _write_at_exit() -> None:
    leave = os._exit

    def write(status: int) -> None:
        told = {"cpu": slices, "wall": walls, "collections": collections, "slow": sorted(slow, reverse=True)}
        Path(os.environ["SLICES"]).write_text(json.dumps(told))
        leave(status)

    os._exit = write  # type: ignore[assignment]


if __name__ == "__main__":
    _measure()
    _write_at_exit()
    signal.signal(signal.SIGUSR1, _forget)
    from outpost_lsp.__main__ import main

    sys.exit(main())
