"""Two git calls that do not wait for each other: what costs a person's time is the number of calls one after another.

The invariant: both have ended when this returns; the fault of one ends the other and is raised as it is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

First = TypeVar("First")
Second = TypeVar("Second")


async def both(first: Callable[[], Awaitable[First]], second: Callable[[], Awaitable[Second]]) -> tuple[First, Second]:
    """The answers of two calls that run side by side."""
    found: list[First] = []

    async def begin() -> None:
        found.append(await first())

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(begin)
            answer = await second()
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    return found[0], answer
