"""One dispatch in the service's hands: settings become its options, its events the run's record, its result the end.

Whatever the dispatch leaves (usage, notes, changes, a conversation) is in the record also when it fails or is cancelled.
Every kind of run that has an agent goes through here.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from outpost_lsp.config.build import AgentRun
from outpost_lsp.config.keys import key_variables, service_key_variables
from outpost_lsp.dispatches.dispatch import dispatch
from outpost_lsp.dispatches.furnishing import Furnishing
from outpost_lsp.dispatches.observe import ObservationHub, Sink
from outpost_lsp.dispatches.options import AnyAgent, Continuation, Journal
from outpost_lsp.dispatches.recording import ReplayAgent
from outpost_lsp.dispatches.result import DispatchResult
from outpost_lsp.dispatches.sandboxing import Keep, OpenedSandbox, WorktreeSandboxProvider
from outpost_lsp.domain.finding import Finding
from outpost_lsp.domain.price import ModelPriceTable
from outpost_lsp.errors import OutpostError, recovery_details
from outpost_lsp.harness.cancellation import breathe
from outpost_lsp.harness.gate import Answer, PermissionQuestion
from outpost_lsp.harness.steering import Steering
from outpost_lsp.harness.watchdog import Watchdog
from outpost_lsp.sandbox.environment import allowed_environment
from outpost_lsp.service.ceilings import Allowance, day_ceiling, run_budget
from outpost_lsp.service.handle import RunHandle
from outpost_lsp.service.observing import RunObserver
from outpost_lsp.service.proof import proved
from outpost_lsp.service.results import change_count, keep_result
from outpost_lsp.service.signals import Question
from outpost_lsp.tools.findings import FindingScope
from outpost_lsp.worktrees.changes import ChangeSet
from outpost_lsp.worktrees.snapshot import Snapshot

if TYPE_CHECKING:
    from outpost_lsp.service.executors import RunExecutor
    from outpost_lsp.service.outpost import Outpost
    from outpost_lsp.service.workspace import Workspace

logger = logging.getLogger(__name__)

_KEEPING_S = 10.0


@dataclass(slots=True, kw_only=True)
class Assignment:
    """What an agent is asked to do in a run."""

    agent: AgentRun | Carried
    brief: str
    snapshot: Snapshot | None = None
    unsaved: Mapping[str, str] = field(default_factory=dict)
    continuation: Continuation | None = None
    keep: Keep | None = None
    sandbox: OpenedSandbox | None = None
    """A sandbox that is open already and stays so; otherwise one is opened for the run."""
    finding_scope: FindingScope | None = None
    """The scope of a review, as the findings tool has it."""
    compared_with: str = ""
    """The commit or tree that a review's brief compares with."""
    limits: Mapping[str, Any] | None = None
    """Single limits of the agent that are replaced; it was built with them."""
    executor: RunExecutor | None = None
    """Who carries it out, where that is not for the settings to say."""
    is_replay: bool = False
    """What is gone through again was found before: nothing is published, no money is spent, no journal is written."""
    is_quiet: bool = False
    """What is found is kept by the run and not published."""


@dataclass(frozen=True, slots=True)
class Carried:
    """An agent with what its dispatch is given besides: a configured one, or a recording."""

    agent: AnyAgent
    prices: ModelPriceTable | None = None
    watchdog: Watchdog | None = None
    redact: tuple[re.Pattern[str], ...] = ()
    notes: tuple[str, ...] = ()


def replayed(agent: ReplayAgent) -> Carried:
    """A recording, ready to be carried."""
    return Carried(agent)


async def carry(outpost: Outpost, workspace: Workspace, handle: RunHandle, assignment: Assignment) -> DispatchResult:
    """Carry the assignment out and put its outcome on the run's record. The run is not finished here."""
    settings = workspace.settings
    agent = assignment.agent
    handle.note(*agent.notes)
    publish = _keep_quiet if assignment.is_replay or assignment.is_quiet else workspace.board.publish
    is_shared = bool(Allowance.of(settings.budget.per_day))
    observer = RunObserver(handle, outpost.tell, publish, agent.prices, is_shared=is_shared)
    sinks: list[Sink] = [observer]
    if not assignment.is_replay:
        sinks += _followers(workspace, handle, agent)
    provider = sandbox_provider(
        outpost, workspace, snapshot=assignment.snapshot, unsaved=assignment.unsaved, keep=assignment.keep
    )
    sandboxes = _Watched(provider, handle, workspace)
    steering = None if assignment.is_replay else Steering()
    handle.steering = steering
    try:
        executor = assignment.executor or outpost.executor(workspace)
        async with executor.agent(workspace, handle, assignment) as placed:
            result = await dispatch(
                workspace.top,
                placed.agent,
                assignment.brief,
                sandbox_provider=sandboxes if assignment.sandbox is None else None,
                sandbox=assignment.sandbox,
                observation=ObservationHub(sinks, verbose=settings.runs.verbose),
                steering=steering,
                continuation=assignment.continuation,
                watchdog=agent.watchdog,
                prices=agent.prices,
                # What was recorded is not spent a second time, so that no ceiling speaks of it.
                budget=None
                if assignment.is_replay
                else run_budget(
                    Allowance.of(settings.budget.per_run), agent.prices, day_ceiling(outpost, workspace, handle)
                ),
                journal=not assignment.is_replay
                and Journal(
                    path=workspace.journal_path(handle.run.id),
                    verbose=settings.runs.verbose,
                    replayable=settings.runs.replayable,
                ),
                label=handle.run.agent,
                redact=agent.redact,
                ask=lambda question: _ask(outpost, handle, question),
                on_receipt=observer.on_receipt,
                dispatch_id=handle.run.id,
            )
    except BaseException as error:
        handle.record(**_left(error, handle, observer), **_changes(sandboxes.changes))
        raise
    finally:
        handle.steering = None
        if steering is not None:
            steering.close()
    handle.record(
        text=result.text,
        usage=result.usage,
        cost=observer.cost(result.usage),
        models=result.models,
        conversation=result.conversation or handle.run.conversation,
        notes=_joined(handle.run.notes, result.notes),
        **_changes(result.changes),
    )
    return result


