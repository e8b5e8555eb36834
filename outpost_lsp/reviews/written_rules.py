"""The written rules of a project that a reviewer is told: the files that `review.instructions` names, as they were snapshot.

What cannot be used is told of and stops nothing: a review without the project's rules is still a review.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from outpost_lsp.domain.permission import normalised_path
from outpost_lsp.errors import OutpostError
from outpost_lsp.worktrees.changes import file_at
from outpost_lsp.worktrees.git import Repository, run_git
from outpost_lsp.worktrees.snapshot import Snapshot

_LONGEST: Final = 64 * 1024


async def written_rules(
    repository: Repository, snapshot: Snapshot, names: Sequence[str], notes: list[str]
) -> tuple[tuple[str, str], ...]:
    """The written rules of the project, by file; each note says which were used and which were not (U-16)."""
    used: list[tuple[str, str]] = []
    present = await _standing_names(repository, snapshot.commit, names)
    for name in names:
        path = normalised_path(name)
        if not path:
            notes.append(f"Instructions of {name} were not used: it is no path inside the repository.")
            continue
        if path not in present:
            continue
        try:
            data = await file_at(repository, snapshot.commit, path, _LONGEST)
        except OutpostError as error:
            notes.append(f"Instructions of {name} were not used: {error.message}")
            continue
        if data is None:
            continue
        text = data.decode(errors="replace").strip()
        if not text:
            notes.append(f"Instructions of {name} were not used: the file is empty.")
            continue
        used.append((path, text))
        notes.append(f"Instructions used: {path}.")
    return tuple(used)


async def _standing_names(repository: Repository, commit: str, names: Sequence[str]) -> frozenset[str]:
    """Those of the names that stand in the commit at all; most projects have none of them."""
    paths = [path for name in names if (path := normalised_path(name))]
    if not paths:
        return frozenset()
    listing = await run_git(repository, ["ls-tree", "-z", "--name-only", "--full-tree", commit, "--", *paths])
    return frozenset(listing.stdout.decode(errors="replace").split("\0"))
