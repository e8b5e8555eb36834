"""The sandboxes of a dispatch: a snapshot worktree of the user's repository, with confined tools (SNAP and LOCAL rules).

This is where `worktrees/` and `sandbox/` meet. What is opened here is closed here, in every case; what the agent
changed decides whether the worktree stays (SNAP-07).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import anyio

from outpost_lsp.dispatches.furnishing import Furnishing, confinement_for, furnish, remove_stand_in
from outpost_lsp.domain.observation import WorkspaceCommitsEvent
from outpost_lsp.domain.sandbox import Lease
from outpost_lsp.errors import OutpostError
from outpost_lsp.sandbox.files_on_demand import FilesOnDemand
from outpost_lsp.sandbox.lease import HostLease
from outpost_lsp.storage.conversations import ConversationStore
from outpost_lsp.storage.layout import Layout, RepositoryLayout
from outpost_lsp.workspaces.record import Commit
from outpost_lsp.worktrees.changes import ChangeSet
from outpost_lsp.worktrees.git import Repository, find_repository
from outpost_lsp.worktrees.plain_folder import open_plain_folder
from outpost_lsp.worktrees.snapshot import Snapshot, take_snapshot
from outpost_lsp.worktrees.worktree import Fill, Worktree, open_worktree

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
    is_lazy: bool = False
    """Whether everything that is done here is done through the lease, which then knows what can have changed."""
    must_keep: bool = False
    """Somebody asked for the worktree to stay, whatever is in it."""
    branch: str = "HEAD"
    base_branch: str = "HEAD"
    start: str = ""
    """The commit that the present dispatch began at, where commits count."""
    commits: tuple[Commit, ...] = ()

    async def begin(self) -> None:
        """A dispatch begins here: what an earlier one changed is not its own."""
        self.changes = None

    async def accept(self) -> None:
        """The agent has answered and its work is collected: raises when the work may not stand."""

    async def recorded(self) -> WorkspaceCommitsEvent | None:
        """What a replay needs of the commits made here; `None` where commits do not count."""
        return None

    async def rebuild(self, recorded: Mapping[str, Any], diverged: Callable[[str, Any, Any], None]) -> bool:
        """Make recorded commits again; whether this is a place where commits count."""
        del recorded, diverged
        return False

    async def freeze(self) -> ChangeSet | None:
        """What differs from the snapshot now, as a tree that later writes do not change (SEC-24)."""
        if self.worktree is not None:
            touched = self.lease.touched if self.is_lazy and isinstance(self.lease, HostLease) else None
            self.changes = await self.worktree.freeze(touched=touched)
        return self.changes


class SandboxProvider(Protocol):
    """Makes a sandbox for a dispatch; leaving the context releases it."""

    @property
    def name(self) -> str: ...

    def open(self, folder: Path, run_id: str, /) -> AbstractAsyncContextManager[OpenedSandbox]: ...


class WorktreeSandboxProvider:
    """A detached git worktree of a snapshot, outside the user's folder; commands run on this machine.

    `repository` is the one that the folder is known to lie in; it is looked for otherwise. `snapshot` may be one that
    was taken before, for instance by a review's preparation. `unsaved` maps repository-relative paths to the text of open buffers. `environment` is what commands get; `variables` are found by
    name only, by MCP servers and external agents that ask for them.
    With `plain_folders` a folder that is no repository is worked on as a bounded copy (SNAP-09). `lazy` is for agents
    whose tools do everything through the lease, as the built-in ones do: a large repository is then laid out file by
    file, when somebody asks, and only what tools touched is looked at in the end.
    """

    name = "worktree"
    placement: Literal["host"] = "host"

    def __init__(
        self,
        *,
        layout: Layout | None = None,
        repository: Repository | None = None,
        snapshot: Snapshot | None = None,
        uncommitted: bool = True,
        untracked: bool = True,
        max_untracked_mib: int = 500,
        unsaved: Mapping[str, str | bytes] | None = None,
        keep: Keep = "changed",
        environment: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
        furnishing: Furnishing | None = None,
        plain_folders: bool = False,
        lazy: bool = False,
        directory: Path | None = None,
        git_timeout_s: float = 120.0,
    ) -> None:
        self.layout = standard_layout() if layout is None else layout
        self.repository = repository
        self.snapshot = snapshot
        self.uncommitted = uncommitted
        self.untracked = untracked
        self.max_untracked_mib = max_untracked_mib
        self.unsaved = dict(unsaved or {})
        self.keep = keep
        self.environment = dict(environment or {})
        self.variables = dict(variables or {})
        self.furnishing = furnishing or Furnishing()
        self.plain_folders = plain_folders
        self.lazy = lazy
        self.directory = directory
        self.git_timeout_s = git_timeout_s

    async def conversations(self, folder: Path) -> ConversationStore:
        """Where the transcripts of this repository's dispatches are, without allocating anything."""
        try:
            repository = self.repository or await find_repository(folder)
        except OutpostError:
            if not self.plain_folders:
                raise
            return conversations_of(self.layout.for_repository(folder, worktrees=self.directory))
        return conversations_of(self.layout.for_repository(repository.common_dir, worktrees=self.directory))

    @asynccontextmanager
    async def open(self, folder: Path, run_id: str, /) -> AsyncIterator[OpenedSandbox]:
        """Snapshot the repository, open a worktree of it and lend it out."""
        try:
            repository = self.repository or await find_repository(folder)
        except OutpostError as fault:
            if not self.plain_folders or fault.details.get("reason") != "no-repository":
                raise
            layout = self.layout.for_repository(folder, worktrees=self.directory)
            worktree, snapshot = await open_plain_folder(folder, layout.worktrees, run_id=run_id, unsaved=self.unsaved)
        else:
            layout = self.layout.for_repository(repository.common_dir, worktrees=self.directory)
            snapshot = self.snapshot or await self._snapshot(repository)
            fill: Fill = "auto" if self.lazy else "at once"
            worktree = await open_worktree(
                repository, snapshot.commit, layout.worktrees, run_id=run_id, fill=fill, tree=snapshot.tree
            )
        async with self._closing(layout, worktree) as opened:
            stand_in = layout.cache / "git" / run_id
            lease = HostLease(
                worktree.directory,
                layout.cache / "home" / run_id,
                git=worktree.git,
                environment=self.environment,
                variables=self.variables,
                confinement=await confinement_for(self.furnishing, worktree, stand_in),
                files=None
                if worktree.on_demand is None
                else FilesOnDemand(worktree.directory, worktree.git, worktree.on_demand),
                prepare=worktree.fill,
            )
            notes = [*snapshot.notes, *worktree.notes]
            sandbox = OpenedSandbox(lease, worktree.directory, worktree.origin, snapshot, worktree, layout, notes)
            sandbox.is_lazy = self.lazy
            opened.append(sandbox)
            notes += await furnish(self.furnishing, worktree.origin, snapshot, lease)
            yield sandbox

    async def _snapshot(self, repository: Repository) -> Snapshot:
        return await take_snapshot(
            repository,
            uncommitted=self.uncommitted,
            untracked=self.untracked,
            max_untracked_mib=self.max_untracked_mib,
            unsaved=self.unsaved,
            deadline_s=self.git_timeout_s,
        )

    @asynccontextmanager
    async def _closing(self, layout: RepositoryLayout, worktree: Worktree) -> AsyncIterator[list[OpenedSandbox]]:
        """Whatever happens while a worktree is furnished or used, it is let go of."""
        opened: list[OpenedSandbox] = []
        try:
            yield opened
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_CLOSE_S):
                if opened:
                    await self._close(opened[0], worktree)
                else:
                    await worktree.close(keep=False)
                if self.furnishing.is_confined:
                    await remove_stand_in(layout.cache / "git" / worktree.run_id)

    async def _close(self, sandbox: OpenedSandbox, worktree: Worktree) -> None:
        await sandbox.lease.release()
        keep = self.keep == "always" or sandbox.must_keep
        if self.keep == "changed" and not keep:
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
