"""One dispatch: a sandbox, an agent, its turns, its result, and the clean-up (DISP rules).

Whatever happens leaves through one door, in this order: accounted, written to the journal, shown. Everything that can
be validated is validated before anything is allocated, and everything that was opened is closed before this returns.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from outpost_lsp.dispatches.brief import Brief
from outpost_lsp.dispatches.execution import Execution
from outpost_lsp.dispatches.fallback import FallbackAgent
from outpost_lsp.dispatches.observe import ObservationHub
from outpost_lsp.dispatches.options import DONE, AnyAgent, Continuation, DispatchOptions, Journal, checked
from outpost_lsp.dispatches.place import Place, WorkspaceFace
from outpost_lsp.dispatches.result import DispatchResult
from outpost_lsp.dispatches.sandboxing import OpenedSandbox, SandboxProvider
from outpost_lsp.dispatches.workflow import SharedBudget
from outpost_lsp.dispatches.workspace_sandbox import LeaseProvider
from outpost_lsp.domain.event import Event
from outpost_lsp.domain.price import ModelPriceTable
from outpost_lsp.domain.usage import UsageLimits
from outpost_lsp.domain.workflow_budget import WorkflowBudget
from outpost_lsp.errors import configuration
from outpost_lsp.harness.budget import Budget
from outpost_lsp.harness.cancellation import breathe
from outpost_lsp.harness.gate import Ask
from outpost_lsp.harness.response import ResponseSpec
from outpost_lsp.harness.runtime import Receipt
from outpost_lsp.harness.steering import Steering
from outpost_lsp.harness.watchdog import Watchdog
from outpost_lsp.storage.layout import Layout
from outpost_lsp.workspaces.policy import BranchPolicy, DiffGuard, LifecycleHooks, StageLimits

_SANDBOX_SETTINGS: Final = frozenset(
    {
        "repository",
        "branch",
        "guard",
        "sandbox_provider",
        "sandbox",
        "workspace",
        "conversation_home",
        "copies",
        "hooks",
        "limits",
        "layout",
    }
)
_NEW_PLACE: Final = frozenset({"repository", "branch", "copies"})


async def dispatch(
    repository: str | Path | None,
    agent: AnyAgent,
    brief: str | Brief,
    *,
    branch: BranchPolicy | Mapping[str, Any] | str | None = None,
    workspace: WorkspaceFace | None = None,
    guard: DiffGuard | Mapping[str, Any] | None = None,
    copies: Sequence[str | Path] = (),
    hooks: LifecycleHooks | Mapping[str, Any] | None = None,
    limits: StageLimits | Mapping[str, Any] | None = None,
    layout: Layout | None = None,
    sandbox_provider: SandboxProvider | LeaseProvider | None = None,
    sandbox: OpenedSandbox | None = None,
    observe: Callable[[Event], None] | None = None,
    observation: ObservationHub | None = None,
    steering: Steering | None = None,
    continuation: Continuation | str | None = None,
    response: ResponseSpec | None = None,
    watchdog: Watchdog | Mapping[str, Any] | None = None,
    prices: ModelPriceTable | None = None,
    budget: Budget | WorkflowBudget | UsageLimits | Mapping[str, Any] | None = None,
    journal: bool | Journal = True,
    label: str | None = None,
    passes: int = 1,
    until: str | Sequence[str] = DONE,
    idle_s: float = 600,
    idle_warning_s: float = 60,
    deadline_s: float = 3_600,
    settle_s: float = 60,
    expansion_s: float = 30,
    redact: Sequence[str | re.Pattern[str]] = (),
    warn: Callable[[str], None] | None = None,
    diagnostic: Callable[[str], None] | None = None,
    conversation_home: str | Path | None = None,
    ask: Ask | None = None,
    on_receipt: Callable[[Receipt], None] | None = None,
    dispatch_id: str | None = None,
) -> DispatchResult:
    """Run `agent` on `brief` in a sandbox of `repository` and give its result.

    By default the sandbox is a worktree of a snapshot of the repository as it stands, removed at the end unless the
    agent changed something. With `branch` it is a workspace on a branch, which `guard`, `copies`, `hooks` and `limits`
    shape; with `workspace` one that is open already, and `repository` is `None` or lies in the same checkout. `observe`
    is called synchronously with every agent event; `on_receipt` with every accounted request. `settle_s` is left to an
    external agent after its text held a marker of `until`; `conversation_home` is its home folder, where it keeps its own
    conversations, by default one for the repository in the state folder. `budget` limits the tokens of this dispatch, or is a
    `WorkflowBudget` that several dispatches share. Cancelling the awaiting task stops the agent's model
    requests and commands and those of every subagent, and returns only when they are gone.

    Raises the fault that ended the run, with what it left behind as recovery details (`recovery_details`).
    """
    markers, masks = checked(
        until=until,
        passes=passes,
        times={
            "idle_s": idle_s,
            "idle_warning_s": idle_warning_s,
            "deadline_s": deadline_s,
            "settle_s": settle_s,
            "expansion_s": expansion_s,
        },
        callbacks={"observe": observe, "warn": warn, "diagnostic": diagnostic, "on_receipt": on_receipt},
        redact=redact,
        agent=agent,
        continuation=_continuation(continuation),
        response=response,
        steering=steering,
        watchdog=watchdog,
    )
    place = Place.checked(
        repository,
        workspace=workspace,
        sandbox=sandbox,
        provider=sandbox_provider,
        branch=branch,
        guard=guard,
        copies=copies,
        hooks=hooks,
        limits=limits,
        layout=layout,
        label=label,
    )
    shared = SharedBudget(budget) if isinstance(budget, WorkflowBudget) else None
    options = DispatchOptions(
        repository=place.folder,
        agent=agent,
        brief=Brief.of(brief),
        label=label or "agent",
        observe=observe,
        observation=observation,
        steering=steering,
        continuation=_continuation(continuation),
        response=response,
        watchdog=Watchdog.of(watchdog),
        prices=prices,
        budget=_budget(budget, shared),
        shared=shared,
        journal=_journal(journal),
        passes=passes,
        until=markers,
        idle_s=idle_s,
        idle_warning_s=idle_warning_s,
        deadline_s=deadline_s,
        settle_s=settle_s,
        expansion_s=expansion_s,
        redact=masks,
        warn=warn or _ignore,
        diagnostic=diagnostic or _ignore,
        conversation_home=_absolute(conversation_home),
        ask=ask,
        on_receipt=on_receipt,
        dispatch_id=dispatch_id or uuid.uuid4().hex,
    )
    execution = Execution(options)
    await breathe()
    if sandbox is not None:
        result = await execution.in_opened(sandbox)
    else:
        result = await execution.cold(place.provider)
    # Neither the brief, the response, the continuation nor the steering are inherited (DISP-11, STEER-11).
    inherited: dict[str, Any] = {
        "branch": branch,
        "workspace": workspace,
        "guard": guard,
        "copies": copies,
        "hooks": hooks,
        "limits": limits,
        "layout": layout,
        "sandbox_provider": sandbox_provider,
        "sandbox": sandbox,
        "observe": observe,
        "observation": observation,
        "watchdog": watchdog,
        "prices": prices,
        "budget": budget,
        "journal": bool(journal) if isinstance(journal, Journal) and journal.path is not None else journal,
        "label": label,
        "until": until,
        "idle_s": idle_s,
        "idle_warning_s": idle_warning_s,
        "deadline_s": deadline_s,
        "settle_s": settle_s,
        "expansion_s": expansion_s,
        "redact": redact,
        "warn": warn,
        "diagnostic": diagnostic,
        "conversation_home": conversation_home,
        "ask": ask,
        "on_receipt": on_receipt,
    }
    return replace(result, again=_Again(repository, _resumable(agent, result), inherited))


@dataclass(frozen=True, slots=True)
class _Again:
    """What a result needs to be gone on with."""

    repository: str | Path | None
    agent: AnyAgent
    inherited: Mapping[str, Any]

    async def __call__(self, brief: Any, conversation: str, options: dict[str, Any], *, fork: bool) -> DispatchResult:
        if self.inherited["sandbox"] is not None and (refused := _SANDBOX_SETTINGS & set(options)):
            raise configuration(f"dispatch: {min(refused)}: the sandbox is open already (DISP-12)")
        asked = {**self.inherited, **options}
        repository = asked.pop("repository", self.repository)
        workspace = self.inherited["workspace"]
        if workspace is not None and "workspace" not in options and _NEW_PLACE & set(options):
            # A place of its own was named: of the borrowed workspace only the repository is kept (DISP-11).
            asked["workspace"] = None
            repository = options.get("repository", workspace.repository)
        agent = asked.pop("agent", self.agent)
        return await dispatch(repository, agent, brief, continuation=Continuation(conversation, fork=fork), **asked)


def _resumable(agent: AnyAgent, result: DispatchResult) -> AnyAgent:
    """The agent that held the conversation: of a fallback agent the selected candidate (FALL-08)."""
    if isinstance(agent, FallbackAgent) and result.fallback is not None:
        return agent.candidates[result.fallback.selected.index]
    return agent


def _continuation(value: Continuation | str | None) -> Continuation | None:
    return Continuation(value) if isinstance(value, str) else value


def _journal(value: bool | Journal) -> Journal | None:
    if isinstance(value, Journal):
        return value
    return Journal() if value else None


def _budget(
    value: Budget | WorkflowBudget | UsageLimits | Mapping[str, Any] | None, shared: SharedBudget | None
) -> Budget | None:
    if value is None or isinstance(value, Budget):
        return value
    if isinstance(value, WorkflowBudget):
        return Budget("the workflow", ceilings=() if shared is None else (shared,))
    limits = value if isinstance(value, UsageLimits) else UsageLimits(**value)
    return Budget("the run", limits)


def _absolute(folder: str | Path | None) -> Path | None:
    return None if folder is None else Path(folder).absolute()


def _ignore(_text: str) -> None:
    """Nobody wants to know."""
