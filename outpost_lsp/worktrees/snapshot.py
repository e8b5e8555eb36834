"""The snapshot of a workspace: one commit of what the user sees, made through a private copy of the index (SNAP-01, -02).

The invariant: the user's index, refs, stash, reflogs, HEAD and files are only read; the repository gains objects and
nothing else. Called by a dispatch before it opens a worktree, and by a review to know what it reviews.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final, Literal

import anyio
from anyio import to_thread

from outpost_lsp.errors import OutpostError
from outpost_lsp.worktrees.git import Repository, resolve_commit, run_git
from outpost_lsp.worktrees.index_file import read_index
from outpost_lsp.worktrees.new_objects import NewObjects
from outpost_lsp.worktrees.objects import Entry, ObjectReader, object_reader, write_tree
from outpost_lsp.worktrees.private_index import private_index, writing
from outpost_lsp.worktrees.together import both
from outpost_lsp.worktrees.unsaved import add_unsaved
from outpost_lsp.worktrees.working_tree import Scan, entries_of, scan_working_tree, take_files

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
            async with object_reader(repository) as reader:
                scan = await scan_working_tree(repository, untracked=view == "working")
                if view == "index":
                    return await _commit_of(repository, scan.only_staged(), reader, max_untracked=0)
                if not uncommitted:
                    scan = scan.without_changes()
                if not untracked:
                    scan = scan.without_untracked()
                return await _commit_of(
                    repository,
                    scan,
                    reader,
                    max_untracked=max_untracked_mib << 20,
                    unsaved=unsaved or {},
                    untracked=untracked,
                )
    except TimeoutError as error:
        message = (
            f"The snapshot of {repository.top} took longer than {deadline_s:g} s; sandbox.git_timeout_s raises it."
        )
        raise OutpostError("timeout", message) from error


async def head_commit(repository: Repository) -> str:
    """The commit that `HEAD` names, or the empty string while there is none."""
    return (await head_and_tree(repository))[0]


async def head_and_tree(repository: Repository) -> tuple[str, str]:
    """The commit that `HEAD` names and its tree, both empty while there is none."""
    result = await run_git(repository, ["rev-parse", "--quiet", "HEAD^{commit}", "HEAD^{tree}"])
    head, _, tree = result.stdout.decode("ascii", "replace").strip().partition("\n")
    return (head, tree) if result.status == 0 else ("", "")


async def tree_name(repository: Repository, commit: str) -> str:
    """The tree of a commit."""
    result = await run_git(repository, ["rev-parse", "--verify", f"{commit}^{{tree}}"], check=True)
    return result.stdout.decode("ascii").strip()


async def tree_of(
    repository: Repository,
    scan: Scan,
    base: str,
    *,
    max_untracked: int,
    unsaved: Mapping[str, str | bytes] | None = None,
    untracked: bool = True,
    reader: ObjectReader | None = None,
    new: NewObjects | None = None,
) -> tuple[str, tuple[str, ...]]:
    """The tree that the base tree becomes by what was scanned and by open buffers, and what was left out of it.

    `reader` is one that is open already; with `new` the trees are added there, for whoever asked to write them.
    """
    if base and not (scan.staged or scan.changed or scan.deleted or scan.untracked or scan.nested or unsaved):
        return base, ()
    changes: dict[bytes, Entry | None] = {**scan.staged, **dict.fromkeys((*scan.changed, *scan.deleted))}
    opened = object_reader(repository) if reader is None else nullcontext(reader)
    async with private_index() as index, writing(repository), opened as objects:
        notes, _ = await both(
            lambda: take_files(repository, index, scan, max_untracked=max_untracked),
            lambda: objects.look_ahead(base, (*changes, *scan.untracked)),
        )
        if unsaved:
            notes += await add_unsaved(repository, index, unsaved, scan, base, untracked=untracked)
        known = await to_thread.run_sync(read_index, index, len(base) // 2) if base else None
        changes |= await entries_of(repository, index) if known is None else known
        return await write_tree(repository, base, changes, objects, new), notes


async def commit_tree(repository: Repository, tree: str, parent: str, message: str) -> str:
    """A commit object of the product's own; no ref names it."""
    new = NewObjects()
    commit = new.add_commit(tree, parent, message)
    await new.write(repository)
    return commit


async def _existing(repository: Repository, revision: str) -> Snapshot:
    head = await head_commit(repository)
    if revision == "HEAD" and not head:
        raise OutpostError("workspace", f"{repository.top} has no commit yet.")
    commit = head if revision == "HEAD" else await resolve_commit(repository, revision)
    arguments = ["log", "-1", "--format=%T %P", "--end-of-options", commit]
    tree, *parents = (await run_git(repository, arguments, check=True)).stdout.decode("ascii").split()
    return Snapshot(commit, tree, head, parents[0] if parents else "")


async def _commit_of(
    repository: Repository,
    scan: Scan,
    reader: ObjectReader,
    *,
    max_untracked: int,
    unsaved: Mapping[str, str | bytes] | None = None,
    untracked: bool = True,
) -> Snapshot:
    # What differs belongs to the commit that the comparison was made with, also when somebody commits meanwhile.
    head = scan.head or ""
    base = await reader.tree_of_commit(head) if head else ""
    new = NewObjects()
    tree, notes = await tree_of(
        repository,
        scan,
        base,
        max_untracked=max_untracked,
        unsaved=unsaved,
        untracked=untracked,
        reader=reader,
        new=new,
    )
    commit = new.add_commit(tree, head, "Outpost snapshot")
    async with writing(repository):
        await new.write(repository)
    return Snapshot(commit, tree, head, head, notes, len(scan.ignored))
