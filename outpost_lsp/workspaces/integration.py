"""Merging a workspace's branch into the branch that the checkout stands on (section 7.5).

The invariant: the checkout is never left in the middle of a merge. The merge is made as objects first, from exactly the
commits that were inspected, and the checkout then only moves forward to it, which git does whole or not at all (INT-04,
INT-06). Nothing is pushed. The lock of the base branch is held throughout, the resolution of a conflict included.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from outpost_lsp.errors import OutpostError, configuration
from outpost_lsp.workspaces.guard import References, inspect, moved, read_references
from outpost_lsp.workspaces.reading import commit_of, current_branch, is_ancestor, unsaved_work
from outpost_lsp.workspaces.record import Integration
from outpost_lsp.workspaces.workspace import OpenedWorkspace
from outpost_lsp.worktrees.git import run_git
from outpost_lsp.worktrees.identity import commit_identity
from outpost_lsp.worktrees.private_index import writing

Resolve = Callable[[OpenedWorkspace, References, tuple[str, ...]], Awaitable[Integration]]
"""Turns a conflict into an integration; called with the base branch's lock held."""

_FORWARD: Final = (
    "merge",
    "--ff-only",
    "--quiet",
    "--commit",
    "--no-squash",
    "--no-stat",
    "--no-autostash",
    "--no-verify-signatures",
)
"""Whatever the user's settings say about merging, this one only moves forward."""


async def integrate(workspace: OpenedWorkspace, resolve: Resolve | None = None) -> Integration | None:
    """Merge the workspace's branch into its base; `None` when the policy is another one (INT-01).

    `guard` when the work is refused, `conflict` when it cannot be merged as things stand; the workspace is retained then.
    """
    workspace.check_open()
    if workspace.record.policy.mode != "integrate":
        if resolve is not None:
            raise configuration("integrate: on_conflict goes with the policy integrate only")
        return None
    lock = workspace.locks.take(f"merge:{workspace.record.base_branch}")
    try:
        await _check_host_branch(workspace)
        references = await inspect(workspace)
        if await workspace.branch() != workspace.record.branch:
            raise OutpostError("workspace", "The workspace does not stand on its branch.", workspace.recovery)
        if resolve is not None:
            await check_host_clean(workspace)
        integration = await _merge(workspace, references, resolve)
        workspace.is_refused = workspace.is_unmerged = False
        return integration
    except BaseException:
        workspace.is_unmerged = True
        raise
    finally:
        lock.release()


async def move_forward(workspace: OpenedWorkspace, commit: str, expected_host: str) -> None:
    """Move the checkout from one commit forward to another, files included, or not at all."""
    await check_host(workspace, expected_host)
    async with writing(workspace.repository):
        result = await run_git(workspace.repository, [*_FORWARD, commit], deadline_s=workspace.limits.merge_s)
    if result.status != 0 or await commit_of(workspace.repository) != commit:
        raise unmergeable(workspace, result.stderr)


async def check_host(workspace: OpenedWorkspace, commit: str) -> None:
    """`conflict` unless the checkout still stands on the base branch, at this commit."""
    await _check_host_branch(workspace)
    if await commit_of(workspace.repository, deadline_s=workspace.limits.git_s) != commit:
        message = f"{workspace.record.base_branch} moved meanwhile; nothing was merged."
        raise OutpostError("conflict", message, {**workspace.recovery, "expected": commit})


async def check_host_clean(workspace: OpenedWorkspace) -> None:
    """`conflict` when the checkout holds changes that were not committed, untracked files included (INT-07)."""
    paths = await unsaved_work(workspace.repository, ignored=False, deadline_s=workspace.limits.git_s)
    if paths:
        message = f"The checkout has changes that are not committed, for instance {paths[0]}."
        raise OutpostError("conflict", message, {**workspace.recovery, "paths": list(paths[:100])})


def unmergeable(workspace: OpenedWorkspace, words: str, details: Mapping[str, Any] | None = None) -> OutpostError:
    """The fault of a merge that failed (INT-05)."""
    record = workspace.record
    message = f"{record.branch} could not be merged into {record.base_branch}: {words.strip() or 'git refused it'}"
    return OutpostError("conflict", message, {**workspace.recovery, **(details or {})})


async def _check_host_branch(workspace: OpenedWorkspace) -> None:
    expected = workspace.record.base_branch
    current = await current_branch(workspace.repository, deadline_s=workspace.limits.git_s)
    if current != expected:
        message = f"The checkout stands on {current or 'no branch'} and no longer on {expected}."
        details = {"expected": expected, "current": current, "directory": str(workspace.record.directory)}
        raise OutpostError("conflict", message, {**workspace.recovery, **details})


async def _merge(workspace: OpenedWorkspace, references: References, resolve: Resolve | None) -> Integration:
    repository, limit = workspace.repository, workspace.limits.merge_s
    candidate, host = references.candidate, references.host
    if await is_ancestor(repository, candidate, host, deadline_s=limit):
        return Integration(host, merged=False)
    if await is_ancestor(repository, host, candidate, deadline_s=limit):
        merged = candidate
    else:
        tree, conflicts = await _merged_tree(workspace, references)
        if conflicts:
            if resolve is not None:
                return await resolve(workspace, references, conflicts)
            raise unmergeable(workspace, f"conflicts in {', '.join(conflicts[:10])}", {"conflicts": list(conflicts)})
        merged = await _merge_commit(workspace, references, tree)
    # What is merged is what was looked at.
    if await read_references(workspace) != references:
        raise moved(workspace, references)
    await move_forward(workspace, merged, host)
    return Integration(merged, merged=True)


async def _merged_tree(workspace: OpenedWorkspace, references: References) -> tuple[str, tuple[str, ...]]:
    """The merge as a tree, and the paths in conflict; nothing but objects is written."""
    arguments = ["merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", references.host]
    async with writing(workspace.repository):
        result = await run_git(
            workspace.repository, [*arguments, references.candidate], deadline_s=workspace.limits.merge_s
        )
    fields = [os.fsdecode(each) for each in result.stdout.split(b"\0") if each]
    if result.status not in {0, 1} or not fields:
        raise unmergeable(workspace, result.stderr)
    if result.status == 0:
        return fields[0].strip(), ()
    return fields[0].strip(), tuple(dict.fromkeys(fields[1:])) or ("?",)


async def _merge_commit(workspace: OpenedWorkspace, references: References, tree: str) -> str:
    message = f"Merge branch '{workspace.record.branch}' into {workspace.record.base_branch}\n"
    arguments = ["commit-tree", tree, "-p", references.host, "-p", references.candidate]
    async with writing(workspace.repository):
        result = await run_git(
            workspace.repository,
            arguments,
            stdin=message.encode("utf-8", "surrogateescape"),
            environment=commit_identity(workspace.repository),
            check=True,
            deadline_s=workspace.limits.merge_s,
        )
    return result.stdout.decode("ascii").strip()
