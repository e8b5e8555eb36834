"""Leases on a worktree: the one that owns it, and the borrowed one that a tool call or a hook gets.

The invariant: only the owner releases; a released lease refuses every call with `provider`, a borrowed one whose call has
ended refuses with `aborted`, and commands that still ran then are ended (SBX-08, LOCAL-01 to -04). Made by a dispatch;
what it hands to tools is always borrowed.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio import to_thread

from outpost_lsp.domain.sandbox import (
    Channel,
    Command,
    CommandResult,
    EntryKind,
    GitResult,
    Lease,
    LiveProcess,
    WorktreeFiles,
)
from outpost_lsp.errors import OutpostError, configuration
from outpost_lsp.sandbox.confinement import Confinement
from outpost_lsp.sandbox.environment import command_environment
from outpost_lsp.sandbox.files import GitRunner, WorktreeFilesOnDisk
from outpost_lsp.sandbox.live_process import LiveProgram, start_live
from outpost_lsp.sandbox.process import run_process
from outpost_lsp.sandbox.transfer import download, upload

_log = logging.getLogger(__name__)


class HostLease:
    """A worktree on this machine. Commands run beside the server, confined when a `confinement` is given.

    `home` is made when the first command needs it. `variables` are found by name and are in no command's environment
    of themselves; `prepare` is awaited before every command: a worktree that is filled
    on demand fills itself then.
    """

    def __init__(
        self,
        root: Path,
        home: Path,
        git: GitRunner,
        environment: Mapping[str, str],
        confinement: Confinement | None = None,
        files: WorktreeFiles | None = None,
        prepare: Callable[[], Awaitable[None]] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._root = root
        self._home = home
        self._git = git
        self._environment = dict(environment)
        self._confinement = confinement
        self._files = files or WorktreeFilesOnDisk(root, git)
        self._prepare = prepare
        self._variables = {**environment, **(variables or {})}
        self._live: set[LiveProgram] = set()
        self._running: set[anyio.CancelScope] = set()
        self._idle: anyio.Event | None = None
        self._is_released = False
        self._has_run_commands = False

    @property
    def root(self) -> Path:
        return self._root

    @property
    def home(self) -> Path:
        return self._home

    @property
    def live_input(self) -> bool:
        return True

    def variable(self, name: str) -> str | None:
        return self._variables.get(name)

    @property
    def files(self) -> WorktreeFiles:
        return self._files

    @property
    def touched(self) -> frozenset[str] | None:
        """The files that can have changed; `None` when it may be any: a command ran, or something was uploaded."""
        files = self._files
        if self._has_run_commands or not isinstance(files, WorktreeFilesOnDisk):
            return None
        return frozenset(files.touched)

    async def git(
        self,
        arguments: Sequence[str],
        *,
        stdin: bytes | None = None,
        max_output: int = 16 * 1024 * 1024,
        glob_pathspecs: bool = False,
        deadline_s: float = 120.0,
    ) -> GitResult:
        async with self._use():
            return await self._git(
                arguments, stdin=stdin, max_output=max_output, glob_pathspecs=glob_pathspecs, deadline_s=deadline_s
            )

    async def invoke(self, command: Command) -> CommandResult:
        async with self._use():
            arguments, directory, environment = await self._prepared(command)
            return await run_process(
                arguments,
                cwd=directory,
                environment=environment,
                stdin=None if command.stdin is None else command.stdin.encode("utf-8", "surrogatepass"),
                deadline_s=command.deadline_s,
                retain=command.retain,
                observe=command.observe,
            )

    async def spawn(self, command: Command) -> LiveProgram:
        async with self._use():
            arguments, directory, environment = await self._prepared(command)
            program = await start_live(
                arguments, cwd=directory, environment=environment, retain=command.retain, observe=command.observe
            )
            self._live.add(program)
            program.on_end = self._live.discard
            return program

    async def upload(self, source: Path, destination: str) -> None:
        async with self._use():
            await self._before_anything_can_change()
            await to_thread.run_sync(upload, self._root, source, destination)

    async def download(self, source: str, destination: Path) -> None:
        async with self._use():
            if self._prepare is not None:
                await self._prepare()
            await to_thread.run_sync(download, self._root, source, destination)

    async def release(self) -> None:
        """End what runs and wait for it; a second release does nothing (LOCAL-04)."""
        self._is_released = True
        for scope in self._running:
            scope.cancel()
        with anyio.CancelScope(shield=True):
            while self._running:
                self._idle = anyio.Event()
                await self._idle.wait()
            for program in tuple(self._live):
                await program.end(grace_s=0.0)

    async def _prepared(self, command: Command) -> tuple[Sequence[str], Path, Mapping[str, str]]:
        """What a program is started with, whether one waits for its end or talks to it."""
        await self._before_anything_can_change()
        directory = await self._directory(command.directory)
        await to_thread.run_sync(_make_home, self._home)
        arguments: Sequence[str] = (command.executable, *command.arguments)
        if self._confinement is not None:
            arguments = await self._confinement.wrap(arguments, directory)
        return arguments, directory, command_environment(self._environment, self._home, command.variables)

    async def _before_anything_can_change(self) -> None:
        self._has_run_commands = True
        if self._prepare is not None:
            await self._prepare()

    async def _directory(self, relative: str | None) -> Path:
        if not relative:
            return self._root
        inside = self._files.normalise(relative)
        if inside and await self._files.kind(inside) != "directory":
            raise OutpostError(
                "workspace", f"{relative}: there is no such folder.", {"path": relative, "reason": "missing"}
            )
        return self._root / inside

    @asynccontextmanager
    async def _use(self) -> AsyncIterator[None]:
        if self._is_released:
            raise OutpostError("provider", "The sandbox was released.")
        scope = anyio.CancelScope()
        try:
            with scope:
                self._running.add(scope)
                yield
        finally:
            self._running.discard(scope)
            if self._idle is not None and not self._running:
                self._idle.set()
        if scope.cancelled_caught:
            raise OutpostError("aborted", "The sandbox was released while this ran.")


def _make_home(home: Path) -> None:
    """A folder of the sandbox's own, which nobody else can read (SEC-10)."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)


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

    async def listing(self, path: str) -> Sequence[str]:
        async with self._borrowed.use() as files:
            return await files.listing(path)
