"""The turn of an agent on another machine, as if its loop ran here: counted, told, steered, asked, bounded.

The invariant: an event that arrives is accounted, written and shown through the same door as one that is made here, in
the order of the job's numbers; a job that is cancelled here is cancelled there; what the worker changed reaches the
sandbox only after `portable` has checked it. Made by `execution.py` for a `RemoteAgent`.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

import anyio
from pydantic import ValidationError

from outpost_lsp.dispatches.observation import DispatchObservation
from outpost_lsp.dispatches.options import DispatchOptions
from outpost_lsp.dispatches.progress import Progress
from outpost_lsp.dispatches.remote_agent import RemoteAgent
from outpost_lsp.dispatches.remote_base import KeptBase
from outpost_lsp.dispatches.remote_people import RemotePeople, texts
from outpost_lsp.dispatches.result import Turn
from outpost_lsp.dispatches.sandboxing import OpenedSandbox, conversations_of
from outpost_lsp.dispatches.turn_runtime import turn_runtime
from outpost_lsp.dispatches.turns import carried
from outpost_lsp.dispatches.written_events import DECISIONS, agent_event, decision_event
from outpost_lsp.domain.event import (
    Event,
    FindingEvent,
    PhaseEvent,
    PromptEvent,
    SubagentEvent,
    SummaryEvent,
    UsageEvent,
    WarningEvent,
)
from outpost_lsp.domain.finding import Finding
from outpost_lsp.domain.job import JobEvent, JobHandle, JobResult
from outpost_lsp.domain.markdown import one_line, safe_markdown
from outpost_lsp.domain.permission import normalised_path
from outpost_lsp.domain.run import RunError
from outpost_lsp.errors import FAULT_CODES, OutpostError
from outpost_lsp.harness.budget import Budget
from outpost_lsp.harness.runtime import TurnRuntime, captured
from outpost_lsp.storage.received import ReceivedConversations
from outpost_lsp.worktrees.git import run_git
from outpost_lsp.worktrees.portable import accept_result, pack_delta

_TOLD_HERE: Final = frozenset(("dispatch-start", "dispatch-finished", "workspace-commits", "summary"))
"""What the dispatch here says itself."""
_CANCEL_S: Final = 20.0
"""A face that has to ask a queue, or a job that has to unwind, needs longer than a moment."""


class RemoteTurns:
    """Carries the one turn of a remote agent; whatever continues it there is part of it."""

    def __init__(
        self, agent: RemoteAgent, options: DispatchOptions, observation: DispatchObservation, progress: Progress
    ) -> None:
        self._agent = agent
        self._options = options
        self._observation = observation
        self._progress = progress
        self._is_prompted = False
        root = Budget(options.label, agent.usage_limits.get(agent.job.agent), options.budget)
        self._budgets: dict[str | None, Budget] = {None: root}

    async def turn(self, sandbox: OpenedSandbox, prompt: str, *, repair: bool = False) -> str:
        """Send the prompt as a job and follow it to its answer."""
        options, observation, progress = self._options, self._observation, self._progress
        runtime = turn_runtime(sandbox, options, observation, progress, repair=repair)
        observation.runtime = runtime
        started = time.monotonic()
        status = 1
        try:
            text = await carried(
                self._carry(sandbox, runtime, prompt),
                activity=runtime.activity,
                deadline_s=options.deadline_s,
                idle_s=options.idle_s,
                idle_warning_s=options.idle_warning_s,
                emit=observation.emit,
            )
            status = 0
        finally:
            progress.usage = progress.usage + runtime.total
            duration_ms = round((time.monotonic() - started) * 1000)
            observation.emit(SummaryEvent(duration_ms=duration_ms, status=status, tokens=runtime.total))
        await observation.watchdog_settled()
        transcript = None
        if progress.conversation is not None and sandbox.layout is not None:
            transcript = captured(conversations_of(sandbox.layout), progress.conversation)
        progress.turns.append(
            Turn(
                text=text,
                usage=runtime.total,
                duration_ms=duration_ms,
                conversation=progress.conversation,
                transcript=transcript,
            )
        )
        return text

    async def close(self) -> None:
        """Nothing of a turn outlives it."""

    # The job

    async def _carry(self, sandbox: OpenedSandbox, runtime: TurnRuntime, prompt: str) -> str:
        repository, snapshot = sandbox.repository, sandbox.snapshot
        if repository is None or snapshot is None:
            raise OutpostError("workspace", "Only a snapshot of a repository can be sent to another machine.")
        job = self._agent.record_on(snapshot, prompt)
        delta = await pack_delta(repository, job.base, job.commits)
        handle = await self._agent.executor.submit(job, delta, KeptBase(repository, job.base, self._agent.packs))
        try:
            async with self._received(sandbox) as conversations, RemotePeople(handle, runtime).there() as people:
                result = await self._follow(handle, runtime, conversations, people)
            if result.commit:
                await self._deliver(handle, sandbox, snapshot.commit)
        except BaseException:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_CANCEL_S):
                await handle.cancel()
            raise
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_CANCEL_S):
                await handle.aclose()
        if result.error is not None:
            raise _fault(result.error)
        return result.text

    @asynccontextmanager
    async def _received(self, sandbox: OpenedSandbox) -> AsyncIterator[ReceivedConversations | None]:
        if sandbox.layout is None:
            yield None
            return
        continuation = self._options.continuation
        known = None if continuation is None or continuation.fork else continuation.id
        received = ReceivedConversations(conversations_of(sandbox.layout), known)
        try:
            yield received
        finally:
            received.close()

    async def _follow(
        self,
        handle: JobHandle,
        runtime: TurnRuntime,
        conversations: ReceivedConversations | None,
        people: RemotePeople,
    ) -> JobResult:
        async with aclosing(handle.events()) as events, anyio.create_task_group() as questions:
            async for event in events:
                runtime.activity.touch()
                match event.kind:
                    case "observation":
                        self._observed(event.data, runtime)
                    case "transcript":
                        if conversations is not None:
                            conversations.append(str(event.data.get("conversation")), texts(event.data.get("lines")))
                    case "question":
                        questions.start_soon(people.ask, event)
                    case "steered":
                        people.settle(event)
                    case "started":
                        self._progress.note(f"Carried out by {one_line(str(event.data.get('worker')))}.")
                    case "base-needed":
                        # Whoever holds the connection brings it.
                        continue
                    case "result" | "cancelled" | "lost":
                        questions.cancel_scope.cancel()
                        return self._ended(event)
                if runtime.fatal is not None:
                    raise runtime.fatal
        raise OutpostError("response", f"{self._agent.executor.name}: the events of the job ended without a result")

    def _ended(self, event: JobEvent) -> JobResult:
        if event.kind == "cancelled":
            raise OutpostError("aborted", "the run was cancelled where it was carried out")
        if event.kind == "lost":
            message = one_line(str(event.data.get("message") or "the machine that carried the run out is gone"))
            raise OutpostError("process", message, {"interrupted": True})
        try:
            result = JobResult.model_validate(dict(event.data))
        except ValidationError as error:
            raise self._malformed("result") from error
        for note in result.notes:
            self._progress.note(one_line(note, 500))
        self._progress.answered_by([one_line(model) for model in result.models])
        return result

    async def _deliver(self, handle: JobHandle, sandbox: OpenedSandbox, snapshot: str) -> None:
        """Make the worker's changes in the sandbox, once they are known to be sound."""
        assert sandbox.repository is not None
        assert sandbox.worktree is not None
        delivered = await accept_result(sandbox.repository, await handle.result_pack(), snapshot)
        if not delivered.patch:
            return
        await sandbox.worktree.fill()
        sandbox.is_lazy = False
        arguments = ["apply", "--binary", "--whitespace=nowarn", "-"]
        await run_git(sandbox.worktree.repository, arguments, stdin=delivered.patch, check=True)
        changes = await sandbox.freeze()
        if changes is None or changes.tree != delivered.tree:
            raise OutpostError("workspace", "What a worker sent back does not fit the snapshot it was made from.")

    # Events

    def _observed(self, line: Mapping[str, Any], runtime: TurnRuntime) -> None:
        data = line.get("event")
        kind = str(data.get("kind")) if isinstance(data, Mapping) else ""
        if kind in _TOLD_HERE or not isinstance(data, Mapping):
            return
        try:
            if kind in DECISIONS:
                decision = decision_event(kind, data)
                self._observation.emit_decision(decision, decision.subagent_id)
                return
            event = agent_event(data)
        except ValidationError:
            self._observation.emit(WarningEvent(message=f"an event of the worker is not understood: {one_line(kind)}"))
            return
        self._emit(event, runtime)

    def _emit(self, event: Event, runtime: TurnRuntime) -> None:
        match event:
            case PhaseEvent(name="preparing prompt"):
                return
            case PromptEvent() if not self._is_prompted:
                # Here it was told before the job was sent.
                self._is_prompted = True
                return
            case UsageEvent():
                self._account(event, runtime)
                return
            case FindingEvent(finding=Finding() as finding):
                checked = _checked(finding)
                event = (
                    FindingEvent(rejected="the worker named no path of the repository", call_id=event.call_id)
                    if checked is None
                    else event.model_copy(update={"finding": checked})
                )
            case SubagentEvent(status="started"):
                parent = self._budgets.get(event.subagent_id, self._budgets[None])
                self._budgets[event.id] = Budget(event.name, self._agent.usage_limits.get(event.name), parent)
            case _ if event.kind == "conversation" and event.subagent_id is None:
                self._progress.conversation = getattr(event, "id", None)
        self._observation.emit(event)

    def _account(self, event: UsageEvent, runtime: TurnRuntime) -> None:
        budget = self._budgets.get(event.subagent_id, self._budgets[None])
        runtime.account(
            event.tokens,
            budget=budget,
            source=event.source or "model",
            model=event.model or self._agent.model,
            step=event.step,
            subagent_id=event.subagent_id,
            emit=lambda made: self._observation.emit(made.model_copy(update={"subagent_id": event.subagent_id})),
        )

    def _malformed(self, what: str) -> OutpostError:
        return OutpostError("response", f"{self._agent.executor.name}: the {what} of the job is malformed")


def _checked(finding: Finding) -> Finding | None:
    """A finding as our own tool would have made it; `None` when its path leaves the repository."""
    path = normalised_path(finding.path)
    if not path or path != finding.path:
        return None
    return finding.model_copy(update={"title": one_line(finding.title), "detail": safe_markdown(finding.detail)})


def _fault(error: RunError) -> OutpostError:
    code = error.code if error.code in FAULT_CODES else "process"
    return OutpostError(code, error.message, {**(error.details or {}), "remote": True})  # type: ignore[arg-type]
