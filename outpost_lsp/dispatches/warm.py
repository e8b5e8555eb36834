"""A sandbox that stays open for several dispatches and commands (SBX rules)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from outpost_lsp.dispatches.brief import Brief
from outpost_lsp.dispatches.dispatch import dispatch
from outpost_lsp.dispatches.options import AnyAgent, Continuation
from outpost_lsp.dispatches.result import DispatchResult
from outpost_lsp.dispatches.sandboxing import OpenedSandbox, SandboxProvider, WorktreeSandboxProvider
from outpost_lsp.domain.sandbox import Command, CommandResult
from outpost_lsp.errors import configuration
from outpost_lsp.storage.identifiers import new_run_id


class Sandbox:
    """An open sandbox. It does one thing at a time; a second operation meanwhile is refused at once (SBX-02)."""

    def __init__(self, opened: OpenedSandbox, repository: Path, agent: AnyAgent | None) -> None:
        self._opened = opened
        self._repository = repository
        self._agent = agent

    @property
    def root(self) -> Path:
        """The folder that agents and commands work in."""
        return self._opened.lease.root

    async def dispatch(self, brief: str | Brief, *, agent: AnyAgent | None = None, **options: Any) -> DispatchResult:
        """Run an agent here: the one named, else the sandbox's (SBX-07). Options are those of `dispatch`."""
        chosen = agent or self._agent
        if chosen is None:
            raise configuration("sandbox: agent: none was named, neither here nor when it was opened")
        return await dispatch(self._repository, chosen, brief, sandbox=self._opened, **options)

    async def resume(self, id: str, brief: str | Brief, **options: Any) -> DispatchResult:
        """Go on with a conversation, here."""
        return await self.dispatch(brief, continuation=Continuation(id), **options)

    async def fork(self, id: str, brief: str | Brief, **options: Any) -> DispatchResult:
        """Go on with a copy of a conversation, here."""
        return await self.dispatch(brief, continuation=Continuation(id, fork=True), **options)

    async def command(self, command: Command) -> CommandResult:
        """Run a program here."""
        if self._opened.is_busy:
            raise configuration("the sandbox is busy with another operation")
        self._opened.is_busy = True
        try:
            return await self._opened.lease.invoke(command)
        finally:
            self._opened.is_busy = False


@asynccontextmanager
async def open_sandbox(
    repository: str | Path,
    *,
    agent: AnyAgent | None = None,
    sandbox_provider: SandboxProvider | None = None,
) -> AsyncIterator[Sandbox]:
    """Open a sandbox of `repository` (by default a snapshot worktree) for the length of the context."""
    folder = Path(repository)
    provider = sandbox_provider or WorktreeSandboxProvider()
    async with provider.open(folder, new_run_id()) as opened:
        yield Sandbox(opened, folder, agent)
