"""A result saved outside the user's repository, as a git bundle, and brought back from one (SEC-06).

The invariant: no ref is made in the user's repository; a bundle holds the snapshot and the result, and leans on the
commit that `HEAD` named then. Called before a worktree with changes is removed, and to reopen a run.
"""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4

from anyio import to_thread

from outpost_lsp.errors import OutpostError
from outpost_lsp.worktrees.changes import ChangeSet
from outpost_lsp.worktrees.git import Repository, failed, run_git
from outpost_lsp.worktrees.private_index import writing


async def save_bundle(worktree: Repository, changes: ChangeSet, file: Path) -> None:
    """Write the frozen result of a worktree (its HEAD, after `freeze`) to a file only the user can read."""
    parents = await run_git(worktree, ["rev-list", "--parents", "-n", "1", changes.base], check=True)
    snapshot_parents = parents.stdout.decode("ascii").split()[1:]
    temporary = file.with_name(f"{file.name}.{uuid4().hex}")
    await to_thread.run_sync(lambda: file.parent.mkdir(mode=0o700, parents=True, exist_ok=True))
    await to_thread.run_sync(_touch, temporary)
    try:
        arguments = ["bundle", "create", "--quiet", str(temporary), "HEAD", *(f"^{oid}" for oid in snapshot_parents)]
        await run_git(worktree, arguments, check=True)
        await to_thread.run_sync(temporary.chmod, 0o600)
        await to_thread.run_sync(temporary.replace, file)
    finally:
        await to_thread.run_sync(lambda: temporary.unlink(missing_ok=True))


async def load_bundle(repository: Repository, file: Path) -> str:
    """Bring the objects of a bundle into the repository; the commit of the result, whose parent is the snapshot."""
    arguments = ["bundle", "unbundle", str(file)]
    async with writing(repository):
        result = await run_git(repository, arguments)
    if result.status != 0:
        if "prerequisite" in result.stderr:
            message = f"The commit that {file.name} stands on is no longer in {repository.top}."
            raise OutpostError("workspace", message, {"stderr": result.stderr})
        raise failed(arguments, result)
    return result.stdout.decode("ascii", "replace").split()[0]


def _touch(file: Path) -> None:
    os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
