"""The options of a dispatch, validated before anything is allocated (DISP-01)."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from outpost_lsp.dispatches.brief import Brief
from outpost_lsp.dispatches.cli_agent import CliAgent
from outpost_lsp.dispatches.fallback import FallbackAgent
from outpost_lsp.dispatches.observe import ObservationHub, patterns
from outpost_lsp.dispatches.recording import ReplayAgent
from outpost_lsp.dispatches.remote_agent import RemoteAgent
from outpost_lsp.dispatches.workflow import SharedBudget
from outpost_lsp.domain.event import Event
from outpost_lsp.domain.price import ModelPriceTable
from outpost_lsp.domain.record import Declaration, NonBlank
from outpost_lsp.errors import configuration
from outpost_lsp.harness.agent import Agent
from outpost_lsp.harness.budget import Budget
from outpost_lsp.harness.gate import Ask
from outpost_lsp.harness.response import ResponseSpec
from outpost_lsp.harness.runtime import Receipt
from outpost_lsp.harness.steering import Steering
from outpost_lsp.harness.watchdog import Watchdog

DONE: Final = "<outpost>done</outpost>"


AnyAgent = Agent | CliAgent | FallbackAgent | RemoteAgent | ReplayAgent


class Continuation(Declaration):
    """Go on with a conversation, or with a copy of it."""

    id: NonBlank
    fork: bool = False

    def __init__(self, id: str, fork: bool = False) -> None:
        super().__init__(id=id, fork=fork)


class Journal(Declaration):
    """Where a journal goes and what is in it; by default in the state folder, named by the dispatch."""

    path: Path | None = None
    verbose: bool = False
    replayable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchOptions:
    """Everything a dispatch was asked for, in its final form."""

    repository: Path
    agent: AnyAgent
    brief: Brief
    label: str
    observe: Callable[[Event], None] | None
    observation: ObservationHub | None
    steering: Steering | None
    continuation: Continuation | None
    response: ResponseSpec | None
    watchdog: Watchdog | None
    prices: ModelPriceTable | None
    budget: Budget | None
    shared: SharedBudget | None
    """The budget of a workflow that this dispatch is a part of; a ceiling of `budget` too."""
    journal: Journal | None
    passes: int
    until: tuple[str, ...]
    idle_s: float
    idle_warning_s: float
    deadline_s: float
    settle_s: float
    expansion_s: float
    redact: tuple[re.Pattern[str], ...]
    warn: Callable[[str], None]
    diagnostic: Callable[[str], None]
    conversation_home: Path | None
    ask: Ask | None
    on_receipt: Callable[[Receipt], None] | None
    dispatch_id: str


def checked(
    *,
    until: str | Sequence[str],
    passes: int,
    times: Mapping[str, float],
    callbacks: Mapping[str, Any],
    redact: Sequence[str | re.Pattern[str]],
    agent: Any,
    continuation: Continuation | None,
    response: ResponseSpec | None,
    steering: Steering | None,
    watchdog: Any,
) -> tuple[tuple[str, ...], tuple[re.Pattern[str], ...]]:
    """Refuse what contradicts itself; gives the completion markers and the compiled patterns."""
    if not isinstance(agent, AnyAgent):
        raise configuration(f"dispatch: agent: an Agent is expected, not {type(agent).__name__}")
    if type(passes) is not int or passes < 1:
        raise configuration("dispatch: passes: a positive integer is expected")
    for name, value in times.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise configuration(f"dispatch: {name}: a positive number of seconds is expected")
    for name, callback in callbacks.items():
        if callback is None:
            continue
        if not callable(callback):
            raise configuration(f"dispatch: {name}: a callable is expected")
        if inspect.iscoroutinefunction(callback):
            # An observer is called in the middle of a step, which cannot wait for it (EXEC-09).
            raise configuration(f"dispatch: {name}: a plain function is expected, not a coroutine function")
    markers = (until,) if isinstance(until, str) else tuple(until)
    if not all(isinstance(marker, str) and marker for marker in markers):
        raise configuration("dispatch: until: a completion marker is empty")
    if passes > 1 and (response is not None or continuation is not None):
        raise configuration(
            "dispatch: passes: more than one pass goes with neither a typed response nor a continuation"
        )
    _check_agent(agent, continuation, response, steering=steering, watchdog=watchdog)
    return markers, patterns(redact)


def _check_agent(
    agent: AnyAgent,
    continuation: Continuation | None,
    response: ResponseSpec | None,
    *,
    steering: Steering | None,
    watchdog: Any,
) -> None:
    """What only some agents can do is refused before anything is allocated."""
    if isinstance(agent, ReplayAgent):
        wanted = {"continuation": continuation, "steering": steering, "watchdog": watchdog}
        if unsuited := next((name for name, value in wanted.items() if value is not None), None):
            raise configuration(f"dispatch: {unsuited}: a replay cannot be continued, steered or watched")
        return
    if isinstance(agent, RemoteAgent):
        if response is not None and response.repairs > 0:
            raise configuration("dispatch: response: a remote agent repairs no answers")
        return
    if isinstance(agent, FallbackAgent) and continuation is not None:
        raise configuration("dispatch: continuation: continue with the candidate that held the conversation")
    agents = agent.candidates if isinstance(agent, FallbackAgent) else (agent,)
    # An external agent keeps its conversation itself; whether it can go on with one is known when it has started.
    if all(isinstance(one, CliAgent) or one.harness.keeps_conversations for one in agents):
        return
    if continuation is not None:
        raise configuration("dispatch: continuation: the agent keeps no conversations")
    if response is not None and response.repairs > 0:
        raise configuration("dispatch: response: repairs need an agent that keeps conversations")
