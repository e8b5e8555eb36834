"""Places for runs that work at once; the others wait in the order in which they came (DISP-18).

A waiting run holds nothing but its place in the line, and leaves it when it is cancelled. A ceiling is asked for when
it counts, so that one that is raised in the settings lets those who wait begin. Used by `Outpost`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio

Ceiling = Callable[[], int]
"""How many runs may be at work, as it is set now."""


class Slots:
    """Counts the runs at work. Each asks with its own ceiling, since workspaces may set different ones."""

    def __init__(self) -> None:
        self._busy = 0
        self._line: deque[tuple[Ceiling, anyio.Event]] = deque()

    @property
    def busy(self) -> int:
        """How many runs are at work."""
        return self._busy

    def is_free(self, ceiling: int) -> bool:
        """Whether a run with this ceiling would start at once."""
        return not self._line and self._busy < ceiling

    @asynccontextmanager
    async def place(self, ceiling: Ceiling) -> AsyncIterator[None]:
        """A place, once it is this caller's turn and fewer than `ceiling` runs are at work."""
        await self._take(ceiling)
        try:
            yield
        finally:
            self._busy -= 1
            self.advance()

    async def _take(self, ceiling: Ceiling) -> None:
        if self.is_free(ceiling()):
            self._busy += 1
            return
        turn = anyio.Event()
        waiting = (ceiling, turn)
        self._line.append(waiting)
        try:
            await turn.wait()
        except BaseException:
            if turn.is_set():
                # The place was given in the moment of the cancellation: hand it on.
                self._busy -= 1
            else:
                self._line.remove(waiting)
            self.advance()
            raise

    def advance(self) -> None:
        """Let those at the head of the line begin whose ceiling allows it now."""
        while self._line and self._busy < self._line[0][0]():
            _, turn = self._line.popleft()
            self._busy += 1
            turn.set()
