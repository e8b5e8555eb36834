"""Sandboxes on branch workspaces: a lease over the workspace's directory, and what a dispatch in it has to show.

The invariant: a workspace has at most one open sandbox (SBX-01), a sandbox on a borrowed workspace never closes it
(SBX-04), and commits are counted from the commit that the dispatch itself began at (DISP-08). This is where `workspaces/`
and dispatches meet.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, Protocol, runtime_checkable

import anyio
from anyio import to_thread

from outpost_lsp.dispatches.sandboxing import OpenedSandbox, SandboxProvider, conversations_of
from outpost_lsp.dispatches.workspace_commits import rebuild, recorded_commits
from outpost_lsp.domain.observation import WorkspaceCommitsEvent
from outpost_lsp.domain.sandbox import Lease
from outpost_lsp.errors import OutpostError, record_recovery
from outpost_lsp.sandbox.environment import allowed_environment
from outpost_lsp.sandbox.lease import HostLease
from outpost_lsp.storage.conversations import ConversationStore
from outpost_lsp.storage.layout import Layout
from outpost_lsp.workspaces.copies import checked_entries, copy_entries
from outpost_lsp.workspaces.guard import inspect
from outpost_lsp.workspaces.integration import integrate
from outpost_lsp.workspaces.lifecycle import sandbox_started, workspace_ready
from outpost_lsp.workspaces.opening import WorkspaceOptions, open_workspace
from outpost_lsp.workspaces.policy import LifecycleHooks, StageLimits
from outpost_lsp.workspaces.reading import commits_between, tree_of
from outpost_lsp.workspaces.variables import file_variables
from outpost_lsp.workspaces.workspace import OpenedWorkspace
from outpost_lsp.worktrees.changes import ChangeSet, changed_files
from outpost_lsp.worktrees.git import Repository, find_repository, run_git
from outpost_lsp.worktrees.identity import commit_identity
from outpost_lsp.worktrees.objects import empty_tree

_CLOSE_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseContext:
    """What a provider needs to make a lease over a directory."""

    repository: Path
    directory: Path
    git_directories: tuple[Path, ...]
    variables: Mapping[str, str]
    """Who commits are by (GIT-03); everything else comes on top."""
    view: Repository
    home: Path


@runtime_checkable
class LeaseProvider(Protocol):
    """Makes the lease of a sandbox on a workspace."""

    @property
    def name(self) -> str: ...

    async def acquire(self, context: LeaseContext, /) -> Lease: ...


class HostSandboxProvider:
    """Commands run on this machine, beside the program; nothing but the checked-out tree is apart (LOCAL-01).

    They get the allow-listed part of what git sees of the host, the user's identity, the variables of the checkout's
    `.outpost/.env` unless `environment_file` is false, and `variables` (ENV-02). A name that the file lists without a
    value takes that of `host`, the variables that the application is ready to hand on.
    """

    name = "host"
    placement: Literal["host"] = "host"

    def __init__(
        self,
        *,
        variables: Mapping[str, str] | None = None,
        host: Mapping[str, str] | None = None,
        environment_file: bool = True,
    ) -> None:
        self.variables = dict(variables or {})
        self.host = dict(host or {})
        self.environment_file = environment_file

    async def acquire(self, context: LeaseContext, /) -> Lease:
        """A lease over the workspace's directory."""
        listed: Mapping[str, str] = {}
        if self.environment_file:
            host = {**context.view.environment, **self.host}
            listed = await to_thread.run_sync(file_variables, context.repository, host)
        allowed = allowed_environment(context.view.environment)
        environment = {**allowed, **context.variables, **listed, **self.variables}
        git = partial(run_git, context.view)
        return HostLease(context.directory, context.home, git=git, environment=environment)


@dataclass(slots=True)
class WorkspaceSandbox(OpenedSandbox):
    """A sandbox on a workspace. Only committed work counts; `start` is where the present dispatch began."""

    workspace: OpenedWorkspace = field(kw_only=True)
    integrates: bool = field(default=False, kw_only=True)

    async def begin(self) -> None:
        """Take the commit that this dispatch's own are counted from."""
        self.changes, self.commits = None, ()
        self.start = await self.workspace.head()

    async def freeze(self) -> ChangeSet | None:
        """The commits of this dispatch, and their net diff."""
        workspace = self.workspace
        head, limit = await workspace.head(), workspace.limits.collect_s
        if not head:
            return None
        self.commits = await commits_between(workspace.view, self.start, head, deadline_s=limit)
        base = self.start or empty_tree(head)
        files = await changed_files(workspace.repository, base, head)
        tree = await tree_of(workspace.view, head, deadline_s=limit)
        self.changes = ChangeSet(base, tree, head, files)
        return self.changes

    async def recorded(self) -> WorkspaceCommitsEvent | None:
        """The commits of this dispatch, for its journal."""
        return await recorded_commits(self.workspace, self.start, self.commits)

    async def rebuild(self, recorded: Mapping[str, Any], diverged: Callable[[str, Any, Any], None]) -> bool:
        """Make recorded commits again on the branch."""
        await rebuild(self.workspace, self.start, recorded, diverged)
        return True

    async def accept(self) -> None:
        """The guard looks at the work; then it is integrated, if that is the policy (DISP-04, GUARD-02)."""
        await inspect(self.workspace)
        if self.integrates:
            await integrate(self.workspace)


