"""Resolving a conflict of an integration in a workspace of its own (the CONF rules).

The invariant: whatever fails, the checkout's HEAD and files stay as they were, both workspaces stay, and the fault says
where they are. A resolution is looked at before and after it is verified, and once more before the checkout moves
forward to it. Who resolves is the caller's: an agent, or any coroutine.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio

from outpost_lsp.domain.sandbox import CommandResult
from outpost_lsp.domain.usage import ZERO, Usage
from outpost_lsp.errors import OutpostError, configuration, record_recovery
from outpost_lsp.storage.layout import Layout
from outpost_lsp.workspaces.guard import References, inspect, moved, read_references
from outpost_lsp.workspaces.integration import check_host_clean, integrate, move_forward
from outpost_lsp.workspaces.managed import delete_merged_branch
from outpost_lsp.workspaces.names import resolution_branch
from outpost_lsp.workspaces.opening import WorkspaceOptions, open_branch
from outpost_lsp.workspaces.policy import BranchPolicy
from outpost_lsp.workspaces.reading import process_fault, unmerged_paths, unsaved_work
from outpost_lsp.workspaces.record import Integration
from outpost_lsp.workspaces.workspace import OpenedWorkspace
from outpost_lsp.worktrees.git import run_git

_CLEAN_UP_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """What a resolver gives back: the commit that merges both sides, where it is, and how it was verified."""

    commit: str
    branch: str
    directory: Path
    verification: CommandResult
    usage: Usage = ZERO
    transcript: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictContext:
    """What a resolver has to work with: a workspace that starts at the candidate, and what is in conflict."""

    workspace: Any
    host_commit: str
    candidate_commit: str
    conflicts: tuple[str, ...]


ConflictResolver = Callable[[ConflictContext], Awaitable[Resolution]]


async def integrate_resolving(
    workspace: OpenedWorkspace,
    resolver: ConflictResolver,
    *,
    layout: Layout,
    face: Callable[[OpenedWorkspace], Any],
    deadline_s: float,
) -> Integration | None:
    """Integrate; a conflict goes to `resolver`, which is not called for anything else (CONF-02).

    `face` makes what a resolver sees of its workspace.
    """
    workspace.check_open()
    if workspace.is_occupied or workspace.is_resolving:
        raise configuration("integrate: the workspace is busy; close its sandbox first")

    async def resolve(source: OpenedWorkspace, references: References, conflicts: tuple[str, ...]) -> Integration:
        return await _resolve(source, references, conflicts, resolver, layout, face, deadline_s)

    workspace.is_resolving = True
    try:
        return await integrate(workspace, resolve)
    finally:
        workspace.is_resolving = False


async def check_resolution(workspace: OpenedWorkspace, references: References, commit: str | None = None) -> str:
    """Whether a resolution is whole (CONF-07): its commit; `commit` is the one that it must still be.

    `conflict` when something is unmerged, changed, untracked or detached, `process` when it leaves out a side.
    """
    view, limit = workspace.view, workspace.limits.git_s
    if unmerged := await unmerged_paths(view, deadline_s=limit):
        raise _unacceptable(workspace, f"{unmerged[0]} is not merged")
    if paths := await unsaved_work(view, ignored=False, deadline_s=limit):
        raise _unacceptable(workspace, f"{paths[0]} is not committed")
    if await workspace.branch() != workspace.record.branch:
        raise _unacceptable(workspace, "it does not stand on its branch")
    head = await workspace.head()
    if commit is not None and head != commit:
        raise _unacceptable(workspace, "its commit is another one meanwhile")
    for side in (references.candidate, references.host):
        result = await run_git(view, ["merge-base", "--is-ancestor", side, head], deadline_s=limit)
        if result.status != 0:
            words = result.stderr or f"{side} is not part of {head}"
            raise process_fault("git merge-base --is-ancestor", result.status, "", words)
    return head


async def _resolve(
    source: OpenedWorkspace,
    references: References,
    conflicts: tuple[str, ...],
    resolver: ConflictResolver,
    layout: Layout,
    face: Callable[[OpenedWorkspace], Any],
    deadline_s: float,
) -> Integration:
    branch = resolution_branch()
    own = await open_branch(
        source.repository,
        layout,
        WorkspaceOptions(policy=BranchPolicy("named", branch), limits=source.limits),
        branch=branch,
        base=source.record.base_branch,
        start=references.candidate,
    )
    try:
        resolution = await _asked(own, references, conflicts, resolver, face, deadline_s)
        await _accept(source, own, references, resolution)
    except BaseException as error:
        recovery = {"source_branch": source.record.branch, "source_directory": str(source.record.directory)}
        record_recovery(error, {**own.recovery, **recovery})
        with anyio.CancelScope(shield=True), anyio.move_on_after(_CLEAN_UP_S):
            await _keep(own)
        raise
    await own.close()
    # The generated branch is all in the base branch now.
    await delete_merged_branch(own.repository, branch)
    return Integration(resolution.commit, merged=True, resolved=True)


async def _asked(
    own: OpenedWorkspace,
    references: References,
    conflicts: tuple[str, ...],
    resolver: ConflictResolver,
    face: Callable[[OpenedWorkspace], Any],
    deadline_s: float,
) -> Resolution:
    context = ConflictContext(
        workspace=face(own), host_commit=references.host, candidate_commit=references.candidate, conflicts=conflicts
    )
    try:
        with anyio.fail_after(deadline_s) as scope:
            resolution = await resolver(context)
    except TimeoutError as error:
        if not scope.cancelled_caught:
            raise
        message = f"The conflict was not resolved within {deadline_s:g} s."
        raise OutpostError("timeout", message, {"deadlineS": deadline_s}) from error
    if not isinstance(resolution, Resolution):
        raise configuration(f"on_conflict: a Resolution is expected, not {type(resolution).__name__}")
    if resolution.branch != own.record.branch or Path(resolution.directory) != own.record.directory:
        raise _unacceptable(own, "it names another branch or directory")
    if resolution.verification.status != 0:
        found = resolution.verification
        raise process_fault("the verification of the resolution", found.status, found.stdout, found.stderr)
    return resolution


async def _accept(
    source: OpenedWorkspace, own: OpenedWorkspace, references: References, resolution: Resolution
) -> None:
    """The last look, and the step forward (CONF-08); the source branch is not moved."""
    await check_host_clean(source)
    if await read_references(source) != references:
        raise moved(source, references)
    await check_resolution(own, references, resolution.commit)
    if source.guard is not None:
        # Looked at from the checkout, as the source was: what it has already does not count.
        await inspect(own, source.guard, baseline=references.host)
        await check_resolution(own, references, resolution.commit)
    await move_forward(source, resolution.commit, references.host)


async def _keep(own: OpenedWorkspace) -> None:
    own.is_occupied = False
    try:
        await own.close(preserve=True)
    except OutpostError:
        own.lock.release()


def _unacceptable(workspace: OpenedWorkspace, why: str) -> OutpostError:
    return OutpostError("conflict", f"The resolution cannot be taken: {why}.", workspace.recovery)
