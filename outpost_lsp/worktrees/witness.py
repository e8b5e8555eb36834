"""Proof that a run left the user's repository alone: what it was before, what it is after, and what differs.

The invariant: only reading. A difference is named for what it is; the user, an editor or another program may have made it
meanwhile. A file of the checkout that became the agent's version is the one that a run could be blamed for.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anyio import to_thread

from outpost_lsp.worktrees.contents import FileVersions
from outpost_lsp.worktrees.git import Repository

_SETTLED_NS = 2_000_000_000
"""A file that was changed longer ago than this cannot change again without another time of change."""
_PARTS = ("HEAD", "index", "config", "packed-refs", "refs", "hooks", "info", "stash reflog")


@dataclass(frozen=True, slots=True)
class Witness:
    """Digests of what a run must not touch."""

    digests: Mapping[str, str]


async def take_witness(repository: Repository) -> Witness:
    """Digests of HEAD, index, configuration, refs, hooks, info and the stash's reflog as they stand now."""
    return Witness(await to_thread.run_sync(_digests, repository))


def differences(before: Witness, after: Witness) -> tuple[str, ...]:
    """The parts that differ, by name."""
    return tuple(part for part in _PARTS if before.digests[part] != after.digests[part])


async def taken_over(repository: Repository, versions: Sequence[FileVersions]) -> tuple[str, ...]:
    """The files of the user's checkout that hold the agent's version although nothing was applied."""
    return await to_thread.run_sync(_taken_over, repository.top, versions)


def _taken_over(top: Path, versions: Sequence[FileVersions]) -> tuple[str, ...]:
    found = []
    for each in versions:
        place = top / each.file.path
        try:
            if place.is_symlink():
                content: bytes | None = os.fsencode(place.readlink())
            elif place.is_file():
                content = place.read_bytes()
            else:
                continue
        except OSError:
            continue
        if each.result is not None and content == each.result and content != each.base:
            found.append(each.file.path)
    return tuple(found)


def _digests(repository: Repository) -> dict[str, str]:
    own, common = repository.git_dir, repository.common_dir
    return {
        "HEAD": _file(own / "HEAD"),
        "index": _index(own / "index"),
        "config": _file(common / "config") + _file(own / "config.worktree"),
        "packed-refs": _file(common / "packed-refs"),
        "refs": _folder(common / "refs"),
        "hooks": _folder(common / "hooks"),
        "info": _folder(common / "info"),
        "stash reflog": _file(common / "logs" / "refs" / "stash"),
    }


_INDEXES: Final[dict[Path, tuple[tuple[int, ...], str]]] = {}
"""Indexes that were read once, by what the file system says of them: some have megabytes, and few change during a run."""


def _index(path: Path) -> str:
    signature = _signature(path)
    known = _INDEXES.get(path)
    if known is not None and known[0] == signature:
        return known[1]
    begun = time.time_ns()
    digest = _file(path)
    # The time of change is the system's own: no program sets it.
    if signature is not None and signature == _signature(path) and begun - signature[-1] > _SETTLED_NS:
        _INDEXES[path] = (signature, digest)
    return digest


def _signature(path: Path) -> tuple[int, ...] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return "absent"


def _folder(path: Path) -> str:
    total = hashlib.sha256()
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            place = Path(folder) / name
            mode = place.lstat().st_mode
            total.update(f"{place.relative_to(path)}\0{mode}\0{_file(place)}\0".encode("utf-8", "surrogateescape"))
    return total.hexdigest()
