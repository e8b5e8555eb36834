"""What a dispatch gives back."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from outpost_lsp.dispatches.fallback import FallbackRecord
from outpost_lsp.dispatches.report import ReportData, render_report
from outpost_lsp.domain.price import UsageCost
from outpost_lsp.domain.usage import ZERO, Usage
from outpost_lsp.errors import configuration
from outpost_lsp.workspaces.record import Commit
from outpost_lsp.worktrees.changes import ChangeSet


class Again(Protocol):
    """Dispatches again with what is known of the first time."""

    def __call__(
        self, brief: Any, conversation: str, options: dict[str, Any], *, fork: bool
    ) -> Awaitable[DispatchResult]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn: a prompt and its answer. `status` is 0 for the built-in loop."""

    text: str
    usage: Usage
    duration_ms: int
    status: int = 0
    interrupted: Literal["steering"] | None = None
    conversation: str | None = None
    transcript: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchResult:
    """The outcome of a dispatch that reached an answer.

    `text` joins the texts of all turns with a newline, those of answers that were refused and repaired included;
    `turns[-1].text` is the last one. `usage` counts every turn, subagent, routing decision and summary once (USE-08).
    `response` is the typed answer.
    `changes` is what the agent changed in its worktree, frozen when the run ended.
    """

    text: str
    turns: tuple[Turn, ...] = ()
    usage: Usage = ZERO
    response: Any = None
    completed: bool = False
    completion: str | None = None
    conversation: str | None = None
    transcript: Path | None = None
    journal: Path | None = None
    changes: ChangeSet | None = None
    cost: UsageCost | None = None
    models: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    branch: str = ""
    directory: Path | None = None
    base: str = ""
    commits: tuple[Commit, ...] = ()
    """What was committed on the branch during the dispatch, newest first."""
    retained_directory: Path | None = None
    fallback: FallbackRecord | None = None
    observer_errors: tuple[str, ...] = ()
    dispatch_id: str = ""
    report_data: ReportData = field(repr=False)
    again: Again | None = field(default=None, repr=False, compare=False)

    async def resume(self, brief: Any, **options: Any) -> DispatchResult:
        """Go on with this conversation: the original options, overlaid with these (DISP-11)."""
        return await self._again(brief, options, fork=False)

    async def fork(self, brief: Any, **options: Any) -> DispatchResult:
        """Go on with a copy of this conversation; the original stays as it is."""
        return await self._again(brief, options, fork=True)

    async def _again(self, brief: Any, options: dict[str, Any], *, fork: bool) -> DispatchResult:
        if self.conversation is None or self.again is None:
            raise configuration("this dispatch kept no conversation to go on with")
        return await self.again(brief, self.conversation, options, fork=fork)

    def report(self, format: str = "markdown") -> str:
        """The run as Markdown, or as JSON with `format="json"`, as it was when the dispatch ended (REPORT rules)."""
        return render_report(self.report_data, format)
