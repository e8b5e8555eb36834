"""Work on a folder that is no git repository: a copy of it with a git directory of the product's own (SNAP-09).

The invariant: the folder itself is only read; what is copied is bounded; links are copied as links and nothing is read
through one. The result is a `Worktree` like any other, so that change sets, apply and closing work alike.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from uuid import uuid4

import anyio
from anyio import to_thread

from outpost_lsp.errors import OutpostError
from outpost_lsp.worktrees import hardening, registration
from outpost_lsp.worktrees.git import Repository, run_git
from outpost_lsp.worktrees.snapshot import Snapshot, commit_tree, tree_of
from outpost_lsp.worktrees.trash import TRASH, discard, sweep
from outpost_lsp.worktrees.working_tree import scan_working_tree
from outpost_lsp.worktrees.worktree import Leftover, Worktree, holds, prepare_place

MOST_BYTES: Final = 50 * 1024 * 1024
MOST_FILES: Final = 5_000
GIT_FOLDERS: Final = ".plain"
"""Inside the folder of worktrees: the git directories of copies, beside them and out of an agent's reach."""


async def open_plain_folder(
    folder: Path,
    directory: Path,
    *,
    run_id: str,
    unsaved: Mapping[str, str | bytes] | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[Worktree, Snapshot]:
    """A copy of a plain folder at ``directory/run_id`` with its snapshot; `workspace` when the folder is too large.

    Ignored files (by `.gitignore` files in the folder) are copied, and are no part of the snapshot.
    """
    host = hardening.host_environment() if environment is None else environment
    source = await to_thread.run_sync(lambda: folder.resolve(strict=True))
    target = await to_thread.run_sync(prepare_place, directory, run_id)
    git_dir = target.parent / GIT_FOLDERS / f"{run_id}-{uuid4().hex}"
    repository = Repository(target, git_dir, git_dir, environment=dict(host))
    try:
        await to_thread.run_sync(_copy_tree, source, target)
        snapshot = await _commit(repository, unsaved or {})
        owner = registration.this_process(run_id, snapshot.commit)
        await to_thread.run_sync((git_dir / "locked").write_text, owner.reason)
        hold = await to_thread.run_sync(registration.Hold, git_dir)
    except BaseException as error:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(discard, target)
            await to_thread.run_sync(discard, git_dir)
        if isinstance(error, OSError):
            message = f"{source} cannot be copied: {error.strerror} ({error.filename})."
            raise OutpostError("workspace", message) from error
        raise
    worktree = Worktree(repository, repository, target, snapshot.commit, run_id, companions=(git_dir,), hold=hold)
    return worktree, snapshot


async def reap_plain_folders(directory: Path, environment: Mapping[str, str] | None = None) -> tuple[Leftover, ...]:
    """Clear the copies of plain folders that dead processes left without changes; tell which hold something."""
    host = hardening.host_environment() if environment is None else environment
    found = []
    for git_dir in await to_thread.run_sync(lambda: sorted((directory / GIT_FOLDERS).glob("*"))):
        owner = await to_thread.run_sync(registration.owner_of, git_dir)
        if owner is None or owner.is_alive:
            continue
        target = directory / owner.run_id
        view = Repository(target, git_dir, git_dir, environment=dict(host))
        reason = await holds(view, owner, deadline_s=60.0)
        if not reason:
            await to_thread.run_sync(discard, target)
            await to_thread.run_sync(discard, git_dir)
        found.append(Leftover(target, owner.run_id, owner.base, "kept" if reason else "removed", reason))
    await to_thread.run_sync(sweep, directory / GIT_FOLDERS / TRASH)
    return tuple(found)


def copy_of_plain_folder(directory: Path, run_id: str) -> Repository | None:
    """The copy that a run worked on, as its own repository; `None` when it is gone."""
    for git_dir in sorted((directory / GIT_FOLDERS).glob(f"{run_id}-*")):
        return Repository(directory / run_id, git_dir, git_dir, environment=dict(hardening.host_environment()))
    return None


async def begin_copy(repository: Repository) -> None:
    """Make the empty git directory of a copy; its objects come from the copy itself, or later from a run's bundle."""
    for folder in (repository.git_dir, repository.top):
        await to_thread.run_sync(lambda place: place.mkdir(mode=0o700, parents=True, exist_ok=True), folder)
    await run_git(repository, ["init", "--quiet", "--template=", "--initial-branch=main"], check=True)


async def _commit(repository: Repository, unsaved: Mapping[str, str | bytes]) -> Snapshot:
    await begin_copy(repository)
    scan = await scan_working_tree(repository)
    tree, notes = await tree_of(repository, scan, "", max_untracked=MOST_BYTES, unsaved=unsaved)
    commit = await commit_tree(repository, tree, "", "Outpost copy of a folder")
    await run_git(repository, ["update-ref", "--no-deref", "HEAD", commit], check=True)
    await run_git(repository, ["read-tree", "--reset", "-u", commit], check=True)
    return Snapshot(commit, tree, "", "", notes, len(scan.ignored))


def _copy_tree(source: Path, target: Path) -> None:
    size = files = 0
    target.mkdir(mode=0o700)
    for entry in _entries(source):
        place = target / entry.relative_to(source)
        status = entry.lstat()
        if stat.S_ISDIR(status.st_mode):
            place.mkdir()
            continue
        size += status.st_size
        files += 1
        if size > MOST_BYTES or files > MOST_FILES:
            raise OutpostError(
                "workspace",
                f"{source} is not a git repository and too large to copy: more than {MOST_BYTES // 1024**2} MiB or "
                f"{MOST_FILES} files. Run `git init` there.",
            )
        shutil.copy2(entry, place, follow_symlinks=False)


def _entries(source: Path) -> Iterator[Path]:
    """Every folder, plain file and link below `source`, folders before what is in them; nothing named like git's folder."""
    for folder, folders, names in os.walk(source):
        here = Path(folder)
        linked = [name for name in folders if (here / name).is_symlink()]
        folders[:] = sorted(name for name in folders if name not in linked and name.lower() != ".git")
        yield from (here / name for name in folders)
        for name in sorted((*linked, *names)):
            mode = (here / name).lstat().st_mode
            if name.lower() != ".git" and (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
                yield here / name
