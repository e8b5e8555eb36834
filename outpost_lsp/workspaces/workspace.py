"""A workspace while it is open: who occupies it, what git says about it, and how it closes (section 7.4).

The invariant: closing frees the lock in every case and removes a worktree only when nothing in it would be lost; the
engine never deletes, stashes, commits or resets work it did not make (WS-27). Made by `opening.open_workspace`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from anyio import to_thread

from outpost_lsp.errors import OutpostError, configuration
from outpost_lsp.storage.layout import RepositoryLayout
from outpost_lsp.storage.locks import Lock, LockFolder
from outpost_lsp.workspaces import managed
from outpost_lsp.workspaces.copies import unchanged
from outpost_lsp.workspaces.policy import DiffGuard, LifecycleHooks, StageLimits
from outpost_lsp.workspaces.reading import commit_of, current_branch, unsaved_work
from outpost_lsp.workspaces.record import Disposal, WorkspaceRecord
from outpost_lsp.worktrees.copies import CopiedFile
from outpost_lsp.worktrees.git import Repository


@dataclass(slots=True, eq=False)
class OpenedWorkspace:
    """The live side of a workspace record."""

    record: WorkspaceRecord
    repository: Repository
    """The user's checkout."""
    view: Repository
    """The repository as seen from the workspace's own directory."""
    layout: RepositoryLayout
    locks: LockFolder
    lock: Lock
    managed: Path
    guard: DiffGuard | None
    hooks: LifecycleHooks
    limits: StageLimits
    copied: tuple[CopiedFile, ...] = ()
    is_refused: bool = False
    """The guard refused the work when it last looked (WS-21)."""
    is_unmerged: bool = False
    """The last integration failed (INT-05)."""
    must_retain: bool = False
    """It is not known that nobody works in it any more (SBX-05)."""
    is_occupied: bool = False
    """A sandbox is open on it (SBX-01)."""
    is_resolving: bool = False
    """A conflict of it is being resolved (CONF-01)."""
    disposal: Disposal | None = None
    _closing: anyio.Lock = field(default_factory=anyio.Lock)

    @property
    def is_current(self) -> bool:
        """Whether this is the user's own checkout."""
        return self.record.policy.mode == "current"

    @property
    def recovery(self) -> dict[str, str]:
        """What somebody needs to find the work again (WS-28)."""
        return {"branch": self.record.branch, "directory": str(self.record.directory)}

    def check_open(self) -> None:
        """`configuration` when the workspace was closed."""
        if self.disposal is not None:
            raise configuration("the workspace is closed")

    @contextmanager
    def occupied(self) -> Iterator[None]:
        """Hold the workspace for one sandbox; a second one is refused at once (SBX-01)."""
        self.check_open()
        if self.is_occupied:
            raise configuration("the workspace has an open sandbox already")
        if self.is_resolving:
            raise configuration("the workspace is busy: a conflict is being resolved")
        self.is_occupied = True
        try:
            yield
        finally:
            self.is_occupied = False

    async def head(self) -> str:
        """The commit that the workspace stands on; empty when there is none."""
        return await commit_of(self.view, deadline_s=self.limits.git_s)

    async def branch(self) -> str:
        """The branch that the workspace stands on; empty when it is detached."""
        return await current_branch(self.view, deadline_s=self.limits.git_s)

    async def close(self, *, preserve: bool = False) -> Disposal:
        """Let go of the workspace. What holds work stays where it is; a second call gives the first answer."""
        async with self._closing:
            if self.disposal is not None:
                return self.disposal
            if self.is_occupied or self.is_resolving:
                raise configuration("the workspace has an open sandbox or is busy; close that first")
            try:
                self.disposal = await self._dispose(preserve=preserve)
            except BaseException:
                # What could not be looked at is kept.
                self.disposal = Disposal(self.record.directory)
                raise
            finally:
                self.lock.release()
            return self.disposal

    async def _dispose(self, *, preserve: bool) -> Disposal:
        directory = self.record.directory
        if self.is_current:
            return Disposal()
        if not await to_thread.run_sync(os.path.lexists, directory):
            await managed.forget(self.repository, directory)
            return Disposal()
        kept = Disposal(directory)
        if (
            preserve
            or self.is_refused
            or self.is_unmerged
            or self.must_retain
            or not await self.branch()
            or await self._holds_work()
        ):
            return kept
        if not await to_thread.run_sync(_is_inside, directory, self.managed):
            message = f"{directory} is not in the folder of workspaces {self.managed}; it is not removed."
            raise OutpostError("workspace", message, self.recovery)
        await to_thread.run_sync(self._remove_copies)
        if not await managed.remove(self.repository, directory):
            return kept
        if self.record.policy.mode == "integrate":
            await managed.delete_merged_branch(self.repository, self.record.branch)
        return Disposal()

    async def _holds_work(self) -> bool:
        paths = await unsaved_work(self.view, ignored=True, deadline_s=self.limits.git_s)
        if not paths:
            return False
        ours = await to_thread.run_sync(unchanged, self.record.directory, self.copied)
        return any(path not in ours and not self._only_copies(path, ours) for path in paths)

    def _only_copies(self, path: str, ours: frozenset[str]) -> bool:
        """Whether an ignored folder, which git lists as one, holds nothing but unchanged copies."""
        if not path.endswith("/"):
            return False
        folder = self.record.directory / path
        below = (place for place in folder.rglob("*") if place.is_symlink() or not place.is_dir())
        return all(place.relative_to(self.record.directory).as_posix() in ours for place in below)

    def _remove_copies(self) -> None:
        """Take back what was copied in and has not changed, so that git finds nothing that it does not know."""
        for path in unchanged(self.record.directory, self.copied):
            (self.record.directory / path).unlink(missing_ok=True)


def _is_inside(directory: Path, folder: Path) -> bool:
    return not directory.is_symlink() and Path(os.path.realpath(directory)).parent == folder
