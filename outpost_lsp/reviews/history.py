"""What a scope compares: the snapshot that is reviewed and the base it is seen against.

`HEAD` is the user's own, never a remote's default branch, except where a branch is asked to be compared with one. A
root commit and a repository without commits are compared with the empty tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from outpost_lsp.domain.run import ReviewScope
from outpost_lsp.errors import OutpostError, configuration
from outpost_lsp.worktrees.changes import merge_base
from outpost_lsp.worktrees.git import Repository, resolve_commit, run_git
from outpost_lsp.worktrees.objects import empty_tree
from outpost_lsp.worktrees.snapshot import Snapshot, take_snapshot

_DEFAULT_BASES: Final = (
    ("refs/remotes/origin/HEAD", "origin/HEAD"),
    ("refs/heads/main", "main"),
    ("refs/remotes/origin/main", "origin/main"),
    ("refs/heads/master", "master"),
    ("refs/remotes/origin/master", "origin/master"),
)
_MESSAGES: Final = 20
_MESSAGES_LENGTH: Final = 6_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The two sides. `base` is empty for scopes that are no change; `base_name` is how people call it."""

    snapshot: Snapshot
    base: str = ""
    base_name: str = ""
    tracked: frozenset[str] | None = None
    """For unstaged changes: the paths the index knows."""
    notes: tuple[str, ...] = ()


async def compared_with(
    repository: Repository,
    scope: ReviewScope,
    *,
    unsaved: Mapping[str, str | bytes],
    uncommitted: bool,
    untracked: bool,
    max_untracked_mib: int,
    deadline_s: float,
) -> Comparison:
    """Both sides of a scope, made now."""

    async def working() -> Snapshot:
        return await take_snapshot(
            repository,
            view="working",
            uncommitted=uncommitted,
            untracked=untracked,
            max_untracked_mib=max_untracked_mib,
            unsaved=unsaved,
            deadline_s=deadline_s,
        )

    match scope.scope:
        case "uncommitted":
            snapshot = await working()
            return Comparison(snapshot=snapshot, base=snapshot.head or empty_tree(snapshot.commit), base_name="HEAD")
        case "staged":
            snapshot = await take_snapshot(repository, view="index", deadline_s=deadline_s)
            return Comparison(snapshot=snapshot, base=snapshot.head or empty_tree(snapshot.commit), base_name="HEAD")
        case "unstaged":
            index = await take_snapshot(repository, view="index", deadline_s=deadline_s)
            tracked = await _tracked(repository)
            return Comparison(snapshot=await working(), base=index.commit, base_name="the index", tracked=tracked)
        case "commit":
            oid = await _resolved(repository, scope.revision or "", "revision")
            snapshot = await take_snapshot(repository, view=oid, deadline_s=deadline_s)
            name = f"the parent of {oid[:12]}" if snapshot.parent else "nothing (it is a first commit)"
            notes = () if scope.patch is None else (_applied_to(scope.patch, snapshot),)
            return Comparison(
                snapshot=snapshot, base=snapshot.parent or empty_tree(snapshot.commit), base_name=name, notes=notes
            )
        case "branch":
            return await _branch(repository, scope, await working())
        case _:
            return Comparison(snapshot=await working())


async def messages_between(repository: Repository, scope: ReviewScope, compared: Comparison) -> tuple[str, ...]:
    """What the commits under review say of themselves, newest first, bounded."""
    match scope.scope:
        case "commit":
            chosen = ["-n", "1", compared.snapshot.commit]
        case "branch" if compared.snapshot.head:
            chosen = ["-n", str(_MESSAGES), compared.snapshot.head, f"^{compared.base}"]
        case _:
            return ()
    result = await run_git(repository, ["log", "--no-show-signature", "-z", "--format=%B", *chosen, "--"], check=True)
    messages = (part.strip() for part in result.stdout.decode(errors="replace").split("\0"))
    kept, room = [], _MESSAGES_LENGTH
    for message in messages:
        if message and room > 0:
            kept.append(message[:room])
            room -= len(message)
    return tuple(kept)


def _applied_to(patch: str, snapshot: Snapshot) -> str:
    """What became of a patch: its commit stands on `HEAD`, unless that has the change already."""
    head = f"HEAD ({snapshot.head[:12]})"
    if snapshot.parent == snapshot.head:
        return f"The patch {patch} was applied to {head}."
    return f"{head} has the change of the patch {patch} already; it is compared with what was before."


async def _branch(repository: Repository, scope: ReviewScope, snapshot: Snapshot) -> Comparison:
    if not snapshot.head:
        raise configuration(
            "scope: the repository has no commit yet, so there is no branch to compare; review the uncommitted changes",
            field="scope",
        )
    if scope.base:
        oid, name = await _resolved(repository, scope.base, "base"), scope.base
    else:
        oid, name = await _default_base(repository)
    base = await merge_base(repository, snapshot.head, oid)
    if base is None:
        raise configuration(f"base: HEAD and {name} have no common commit (a shallow clone may hide it)", field="base")
    notes = () if scope.base else (f"Compared with {name}, since no base was named.",)
    return Comparison(snapshot=snapshot, base=base, base_name=name, notes=notes)


async def _default_base(repository: Repository) -> tuple[str, str]:
    for reference, name in _DEFAULT_BASES:
        try:
            return await resolve_commit(repository, reference), name
        except OutpostError as error:
            if error.code != "configuration":
                raise
    raise configuration("base: there is no origin/HEAD, main or master to compare with; name a base", field="base")


async def _resolved(repository: Repository, revision: str, field: str) -> str:
    try:
        return await resolve_commit(repository, revision)
    except OutpostError as error:
        if error.code != "configuration":
            raise
        raise configuration(f"{field}: {error.message}", **{**error.details, "field": field}) from error


async def _tracked(repository: Repository) -> frozenset[str]:
    listing = await run_git(repository, ["ls-files", "-z"], check=True, max_output=256 * 1024 * 1024)
    return frozenset(listing.stdout.decode("utf-8", "surrogateescape").split("\0"))
