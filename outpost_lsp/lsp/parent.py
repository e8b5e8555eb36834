"""Watching the process that started the server, so that none is left behind when it dies (REL-03)."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

_INTERVAL_S: Final = 0.5


def watch_process(process_id: int, died: Callable[[], None]) -> Callable[[], None]:
    """Call `died` once when the process ends; the result stops watching.

    A process that is not there now is not watched: its number means something else in our namespace, or nothing.
    """
    loop = asyncio.get_running_loop()
    try:
        descriptor = os.pidfd_open(process_id)
    except ProcessLookupError:
        logger.info("the process %d is not visible from here and is not watched", process_id)
        return lambda: None
    except (OSError, AttributeError, OverflowError):
        return _poll(process_id, died, loop)

    def stop() -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)

    def ended() -> None:
        loop.remove_reader(descriptor)
        died()

    loop.add_reader(descriptor, ended)
    return stop


def _poll(process_id: int, died: Callable[[], None], loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
    """The way without process descriptors; the start time tells a successor with the same number apart."""
    identity = _start_time(process_id)
    if identity is None:
        return lambda: None

    async def watch() -> None:
        # Where this way is taken the system has nothing that could be waited for.
        while _start_time(process_id) == identity:  # noqa: ASYNC110
            await asyncio.sleep(_INTERVAL_S)
        died()

    task = loop.create_task(watch(), name="watch the client's process")

    def stop() -> None:
        task.cancel()

    return stop


def _start_time(process_id: int) -> str | None:
    """When a living process started, in the system's own units."""
    try:
        fields = (
            Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        )
    except OSError:
        return _is_alive(process_id)
    return None if fields[0] in ("Z", "X") else fields[19]


def _is_alive(process_id: int) -> str | None:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return None
    except (PermissionError, OverflowError):
        return "alive"
    return "alive"
