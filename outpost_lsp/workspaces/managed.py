"""The worktrees of branches: found again, made, moved aside when they are none, and removed when they hold nothing.

The invariant: a folder with content is never deleted here. What stands where a worktree has to go and is none is moved
to the recovery folder (WS-13); `remove` lets git refuse whatever is not clean (WS-25). Registrations of worktrees that
the product did not make are left alone. Called with the branch's lock held.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread

from outpost_lsp.errors import OutpostError
from outpost_lsp.storage.layout import RepositoryLayout
from outpost_lsp.storage.private_files import private_folder
from outpost_lsp.workspaces.names import belongs_to, branch_hash, folder_for
from outpost_lsp.workspaces.reading import ListedWorktree, branch_tip, registered_worktrees
from outpost_lsp.worktrees.git import Repository, failed, run_git
from outpost_lsp.worktrees.private_index import writing
from outpost_lsp.worktrees.repository import administrative_directories, registered_directory

_RETRY_S: Final = 5.0
_PAUSE_S: Final = 0.05
_LOCKED_BY_OTHERS: Final = re.compile(
    r"(could not lock|unable to create .*\.lock|File exists|cannot lock ref)", re.IGNORECASE
)
_IN_USE: Final = re.compile(r"already (checked out|used by worktree)")


def workspaces_folder(layout: RepositoryLayout) -> Path:
    """The folder of a repository's branch worktrees. It is state, not cache: what is in it may be somebody's work."""
    return private_folder(layout.state / "workspaces").resolve()


def recovery_folder(layout: RepositoryLayout) -> Path:
    """Where things go that were in the way."""
    return private_folder(layout.state / "recovery").resolve()


async def find(repository: Repository, managed: Path, branch: str) -> Path | None:
    """The managed worktree of a branch, dirty or detached as it may be; `None` when there is none (WS-10).

    `conflict` with its place when the branch is checked out anywhere else (WS-11).
    """
    await _prune(repository, managed, branch)
    listed = await registered_worktrees(repository)
    for worktree in listed:
        if worktree.branch == branch:
            if worktree.directory.parent == managed:
                return worktree.directory
            raise in_use(branch, worktree.directory)
    return next((one.directory for one in listed if _is_detached_one(one, managed, branch)), None)


async def create(
    repository: Repository, layout: RepositoryLayout, managed: Path, branch: str, *, label: str | None, start: str
) -> Path:
    """A new worktree of a branch, which is made at `start` when it is not there yet (WS-14)."""
    directory = managed / folder_for(branch, label)
    await to_thread.run_sync(_move_orphan, layout, directory, branch)
    arguments = ["worktree", "add", "--quiet", "--no-checkout"]
    is_known = bool(await branch_tip(repository, branch))
    if is_known:
        arguments += [str(directory), branch]
    else:
        arguments += ["--no-track", "-b", branch, str(directory), start]
    try:
        await _add(repository, arguments, branch)
        await run_git(repository, ["read-tree", "--reset", "-u", "HEAD"], worktree=directory, check=True)
    except BaseException:
        with anyio.CancelScope(shield=True), anyio.move_on_after(10):
            await _undo(repository, directory)
            if not is_known:
                # Only while it is what was made here.
                await run_git(repository, ["update-ref", "-d", f"refs/heads/{branch}", start])
        raise
    return directory


async def remove(repository: Repository, directory: Path) -> bool:
    """Remove a worktree that git finds clean; whether it is gone."""
    async with writing(repository):
        result = await run_git(repository, ["worktree", "remove", str(directory)])
    return result.status == 0


async def forget(repository: Repository, directory: Path) -> None:
    """Drop the registration of a worktree if its folder is gone."""
    async with writing(repository):
        await to_thread.run_sync(_forget, repository, directory)


async def delete_merged_branch(repository: Repository, branch: str) -> None:
    """Delete a generated branch when everything in it is merged; git refuses otherwise, and so it survives."""
    async with writing(repository):
        await run_git(repository, ["branch", "-d", "--quiet", branch])


def in_use(branch: str, directory: Path | None) -> OutpostError:
    """The fault of a branch that is checked out elsewhere."""
    details = {"branch": branch} | ({} if directory is None else {"directory": str(directory)})
    where = "elsewhere" if directory is None else f"in {directory}"
    return OutpostError("conflict", f"The branch {branch} is checked out {where}.", details)


def _is_detached_one(worktree: ListedWorktree, managed: Path, branch: str) -> bool:
    return not worktree.branch and worktree.directory.parent == managed and belongs_to(worktree.directory, branch)


async def _prune(repository: Repository, managed: Path, branch: str) -> None:
    """Forget this branch's worktree when its folder is gone (WS-09); nobody else can be making it: we hold the lock."""
    for entry in await to_thread.run_sync(administrative_directories, repository.common_dir):
        place = registered_directory(entry)
        if place is not None and place.parent == managed and belongs_to(place, branch):
            await forget(repository, place)


async def _add(repository: Repository, arguments: list[str], branch: str) -> None:
    deadline = anyio.current_time() + _RETRY_S
    while True:
        async with writing(repository):
            result = await run_git(repository, arguments)
        if result.status == 0:
            return
        if _IN_USE.search(result.stderr):
            raise in_use(branch, None)
        if not _LOCKED_BY_OTHERS.search(result.stderr) or anyio.current_time() > deadline:
            raise failed(arguments[:2], result)
        await anyio.sleep(_PAUSE_S)


async def _undo(repository: Repository, directory: Path) -> None:
    """Take back a worktree that was begun: nobody has worked in it yet."""
    await to_thread.run_sync(shutil.rmtree, directory, True)
    await forget(repository, directory)


def _forget(repository: Repository, directory: Path) -> None:
    for entry in administrative_directories(repository.common_dir):
        if registered_directory(entry) == directory and not os.path.lexists(directory):
            shutil.rmtree(entry, ignore_errors=True)


def _move_orphan(layout: RepositoryLayout, directory: Path, branch: str) -> None:
    if os.path.lexists(directory):
        directory.rename(recovery_folder(layout) / f"orphan-{branch_hash(branch)}-{uuid.uuid4()}")
