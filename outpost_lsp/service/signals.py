"""What the service tells its listeners: one frozen class per kind of news.

A listener is a synchronous callable and must not block: faces put what they get on their own queue. News of one run
come in order, and everything a run has to say comes before the `RunChanged` that ends it. Made by `Outpost`, read by
the editor's face and the terminal's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from outpost_lsp.domain.event import ModelRouteEvent, SubagentEvent, UsageSource
from outpost_lsp.domain.observation import Observation
from outpost_lsp.domain.run import Cost, Run
from outpost_lsp.domain.usage import Usage
from outpost_lsp.harness.gate import Answer
from outpost_lsp.harness.runtime import BudgetState

if TYPE_CHECKING:
    from outpost_lsp.service.workspace import Workspace


@dataclass(frozen=True, slots=True)
class RunChanged:
    """A run's status, disposition or counts changed; `run` is the record as it is now."""

    run: Run


@dataclass(frozen=True, slots=True)
class RunEvent:
    """Something happened inside a run: the engine's own event, with its number and scope."""

    run_id: str
    observation: Observation


@dataclass(frozen=True, slots=True)
class Routed:
    """A model was selected for a step, told before the request that uses it."""

    run_id: str
    agent: str
    subagent_id: str | None
    event: ModelRouteEvent


@dataclass(frozen=True, slots=True)
class Used:
    """One accounted request: its own usage, the dispatch so far, and the chain of budgets it counts against."""

    run_id: str
    agent: str
    subagent_id: str | None
    step: int | None
    source: UsageSource
    model: str
    delta: Usage
    total: Usage
    budgets: tuple[BudgetState, ...] = ()
    cost: Cost | None = None


@dataclass(frozen=True, slots=True)
class SubagentChanged:
    """A delegation started or ended; `parent_id` is the child that delegated, `None` for the main loop."""

    run_id: str
    parent_id: str | None
    event: SubagentEvent


@dataclass(frozen=True, slots=True)
class FindingsChanged:
    """The findings of one file are others now, or stand elsewhere. `path` is relative to the repository."""

    workspace: Workspace
    path: str


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence for the person: a configuration fault, a fallback, a folder that needs trust."""

    level: Literal["info", "warning", "error"]
    message: str


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """A tool call that needs somebody's yes. A listener that can ask calls `take`, and later `answer`.

    Untaken it is a denial at once. `withdrawn` is set when nobody needs the answer any more: the run ended. Answers are
    `allow`, `allow-run` (the same tool with the same paths or command, for the rest of the run) and `deny`.
    """

    run_id: str
    agent: str
    subagent_id: str | None
    tool: str
    input: Any
    reason: str
    _state: dict[str, bool] = field(default_factory=dict, repr=False)
    _future: asyncio.Future[Answer] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def take(self) -> None:
        """Say that an answer will come."""
        self._state["taken"] = True

    @property
    def is_taken(self) -> bool:
        """Whether somebody will answer."""
        return self._state.get("taken", False)

    def answer(self, answer: Answer) -> None:
        """Give the answer; the first one counts, one that comes too late is ignored."""
        if not self._future.done():
            self._future.set_result(answer)

    @property
    def withdrawn(self) -> bool:
        """Whether the run ended before an answer came."""
        return self._future.cancelled()

    def on_settled(self, call: Callable[[], None]) -> None:
        """Call `call` once, soon after the question was answered or withdrawn."""
        self._future.add_done_callback(lambda _: call())

    async def wait(self) -> Answer:
        """The answer; a cancelled wait withdraws the question."""
        return await self._future if self.is_taken else "deny"


Signal = RunChanged | RunEvent | Routed | Used | SubagentChanged | FindingsChanged | Notice | Question
Listener = Callable[[Signal], None]
