"""Repositories of their own that an agent made in its worktree: their files are part of what it changed (SNAP-05).

The invariant: nothing an agent made is missing from its result without a word. Git passes such a folder over, or takes it
for a submodule once it was added, and is not started inside it; so its files are looked for here. Its history cannot be
part of a change, which is said. The user's own nested repositories are none of this: a snapshot leaves them out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from anyio import to_thread

from outpost_lsp.worktrees.git import Repository, run_git
from outpost_lsp.worktrees.working_tree import Scan, ignored_among, named

_GITLINK = b"160000"


async def with_nested_files(worktree: Repository, scan: Scan, base: str, ground: str) -> tuple[Scan, tuple[str, ...]]:
    """The scan with the files of nested repositories among the untracked ones, and what has to be said of them.

    `base` is the tree of the snapshot, `ground` the one that the scan compares with.
    """
    added = {path for path, entry in scan.staged.items() if entry is not None and entry.mode == _GITLINK}
    committed = await _committed(worktree, base, ground) if ground != base else set()
    links = {path for path in added | committed if _is_repository(worktree.top / os.fsdecode(path))}
    if links:
        names = [os.fsdecode(path) for path in links]
        known = await run_git(worktree, ["ls-tree", "-z", "--name-only", "--full-tree", base, "--", *names], check=True)
        links -= set(known.stdout.split(b"\0"))
    folders = (*scan.nested, *(path + b"/" for path in sorted(links)))
    if not folders:
        return scan, ()
    found = await to_thread.run_sync(lambda: [path for folder in folders for path in _files(worktree.top, folder)])
    # Without an index: in one that has the folder as a submodule, git refuses to look below it.
    ignored = set(await ignored_among(worktree, worktree.git_dir / "outpost-no-index", found))
    fresh = tuple(path for path in found if path not in ignored)
    note = f"A repository of its own, its files are part of the result and its history is not: {named(folders)}."
    kept = {path: entry for path, entry in scan.staged.items() if path not in links}
    return (
        replace(
            scan,
            staged=kept | dict.fromkeys(links & committed),
            changed={path: entry for path, entry in scan.changed.items() if path not in links},
            untracked=(*scan.untracked, *fresh),
            nested=(),
        ),
        (note,),
    )


async def _committed(worktree: Repository, base: str, ground: str) -> set[bytes]:
    """What is a submodule in the tree that an agent committed, and was none before."""
    listing = await run_git(worktree, ["diff-tree", "-r", "-z", "--raw", "--no-renames", base, ground], check=True)
    fields = listing.stdout.split(b"\0")
    modes = (meta.split(b" ") for meta in fields[:-1:2])
    return {path for (_, new, *_), path in zip(modes, fields[1::2], strict=False) if new == _GITLINK}


def _is_repository(folder: Path) -> bool:
    """Whether a folder has a git directory in it; where a submodule was added properly there is a file of that name."""
    return (folder / ".git").is_dir() and folder.resolve() == folder


def _files(top: Path, folder: bytes) -> Iterator[bytes]:
    """All but folders below a folder, relative to the top; nothing is read through a link, nor what is named like git's."""
    root = os.fsencode(top)
    for place, folders, names in os.walk(os.path.join(root, folder)):  # noqa: PTH118 - names are bytes
        here = os.path.relpath(place, root)
        linked = [name for name in folders if os.path.islink(os.path.join(place, name))]  # noqa: PTH114, PTH118
        folders[:] = sorted(name for name in folders if name not in linked and name.lower() != b".git")
        for name in sorted((*linked, *names)):
            if name.lower() != b".git":
                yield os.path.join(here, name)  # noqa: PTH118
