"""Which lines of the new side a change touches, as ranges.

The invariant: a file is found by the listing of what differs, never by the names in a patch, which can hold anything.
Called by reviews, whose findings have to lie in what changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from anyio import to_thread

from outpost_lsp.errors import OutpostError
from outpost_lsp.worktrees.changes import (
    RENAMES,
    ChangedFile,
    compared,
    listed,
    raw_entries,
    text_of,
)
from outpost_lsp.worktrees.git import Repository

_QUOTED = re.compile(rb"\\([0-7]{3}|.)")
_MARKS: Final = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r"}
"""How git writes what is not printable; a quotation mark and a backslash stand for themselves."""
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
    # Without -z names are quoted, so that a name with a line break cannot pass for a hunk.
    shown = ["--raw", "--no-abbrev", "-p", "-U0", "--diff-algorithm=histogram"]
    arguments = ["diff-tree", "-r", *RENAMES, *shown, base, commit, "--", *paths]
    result = await compared(repository, arguments, _LONGEST_DIFF)
    if result.truncated:
        raise OutpostError("limit", "The diff is larger than 256 MiB; review fewer paths.", {"limit": "diff"})
    return await to_thread.run_sync(_told, result.stdout)


def _told(output: bytes) -> tuple[tuple[ChangedFile, ...], Lines, int]:
    raw, _, diff = output.partition(b"\n\n")
    listing = b"".join(field + b"\0" for line in raw.split(b"\n") if line for field in _fields(line))
    files, odd = listed(listing)
    return files, _changed_lines(listing, diff), len(odd)


def _fields(line: bytes) -> list[bytes]:
    """What a line of the listing says, as `-z` would: the names as they are."""
    meta, *names = line.split(b"\t")
    return [meta, *(_QUOTED.sub(_meant, name[1:-1]) if name.startswith(b'"') else name for name in names)]


def _meant(quoted: re.Match[bytes]) -> bytes:
    mark = quoted[1]
    return bytes([int(mark, 8)]) if mark.isdigit() else _MARKS.get(mark, mark)


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
