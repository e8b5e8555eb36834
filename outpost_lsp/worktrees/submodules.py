"""The files of submodules in a worktree, laid out from the stores that the user's repository holds (SNAP-08).

The invariant: nothing is fetched, registered or configured; a submodule whose store or commit is not there stays an empty
folder and is noted. What an agent changes below a submodule is not part of the result, which the note says too.
"""

from __future__ import annotations

import configparser
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

import anyio
from anyio import to_thread

from outpost_lsp.errors import OutpostError
from outpost_lsp.worktrees.git import Repository, run_git
from outpost_lsp.worktrees.repository import is_git_directory
from outpost_lsp.worktrees.scratch import scratch_folder

_DEEPEST = 5


async def lay_out_submodules(worktree: Repository, commit: str) -> tuple[str, ...]:
    """Fill the submodules of a worktree that has just been checked out; the notes name what is there and what is not."""
    filled: list[str] = []
    empty: list[str] = []
    await _lay_out(worktree, commit, worktree.common_dir / "modules", "", filled, empty)
    notes = []
    if filled:
        notes.append(f"Submodules are there to read; changes in them are not part of the result: {', '.join(filled)}.")
    if empty:
        notes.append(f"Submodules that are not stored here are empty folders: {', '.join(empty)}.")
    return tuple(notes)


async def _lay_out(
    checkout: Repository, commit: str, stores: Path, prefix: str, filled: list[str], empty: list[str]
) -> None:
    # One look at a folder of the product's own: a worker thread would cost each dispatch more than that.
    if prefix.count("/") > _DEEPEST or not (checkout.top / ".gitmodules").is_file():
        return
    names = await to_thread.run_sync(_declared, checkout.top / ".gitmodules")
    for path, oid in await _recorded(checkout, commit, list(names)):
        store = await to_thread.run_sync(_store, stores, names[path])
        if store is None:
            empty.append(f"{prefix}{path}")
            continue
        inner = Repository(checkout.top / path, store, store, environment=checkout.environment)
        if not await _fill(inner, oid):
            empty.append(f"{prefix}{path}")
            continue
        filled.append(f"{prefix}{path}")
        await _lay_out(inner, oid, store / "modules", f"{prefix}{path}/", filled, empty)


async def _fill(inner: Repository, oid: str) -> bool:
    """Check the commit out into the folder through an index that is thrown away; whether the store had it."""
    folder = await to_thread.run_sync(scratch_folder, "index")
    try:
        known = await run_git(inner, ["cat-file", "-e", f"{oid}^{{commit}}"])
        if known.status != 0:
            return False
        return (await run_git(inner, ["read-tree", "--reset", "-u", oid], index=folder / "index")).status == 0
    except OutpostError:
        return False
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(shutil.rmtree, folder, True)


async def _recorded(checkout: Repository, commit: str, paths: Sequence[str]) -> list[tuple[str, str]]:
    """The paths that are really submodules in the checkout's commit, with their commits."""
    if not paths:
        return []
    listing = await run_git(checkout, ["ls-tree", "-z", "--full-tree", commit, "--", *paths])
    found = []
    for entry in listing.stdout.split(b"\0"):
        attributes, _, path = entry.partition(b"\t")
        if attributes.startswith(b"160000 commit "):
            found.append((os.fsdecode(path), attributes[14:].decode("ascii")))
    return found


def _declared(file: Path) -> Mapping[str, str]:
    """Path to name of every submodule that `.gitmodules` declares in a usable way."""
    # GitPython reads git's configuration syntax; its import is slow, and only checkouts with submodules pay for it.
    from git.config import GitConfigParser

    declared: dict[str, str] = {}
    if file.is_symlink():
        return declared
    try:
        with GitConfigParser(str(file), read_only=True, merge_includes=False) as parser:
            for section in parser.sections():
                kind, _, name = section.partition(" ")
                path = str(parser.get_value(section, "path", ""))
                parts = PurePosixPath(path).parts
                if kind == "submodule" and parts and ".." not in parts and not path.startswith("/"):
                    declared[path] = name.strip('"')
    except (configparser.Error, ValueError, OSError):
        return {}  # What git cannot read declares nothing; the folders stay empty.
    return declared


def _store(stores: Path, name: str) -> Path | None:
    """The git directory that the repository keeps for a submodule, if it keeps one; never one outside of it."""
    place = stores / name
    resolved = Path(os.path.realpath(place))
    if not name or not resolved.is_relative_to(os.path.realpath(stores)) or resolved == stores:
        return None
    return resolved if is_git_directory(resolved) else None
