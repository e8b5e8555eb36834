"""The lease that owns a worktree on this machine.

The invariant: after its release every call is refused with `provider`, and what ran is ended and was waited for (LOCAL-01
to -04). Made by a dispatch; what it hands to tools is always borrowed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio import to_thread

from outpost_lsp.domain.sandbox import Command, CommandResult, GitResult, WorktreeFiles
from outpost_lsp.errors import OutpostError
from outpost_lsp.sandbox.borrowed import BorrowedLease
from outpost_lsp.sandbox.confinement import Confinement
from outpost_lsp.sandbox.environment import command_environment
from outpost_lsp.sandbox.files import GitRunner, WorktreeFilesOnDisk
from outpost_lsp.sandbox.live_process import LiveProgram, start_live
from outpost_lsp.sandbox.process import run_process
from outpost_lsp.sandbox.terminal import run_on_terminal
from outpost_lsp.sandbox.transfer import download, upload

__all__ = ["BorrowedLease", "HostLease"]


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

    async def attach(self, command: Command) -> int:
        """Run a program on the terminal of this process; its exit status. What it writes is seen by the person alone."""
        async with self._use():
            arguments, directory, environment = await self._prepared(command)
            return await run_on_terminal(arguments, cwd=directory, environment=environment)

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
