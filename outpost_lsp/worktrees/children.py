"""Seeing git processes end without a thread for each: what Python does by itself from 3.12 on.

The invariant: an application's own event loop policy or child watcher is left alone. Called by the door to git before it
starts its first process; commands of agents profit, too.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from functools import cache
from types import TracebackType
from typing import Any, Self


@cache
def watch_by_descriptor() -> None:
    """Let the event loop see children end by their descriptors, where Python would start a thread to wait for each."""
    if sys.version_info >= (3, 12) or sys.platform != "linux":
        return
    policy = asyncio.get_event_loop_policy()
    if type(policy) is not asyncio.DefaultEventLoopPolicy:
        return
    if type(policy.get_child_watcher()) is not asyncio.ThreadedChildWatcher:
        return
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        # An old kernel, or a container that forbids it.
        return
    policy.set_child_watcher(_ByDescriptor())


class _ByDescriptor(asyncio.AbstractChildWatcher):
    """Works in every running loop at once, as it keeps nothing itself."""

    def add_child_handler(self, pid: int, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        loop = asyncio.get_running_loop()
        descriptor = os.pidfd_open(pid)

        def ended() -> None:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            try:
                _, status = os.waitpid(pid, 0)
            except ChildProcessError:
                # Somebody else has waited for it; nobody knows how it ended.
                callback(pid, 255, *args)
            else:
                callback(pid, os.waitstatus_to_exitcode(status), *args)

        loop.add_reader(descriptor, ended)

    def remove_child_handler(self, pid: int) -> bool:
        del pid
        return True

    def attach_loop(self, loop: asyncio.AbstractEventLoop | None) -> None:
        del loop

    def close(self) -> None:
        """Nothing is held."""

    def is_active(self) -> bool:
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Nothing is held."""
