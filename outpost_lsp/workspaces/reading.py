"""What git says about branches, commits and unsaved work; nothing here writes.

Every function takes the view of a checkout or worktree (`Repository`), so that the answer is that of the named git
directory, whatever an agent did to the worktree's own `.git` file.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from outpost_lsp.errors import OutpostError
from outpost_lsp.workspaces.record import Commit
from outpost_lsp.worktrees.git import Repository, failed, run_git

_LONGEST_LISTING = 1 << 28


@dataclass(frozen=True, slots=True)
class ListedWorktree:
    """One registered worktree; `branch` is empty when it is detached."""

    directory: Path
    branch: str


async def current_branch(view: Repository, *, deadline_s: float = 120.0) -> str:
    """The branch that a checkout stands on; empty when it is detached."""
    arguments = ["symbolic-ref", "--quiet", "HEAD"]
    result = await run_git(view, arguments, deadline_s=deadline_s)
    if result.status == 1:
        return ""
    if result.status != 0:
        raise failed(arguments, result)
    return _text(result.stdout).removeprefix("refs/heads/")


async def commit_of(view: Repository, revision: str = "HEAD", *, deadline_s: float = 120.0) -> str:
    """The commit that a trusted revision names now; empty when there is none."""
    arguments = ["rev-parse", "--quiet", "--verify", "--end-of-options", f"{revision}^{{commit}}"]
    result = await run_git(view, arguments, deadline_s=deadline_s)
    return _text(result.stdout) if result.status == 0 else ""


async def branch_tip(view: Repository, branch: str, *, deadline_s: float = 120.0) -> str:
    """The commit of a branch; empty when there is no such branch."""
    return await commit_of(view, f"refs/heads/{branch}", deadline_s=deadline_s)


async def tree_of(view: Repository, commit: str, *, deadline_s: float = 120.0) -> str:
    """The tree of a commit."""
    arguments = ["rev-parse", "--quiet", "--verify", "--end-of-options", f"{commit}^{{tree}}"]
    result = await run_git(view, arguments, check=True, deadline_s=deadline_s)
    return _text(result.stdout)


async def is_ancestor(view: Repository, ancestor: str, commit: str, *, deadline_s: float = 120.0) -> bool:
    """Whether a commit is, or leads to, another one."""
    arguments = ["merge-base", "--is-ancestor", "--end-of-options", ancestor, commit]
    result = await run_git(view, arguments, deadline_s=deadline_s)
    if result.status not in {0, 1}:
        raise failed(arguments, result)
    return result.status == 0


async def merge_bases(view: Repository, first: str, second: str, *, deadline_s: float = 120.0) -> Sequence[str]:
    """All best common ancestors of two commits."""
    arguments = ["merge-base", "--all", "--end-of-options", first, second]
    result = await run_git(view, arguments, deadline_s=deadline_s)
    if result.status not in {0, 1}:
        raise failed(arguments, result)
    return _text(result.stdout).split()


async def commits_between(view: Repository, start: str, head: str, *, deadline_s: float = 30.0) -> tuple[Commit, ...]:
    """The commits of `head` that `start` does not have, newest first; all of them when `start` is empty."""
    if not head or start == head:
        return ()
    excluded = [f"^{start}"] if start else []
    arguments = ["rev-list", "--topo-order", "--no-commit-header", "--format=%H %s%x00", head, *excluded]
    result = await run_git(view, arguments, check=True, max_output=_LONGEST_LISTING, deadline_s=deadline_s)
    found = []
    for line in result.stdout.decode("utf-8", "replace").split("\0"):
        oid, _, subject = line.strip("\n").partition(" ")
        if oid:
            found.append(Commit(oid=oid, subject=subject))
    return tuple(found)


async def unsaved_work(view: Repository, *, ignored: bool, deadline_s: float = 120.0) -> Sequence[str]:
    """The paths of changed and untracked files, relative to the top.

    With `ignored` everything that would be lost with the worktree: ignored files too, and files whose changes git was
    told to overlook (WS-23, WS-27).
    """
    arguments = ["status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all"]
    if ignored:
        arguments.append("--ignored=traditional")
    result = await run_git(view, arguments, check=True, max_output=_LONGEST_LISTING, deadline_s=deadline_s)
    paths = [os.fsdecode(entry[3:]) for entry in result.stdout.split(b"\0") if entry]
    if not ignored:
        return paths
    listing = await run_git(
        view, ["ls-files", "-v", "-z"], check=True, max_output=_LONGEST_LISTING, deadline_s=deadline_s
    )
    return paths + await to_thread.run_sync(_overlooked, view.top, listing.stdout)


async def unmerged_paths(view: Repository, *, deadline_s: float = 120.0) -> Sequence[str]:
    """The paths that a merge left in conflict."""
    arguments = ["ls-files", "--unmerged", "-z"]
    result = await run_git(view, arguments, check=True, max_output=_LONGEST_LISTING, deadline_s=deadline_s)
    return sorted({os.fsdecode(entry.partition(b"\t")[2]) for entry in result.stdout.split(b"\0") if entry})


async def registered_worktrees(repository: Repository, *, deadline_s: float = 120.0) -> Sequence[ListedWorktree]:
    """The worktrees of a repository, its own checkout first."""
    arguments = ["worktree", "list", "--porcelain", "-z"]
    result = await run_git(repository, arguments, check=True, max_output=_LONGEST_LISTING, deadline_s=deadline_s)
    found = []
    for block in result.stdout.split(b"\0\0"):
        fields = dict(line.partition(b" ")[::2] for line in block.split(b"\0") if line)
        if b"worktree" in fields and b"bare" not in fields:
            branch = os.fsdecode(fields.get(b"branch", b"")).removeprefix("refs/heads/")
            found.append(ListedWorktree(Path(os.fsdecode(fields[b"worktree"])), branch))
    return found


def _overlooked(top: Path, listing: bytes) -> list[str]:
    """Files that git was told to take for unchanged, and files that stand where a sparse checkout has none."""
    flagged = ((entry[:1], os.fsdecode(entry[2:])) for entry in listing.split(b"\0") if entry)
    return [path for flag, path in flagged if flag.islower() or (flag == b"S" and os.path.lexists(top / path))]


def process_fault(what: str, status: int, stdout: str, stderr: str) -> OutpostError:
    """The fault of a command that had to succeed; its details hold the whole kept output (FAULT-08)."""
    return OutpostError(
        "process", f"{what} ended with status {status}", {"status": status, "stdout": stdout, "stderr": stderr}
    )


def _text(data: bytes) -> str:
    return os.fsdecode(data).strip()
