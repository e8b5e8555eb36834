"""A process started by `posix_spawn`, and the pipes to it: a third of what `subprocess` takes for a large environment."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from types import TracebackType
from typing import Final

_FIRST_FREE: Final = 3
_UNKNOWN: Final = 255


class Spawned:
    """A process that leads a session of its own, and this side's ends of its pipes; whoever reads them closes them.

    `given` is -1 where it reads nothing, `error` where what it says of errors is dropped. `returncode` is as in `subprocess`: `None` until `poll` has seen the end.
    It is a failure's where `is_unknown`: the application has its children taken away before anyone could ask.
    """

    __slots__ = ("error", "given", "is_unknown", "out", "pid", "returncode")

    def __init__(self, pid: int, given: int, out: int, error: int) -> None:
        self.pid = pid
        self.given = given
        self.out = out
        self.error = error
        self.returncode: int | None = None
        self.is_unknown = False

    def poll(self) -> int | None:
        """The status if it has ended: negative for a signal."""
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                self.returncode, self.is_unknown = _UNKNOWN, True
            else:
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


class Pipes:
    """The pipes of a process that is about to be started; left without one, all their ends are closed.

    `actions` put the other ends in the place of its standard channels. Python opens no descriptor that is inherited
    (PEP 446), so nothing else needs closing there.
    """

    def __init__(self, *, has_input: bool, has_errors: bool = True) -> None:
        self.actions: list[tuple[int, int, int] | tuple[int, int, str, int, int]] = []
        self._ours: list[int] = []
        self._theirs: list[int] = []
        self._has_input = has_input
        self._has_errors = has_errors

    def __enter__(self) -> Pipes:
        try:
            for number in (1, 2) if self._has_errors else (1,):
                self._open(self._ours, self._theirs)
                self.actions.append((os.POSIX_SPAWN_DUP2, self._theirs[-1], number))
            if not self._has_errors:
                self.actions.append((os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0))
            if self._has_input:
                self._open(self._theirs, self._ours)
                self.actions.append((os.POSIX_SPAWN_DUP2, self._theirs[-1], 0))
            else:
                # It reads an end of input at once.
                self.actions.append((os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0))
        except OSError:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for descriptor in (*self._theirs, *self._ours):
            with suppress(OSError):
                os.close(descriptor)

    def of(self, pid: int) -> Spawned:
        """The process that was started with them."""
        ours = iter(self._ours)
        out = next(ours)
        error = next(ours) if self._has_errors else -1
        given = next(ours, -1)
        self._ours.clear()
        return Spawned(pid, given, out, error)

    def _open(self, readers: list[int], writers: list[int]) -> None:
        for kept, end in zip((readers, writers), os.pipe(), strict=True):
            if end < _FIRST_FREE:
                # This process was started without standard channels; in the other one these numbers mean them.
                kept.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE))
                os.close(end)
            else:
                kept.append(end)