@asynccontextmanager
async def sandbox_on(
    workspace: OpenedWorkspace,
    provider: LeaseProvider,
    run_id: str,
    *,
    hooks: LifecycleHooks | None = None,
    integrates: bool = False,
    is_owned: bool = False,
) -> AsyncIterator[WorkspaceSandbox]:
    """Open a sandbox on a workspace; hooks given here replace those of the workspace (LIFE-04)."""
    with workspace.occupied():
        record, home = workspace.record, workspace.layout.cache / "home" / run_id
        context = LeaseContext(
            repository=record.repository,
            directory=record.directory,
            git_directories=record.git_directories,
            variables=commit_identity(workspace.repository),
            view=workspace.view,
            home=home,
        )
        try:
            lease = await provider.acquire(context)
        except BaseException:
            # Nobody knows whether something was made that works in the directory (SBX-05).
            workspace.must_retain = workspace.must_retain or is_owned
            raise
        sandbox = WorkspaceSandbox(
            lease,
            record.directory,
            workspace.repository,
            layout=workspace.layout,
            branch=record.branch,
            base_branch=record.base_branch or "HEAD",
            workspace=workspace,
            integrates=integrates,
        )
        try:
            await sandbox_started(hooks or workspace.hooks, workspace.repository, record.directory, lease)
            yield sandbox
        finally:
            workspace.must_retain = workspace.must_retain or (is_owned and sandbox.must_keep)
            with anyio.CancelScope(shield=True), anyio.move_on_after(_CLOSE_S) as scope:
                await _release(workspace, lease, home)
            if scope.cancelled_caught:
                workspace.must_retain = True


class BorrowedWorkspaceProvider:
    """Sandboxes on a workspace that somebody else opened and will close (SBX-04)."""

    name = "workspace"

    def __init__(
        self, workspace: OpenedWorkspace, provider: LeaseProvider, hooks: LifecycleHooks | None, *, integrates: bool
    ) -> None:
        self._workspace = workspace
        self._provider = provider
        self._hooks = hooks
        self._integrates = integrates

    async def conversations(self, _folder: Path) -> ConversationStore:
        """Where the transcripts of this repository are."""
        return conversations_of(self._workspace.layout)

    def open(self, _folder: Path, run_id: str, /) -> AbstractAsyncContextManager[OpenedSandbox]:
        """A sandbox on the workspace."""
        return sandbox_on(self._workspace, self._provider, run_id, hooks=self._hooks, integrates=self._integrates)


class BranchSandboxProvider:
    """A workspace and a sandbox on it for each dispatch, both closed at its end (DISP-04)."""

    name = "branch"

    def __init__(self, options: WorkspaceOptions, layout: Layout, provider: LeaseProvider) -> None:
        self._options = options
        self._layout = layout
        self._provider = provider

    async def conversations(self, folder: Path) -> ConversationStore:
        """Where the transcripts of this repository are."""
        repository = await find_repository(folder)
        return conversations_of(self._layout.for_repository(repository.common_dir))

    @asynccontextmanager
    async def open(self, folder: Path, run_id: str, /) -> AsyncIterator[OpenedSandbox]:
        """Open both. After a failure the workspace stays, and the fault says where it is (DISP-06)."""
        workspace = await open_workspace(folder, self._layout, self._options)
        opened: list[OpenedSandbox] = []
        failure: BaseException | None = None
        try:
            async with sandbox_on(workspace, self._provider, run_id, integrates=True, is_owned=True) as sandbox:
                opened.append(sandbox)
                yield sandbox
        except BaseException as error:
            failure = error
            record_recovery(error, workspace.recovery)
            raise
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_CLOSE_S):
                await _close(workspace, opened, failure)


class PreparedProvider:
    """Another provider's sandboxes with copies and hooks of the caller's."""

    def __init__(
        self, provider: SandboxProvider, copies: tuple[str | Path, ...], hooks: LifecycleHooks, limits: StageLimits
    ) -> None:
        self.name = provider.name
        self._provider = provider
        self._copies = checked_entries(copies)
        self._hooks = hooks
        self._limits = limits

    @property
    def conversations(self) -> Any:
        """Where the other provider keeps transcripts."""
        return getattr(self._provider, "conversations", None)

    @asynccontextmanager
    async def open(self, folder: Path, run_id: str, /) -> AsyncIterator[OpenedSandbox]:
        """Open the sandbox, copy, and run the hooks."""
        async with self._provider.open(folder, run_id) as sandbox:
            repository = sandbox.repository
            if repository is not None:
                limit = self._limits.copy_s
                await copy_entries(repository.top, sandbox.directory, self._copies, aside=None, deadline_s=limit)
                await workspace_ready(self._hooks, repository, sandbox.directory)
                await sandbox_started(self._hooks, repository, sandbox.directory, sandbox.lease)
            yield sandbox


async def _release(workspace: OpenedWorkspace, lease: Lease, home: Path) -> None:
    try:
        await lease.release()
    except BaseException:
        # What may still run in the directory may still write there (SBX-03).
        workspace.must_retain = True
        raise
    await to_thread.run_sync(shutil.rmtree, home, True)


async def _close(workspace: OpenedWorkspace, opened: list[OpenedSandbox], failure: BaseException | None) -> None:
    try:
        disposal = await workspace.close(preserve=failure is not None and bool(opened))
    except OutpostError as fault:
        if failure is None:
            raise
        record_recovery(failure, {"cleanUp": fault.message})
        return
    if opened:
        opened[0].retained_directory = disposal.retained_directory
