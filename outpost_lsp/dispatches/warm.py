"""A sandbox that stays open for several dispatches and commands (SBX rules).

The invariant: it does one thing at a time, and when it has closed nothing that it ran runs any more. Leaving its context
closes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import anyio

from outpost_lsp.dispatches.brief import Brief
from outpost_lsp.dispatches.diagnosis import Diagnosis, diagnose_sandbox
from outpost_lsp.dispatches.dispatch import dispatch
from outpost_lsp.dispatches.fallback import FallbackAgent
from outpost_lsp.dispatches.options import AnyAgent, Continuation
from outpost_lsp.dispatches.place import Place, WorkspaceFace
from outpost_lsp.dispatches.programs import programs_of
from outpost_lsp.dispatches.result import DispatchResult
from outpost_lsp.dispatches.sandboxing import OpenedSandbox, SandboxProvider
from outpost_lsp.dispatches.workspace_sandbox import LeaseProvider
from outpost_lsp.domain.sandbox import AttachableLease, Command, CommandResult
from outpost_lsp.errors import OutpostError, configuration
from outpost_lsp.storage.identifiers import new_run_id
from outpost_lsp.storage.layout import Layout
from outpost_lsp.workspaces.policy import BranchPolicy, DiffGuard, LifecycleHooks, StageLimits

Result = TypeVar("Result")


class Sandbox:
    """An open sandbox. It does one thing at a time; a second operation meanwhile is refused at once (SBX-02)."""

    workspace: WorkspaceFace | None
    """The workspace it is on; `None` for a snapshot."""

    def __init__(
        self,
        opened: OpenedSandbox,
        repository: Path,
        agent: AnyAgent | None,
        *,
        resources: AsyncExitStack | None = None,
        workspace: WorkspaceFace | None = None,
    ) -> None:
        self._opened = opened
        self._repository = repository
        self._agent = agent
        self._resources = resources or AsyncExitStack()
        self._running: asyncio.Task[Any] | None = None
        self._is_closed = False
        self._closing = anyio.Lock()
        self.workspace = workspace

    @property
    def root(self) -> Path:
        """The folder that agents and commands work in."""
        return self._opened.lease.root

    async def dispatch(self, brief: str | Brief, *, agent: AnyAgent | None = None, **options: Any) -> DispatchResult:
        """Run an agent here: the one named, else the sandbox's (SBX-07). Options are those of `dispatch`."""
        chosen = agent or self._agent
        if chosen is None:
            raise configuration("sandbox: agent: none was named, neither here nor when it was opened")
        self._check_idle()
        return await self._alone(dispatch(self._repository, chosen, brief, sandbox=self._opened, **options))

    async def resume(self, id: str, brief: str | Brief, **options: Any) -> DispatchResult:
        """Go on with a conversation, here."""
        return await self.dispatch(brief, continuation=Continuation(id), **options)

    async def fork(self, id: str, brief: str | Brief, **options: Any) -> DispatchResult:
        """Go on with a copy of a conversation, here."""
        return await self.dispatch(brief, continuation=Continuation(id, fork=True), **options)

    async def command(self, command: Command) -> CommandResult:
        """Run a program here."""
        self._check_idle()
        return await self._occupied(self._opened.lease.invoke(command))

    async def diagnose(
        self, *, programs: Sequence[str] = ("git",), transfers: bool = False, deadline_s: float = 10.0
    ) -> Diagnosis:
        """Probe what agents need here; no model is asked for anything (DOC-01).

        `programs` are asked for their version, those that the sandbox's agent starts are looked up; `deadline_s` is for
        each probe, at most 60.
        """
        self._check_idle()
        needed = programs_of(self._agent)
        work = diagnose_sandbox(
            self._opened.lease, programs=programs, needed=needed, transfers=transfers, deadline_s=deadline_s
        )
        return await self._occupied(work)

    async def attach(self, command: Command | None = None) -> int:
        """Give the terminal of this process to a program here, a shell when none is named; its exit status.

        `configuration` without a terminal, for a provider that cannot hand it over, and with a fallback agent: nobody
        could say which candidate is meant (FALL-08).
        """
        self._check_idle()
        if isinstance(self._agent, FallbackAgent):
            raise configuration("sandbox: attach: the sandbox's agent is a fallback agent; open one for a candidate")
        lease = self._opened.lease
        if not isinstance(lease, AttachableLease):
            raise configuration("sandbox: attach: this sandbox's provider cannot hand over a terminal")
        return await self._occupied(lease.attach(command or Command(executable="sh")))

    async def close(self, preserve: bool = False) -> None:
        """Cancel what runs, wait for it, and give everything back; a second call does nothing (SBX-03).

        With `preserve` the worktree is kept, even when nothing was changed in it.
        """
        self._is_closed = True
        async with self._closing:
            running = self._running
            if running is not None and running is not asyncio.current_task():
                running.cancel()
                await asyncio.wait((running,))
            self._opened.must_keep = self._opened.must_keep or preserve
            await self._resources.pop_all().aclose()

    async def __aenter__(self) -> Sandbox:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _check_idle(self) -> None:
        if self._is_closed:
            raise configuration("the sandbox is closed")
        if self._running is not None or self._opened.is_busy:
            raise configuration("the sandbox is busy with another operation")

    async def _occupied(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run something that is no dispatch, alone."""
        self._opened.is_busy = True
        try:
            return await self._alone(work)
        finally:
            self._opened.is_busy = False

    async def _alone(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run one operation in a task of its own, which closing can cancel."""
        task: asyncio.Task[Result] = asyncio.ensure_future(work)
        self._running = task
        try:
            return await task
        except asyncio.CancelledError:
            task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait((task,))
            current = asyncio.current_task()
            if self._is_closed and current is not None and not current.cancelling():
                raise OutpostError("aborted", "the sandbox was closed while this ran") from None
            raise
        finally:
            self._running = None


@asynccontextmanager
async def sandbox_of(
    provider: SandboxProvider, folder: Path, agent: AnyAgent | None, *, workspace: WorkspaceFace | None = None
) -> AsyncIterator[Sandbox]:
    """Open a sandbox of this provider for the length of the context."""
    async with AsyncExitStack() as resources:
        opened = await resources.enter_async_context(provider.open(folder, new_run_id()))
        sandbox = Sandbox(opened, folder, agent, resources=resources, workspace=workspace)
        try:
            yield sandbox
        except asyncio.CancelledError:
            # The program is ending: nobody has looked at what is there (SHUT-01).
            await sandbox.close(preserve=True)
            raise
        finally:
            await sandbox.close()


@asynccontextmanager
async def open_sandbox(
    repository: str | Path | None = None,
    *,
    agent: AnyAgent | None = None,
    sandbox_provider: SandboxProvider | LeaseProvider | None = None,
    branch: BranchPolicy | Mapping[str, Any] | str | None = None,
    workspace: WorkspaceFace | None = None,
    guard: DiffGuard | Mapping[str, Any] | None = None,
    copies: Sequence[str | Path] = (),
    hooks: LifecycleHooks | Mapping[str, Any] | None = None,
    limits: StageLimits | Mapping[str, Any] | None = None,
    label: str | None = None,
    layout: Layout | None = None,
) -> AsyncIterator[Sandbox]:
    """Open a sandbox of `repository` for the length of the context: by default a snapshot worktree.

    The options that say where it works are those of `dispatch`. With the policy `integrate` every dispatch here that
    succeeds is integrated.
    """
    place = Place.checked(
        repository,
        workspace=workspace,
        sandbox=None,
        provider=sandbox_provider,
        branch=branch,
        guard=guard,
        copies=copies,
        hooks=hooks,
        limits=limits,
        layout=layout,
        label=label,
    )
    async with sandbox_of(place.provider, place.folder, agent, workspace=workspace) as sandbox:
        yield sandbox