def _followers(workspace: Workspace, handle: RunHandle, agent: AgentRun | Carried) -> list[Sink]:
    """Who follows the run besides; what keeps spans from being made keeps no run from being carried out."""
    tracing = workspace.services.tracing
    try:
        return [] if tracing is None else [tracing.sink(agent.redact)]
    except OutpostError as error:
        handle.note(error.message)
        return []


def _keep_quiet(_finding: Finding) -> None:
    """Nothing is shown anew."""


class _Watched:
    """A sandbox provider that tells the record what was opened, before the agent starts."""

    def __init__(self, provider: WorktreeSandboxProvider, handle: RunHandle, workspace: Workspace) -> None:
        self._provider = provider
        self._handle = handle
        self._workspace = workspace
        self.changes: ChangeSet | None = None

    @property
    def name(self) -> str:
        return self._provider.name

    @asynccontextmanager
    async def open(self, folder: Path, run_id: str, /) -> AsyncIterator[OpenedSandbox]:
        async with proved(self._workspace, self._handle) as proof, self._provider.open(folder, run_id) as sandbox:
            if sandbox.snapshot is not None:
                self._handle.snapshot = sandbox.snapshot.commit
                known = self._workspace.runs.details(run_id)
                opened = {"snapshot": sandbox.snapshot.commit, "worktree": str(sandbox.directory)}
                self._workspace.runs.save_details(run_id, known | opened)
                await breathe()
                self._handle.update(base=sandbox.snapshot.head)
                await breathe()
            try:
                yield sandbox
            finally:
                await self._keep(sandbox, run_id)
                proof.changes = sandbox.changes

    async def _keep(self, sandbox: OpenedSandbox, run_id: str) -> None:
        """What the agent changed outlives the worktree, however the run ended; what cannot is said."""
        if sandbox.worktree is None or sandbox.changes is None or sandbox.changes.is_empty:
            return
        self._handle.note(*sandbox.changes.notes)
        with anyio.CancelScope(shield=True), anyio.move_on_after(_KEEPING_S):
            worktree, changes = sandbox.worktree, sandbox.changes
            try:
                await keep_result(self._workspace, run_id, worktree.repository, worktree.commit, changes)
            except (OutpostError, OSError) as error:
                self._handle.note(f"what the agent changed could not be saved outside its worktree: {error}")
            self.changes = changes


def sandbox_provider(
    outpost: Outpost,
    workspace: Workspace,
    *,
    snapshot: Snapshot | None = None,
    unsaved: Mapping[str, str] | None = None,
    keep: Keep | None = None,
) -> WorktreeSandboxProvider:
    """What opens the worktrees of a workspace's runs, by its settings."""
    sandbox, keys = workspace.settings.sandbox, service_key_variables(workspace.settings)
    return WorktreeSandboxProvider(
        layout=outpost.layout,
        repository=workspace.repository if workspace.has_repository else None,
        snapshot=snapshot,
        uncommitted=sandbox.uncommitted,
        untracked=sandbox.untracked,
        max_untracked_mib=sandbox.max_untracked_mib,
        unsaved=unsaved if sandbox.unsaved else None,
        keep=keep or sandbox.keep,
        environment=allowed_environment(
            outpost.environment, names=sandbox.environment, secret=key_variables(workspace.settings)
        ),
        variables={
            name: outpost.environment[name]
            for name in sandbox.environment
            if name in outpost.environment and name not in keys
        },
        furnishing=Furnishing(
            copy_ignored=sandbox.copy_ignored,
            with_include_file=workspace.is_trusted,
            setup=sandbox.setup,
            is_confined=sandbox.shell == "confined" and workspace.can_confine,
            readable=tuple(Path(folder).expanduser() for folder in sandbox.readable),
        ),
        plain_folders=not workspace.has_repository,
        # Agents of the configuration have built-in tools, MCP servers and programs: all of them go through the lease.
        lazy=True,
        directory=Path(sandbox.directory).expanduser() if sandbox.directory else None,
        git_timeout_s=sandbox.git_timeout_s,
    )


async def _ask(outpost: Outpost, handle: RunHandle, asked: PermissionQuestion) -> Answer:
    question = Question(
        run_id=handle.run.id,
        agent=handle.run.agent,
        subagent_id=asked.subagent_id,
        tool=asked.tool,
        input=asked.input,
        reason=asked.reason,
    )
    outpost.tell(question)
    return await question.wait()


def _left(error: BaseException, handle: RunHandle, observer: RunObserver) -> dict[str, Any]:
    """What a dispatch that did not reach its answer leaves for the record."""
    known = recovery_details(error) or {}
    left: dict[str, Any] = {}
    if (usage := known.get("usage")) is not None:
        left |= {"usage": usage, "cost": observer.cost(usage)}
    if known.get("models"):
        left["models"] = tuple(known["models"])
    if known.get("conversation"):
        left["conversation"] = known["conversation"]
    if known.get("notes"):
        left["notes"] = _joined(handle.run.notes, known["notes"])
    return left


def _changes(changes: ChangeSet | None) -> dict[str, Any]:
    if changes is None or changes.is_empty:
        return {}
    return {"changes": change_count(changes), "disposition": "pending"}


def _joined(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))
