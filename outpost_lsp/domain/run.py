"""The record of a dispatch that people see (section 2 of the protocol, without what only an editor knows)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from outpost_lsp.domain.finding import Span
from outpost_lsp.domain.record import Record
from outpost_lsp.domain.usage import ZERO, Usage

RunKind = Literal["review", "dispatch", "fix", "continue", "replay"]
RunStatus = Literal["queued", "preparing", "running", "waiting", "succeeded", "failed", "cancelled", "interrupted"]
Disposition = Literal["none", "pending", "applied", "discarded"]
ScopeKind = Literal["uncommitted", "staged", "unstaged", "branch", "commit", "file", "selection", "workspace"]

FINISHED: Final[frozenset[RunStatus]] = frozenset(("succeeded", "failed", "cancelled", "interrupted"))
CHANGE_SCOPES: Final[frozenset[ScopeKind]] = frozenset(("uncommitted", "staged", "unstaged", "branch", "commit"))


class ReviewScope(Record):
    """What a review looks at. `paths` limits it (files or folders, relative to the repository)."""

    scope: ScopeKind = "uncommitted"
    paths: tuple[str, ...] = ()
    span: Span | None = None
    base: str | None = None
    revision: str | None = None
    patch: str | None = None
    """How people call the patch that `revision` was made of."""


class RunError(Record):
    """Why a run failed."""

    code: str
    message: str
    details: Mapping[str, Any] | None = None


class ChangeCount(Record):
    """What the agent changed in its worktree."""

    files: int
    insertions: int
    deletions: int


class Cost(Record):
    """An estimate in money; incomplete when something had no price or no usage."""

    amount: float
    currency: str
    complete: bool

    @property
    def is_known(self) -> bool:
        """Whether the amount says anything: an incomplete zero is an unknown cost, not a free one."""
        return self.complete or self.amount > 0


class Run(Record):
    """A dispatch, as the editor, the terminal and the store know it."""

    id: str
    kind: RunKind
    agent: str
    title: str
    status: RunStatus
    workspace: str
    """The workspace folder, an absolute path."""
    started_at: str
    finished_at: str | None = None
    base: str = ""
    """The commit the snapshot stands on; empty before it is known and in a repository without commits."""
    scope: ReviewScope | None = None
    conversation: str | None = None
    text: str | None = None
    error: RunError | None = None
    usage: Usage = ZERO
    cost: Cost | None = None
    models: tuple[str, ...] = ()
    findings: int = 0
    rejected: int = 0
    notes: tuple[str, ...] = ()
    changes: ChangeCount | None = None
    disposition: Disposition = "none"

    @property
    def is_finished(self) -> bool:
        """Whether nothing more will happen to it by itself."""
        return self.status in FINISHED
