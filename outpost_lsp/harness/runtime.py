"""What all loops of one turn share: the sandbox, the door for events, the account, and who may be asked.

One `TurnRuntime` is made by the dispatch for each turn; a subagent's loop runs on its parent's. Accounting happens
here, before anybody is told (EVT-03), and every event leaves through `observe`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio.to_thread

from outpost_lsp.domain.event import Event, UsageEvent, UsageSource
from outpost_lsp.domain.message import History, Message
from outpost_lsp.domain.sandbox import Lease
from outpost_lsp.domain.usage import ZERO, Usage, UsageLimits
from outpost_lsp.errors import OutpostError
from outpost_lsp.harness.budget import Budget
from outpost_lsp.harness.gate import Asking
from outpost_lsp.harness.steering import Steering
from outpost_lsp.storage.conversations import ConversationStore
from outpost_lsp.storage.transcript import Mask, Transcript

_WRITTEN_AT_ONCE: Final = 200_000
"""Characters of tool results that take about a millisecond to encode and write."""


@dataclass(frozen=True, slots=True)
class BudgetState:
    """One ceiling of the chain and what was used of it."""

    agent: str
    limits: UsageLimits
    used: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """One accounted request, as it was counted. `total` is the dispatch so far."""

    agent: str
    subagent_id: str | None
    step: int | None
    source: UsageSource
    model: str
    delta: Usage
    total: Usage
    budgets: tuple[BudgetState, ...]


class Activity:
    """The idle clock of a turn: restarted by every event, held while a tool runs or a person is asked (EXEC-04)."""

    __slots__ = ("_held", "last")

    def __init__(self) -> None:
        self.last = time.monotonic()
        self._held = 0

    def touch(self) -> None:
        """Something happened."""
        self.last = time.monotonic()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Silence does not count meanwhile."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
            self.touch()

    @property
    def silence_s(self) -> float:
        """Seconds of silence so far; 0 while held."""
        return 0.0 if self._held else time.monotonic() - self.last


@dataclass(slots=True, kw_only=True)
class TurnRuntime:
    """The surroundings of one turn."""

    lease: Lease
    observe: Callable[[Event], None]
    observe_decision: Callable[[Event, str | None], None]
    asking: Asking
    activity: Activity
    note: Callable[[str], None]
    steering: Steering | None = None
    store: ConversationStore | None = None
    mask: Mask | None = None
    """Masks what the dispatch does not want written to conversations (CONV-19)."""
    on_receipt: Callable[[Receipt], None] | None = None
    verbose: bool = False
    attribute_usage: bool = False
    read_only: bool = False
    """A repair turn keeps only read-only tools (RESP-08, LOOP-23)."""
    spent: Usage = ZERO
    """What earlier turns of the dispatch used; receipts tell the total of both."""
    fatal: OutpostError | None = None
    """Ends the turn at the next event, whatever policies say: a watchdog gave up."""
    total: Usage = ZERO
    answered_models: list[str] = field(default_factory=list)
    """The models that really answered, as the services named them."""
    abandoned: list[tuple[str, asyncio.Task[Any]]] = field(default_factory=list)
    """The calls that were cancelled, by tool name; those that still run when the turn is over are ended then."""
    conversations: list[tuple[ConversationStore, str]] = field(default_factory=list)
    """Every conversation that was opened, for capture after a failure (DISP-07)."""

    def account(
        self,
        usage: Usage,
        *,
        budget: Budget,
        source: UsageSource,
        model: str,
        step: int | None,
        subagent_id: str | None,
        emit: Callable[[Event], None],
        attempt_cut: bool = False,
    ) -> None:
        """Count a receipt, then tell, then raise the breach of the outermost budget it broke (TBUD-06)."""
        if self.attribute_usage:
            usage = usage.attributed(model)
        self.total = self.total + usage
        budget.add(usage, attempt_cut=attempt_cut)
        if self.on_receipt is not None:
            budgets = tuple(
                BudgetState(part.owner, part.limits, part.used) for part in budget.chain() if part.limits is not None
            )
            self.on_receipt(
                Receipt(
                    agent=budget.owner,
                    subagent_id=subagent_id,
                    step=step,
                    source=source,
                    model=model,
                    delta=usage,
                    total=self.spent + self.total,
                    budgets=budgets,
                )
            )
        emit(UsageEvent(tokens=usage, step=step, model=model, source=source))
        budget.check()

    def mark_incomplete(self) -> None:
        """A request ended without telling what it used: the total is a lower bound from now on."""
        self.total = self.total.model_copy(update={"complete": False})


class Memory:
    """The history of one loop, with or without a transcript behind it. A record is written before it counts."""

    __slots__ = ("_plain", "transcript")

    def __init__(self, transcript: Transcript | None) -> None:
        self.transcript = transcript
        self._plain = History()

    @property
    def history(self) -> History:
        """The messages so far."""
        return self._plain if self.transcript is None else self.transcript.history

    @property
    def conversation(self) -> str | None:
        """The id to continue from, when a transcript is kept."""
        return None if self.transcript is None else self.transcript.id

    def append(self, message: Message) -> None:
        """Add one message."""
        if self.transcript is None:
            self._plain.append(message)
        else:
            self.transcript.append(message)

    async def append_results(self, message: Message) -> None:
        """Add the results of tools. Many long ones are encoded and written off the event loop, which serves an editor."""
        if self.transcript is not None and sum(len(result.content) for result in message.results) > _WRITTEN_AT_ONCE:
            await anyio.to_thread.run_sync(self.transcript.append, message)
        else:
            self.append(message)

    def compact(self, messages: Sequence[Message]) -> None:
        """Put a shorter history in place."""
        if self.transcript is None:
            self._plain.replace(messages)
        else:
            self.transcript.compact(messages)

    def record_selection(self, selection: dict[str, Any]) -> None:
        """Write a routing selection to the transcript (ROUTE-53)."""
        if self.transcript is not None:
            self.transcript.record_selection(selection)

    def close(self) -> None:
        """Free the transcript's lock."""
        if self.transcript is not None:
            self.transcript.close()


def captured(store: ConversationStore, conversation: str) -> Path:
    """The file of a conversation once its turn is over (CONV-17)."""
    return store.capture(conversation)
