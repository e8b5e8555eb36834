"""What differs between a commit, the index and the files beside it, and taking the files in.

The invariant: the index that is compared with is only read, with its stat data, so that what has not changed is not read
again. What has changed goes through a small index of its own, which holds nothing else: the cost is that of the changes.
Paths are bytes as git gives them and are never patterns or options; what cannot be taken is left out and said, it never
fails the whole. Git is not started inside a nested repository. Used by snapshots and change sets.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from anyio import to_thread

from outpost_lsp.domain.landing import is_unfinished
from outpost_lsp.worktrees.git import Repository, failed, run_git
from outpost_lsp.worktrees.index_file import write_index
from outpost_lsp.worktrees.objects import Entry, ObjectReader

_NAMED_IN_A_NOTE = 10
_GITLINK = b"160000"
_LONGEST_LISTING = 1 << 30
_SHORT = 8_192
"""A listing that is read sooner than a worker thread takes it up."""


@dataclass(frozen=True, slots=True)
class Scan:
    """The paths that are not the same in `HEAD`, the index and the work tree, relative to the top."""

    staged: Mapping[bytes, Entry | None] = field(default_factory=dict)
    """What the index holds otherwise than `HEAD`; `None` where it holds nothing."""
    changed: Mapping[bytes, Entry | None] = field(default_factory=dict)
    """Files that are not as the index says, to what it says; `None` for unmerged and intended entries."""
    deleted: tuple[bytes, ...] = ()
    unmerged: tuple[bytes, ...] = ()
    untracked: tuple[bytes, ...] = ()
    ignored: tuple[bytes, ...] = ()
    """A folder ends in a slash and stands for all that is in it."""
    nested: tuple[bytes, ...] = ()
    """Repositories of their own that the index does not know; they end in a slash."""
    head: str | None = None
    """The commit that the index was compared with; empty where there is none, `None` when it is not known."""

    def without_changes(self) -> Scan:
        """The untracked files alone, but for those that `HEAD` has."""
        fresh = tuple(path for path in self.untracked if path not in self.staged)
        return Scan(untracked=fresh, ignored=self.ignored, nested=self.nested, head=self.head)

    def without_untracked(self) -> Scan:
        """What git tracks alone."""
        return replace(self, untracked=(), nested=())

    def only_staged(self) -> Scan:
        """The index alone; a conflict has no staged content, so that its files stay in (SNAP-02)."""
        changed = {path: entry for path, entry in self.changed.items() if path in self.unmerged}
        deleted = tuple(path for path in self.deleted if path in self.unmerged)
        return Scan(self.staged, changed, deleted, self.unmerged, head=self.head)


async def scan_working_tree(
    repository: Repository, *, index: Path | None = None, untracked: bool = True, ignored: bool = True
) -> Scan:
    """Compare the files with the repository's index, or another one, and that with `HEAD`; nothing is written."""
    arguments = ["status", "--porcelain=v2", "-z", "--branch", "--no-renames", "--no-ahead-behind"]
    arguments.append("--untracked-files=all" if untracked else "--untracked-files=no")
    if ignored and untracked:
        arguments.append("--ignored=matching")
    result = await run_git(repository, arguments, index=index, check=True, max_output=_LONGEST_LISTING)
    if len(result.stdout) < _SHORT:
        return _parse(result.stdout)
    return await to_thread.run_sync(_parse, result.stdout)


async def scan_paths(repository: Repository, base: str, paths: Collection[str], reader: ObjectReader) -> Scan:
    """Compare the named files with a tree; whatever else differs is not looked at."""
    names = sorted({path for path in paths if path})
    if not names:
        return Scan()
    entries = await reader.entries(base, [os.fsencode(name) for name in names])
    known = {path: entry for path, entry in entries.items() if not entry.is_tree and entry.mode != _GITLINK}
    present, absent = await to_thread.run_sync(_present, repository.top, names)
    fresh = [path for path in present if path not in known]
    ignored = set(await ignored_among(repository, None, fresh))
    return Scan(
        changed={path: known[path] for path in present if path in known},
        deleted=tuple(path for path in absent if path in known),
        untracked=tuple(path for path in fresh if path not in ignored),
    )


async def ignored_among(repository: Repository, index: Path | None, paths: Sequence[bytes]) -> list[bytes]:
    """Those of the paths that are ignored and not in the index."""
    if not paths:
        return []
    # The command refuses literal pathspecs; a leading dot keeps a colon from being magic, and a wildcard is a name here.
    stdin = b"".join(b"./%s\0" % path for path in paths)
    arguments = ["check-ignore", "-z", "--stdin"]
    result = await run_git(repository, arguments, index=index, stdin=stdin, glob_pathspecs=True)
    if result.status not in {0, 1}:
        raise failed(arguments, result)
    return [path.removeprefix(b"./") for path in result.stdout.split(b"\0") if path]


