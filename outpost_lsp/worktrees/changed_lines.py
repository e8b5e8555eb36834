"""Which lines of the new side a change touches, as ranges.

The invariant: a file is found by the listing of what differs, never by the names in a patch, which can hold anything.
Called by reviews, whose findings have to lie in what changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from anyio import to_thread

from outpost_lsp.errors import OutpostError
from outpost_lsp.worktrees.changes import (
    LONGEST_LISTING,
    RENAMES,
    ChangedFile,
    compared,
    listed,
    raw_entries,
    text_of,
)
from outpost_lsp.worktrees.git import Repository
from outpost_lsp.worktrees.together import both

_HUNK = re.compile(rb"@@ -\d+(?:,\d+)? \+(\d+)(?:,(\d+))? @@")
_GITLINK = "160000"
_LONGEST_DIFF = 256 * 1024 * 1024


Lines = Mapping[str, tuple[tuple[int, int], ...]]
"""By path the lines of the new side that differ, as half-open ranges from 0; deletions alone give an empty range."""


async def changed_files_and_lines(
    repository: Repository, base: str, commit: str, paths: Sequence[str] = ()
) -> tuple[tuple[ChangedFile, ...], Lines, int]:
    """The files that differ between two commits or trees, their lines not counted, and which lines do.

    A file that is new counts whole; a binary or deleted one has no ranges. Last, how many more files differ whose names
    are no UTF-8.
    """
    sides = [base, commit, "--", *paths]
    # Without -z names are quoted, so that a name with a line break cannot pass for a hunk.
    as_patch = ["-p", "-U0", "--diff-algorithm=histogram"]
    listing, result = await both(
        lambda: compared(repository, ["diff-tree", "-r", *RENAMES, "-z", "--raw", *sides], LONGEST_LISTING),
        lambda: compared(repository, ["diff-tree", "-r", *RENAMES, *as_patch, *sides], _LONGEST_DIFF),
    )
    if result.truncated or listing.truncated:
        raise OutpostError("limit", "The diff is larger than 256 MiB; review fewer paths.", {"limit": "diff"})
    lines = await to_thread.run_sync(_changed_lines, listing.stdout, result.stdout)
    files, odd = listed(listing.stdout)
    return files, lines, len(odd)


def _changed_lines(listing: bytes, diff: bytes) -> Lines:
    sections = iter(re.split(rb"(?m)^diff --git ", diff)[1:])
    ranges: dict[str, tuple[tuple[int, int], ...]] = {}
    for status, _, new_mode, _, _, names in raw_entries(listing):
        if status == "T":
            next(sections)  # A change of kind is shown as a deletion and a new file.
        section = next(sections)
        path = text_of(names[-1])
        if path is not None and status != "D" and new_mode != _GITLINK:
            ranges[path] = tuple(_new_side(section))
    return ranges


def _new_side(section: bytes) -> list[tuple[int, int]]:
    ranges = []
    for line in section.split(b"\n"):
        match = _HUNK.match(line) if line.startswith(b"@@ ") else None
        if match is not None:
            count = 1 if match[2] is None else int(match[2])
            # With no new line the number names the line before the place.
            start = int(match[1]) if count == 0 else int(match[1]) - 1
            ranges.append((start, start + count))
    return ranges
