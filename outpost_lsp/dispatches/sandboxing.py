"""The sandboxes of a dispatch: a snapshot worktree of the user's repository, with confined tools (SNAP and LOCAL rules).

This is where `worktrees/` and `sandbox/` meet. What is opened here is closed here, in every case; what the agent
changed decides whether the worktree stays (SNAP-07).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

import anyio

from outpost_lsp.domain.sandbox import Lease
from outpost_lsp.sandbox.confinement import Confinement
from outpost_lsp.sandbox.lease import HostLease
from outpost_lsp.storage.conversations import ConversationStore
from outpost_lsp.storage.layout import Layout, RepositoryLayout
from outpost_lsp.worktrees.changes import ChangeSet, change_set
from outpost_lsp.worktrees.git import Repository, find_repository, run_git
from outpost_lsp.worktrees.snapshot import Snapshot, take_snapshot
from outpost_lsp.worktrees.worktree import Worktree, open_worktree

Keep = Literal["changed", "never", "always"]
_CLOSE_S = 10.0


@dataclass(slots=True)
class OpenedSandbox:
    """A sandbox while it is open. `changes` is set when the run's result was frozen."""

    lease: Lease
    directory: Path
    repository: Repository | None = None
    snapshot: Snapshot | None = None
    worktree: Worktree | None = None
    layout: RepositoryLayout | None = None
    notes: list[str] = field(default_factory=list)
    changes: ChangeSet | None = None
    retained_directory: Path | None = None
    is_busy: bool = False

    async def freeze(self) -> ChangeSet | None:
        """What differs from the snapshot now, as a tree that later writes do not change (SEC-24)."""
        if self.worktree is not None:
            self.changes = await change_set(self.worktree.repository, self.worktree.commit)
        return self.changes


class SandboxProvider(Protocol):
    """Makes a sandbox for a dispatch; leaving the context releases it."""

    @property
    def name(self) -> str: ...

    def open(self, folder: Path, run_id: str, /) -> AbstractAsyncContextManager[OpenedSandbox]: ...


class WorktreeSandboxProvider:
    """A detached git worktree of a snapshot, outside the user's folder; commands run on this machine.

    `snapshot` may be one that was taken before, for instance by a review's preparation. `unsaved` maps
    repository-relative paths to the text of open buffers. `environment` is what commands get besides the allow-list.
    """

    name = "worktree"
    placement: Literal["host"] = "host"

    def __init__(
        self,
        *,
        layout: Layout | None = None,
        snapshot: Snapshot | None = None,
        uncommitted: bool = True,
        untracked: bool = True,
        max_untracked_mib: int = 500,
        unsaved: Mapping[str, str | bytes] | None = None,
        keep: Keep = "changed",
        environment: Mapping[str, str] | None = None,
        confinement: Confinement | None = None,
        directory: Path | None = None,
        git_timeout_s: float = 120.0,
    ) -> None:
        self.layout = standard_layout() if layout is None else layout
        self.snapshot = snapshot
        self.uncommitted = uncommitted
        self.untracked = untracked
        self.max_untracked_mib = max_untracked_mib
        self.unsaved = dict(unsaved or {})
        self.keep = keep
        self.environment = dict(environment or {})
        self.confinement = confinement
        self.directory = directory
        self.git_timeout_s = git_timeout_s

    async def conversations(self, folder: Path) -> ConversationStore:
        """Where the transcripts of this repository's dispatches are, without allocating anything."""
        repository = await find_repository(folder)
        return conversations_of(self.layout.for_repository(repository.common_dir, worktrees=self.directory))

    @asynccontextmanager
    async def open(self, folder: Path, run_id: str, /) -> AsyncIterator[OpenedSandbox]:
        """Snapshot the repository, open a worktree of it and lend it out."""
        repository = await find_repository(folder)
        layout = self.layout.for_repository(repository.common_dir, worktrees=self.directory)
        snapshot = self.snapshot or await take_snapshot(
            repository,
            uncommitted=self.uncommitted,
            untracked=self.untracked,
            max_untracked_mib=self.max_untracked_mib,
            unsaved=self.unsaved,
            deadline_s=self.git_timeout_s,
        )
        worktree = await open_worktree(repository, snapshot.commit, layout.worktrees, run_id=run_id)
        lease = HostLease(
            worktree.directory,
            layout.cache / "home" / run_id,
            git=partial(run_git, worktree.repository),
            environment=self.environment,
            confinement=self.confinement,
        )
        sandbox = OpenedSandbox(lease, worktree.directory, repository, snapshot, worktree, layout, [*snapshot.notes])
        try:
            yield sandbox
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_CLOSE_S):
                await self._close(sandbox, worktree)

    async def _close(self, sandbox: OpenedSandbox, worktree: Worktree) -> None:
        await sandbox.lease.release()
        keep = self.keep == "always"
        if self.keep == "changed":
            try:
                changes = sandbox.changes or await sandbox.freeze()
                keep = changes is not None and not changes.is_empty
            except Exception:  # noqa: BLE001 - a failure to tell counts as changed (REL-20)
                keep = True
        await worktree.close(keep=keep)
        sandbox.retained_directory = worktree.directory if keep else None


def conversations_of(layout: RepositoryLayout) -> ConversationStore:
    """The default store of a repository."""
    return ConversationStore(layout.conversations, layout.locks)


def standard_layout() -> Layout:
    """The user's own folders for the product, where the platform keeps such things."""
    import platformdirs

    return Layout(
        Path(platformdirs.user_state_dir("outpost", appauthor=False)),
        Path(platformdirs.user_cache_dir("outpost", appauthor=False)),
    )
