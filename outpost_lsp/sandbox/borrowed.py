"""The borrowed lease: a sandbox for the length of one tool call or hook.

The invariant: only the owner releases; once the call has ended every use is refused with `aborted`, and what a forgotten
task still runs is ended (SBX-08). Made by the loop from whatever lease it was given.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from outpost_lsp.domain.sandbox import (
    Channel,
    Command,
    CommandResult,
    EntryKind,
    GitResult,
    Lease,
    Listing,
    LiveProcess,
    WorktreeFiles,
)
from outpost_lsp.errors import OutpostError, configuration

_log = logging.getLogger(__name__)


class BorrowedLease:
    """A lease for the length of one call: it has the same root and files, and dies with `end`.

    `on_output` sees all command output of the call; what it raises changes nothing (CMD-05).
    """

    def __init__(self, lease: Lease, on_output: Callable[[Channel, str], None] | None = None) -> None:
        self._lease = lease
        self._on_output = on_output
        self._has_ended = False
        self._running: set[anyio.CancelScope] = set()
        self._live: list[LiveProcess] = []
        self._files = _BorrowedFiles(self)

    @property
    def root(self) -> Path:
        return self._lease.root

    @property
    def home(self) -> Path:
        return self._lease.home

    @property
    def live_input(self) -> bool:
        return self._lease.live_input

    def variable(self, name: str) -> str | None:
        return self._lease.variable(name)

    @property
    def files(self) -> WorktreeFiles:
        return self._files

    def end(self) -> None:
        """The call is over: every later use fails, and what a forgotten task still runs is cancelled."""
        self._has_ended = True
        for scope in self._running:
            scope.cancel()
        for program in self._live:
            program.kill()

    async def git(
        self,
        arguments: Sequence[str],
        *,
        stdin: bytes | None = None,
        max_output: int = 16 * 1024 * 1024,
        glob_pathspecs: bool = False,
        deadline_s: float = 120.0,
    ) -> GitResult:
        async with self.use():
            return await self._lease.git(
                arguments, stdin=stdin, max_output=max_output, glob_pathspecs=glob_pathspecs, deadline_s=deadline_s
            )

    async def invoke(self, command: Command) -> CommandResult:
        async with self.use():
            return await self._lease.invoke(self._watched(command))

    async def spawn(self, command: Command) -> LiveProcess:
        # What is said to such a program is a protocol's, not output for people: nobody but its owner sees it.
        async with self.use():
            program = await self._lease.spawn(command)
            self._live.append(program)
            return program

    async def upload(self, source: Path, destination: str) -> None:
        async with self.use():
            await self._lease.upload(source, destination)

    async def download(self, source: str, destination: Path) -> None:
        async with self.use():
            await self._lease.download(source, destination)

    async def release(self) -> None:
        raise configuration("sandbox: only its owner may release it")

    @asynccontextmanager
    async def use(self) -> AsyncIterator[WorktreeFiles]:
        """One use of the lease: refused after the end, cancelled by it."""
        if self._has_ended:
            raise OutpostError("aborted", "The call that the sandbox was lent to has ended.")
        scope = anyio.CancelScope()
        try:
            with scope:
                self._running.add(scope)
                yield self._lease.files
        finally:
            self._running.discard(scope)
        if scope.cancelled_caught:
            raise OutpostError("aborted", "The call that the sandbox was lent to has ended.")

    def _watched(self, command: Command) -> Command:
        observers = [observer for observer in (self._on_output, command.observe) if observer is not None]

        def observe(channel: Channel, text: str) -> None:
            for observer in observers:
                try:
                    observer(channel, text)
                except Exception:  # noqa: BLE001 - an observer changes nothing
                    _log.exception("an observer of command output failed")

        return Command(
            executable=command.executable,
            arguments=command.arguments,
            stdin=command.stdin,
            directory=command.directory,
            variables=command.variables,
            deadline_s=command.deadline_s,
            retain=command.retain,
            observe=observe,
        )


class _BorrowedFiles:
    """The files of a borrowed lease, which end with it."""

    def __init__(self, borrowed: BorrowedLease) -> None:
        self._borrowed = borrowed

    def normalise(self, path: str) -> str:
        return self._borrowed._lease.files.normalise(path)

    async def read(self, path: str, *, limit: int) -> bytes:
        async with self._borrowed.use() as files:
            return await files.read(path, limit=limit)

    async def write(self, path: str, data: bytes, *, expected: bytes | None = None, create: bool = True) -> None:
        async with self._borrowed.use() as files:
            await files.write(path, data, expected=expected, create=create)

    async def delete(self, path: str) -> None:
        async with self._borrowed.use() as files:
            await files.delete(path)

    async def move(self, path: str, to: str) -> None:
        async with self._borrowed.use() as files:
            await files.move(path, to)

    async def kind(self, path: str) -> EntryKind | None:
        async with self._borrowed.use() as files:
            return await files.kind(path)

    async def listing(self, path: str) -> Listing:
        async with self._borrowed.use() as files:
            return await files.listing(path)
