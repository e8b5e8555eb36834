"""Open buffers that were not saved, taken into a snapshot's index in place of what is on disk (SNAP-01).

The invariant: a buffer lands on the file that the editor would save it to, with the line-end conversion and the mode
that git knows for that file; one that no snapshot may hold (ignored, outside, in a nested repository) is left out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from anyio import to_thread

from outpost_lsp.worktrees.git import Repository, run_git
from outpost_lsp.worktrees.objects import Entry
from outpost_lsp.worktrees.working_tree import Scan, entries_of, ignored_among, named

_PLAIN_FILE = b"100644"


async def add_unsaved(
    repository: Repository,
    index: Path,
    unsaved: Mapping[str, str | bytes],
    scan: Scan,
    base: str,
    *,
    untracked: bool,
) -> tuple[str, ...]:
    """Write the buffers (repository-relative path to text) into the private index; the notes name those left out.

    `scan` and `base` (a tree) tell how git knows files that the index does not hold.
    """
    buffers, outside = await to_thread.run_sync(_landing, repository.top, unsaved)
    known = await _known(repository, index, buffers, scan, base)
    left_out = set(await to_thread.run_sync(_nested, repository.top, buffers))
    left_out |= {path for path in buffers if any(os.fsencode(above) in known for above in _ancestors(path))}
    fresh = [path for path in buffers if path not in known and path not in left_out]
    left_out |= set(await ignored_among(repository, index, fresh)) if untracked else set(fresh)
    for path, text in buffers.items():
        mode = known[path].mode if path in known else _PLAIN_FILE
        if path not in left_out and not await _add(repository, index, path, text, mode):
            left_out.add(path)
    notes = []
    if outside:
        notes.append(f"Unsaved text left out, its file is not in the repository: {', '.join(outside)}.")
    if left_out:
        notes.append(
            f"Unsaved text left out, its file is ignored or not part of the snapshot: {named(sorted(left_out))}."
        )
    return tuple(notes)


def _landing(top: Path, unsaved: Mapping[str, str | bytes]) -> tuple[dict[bytes, bytes], list[str]]:
    """Where each buffer would be saved, links followed, as bytes; and the names of those that leave the repository."""
    buffers, outside = {}, []
    for name, text in unsaved.items():
        real = Path(os.path.realpath(top / name))
        if not real.is_relative_to(top) or real == top or ".git" in (part.lower() for part in real.parts):
            outside.append(name)
            continue
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        buffers[os.fsencode(real.relative_to(top).as_posix())] = data
    return buffers, outside


def _nested(top: Path, paths: Mapping[bytes, bytes]) -> list[bytes]:
    """The paths below a folder that is a repository of its own."""
    return [path for path in paths if any(os.path.lexists(top / above / ".git") for above in _ancestors(path))]


async def _known(
    repository: Repository, index: Path, buffers: Mapping[bytes, bytes], scan: Scan, base: str
) -> dict[bytes, Entry]:
    """How git knows the buffers' files and the folders above them, where these are submodules."""
    asked = {*buffers, *(os.fsencode(above) for path in buffers for above in _ancestors(path))}
    known: dict[bytes, Entry] = {}
    if base and buffers:
        names = [os.fsdecode(path) for path in sorted(asked)]
        listing = await run_git(repository, ["ls-tree", "-z", "--full-tree", base, "--", *names], check=True)
        for line in listing.stdout.split(b"\0"):
            attributes, _, path = line.partition(b"\t")
            fields = attributes.split(b" ")
            if path in asked and fields[1] != b"tree":
                known[path] = Entry(fields[0], fields[2].decode("ascii"))
    for path in asked & scan.staged.keys():
        entry = scan.staged[path]
        if entry is None:
            known.pop(path, None)
        else:
            known[path] = entry
    for path in scan.deleted:
        known.pop(path, None)
    return known | await entries_of(repository, index, buffers)


async def _add(repository: Repository, index: Path, path: bytes, text: bytes, mode: bytes) -> bool:
    """Whether the index took it; a path below a submodule or below a file is refused by git."""
    arguments = ["hash-object", "-w", f"--path={os.fsdecode(path)}", "--stdin"]
    oid = (await run_git(repository, arguments, stdin=text, check=True)).stdout.strip()
    entry = b"%s %s 0\t%s\0" % (mode, oid, path)
    result = await run_git(repository, ["update-index", "-z", "--add", "--index-info"], index=index, stdin=entry)
    return result.status == 0


def _ancestors(path: bytes) -> list[str]:
    return [str(above) for above in PurePosixPath(os.fsdecode(path)).parents if str(above) != "."]
