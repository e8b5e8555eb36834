"""The snapshot of a workspace: one commit of what the user sees, made through a private copy of the index (SNAP-01, -02).

The invariant: the user's index, refs, stash, reflogs, HEAD and files are only read; the repository gains objects and
nothing else. Called by a dispatch before it opens a worktree, and by a review to know what it reviews.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import anyio

from outpost_lsp.errors import OutpostError
from outpost_lsp.worktrees.git import Repository, resolve_commit, run_git
from outpost_lsp.worktrees.private_index import private_index, writing
from outpost_lsp.worktrees.unsaved import add_unsaved
from outpost_lsp.worktrees.working_tree import Scan, add_working_tree, scan_working_tree

View = Literal["working", "index", "head"]

IDENTITY: Final[Mapping[str, str]] = {
    "GIT_AUTHOR_NAME": "Outpost",
    "GIT_AUTHOR_EMAIL": "outpost@localhost",
    "GIT_COMMITTER_NAME": "Outpost",
    "GIT_COMMITTER_EMAIL": "outpost@localhost",
}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One commit of a repository as it stood at a moment."""

    commit: str
    tree: str
    head: str
    """The commit that `HEAD` named; empty in a repository without commits."""
    parent: str
    """The first parent of `commit`: for the working and the index view this is `head`."""
    notes: tuple[str, ...] = ()
    """What was left out, and why."""
    ignored_left_out: int = 0
    """How many ignored files and folders stayed behind; a folder that is ignored as a whole counts once."""


async def take_snapshot(
    repository: Repository,
    *,
    view: View | str = "working",
    uncommitted: bool = True,
    untracked: bool = True,
    max_untracked_mib: int = 500,
    unsaved: Mapping[str, str | bytes] | None = None,
    deadline_s: float = 120.0,
) -> Snapshot:
    """The commit of a view: the working tree with unsaved buffers, the index, `HEAD`, or any commit by its name.

    `uncommitted`, `untracked`, `max_untracked_mib` and `unsaved` (repository-relative path to text) shape the working
    view only.
    """
    try:
        with anyio.fail_after(deadline_s):
            if view not in {"working", "index"}:
                return await _existing(repository, "HEAD" if view == "head" else view)
            async with private_index(repository) as index:
                head = await head_commit(repository)
                if view == "index":
                    return await _index_view(repository, index, head)
                return await _working_view(
                    repository,
                    index,
                    head,
                    uncommitted=uncommitted,
                    untracked=untracked,
                    max_untracked=max_untracked_mib * 1024 * 1024,
                    unsaved=unsaved or {},
                )
    except TimeoutError as error:
        message = (
            f"The snapshot of {repository.top} took longer than {deadline_s:g} s; sandbox.git_timeout_s raises it."
        )
        raise OutpostError("timeout", message) from error


async def head_commit(repository: Repository) -> str:
    """The commit that `HEAD` names, or the empty string while there is none."""
    result = await run_git(repository, ["rev-parse", "--quiet", "--verify", "HEAD^{commit}"])
    return result.stdout.decode("ascii").strip() if result.status == 0 else ""


async def commit_tree(repository: Repository, tree: str, parent: str, message: str) -> str:
    """A commit object of the product's own; no ref names it."""
    arguments = ["commit-tree", tree, *(["-p", parent] if parent else []), "-m", message]
    result = await run_git(repository, arguments, environment=IDENTITY, check=True)
    return result.stdout.decode("ascii").strip()


async def _existing(repository: Repository, revision: str) -> Snapshot:
    head = await head_commit(repository)
    if revision == "HEAD" and not head:
        raise OutpostError("workspace", f"{repository.top} has no commit yet.")
    commit = head if revision == "HEAD" else await resolve_commit(repository, revision)
    arguments = ["log", "-1", "--format=%T %P", "--end-of-options", commit]
    tree, *parents = (await run_git(repository, arguments, check=True)).stdout.decode("ascii").split()
    return Snapshot(commit, tree, head, parents[0] if parents else "")


async def _index_view(repository: Repository, index: Path, head: str) -> Snapshot:
    unmerged = await _unmerged(repository, index)
    notes: tuple[str, ...] = ()
    async with writing(repository):
        if unmerged:
            # A conflict has no staged content; what stands in the file is what the user is looking at (SNAP-02).
            notes = await add_working_tree(repository, index, Scan(changed=unmerged), max_untracked=0)
        return await _finish(repository, index, head, notes=notes)


async def _working_view(
    repository: Repository,
    index: Path,
    head: str,
    *,
    uncommitted: bool,
    untracked: bool,
    max_untracked: int,
    unsaved: Mapping[str, str | bytes],
) -> Snapshot:
    scan = await scan_working_tree(repository, index)
    async with writing(repository):
        if not uncommitted:
            scan = Scan(untracked=scan.untracked, ignored=scan.ignored, nested=scan.nested)
            await run_git(
                repository, ["read-tree", head] if head else ["read-tree", "--empty"], index=index, check=True
            )
        if not untracked:
            scan = Scan(changed=scan.changed, ignored=scan.ignored)
        notes = await add_working_tree(repository, index, scan, max_untracked=max_untracked)
        notes += await add_unsaved(repository, index, unsaved, untracked=untracked)
        return await _finish(repository, index, head, notes=notes, ignored=len(scan.ignored))


async def _finish(
    repository: Repository, index: Path, head: str, *, notes: tuple[str, ...], ignored: int = 0
) -> Snapshot:
    written = await run_git(repository, ["write-tree", "--missing-ok"], index=index, check=True)
    tree = written.stdout.decode("ascii").strip()
    commit = await commit_tree(repository, tree, head, "Outpost snapshot")
    return Snapshot(commit, tree, head, head, notes, ignored)


async def _unmerged(repository: Repository, index: Path) -> tuple[bytes, ...]:
    listing = (await run_git(repository, ["ls-files", "-z", "--unmerged"], index=index, check=True)).stdout
    return tuple(sorted({entry.partition(b"\t")[2] for entry in listing.split(b"\0") if entry}))