async def take_files(repository: Repository, index: Path, scan: Scan, *, max_untracked: int) -> tuple[str, ...]:
    """Take the changed and untracked files into an empty index; the notes say what was left out and why.

    An entry of the index that was compared with comes first, since the conversion of line ends looks at it.
    """
    sorted_out = await to_thread.run_sync(_sort_out, repository.top, scan, max_untracked)
    known = {path: entry for path, entry in scan.changed.items() if entry is not None}
    if known:
        await to_thread.run_sync(write_index, index, known)
    refused = await _update(repository, index, sorted_out.taken)
    return (*sorted_out.notes, *(f"Left out, git cannot read it: {shown(path)} ({why})." for path, why in refused))


async def entries_of(repository: Repository, index: Path, paths: Collection[bytes] = ()) -> dict[bytes, Entry]:
    """The merged entries of an index, or those of the named paths."""
    names = ["--", *(os.fsdecode(path) for path in paths)] if paths else []
    arguments = ["ls-files", "-z", "--stage", *names]
    listing = (await run_git(repository, arguments, index=index, check=True, max_output=_LONGEST_LISTING)).stdout
    entries = {}
    for line in listing.split(b"\0"):
        attributes, _, path = line.partition(b"\t")
        fields = attributes.split(b" ")
        if len(fields) == 3 and fields[2] == b"0" and (not paths or path in paths):
            entries[path] = Entry(fields[0], fields[1].decode("ascii"))
    return entries


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
    staged: dict[bytes, Entry | None] = {}
    changed: dict[bytes, Entry | None] = {}
    deleted: list[bytes] = []
    unmerged: list[bytes] = []
    others: dict[bytes, list[bytes]] = {b"untracked": [], b"ignored": [], b"nested": []}
    head: str | None = None
    for line in listing.split(b"\0"):
        match line[:2]:
            case b"1 ":
                _, (*_, status), _, _, mode, _, _, oid, path = [*line.split(b" ", 8)]
                entry = Entry(mode, oid.decode("ascii")) if mode.strip(b"0") else None
                if line[2:3] != b".":
                    staged[path] = entry
                if status == ord("D"):
                    deleted.append(path)
                elif status != ord("."):
                    changed[path] = entry
            case b"u ":
                fields = line.split(b" ", 10)
                unmerged.append(fields[10])
                if fields[6] == b"000000":
                    deleted.append(fields[10])
                else:
                    changed[fields[10]] = None
            case b"# " if line.startswith(b"# branch.oid "):
                oid = line.removeprefix(b"# branch.oid ")
                head = "" if oid == b"(initial)" else oid.decode("ascii")
            case b"? " if is_unfinished(line[2:]):
                continue  # A process that was killed left it: what was written there had not been acknowledged.
            case b"? ":
                others[b"nested" if line.endswith(b"/") else b"untracked"].append(line[2:])
            case b"! ":
                others[b"ignored"].append(line[2:])
    untracked, ignored, nested = (tuple(paths) for paths in others.values())
    return Scan(staged, changed, tuple(deleted), tuple(unmerged), untracked, ignored, nested, head)


def _present(top: Path, names: Iterable[str]) -> tuple[list[bytes], list[bytes]]:
    """The paths at which something else than a folder stands, and the others; what is behind a link does not stand there."""
    present: list[bytes] = []
    absent: list[bytes] = []
    for name in names:
        place = top / name
        behind_link = any((top / above).is_symlink() for above in PurePosixPath(name).parents)
        stands = os.path.lexists(place) and not behind_link and (place.is_symlink() or not place.is_dir())
        (present if stands else absent).append(os.fsencode(name))
    return present, absent


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
        mib = max_untracked >> 20
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


async def why_not_taken(repository: Repository, path: str) -> str | None:
    """Why what stands at `path` beside the repository cannot be taken in, and what helps; `None` where nothing is odd."""
    return await to_thread.run_sync(_why_not_taken, repository.top, path)


def _why_not_taken(top: Path, path: str) -> str | None:
    full = top / path
    try:
        mode = full.lstat().st_mode
    except OSError:
        return None  # It is not there, or no file can have that name.
    if _ordinary(top, [os.fsencode(path)])[0]:
        if stat.S_ISDIR(mode) and not os.access(full, os.R_OK | os.X_OK):
            return f"{path} may not be read by this user; check the permissions of the folder"
        return None
    if stat.S_ISREG(mode):
        return f"{path} may not be read by this user; check the permissions of the file"
    return f"{path} is neither a file nor a folder, so there is no text to review"


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
            raise failed(arguments, result, repository)
        return [(paths[0], reason)]
    half = len(paths) // 2
    return [
        *await _update(repository, index, paths[:half]),
        *await _update(repository, index, paths[half:]),
    ]


def _lines(paths: Iterable[bytes]) -> bytes:
    return b"".join(path + b"\0" for path in paths)
