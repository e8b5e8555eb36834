"""Where a dispatch works: a snapshot worktree, a workspace of its own, or one that is open already.

Everything about it is checked here, before anything is allocated (DISP-01). Pure but for the reading of paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from outpost_lsp.dispatches.sandboxing import OpenedSandbox, SandboxProvider, WorktreeSandboxProvider, standard_layout
from outpost_lsp.dispatches.workspace_sandbox import (
    BorrowedWorkspaceProvider,
    BranchSandboxProvider,
    HostSandboxProvider,
    LeaseProvider,
    PreparedProvider,
)
from outpost_lsp.errors import configuration
from outpost_lsp.storage.layout import Layout
from outpost_lsp.workspaces.copies import checked_entries
from outpost_lsp.workspaces.opening import WorkspaceOptions
from outpost_lsp.workspaces.policy import NO_HOOKS, as_guard, as_hooks, as_limits, as_policy
from outpost_lsp.workspaces.workspace import OpenedWorkspace


class WorkspaceFace(Protocol):
    """What a dispatch needs of the workspace that a library user holds."""

    @property
    def repository(self) -> Path: ...

    @property
    def opened(self) -> OpenedWorkspace: ...


@dataclass(frozen=True, slots=True)
class Place:
    """The folder that a dispatch is about, and who makes its sandbox."""

    folder: Path
    provider: SandboxProvider

    @classmethod
    def checked(
        cls,
        repository: str | Path | None,
        *,
        workspace: WorkspaceFace | None,
        sandbox: OpenedSandbox | None,
        provider: SandboxProvider | LeaseProvider | None,
        branch: Any,
        guard: Any,
        copies: Sequence[str | Path],
        hooks: Any,
        limits: Any,
        layout: Layout | None,
        label: str | None,
    ) -> Place:
        """The place that these options name together; `configuration` when they contradict each other."""
        given = {"branch": branch, "guard": guard, "copies": copies or None, "layout": layout}
        named = [name for name, value in given.items() if value is not None]
        if sandbox is not None:
            others = {"sandbox_provider": provider, "hooks": hooks, "limits": limits, "workspace": workspace}
            named += [name for name, value in others.items() if value is not None]
            if named:
                raise configuration(f"dispatch: {named[0]}: goes with no open sandbox")
            return cls(Path(repository or sandbox.directory), WorktreeSandboxProvider())
        if workspace is not None:
            if named:
                raise configuration(f"dispatch: {named[0]}: the workspace is open already")
            return cls._borrowed(repository, workspace, provider, hooks)
        if repository is None:
            raise configuration("dispatch: repository: none was named, nor a workspace")
        checked_entries(copies)
        if branch is None:
            if guard is not None:
                raise configuration("dispatch: guard: goes with a branch policy that is named or integrate")
            return cls(Path(repository), _snapshots(provider, layout, copies, hooks, limits))
        options = WorkspaceOptions(
            policy=as_policy(branch),
            guard=as_guard(guard),
            copies=tuple(copies),
            hooks=as_hooks(hooks),
            limits=as_limits(limits),
            label=label,
        )
        return cls(
            Path(repository), BranchSandboxProvider(options, layout or standard_layout(), on_workspace(provider))
        )

    @classmethod
    def _borrowed(
        cls,
        repository: str | Path | None,
        workspace: WorkspaceFace,
        provider: SandboxProvider | LeaseProvider | None,
        hooks: Any,
    ) -> Place:
        own = workspace.opened.record.repository
        if repository is not None and not Path(repository).resolve().is_relative_to(own):
            raise configuration("dispatch: repository: the workspace belongs to another one")
        opened = BorrowedWorkspaceProvider(workspace.opened, on_workspace(provider), as_hooks(hooks), integrates=True)
        return cls(own, opened)


def on_workspace(provider: Any) -> LeaseProvider:
    """The provider of leases on workspaces; the host's when none is given."""
    if provider is None:
        return HostSandboxProvider()
    if not isinstance(provider, LeaseProvider):
        raise configuration("sandbox_provider: a workspace needs one that acquires a lease (HostSandboxProvider)")
    return provider


def _snapshots(
    provider: Any, layout: Layout | None, copies: Sequence[str | Path], hooks: Any, limits: Any
) -> SandboxProvider:
    if provider is not None and not hasattr(provider, "open"):
        raise configuration("dispatch: sandbox_provider: this one needs a branch or a workspace")
    if provider is not None and layout is not None:
        raise configuration("dispatch: layout: the sandbox provider has its own")
    chosen: SandboxProvider = provider or WorktreeSandboxProvider(layout=layout)
    wanted = as_hooks(hooks)
    if not copies and wanted is None:
        return chosen
    return PreparedProvider(chosen, tuple(copies), wanted or NO_HOOKS, as_limits(limits))
