"""The workspace that a library user holds: dispatches, sandboxes, integration, closing (sections 7.1 to 7.5).

A thin face: what it stands for lives in `workspaces/`, and everything it runs goes through `dispatch`. It is closed when
its context ends; what holds work is kept where it is.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from outpost_lsp.dispatches.brief import Brief
from outpost_lsp.dispatches.dispatch import dispatch
from outpost_lsp.dispatches.options import AnyAgent
from outpost_lsp.dispatches.place import on_workspace
from outpost_lsp.dispatches.result import DispatchResult
from outpost_lsp.dispatches.sandboxing import standard_layout
from outpost_lsp.dispatches.warm import Sandbox, sandbox_of
from outpost_lsp.dispatches.workspace_sandbox import BorrowedWorkspaceProvider, LeaseProvider
from outpost_lsp.errors import configuration
from outpost_lsp.storage.layout import Layout
from outpost_lsp.workspaces import opening
from outpost_lsp.workspaces.integration import integrate
from outpost_lsp.workspaces.policy import (
    BranchPolicy,
    DiffGuard,
    LifecycleHooks,
    StageLimits,
    as_guard,
    as_hooks,
    as_limits,
    as_policy,
)
from outpost_lsp.workspaces.record import Disposal, Integration, WorkspaceRecord
from outpost_lsp.workspaces.resolution import ConflictResolver, integrate_resolving
from outpost_lsp.workspaces.workspace import OpenedWorkspace

_RESOLVING_S: Final = 600.0


class Workspace:
    """An open workspace. Its record's fields can be read from it directly."""

    def __init__(self, opened: OpenedWorkspace, layout: Layout) -> None:
        self.opened = opened
        self._layout = layout

    @property
    def record(self) -> WorkspaceRecord:
        """Where it is and what it began with."""
        return self.opened.record

    @property
    def repository(self) -> Path:
        """The real path of the checkout's top level."""
        return self.record.repository

    @property
    def directory(self) -> Path:
        """The folder that agents and commands work in."""
        return self.record.directory

    @property
    def branch(self) -> str:
        """Its branch; `HEAD` when the checkout itself is used and stands on none."""
        return self.record.branch

    @property
    def base_branch(self) -> str:
        """The checkout's branch; empty when it stands on none."""
        return self.record.base_branch

    @property
    def baseline(self) -> str:
        """The workspace's commit when it was opened."""
        return self.record.baseline

    @property
    def git_directories(self) -> tuple[Path, ...]:
        """Its own git directory and the one that all worktrees share."""
        return self.record.git_directories

    @property
    def policy(self) -> BranchPolicy:
        """The branch policy that it was opened with."""
        return self.record.policy

    async def dispatch(self, agent: AnyAgent, brief: str | Brief, **options: Any) -> DispatchResult:
        """Run an agent here in a sandbox of its own; the options are those of `dispatch`.

        With the policy `integrate` the work is integrated afterwards; the workspace stays open (DISP-10).
        """
        return await dispatch(None, agent, brief, workspace=self, **options)

    def sandbox(
        self,
        *,
        agent: AnyAgent | None = None,
        sandbox_provider: LeaseProvider | None = None,
        hooks: LifecycleHooks | Mapping[str, Any] | None = None,
    ) -> AbstractAsyncContextManager[Sandbox]:
        """A sandbox here for several dispatches and commands; hooks given here replace the workspace's (LIFE-04)."""
        provider = BorrowedWorkspaceProvider(
            self.opened, on_workspace(sandbox_provider), as_hooks(hooks), integrates=False
        )
        return sandbox_of(provider, self.repository, agent, workspace=self)

    async def integrate(
        self, *, on_conflict: ConflictResolver | None = None, deadline_s: float = _RESOLVING_S
    ) -> Integration | None:
        """Merge the branch into its base, with the policy `integrate`; nothing is pushed.

        A conflict goes to `on_conflict`, which has `deadline_s` for it. Whatever fails leaves the checkout as it was.
        """
        if isinstance(deadline_s, bool) or not isinstance(deadline_s, int | float) or not deadline_s > 0:
            raise configuration("integrate: deadline_s: a positive number of seconds is expected")
        if on_conflict is None:
            if self.opened.is_resolving:
                raise configuration("integrate: the workspace is busy: a conflict is being resolved")
            return await integrate(self.opened)
        if not callable(on_conflict):
            raise configuration("integrate: on_conflict: a callable is expected")
        return await integrate_resolving(
            self.opened,
            on_conflict,
            layout=self._layout,
            face=lambda own: Workspace(own, self._layout),
            deadline_s=deadline_s,
        )

    async def close(self, preserve: bool = False) -> Disposal:
        """Let go of it: its worktree is removed only when nothing in it would be lost, and kept with `preserve`."""
        return await self.opened.close(preserve=preserve)

    async def __aenter__(self) -> Workspace:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class WorkspaceOpening:
    """An opening that was asked for: `async with` it, or await it and close the workspace oneself."""

    def __init__(self, folder: Path, layout: Layout, options: opening.WorkspaceOptions) -> None:
        self._folder = folder
        self._layout = layout
        self._options = options
        self._workspace: Workspace | None = None

    def __await__(self) -> Generator[Any, None, Workspace]:
        return self._open().__await__()

    async def __aenter__(self) -> Workspace:
        self._workspace = await self._open()
        return self._workspace

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._workspace is not None
        await self._workspace.__aexit__(kind, error, trace)

    async def _open(self) -> Workspace:
        return Workspace(await opening.open_workspace(self._folder, self._layout, self._options), self._layout)


def open_workspace(
    repository: str | Path = ".",
    *,
    branch: BranchPolicy | Mapping[str, Any] | str = "current",
    guard: DiffGuard | Mapping[str, Any] | None = None,
    copies: Sequence[str | Path] = (),
    hooks: LifecycleHooks | Mapping[str, Any] | None = None,
    limits: StageLimits | Mapping[str, Any] | None = None,
    label: str | None = None,
    layout: Layout | None = None,
    follow_origin: bool = False,
) -> WorkspaceOpening:
    """Open a workspace of the repository around `repository`, on the branch that the policy says.

    The state is kept in `layout`, by default the user's own folders. `follow_origin` lets a clean worktree that is used
    again move on to what was fetched of `origin` before; nothing is fetched.
    """
    options = opening.WorkspaceOptions(
        policy=as_policy(branch),
        guard=as_guard(guard),
        copies=tuple(copies) if not isinstance(copies, str) else copies,
        hooks=as_hooks(hooks),
        limits=as_limits(limits),
        label=label,
        follow_origin=follow_origin,
    )
    return WorkspaceOpening(Path(repository), layout or standard_layout(), options)
