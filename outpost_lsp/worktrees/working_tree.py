"""What differs between an index and the files beside it, and taking it into a private index.

The invariant: paths are bytes as git gives them and are never patterns or options; what cannot be taken is left out and
said, it never fails the whole. Nothing is looked up inside a nested repository. Used by snapshots and change sets.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from outpost_lsp.errors import OutpostError
from outpost_lsp.worktrees.git import Repository, run_git

_NAMED_IN_A_NOTE = 10


@dataclass(frozen=True, slots=True)
class Scan:
    """The paths of a work tree that its index does not hold as they are, relative to the top."""

    changed: tuple[bytes, ...] = ()
    """Tracked, and another content or mode than in the index, unmerged and intended ones included."""
    deleted: tuple[bytes, ...] = ()
    untracked: tuple[bytes, ...] = ()
    ignored: tuple[bytes, ...] = ()
    """A folder ends in a slash and stands for all that is in it."""
    nested: tuple[bytes, ...] = ()
    """Repositories of their own that the index does not know; they end in a slash."""


async def scan_working_tree(repository: Repository, index: Path | None, *, ignored: bool = True) -> Scan:
    """Compare the files with an index, using its stat data; the index is not written."""
    arguments = ["status", "--porcelain=v2", "-z", "--untracked-files=all", "--no-renames", "--no-ahead-behind"]
    if ignored:
        arguments.append("--ignored=matching")
    result = await run_git(repository, arguments, index=index, check=True, max_output=1 << 30)
    return await to_thread.run_sync(_parse, result.stdout)


async def add_working_tree(repository: Repository, index: Path, scan: Scan, *, max_untracked: int) -> tuple[str, ...]:
    """Take what was scanned into the index; the notes say what was left out and why."""
    sorted_out = await to_thread.run_sync(_sort_out, repository.top, scan, max_untracked)
    notes = list(sorted_out.notes)
    if scan.deleted:
        arguments = ["update-index", "-z", "--force-remove", "--stdin"]
        await run_git(repository, arguments, index=index, stdin=_lines(scan.deleted), check=True)
    refused = await _update(repository, index, sorted_out.taken)
    notes += [f"Left out, git cannot read it: {shown(path)} ({reason})." for path, reason in refused]
    return tuple(notes)


def shown(path: bytes) -> str:
    """A path for a person's eyes; bytes that are no UTF-8 appear as escapes."""
    return path.decode("utf-8", "backslashreplace")


def named(paths: Sequence[bytes]) -> str:
    """A list of paths for a note, the first of many."""
    names = ", ".join(shown(path) for path in paths[:_NAMED_IN_A_NOTE])
    more = len(paths) - _NAMED_IN_A_NOTE
    return names if more <= 0 else f"{names} and {more} more"


@dataclass(frozen=True, slots=True)
class _Sorted:
    taken: tuple[bytes, ...]
    notes: tuple[str, ...]


def _parse(listing: bytes) -> Scan:
    changed: list[bytes] = []
    deleted: list[bytes] = []
    untracked: list[bytes] = []
    ignored: list[bytes] = []
    nested: list[bytes] = []
    for entry in listing.split(b"\0"):
        match entry[:2]:
            case b"1 ":
                fields = entry.split(b" ", 8)
                if fields[1][1:] == b"D":
                    deleted.append(fields[8])
                elif fields[1][1:] != b".":
                    changed.append(fields[8])
            case b"u ":
                fields = entry.split(b" ", 10)
                (deleted if fields[6] == b"000000" else changed).append(fields[10])
            case b"? ":
                (nested if entry.endswith(b"/") else untracked).append(entry[2:])
            case b"! ":
                ignored.append(entry[2:])
    return Scan(tuple(changed), tuple(deleted), tuple(untracked), tuple(ignored), tuple(nested))


def _sort_out(top: Path, scan: Scan, max_untracked: int) -> _Sorted:
    notes = []
    changed, odd = _ordinary(top, scan.changed)
    if odd:
        notes.append(f"Not a readable file, so its content in the index stands: {named(odd)}.")
    untracked, odd = _ordinary(top, scan.untracked)
    if odd:
        notes.append(f"Left out, not a readable file: {named(odd)}.")
    sizes = {path: size for path, size in untracked.items() if size is not None}
    total = sum(sizes.values())
    dropped = []
    for path in sorted(sizes, key=lambda path: (-sizes[path], path)):
        if total <= max_untracked:
            break
        total -= sizes[path]
        dropped.append(path)
    if dropped:
        mib = max_untracked // (1024 * 1024)
        notes.append(f"Left out, since untracked files exceed {mib} MiB (sandbox.max_untracked_mib): {named(dropped)}.")
    if scan.nested:
        notes.append(f"Left out, a repository of its own: {named(scan.nested)}.")
    left_out = set(dropped)
    taken = (*changed, *(path for path in untracked if path not in left_out))
    return _Sorted(taken, tuple(notes))


def _ordinary(top: Path, paths: Iterable[bytes]) -> tuple[dict[bytes, int | None], list[bytes]]:
    """The paths that git can take in, each with its size, and those it cannot."""
    good: dict[bytes, int | None] = {}
    odd = []
    for path in paths:
        full = top / os.fsdecode(path)
        try:
            status = full.lstat()
        except OSError:
            good[path] = None  # It went away meanwhile; git finds that out by itself.
            continue
        kind = status.st_mode
        if stat.S_ISLNK(kind) or stat.S_ISDIR(kind) or (stat.S_ISREG(kind) and os.access(full, os.R_OK)):
            good[path] = status.st_size
        else:
            odd.append(path)
    return good, odd


async def _update(repository: Repository, index: Path, paths: Sequence[bytes]) -> list[tuple[bytes, str]]:
    """Add the paths; one that git refuses is found by halving, so that it costs itself only."""
    if not paths:
        return []
    arguments = ["update-index", "-z", "--add", "--remove", "--replace", "--stdin"]
    result = await run_git(repository, arguments, index=index, stdin=_lines(paths))
    if result.status == 0:
        return []
    if len(paths) == 1:
        reason = result.stderr.strip().partition("\n")[0].removeprefix("error: ")
        if any(word in reason for word in ("No space left", "unable to write", "index.lock")):
            raise OutpostError("workspace", f"git update-index failed: {reason}", {"stderr": result.stderr})
        return [(paths[0], reason)]
    half = len(paths) // 2
    return [
        *await _update(repository, index, paths[:half]),
        *await _update(repository, index, paths[half:]),
    ]


def _lines(paths: Iterable[bytes]) -> bytes:
    return b"".join(path + b"\0" for path in paths)
