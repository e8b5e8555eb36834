"""The turns of an external agent, as those of a built-in one are carried: told, bounded, counted, steered.

The invariant: the agent runs from its first turn to the end of the dispatch at most, and whatever ends a turn early has
reached it before the turn is over. Made by `execution.py` for a `CliAgent`. Rules: STEER-12, STEER-14, EXEC-04, EXEC-06.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio

from outpost_lsp.dispatches.acp_updates import Updates
from outpost_lsp.dispatches.cli_agent import UNASKED, CliAgent
from outpost_lsp.dispatches.cli_answer import MarkerSearch, check_reason, usage_of
from outpost_lsp.dispatches.observation import DispatchObservation
from outpost_lsp.dispatches.options import DispatchOptions
from outpost_lsp.dispatches.progress import Progress
from outpost_lsp.dispatches.result import Turn
from outpost_lsp.dispatches.sandboxing import OpenedSandbox
from outpost_lsp.dispatches.turn_runtime import turn_runtime
from outpost_lsp.dispatches.turns import carried
from outpost_lsp.domain.event import (
    ConversationEvent,
    Event,
    FinishedEvent,
    PhaseEvent,
    ResultEvent,
    StderrEvent,
    SteerEvent,
    StoppedEvent,
    SummaryEvent,
    UsageEvent,
)
from outpost_lsp.domain.sandbox import Channel
from outpost_lsp.domain.usage import Usage
from outpost_lsp.errors import OutpostError
from outpost_lsp.harness.budget import Budget
from outpost_lsp.harness.gate import Gate
from outpost_lsp.harness.response import with_format
from outpost_lsp.harness.runtime import TurnRuntime

if TYPE_CHECKING:
    from outpost_lsp.dispatches.acp_session import AcpSession

_HEED_S: Final = 2.0
"""How long an agent that is asked to stop may take before it is ended."""
_STDERR_PIECE: Final = 8_192
_GO_ON: Final = "Go on with what you were doing."

How = Literal["answered", "steered", "completion"]


class CliTurns:
    """Carries the turns of one external agent within one dispatch; they share its process and its session."""

    def __init__(
        self, agent: CliAgent, name: str, options: DispatchOptions, observation: DispatchObservation, progress: Progress
    ) -> None:
        self.agent = agent
        self._name = name
        self._options = options
        self._observation = observation
        self._progress = progress
        self._budget = Budget(name, None, options.budget)
        self._session: AcpSession | None = None
        self._runtime: TurnRuntime | None = None
        self._home = options.conversation_home
        self._failure: asyncio.Future[None] | None = None
        self._is_muted = False

    async def turn(self, sandbox: OpenedSandbox, prompt: str, *, repair: bool = False) -> str:
        """One turn, from a prompt to an answer; a person's text that arrives meanwhile is part of it (STEER-14)."""
        progress, options = self._progress, self._options
        runtime = turn_runtime(sandbox, options, self._observation, progress, repair=repair, observe=self._tell)
        self._runtime = runtime
        if self._home is None and sandbox.layout is not None:
            # The sandbox's own home is gone with it, and with it what a conversation could go on from.
            self._home = sandbox.layout.agents
        self._observation.runtime = runtime
        self._is_muted = False
        started = time.monotonic()
        self._tell(PhaseEvent(name="running", agent=self._name))
        status = 1
        try:
            text = await carried(
                self._carry(runtime, prompt),
                activity=runtime.activity,
                deadline_s=options.deadline_s,
                idle_s=options.idle_s,
                idle_warning_s=options.idle_warning_s,
                emit=self._tell,
            )
            status = 0
            self._tell(ResultEvent(text=text))
            self._tell(FinishedEvent())
        finally:
            progress.usage = progress.usage + runtime.total
            progress.answered_by([self.agent.model.name] if self.agent.model is not None else [])
            duration_ms = round((time.monotonic() - started) * 1000)
            self._tell(SummaryEvent(duration_ms=duration_ms, status=status, tokens=runtime.total))
        await self._observation.watchdog_settled()
        return text

    async def close(self) -> None:
        """End the agent."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    # One turn, in a task of its own

    async def _carry(self, runtime: TurnRuntime, prompt: str) -> str:
        try:
            while True:
                session = await self._opened(runtime)
                started = time.monotonic()
                text, usage, how = await self._prompt(session, runtime, prompt)
                self._progress.turns.append(
                    Turn(
                        text=text,
                        usage=usage,
                        duration_ms=round((time.monotonic() - started) * 1000),
                        interrupted="steering" if how == "steered" else None,
                        conversation=session.id,
                    )
                )
                if how != "steered":
                    return text
                prompt = self._steered(runtime)
        except BaseException:
            self._is_muted = True
            with anyio.CancelScope(shield=True):
                await self.close()
            raise

    async def _opened(self, runtime: TurnRuntime) -> AcpSession:
        if self._session is not None:
            return self._session
        try:
            from outpost_lsp.dispatches.acp_session import AcpSession
        except ImportError as error:
            raise OutpostError(
                "configuration",
                "CliAgent: the package agent-client-protocol is not installed; install it with: "
                "pip install 'outpost-lsp[acp]'",
                {"extra": "acp", "missing": error.name},
                error,
            ) from error
        continuation = self._options.continuation
        known = self._progress.conversation
        self._session = session = await AcpSession.open(
            self.agent,
            runtime.lease,
            home=self._home,
            resumed=known or (None if continuation is None else continuation.id),
            fork=known is None and continuation is not None and continuation.fork,
            failed=self._fail,
            touch=runtime.activity.touch,
            on_stderr=self._stderr,
        )
        for note in session.notes:
            self._progress.note(note)
        self._progress.conversation = session.id
        self._emit(ConversationEvent(id=session.id))
        return session

    async def _prompt(self, session: AcpSession, runtime: TurnRuntime, prompt: str) -> tuple[str, Usage, How]:
        self._failure = asyncio.get_running_loop().create_future()
        marked: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        updates = Updates(self._emit, runtime.lease, runtime.activity, MarkerSearch(self._options.until, marked))
        permissions = self.agent.permissions or UNASKED
        gate = Gate((permissions,), runtime.asking)
        session.client.begin(session.id, updates, gate, self._emit, reads_only=runtime.read_only)
        prompting = asyncio.ensure_future(session.prompt(prompt))
        steered = asyncio.ensure_future(self._steering_arrives(runtime))
        how: How = "answered"
        try:
            how = await self._until_ended(prompting, steered, marked)
            if how != "answered":
                self._emit(StoppedEvent(reason=how))
                await self._stop(session, prompting)
            updates.close()
            text = updates.answer
            answer = prompting.result() if how == "answered" else await _answer_if_any(prompting)
            usage = self._counted(runtime, answer)
        except BaseException as error:
            self._is_muted = True
            with anyio.CancelScope(shield=True):
                if isinstance(error, asyncio.CancelledError):
                    await self._stop(session, prompting)
                self._count_what_is_known(runtime, prompting)
            raise
        finally:
            session.client.end()
            await _ended(prompting, steered)
        if how == "answered":
            check_reason(answer.stop_reason, self._name)
        if marked.done() and marked.result() not in text:
            text = f"{text}\n{marked.result()}"
        return text, usage, how

    async def _until_ended(
        self, prompting: asyncio.Future[Any], steered: asyncio.Future[None], marked: asyncio.Future[str]
    ) -> How:
        assert self._failure is not None
        waited: set[asyncio.Future[Any]] = {prompting, steered, self._failure, marked}
        ends_at: float | None = None
        while True:
            left_s = None if ends_at is None else max(ends_at - time.monotonic(), 0)
            await asyncio.wait(waited, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            if self._failure.done():
                fault = self._failure.exception()
                assert fault is not None
                if isinstance(fault, OutpostError) and fault.details.get("stopReason") == "oversized-event":
                    self._emit(StoppedEvent(reason="oversized-event"))
                raise fault
            if prompting.done():
                return "answered"
            if steered.done():
                steered.result()
                return "steered"
            if ends_at is None and marked.done():
                waited.discard(marked)
                ends_at = time.monotonic() + self._options.settle_s
            if ends_at is not None and time.monotonic() >= ends_at:
                return "completion"

    async def _stop(self, session: AcpSession, prompting: asyncio.Future[Any]) -> None:
        """Ask the agent to stop; one that does not heed is ended."""
        await session.cancel()
        await asyncio.wait((prompting,), timeout=_HEED_S)
        if not prompting.done():
            await self.close()

    # Steering

    async def _steering_arrives(self, runtime: TurnRuntime) -> None:
        steering = runtime.steering
        while steering is not None:
            steering.refuse_runs()
            if steering.has(None):
                return
            await steering.changed()
        await asyncio.Event().wait()

    def _steered(self, runtime: TurnRuntime) -> str:
        assert runtime.steering is not None
        texts = runtime.steering.take(None, "resumed")
        for text in texts:
            self._emit(SteerEvent(text=text, mode="resumed"))
        # Whoever sent it may have taken it back while the agent stopped.
        return with_format("\n\n".join(texts) or _GO_ON, self._options.response)

    # Counting

    def _counted(self, runtime: TurnRuntime, answer: Any) -> Usage:
        usage = usage_of(answer)
        model = self.agent.model.name if self.agent.model is not None else self._name
        runtime.account(
            usage, budget=self._budget, source="model", model=model, step=None, subagent_id=None, emit=self._emit
        )
        if runtime.attribute_usage:
            usage = usage.attributed(model)
        return usage

    def _count_what_is_known(self, runtime: TurnRuntime, prompting: asyncio.Future[Any]) -> None:
        """A turn that failed counts too; a budget that it broke is no news any more."""
        if prompting.done() and not prompting.cancelled() and prompting.exception() is None:
            try:
                self._counted(runtime, prompting.result())
            except OutpostError:
                return
        else:
            runtime.mark_incomplete()

    # Telling

    def _tell(self, event: Event) -> None:
        self._observation.emit(event, "agent")

    def _emit(self, event: Event) -> None:
        """Let an event of the agent out; after a cancellation only what it used (EVT-04)."""
        runtime = self._runtime
        assert runtime is not None
        if self._is_muted and not isinstance(event, UsageEvent):
            return
        runtime.activity.touch()
        self._tell(event)
        if runtime.fatal is not None:
            self._fail(runtime.fatal)

    def _stderr(self, _channel: Channel, text: str) -> None:
        for start in range(0, len(text), _STDERR_PIECE):
            self._emit(StderrEvent(text=text[start : start + _STDERR_PIECE]))

    def _fail(self, fault: OutpostError) -> None:
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(fault)
            # It may come when nobody waits any more.
            self._failure.exception()


async def _answer_if_any(prompting: asyncio.Future[Any]) -> Any:
    """The end of a prompt that nobody waits for any more; an agent that failed meanwhile said nothing."""
    await asyncio.wait((prompting,))
    return None if prompting.cancelled() or prompting.exception() is not None else prompting.result()


async def _ended(*futures: Awaitable[Any]) -> None:
    tasks = [asyncio.ensure_future(future) for future in futures]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
