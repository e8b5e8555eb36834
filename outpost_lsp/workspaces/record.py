"""What is known of a workspace, of the commits made in it, and of what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from outpost_lsp.domain.record import Record
from outpost_lsp.workspaces.policy import BranchPolicy


class Commit(Record):
    """One commit: its object name and the first line of its message."""

    oid: str
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceRecord:
    """Where a workspace is and what it began with."""

    repository: Path
    """The real path of the checkout's top level."""
    directory: Path
    branch: str
    """`HEAD` when the checkout itself is used and stands on no branch."""
    base_branch: str
    """The checkout's branch; empty when it stands on none."""
    baseline: str
    """The workspace's commit when it was opened; empty in a repository without commits."""
    git_directories: tuple[Path, ...]
    policy: BranchPolicy


@dataclass(frozen=True, slots=True)
class Disposal:
    """What closing a workspace did; `retained_directory` is set when its worktree was kept."""

    retained_directory: Path | None = None


@dataclass(frozen=True, slots=True)
class Integration:
    """What an integration did: the commit that the base branch stands on now, and whether it was moved."""

    commit: str
    merged: bool
    resolved: bool = False
