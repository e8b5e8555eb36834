"""Opening a workspace: validated, locked, found again or made, filled, and made ready (section 7.2).

The invariant: an opening that fails leaves no lock, and no worktree but one that holds work or was there before; the
branch's lock is taken before anything is made (WS-08). The repository's own files, `info/exclude` included, stay as they
are. Called by dispatches with a branch policy and by library users through them.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio

from outpost_lsp.errors import OutpostError, configuration, record_recovery
from outpost_lsp.storage.layout import Layout, RepositoryLayout
from outpost_lsp.storage.locks import Lock, LockFolder
from outpost_lsp.workspaces import lifecycle, managed
from outpost_lsp.workspaces.copies import checked_entries, copy_entries
from outpost_lsp.workspaces.names import branch_hash, generated_branch
from outpost_lsp.workspaces.policy import NO_HOOKS, BranchPolicy, DiffGuard, LifecycleHooks, StageLimits
from outpost_lsp.workspaces.reading import branch_tip, commit_of, current_branch, is_ancestor, unsaved_work
from outpost_lsp.workspaces.record import WorkspaceRecord
from outpost_lsp.workspaces.workspace import OpenedWorkspace
from outpost_lsp.worktrees.git import Repository, find_repository, resolve_commit, run_git

_CLEAN_UP_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceOptions:
    """Everything a workspace was asked for, checked as far as that needs no repository (DISP-01)."""

    policy: BranchPolicy
    guard: DiffGuard | None = None
    copies: Sequence[str | Path] = ()
    hooks: LifecycleHooks | None = None
    limits: StageLimits = StageLimits()  # noqa: RUF009 - frozen
    label: str | None = None
    follow_origin: bool = False
    """Whether a clean worktree that is used again moves on to what was fetched of `origin` already (WS-12)."""

    def __post_init__(self) -> None:
        if self.policy.mode == "current" and self.copies:
            raise configuration("copies: the checkout itself needs none")
        if self.policy.mode == "current" and self.guard is not None:
            raise configuration("guard: the checkout itself has no branch of the agent's to look at")
        checked_entries(self.copies)


async def open_workspace(folder: Path, layout: Layout, options: WorkspaceOptions) -> OpenedWorkspace:
    """Open a workspace of the repository that holds `folder`; the caller closes it.

    `conflict` at once when somebody holds it, or when its branch is checked out elsewhere.
    """
    repository = await find_repository(folder)
    base = await current_branch(repository)
    if options.policy.mode == "current":
        return await _open_current(repository, layout, options, base)
    if options.policy.mode == "integrate" and not base:
        raise OutpostError("workspace", f"{repository.top} stands on no branch that could be integrated into.")
    start = await _start(repository, options.policy)
    branch = options.policy.name or generated_branch(options.label)
    await _check_name(repository, branch)
    return await open_branch(repository, layout, options, branch=branch, base=base, start=start)


async def open_branch(
    repository: Repository, layout: Layout, options: WorkspaceOptions, *, branch: str, base: str, start: str
) -> OpenedWorkspace:
    """Open the worktree of a checked branch name; a new branch begins at the commit `start`."""
    own = layout.for_repository(repository.common_dir)
    locks = LockFolder(own.locks)
    lock = locks.take(branch)
    workspace: OpenedWorkspace | None = None
    try:
        folder = managed.workspaces_folder(own)
        directory = await managed.find(repository, folder, branch)
        is_new = directory is None
        if directory is None:
            directory = await managed.create(repository, own, folder, branch, label=options.label, start=start)
        view = repository.linked(directory)
        workspace = _opened(
            options,
            repository=repository,
            view=view,
            layout=own,
            lock=lock,
            branch=branch,
            base=base,
            baseline=await commit_of(view),
        )
        await _fill(workspace, options, is_new=is_new)
        return workspace
    except BaseException as error:
        with anyio.CancelScope(shield=True), anyio.move_on_after(_CLEAN_UP_S):
            if workspace is not None:
                await _dispose(workspace, error, preserve=not is_new)
        lock.release()
        raise


async def _open_current(
    repository: Repository, layout: Layout, options: WorkspaceOptions, base: str
) -> OpenedWorkspace:
    own = layout.for_repository(repository.common_dir)
    lock = LockFolder(own.locks).take(str(repository.top))
    try:
        workspace = _opened(
            options,
            repository=repository,
            view=repository,
            layout=own,
            lock=lock,
            branch=base or "HEAD",
            base=base,
            baseline=await commit_of(repository),
        )
        await lifecycle.workspace_ready(workspace.hooks, repository, workspace.record.directory)
        return workspace
    except BaseException:
        lock.release()
        raise


def _opened(
    options: WorkspaceOptions,
    *,
    repository: Repository,
    view: Repository,
    layout: RepositoryLayout,
    lock: Lock,
    branch: str,
    base: str,
    baseline: str,
) -> OpenedWorkspace:
    record = WorkspaceRecord(
        repository=repository.top,
        directory=view.top,
        branch=branch,
        base_branch=base,
        baseline=baseline,
        git_directories=tuple(dict.fromkeys((view.git_dir, view.common_dir))),
        policy=options.policy,
    )
    return OpenedWorkspace(
        record=record,
        repository=repository,
        view=view,
        layout=layout,
        locks=LockFolder(layout.locks),
        lock=lock,
        managed=managed.workspaces_folder(layout),
        guard=options.guard,
        hooks=options.hooks or NO_HOOKS,
        limits=options.limits,
    )


async def _fill(workspace: OpenedWorkspace, options: WorkspaceOptions, *, is_new: bool) -> None:
    if not is_new and options.follow_origin:
        await _follow_origin(workspace)
    entries = checked_entries(options.copies)
    # Only what stood in a worktree before can be somebody's work.
    name = f"replaced-{branch_hash(workspace.record.branch)}-{uuid.uuid4()}"
    aside = None if is_new else managed.recovery_folder(workspace.layout) / name
    workspace.copied = await copy_entries(
        workspace.repository.top,
        workspace.record.directory,
        entries,
        aside=aside,
        deadline_s=workspace.limits.copy_s,
    )
    await lifecycle.workspace_ready(workspace.hooks, workspace.repository, workspace.record.directory)


async def _follow_origin(workspace: OpenedWorkspace) -> None:
    """Move a clean, attached worktree forward to what `origin` was last seen to have; nothing is fetched (WS-12)."""
    view, branch = workspace.view, workspace.record.branch
    known = await commit_of(view, f"refs/remotes/origin/{branch}")
    head = await workspace.head()
    if not known or known == head or await workspace.branch() != branch:
        return
    if await unsaved_work(view, ignored=False) or not await is_ancestor(view, head, known):
        return
    arguments = ["merge", "--ff-only", "--quiet", "--no-squash", "--no-autostash", "--no-verify-signatures", known]
    await run_git(view, arguments)


async def _dispose(workspace: OpenedWorkspace, error: BaseException, *, preserve: bool) -> None:
    """Undo an opening that failed; what has to stay is named with the fault (WS-16)."""
    record_recovery(error, workspace.recovery)
    try:
        await workspace.close(preserve=preserve)
    except OutpostError as fault:
        record_recovery(error, {"cleanUp": fault.message})


async def _start(repository: Repository, policy: BranchPolicy) -> str:
    if policy.start is not None:
        return await resolve_commit(repository, policy.start)
    head = await commit_of(repository)
    if head:
        return head
    if policy.name is not None and (tip := await branch_tip(repository, policy.name)):
        return tip
    raise OutpostError("workspace", f"{repository.top} has no commits yet that a branch could begin at.")


async def _check_name(repository: Repository, branch: str) -> None:
    """Refuse what git would not take as a branch, before anything is made (WS-06, SEC-03)."""
    fault = configuration(f"branch: {branch!r} is no name of a branch", branch=branch)
    if branch.startswith("-") or any(mark in branch for mark in "\0\n\r"):
        raise fault
    result = await run_git(repository, ["check-ref-format", "--branch", branch])
    if result.status != 0 or result.stdout.decode("utf-8", "surrogateescape").rstrip("\n") != branch:
        raise fault
