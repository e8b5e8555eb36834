"""Carrying a validated dispatch through: passes, candidates, turns, repairs (DISP-04 to -08, RESP-07, STEER-06, FALL)."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import anyio

from outpost_lsp.dispatches.brief import render
from outpost_lsp.dispatches.builtin_turn import BuiltInTurns
from outpost_lsp.dispatches.cli_agent import CliAgent
from outpost_lsp.dispatches.cli_turn import CliTurns
from outpost_lsp.dispatches.fallback import FailedAttempt, FallbackAgent, FallbackRecord, classified, exhausted
from outpost_lsp.dispatches.observation import DispatchObservation
from outpost_lsp.dispatches.options import DispatchOptions
from outpost_lsp.dispatches.outcome import combined, outcome
from outpost_lsp.dispatches.progress import Progress
from outpost_lsp.dispatches.recording import ReplayAgent
from outpost_lsp.dispatches.remote_agent import RemoteAgent
from outpost_lsp.dispatches.replay import ReplayedTurns
from outpost_lsp.dispatches.result import DispatchResult
from outpost_lsp.dispatches.sandboxing import OpenedSandbox, SandboxProvider
from outpost_lsp.domain.event import FallbackEvent, PhaseEvent, PromptEvent, SteerEvent, WarningEvent
from outpost_lsp.domain.markdown import one_line
from outpost_lsp.errors import OutpostError, configuration, record_recovery
from outpost_lsp.harness.agent import DEFAULT, Agent
from outpost_lsp.harness.cancellation import breathe, checkpoint
from outpost_lsp.harness.response import ResponseError, repair_prompt, with_format

_SAVING_S: Final = 10.0
Answer = tuple[str, Any]


class Turns(Protocol):
    """Whatever can carry a turn of a dispatch: a built-in loop, an external agent, or a recording of one."""

    async def turn(self, sandbox: OpenedSandbox, prompt: str, *, repair: bool = False) -> str: ...

    async def close(self) -> None:
        """No further turn is asked for."""


class Execution:
    """One dispatch while it runs."""

    def __init__(self, options: DispatchOptions, pass_number: int = 1) -> None:
        self.options = options
        self._pass_number = pass_number
        self._progress = Progress()
        self._observation = DispatchObservation(options, self._progress.note)
        self._observation.pass_number = pass_number
        self._fallback: FallbackRecord | None = None

    async def cold(self, provider: SandboxProvider) -> DispatchResult:
        """Every pass in a sandbox of its own, until one is completed (DISP-05)."""
        await self._locate_continuation(provider)
        results: list[DispatchResult] = []
        for number in range(1, self.options.passes + 1):
            one = self if number == 1 else Execution(self.options, number)
            results.append(await one._cold_pass(provider))
            if results[-1].completed:
                break
        return await combined(self.options, results)

    async def in_opened(self, sandbox: OpenedSandbox) -> DispatchResult:
        """All passes in a sandbox that stays open afterwards (DISP-15)."""
        if sandbox.is_busy:
            raise configuration("the sandbox is busy with another operation")
        sandbox.is_busy = True
        try:
            return await self.cold(_Borrowed(sandbox))
        finally:
            sandbox.is_busy = False

    async def _locate_continuation(self, provider: SandboxProvider) -> None:
        continuation, agent = self.options.continuation, self.options.agent
        find = getattr(provider, "conversations", None)
        if continuation is None or find is None or not isinstance(agent, Agent):
            return
        store: Any = agent.harness.conversations
        if store is DEFAULT:
            store = await find(self.options.repository)
        if not store.exists(continuation.id):
            raise OutpostError(
                "session", f"there is no conversation {continuation.id}", {"conversation": continuation.id}
            )

    async def _cold_pass(self, provider: SandboxProvider) -> DispatchResult:
        progress, observation = self._progress, self._observation
        with observation.attached_steering():
            observation.start()
            status: Literal["done", "failed", "cancelled"] = "failed"
            failure: BaseException | None = None
            completed = False
            try:
                await breathe()
                async with provider.open(self.options.repository, self._sandbox_id) as sandbox:
                    answer = await self._run(sandbox)
                result = outcome(self.options, progress, observation, sandbox, answer, self._fallback)
                status, completed = "done", result.completed
                return result
            except BaseException as error:
                status = "cancelled" if isinstance(error, asyncio.CancelledError) else "failed"
                failure = error
                progress.record(error, observation.journal_path)
                raise
            finally:
                await observation.finish(status, completed=completed, usage=progress.usage, failure=failure)

    @property
    def _sandbox_id(self) -> str:
        # Each pass has a sandbox of its own, and the first carries the dispatch's name.
        own = self.options.dispatch_id
        return own if self._pass_number == 1 else f"{own}-{self._pass_number}"

    # Inside a sandbox

    async def _run(self, sandbox: OpenedSandbox) -> Answer:
        await sandbox.begin()
        await self._observation.opened(sandbox)
        for note in sandbox.notes:
            self._progress.note(note)
        uncollected: Exception | None = None
        try:
            try:
                answer = await self._candidates(sandbox)
                # No late result: cancelled meanwhile means cancelled (DISP-16).
                await checkpoint()
            finally:
                uncollected = await self._freeze(sandbox)
            await sandbox.accept()
            return answer
        except BaseException as error:
            travels = self._progress.save_after_failure(error, sandbox, uncollected)
            if travels is not error:
                raise travels from None
            raise

    async def _freeze(self, sandbox: OpenedSandbox) -> Exception | None:
        """Collect what the agent changed; what went wrong with that, which a run that answered only notes."""
        fault: Exception | None = None
        with anyio.CancelScope(shield=True), anyio.move_on_after(_SAVING_S) as scope:
            try:
                changes = await sandbox.freeze()
                if changes is not None:
                    await self._observation.commits(sandbox, changes)
            except (OutpostError, OSError) as error:
                fault = error
        if scope.cancelled_caught:
            fault = OutpostError("timeout", f"it took longer than {_SAVING_S:g} s")
        if fault is not None:
            message = f"what the agent changed could not be collected: {fault}"
            self._progress.note(message)
            # The report is written all the same, without a diff (REPORT-06).
            self._observation.emit(WarningEvent(message=message))
        return fault

    async def _candidates(self, sandbox: OpenedSandbox) -> Answer:
        """The agent, or the candidates of a fallback agent one after the other, in the same sandbox (FALL-03)."""
        agent = self.options.agent
        if not isinstance(agent, FallbackAgent):
            return await self._turns(sandbox, self._carrier(agent, self.options.label))
        attempts: list[FailedAttempt] = []
        for index, candidate in enumerate(agent.candidates):
            try:
                answer = await self._turns(sandbox, self._carrier(candidate, agent.names[index]))
            except OutpostError as error:
                if not self._moves_on(agent, index, error, attempts):
                    if len(attempts) == len(agent.candidates):
                        fault = exhausted(attempts, error)
                        record_recovery(fault, {"fallback": [attempt.to_json() for attempt in attempts]})
                        raise fault from (None if fault is error else error)
                    raise
                continue
            self._fallback = FallbackRecord(selected=agent.candidate(index), attempts=tuple(attempts))
            return answer
        raise AssertionError("the last candidate answers or raises")

    def _moves_on(self, agent: FallbackAgent, index: int, error: OutpostError, attempts: list[FailedAttempt]) -> bool:
        failure = classified(error)
        if failure is None or failure.kind not in agent.on:
            return False
        own = agent.candidate(index)
        attempts.append(
            FailedAttempt(**own.model_dump(), failure=failure.kind, message=failure.message, reset_at=failure.reset_at)
        )
        if index + 1 == len(agent.candidates):
            return False
        following = agent.candidate(index + 1)
        self._progress.note(
            f"{own.name} failed ({failure.kind}: {one_line(failure.message, 200)}); {following.name} went on"
        )
        self._observation.emit(
            FallbackEvent(
                from_=own,
                to=following,
                failure=failure.kind,
                message=failure.message,
                reset_at=failure.reset_at,
            )
        )
        # The next one starts from the original brief, with a conversation of its own (FALL-03, FALL-05).
        self._observation.pass_number += 1
        self._progress.conversation = None
        return True

    def _carrier(self, agent: Agent | CliAgent | RemoteAgent | ReplayAgent, name: str) -> Turns:
        if isinstance(agent, RemoteAgent):
            # Only whoever sends runs elsewhere needs it.
            from outpost_lsp.dispatches.remote_turns import RemoteTurns

            return RemoteTurns(agent, self.options, self._observation, self._progress)
        if isinstance(agent, ReplayAgent):
            return ReplayedTurns(agent, self.options, self._observation, self._progress)
        if isinstance(agent, CliAgent):
            return CliTurns(agent, name, self.options, self._observation, self._progress)
        return BuiltInTurns(agent, name, self.options, self._observation, self._progress)

    # Turns

    async def _turns(self, sandbox: OpenedSandbox, carrier: Turns) -> Answer:
        options, observation = self.options, self._observation
        observation.emit(PhaseEvent(name="preparing prompt", directory=str(sandbox.directory)))
        prompt = await render(
            options.brief,
            lease=sandbox.lease,
            branches={"WORK_BRANCH": sandbox.branch, "BASE_BRANCH": sandbox.base_branch},
            expansion_s=options.expansion_s,
            warn=options.warn,
            diagnostic=options.diagnostic,
        )
        try:
            text = await self._turn(sandbox, carrier, with_format(prompt, options.response))
            text = await self._resumed(sandbox, carrier, text)
            if options.response is None:
                return text, None
            return await self._typed(sandbox, carrier, text)
        finally:
            await carrier.close()

    async def _turn(self, sandbox: OpenedSandbox, carrier: Turns, prompt: str, *, repair: bool = False) -> str:
        shared = self.options.shared
        # What is only gone through again is no attempt (BUD-02).
        counted = shared is not None and not isinstance(self.options.agent, ReplayAgent)
        with shared.attempt() if shared is not None and counted else nullcontext():
            self._observation.emit(PromptEvent(text=prompt))
            return await carrier.turn(sandbox, prompt, repair=repair)

    async def _typed(self, sandbox: OpenedSandbox, carrier: Turns, text: str) -> Answer:
        response = self.options.response
        assert response is not None
        for attempts_left in range(response.repairs, -1, -1):
            try:
                return text, response.read(text)
            except ResponseError as error:
                if attempts_left == 0 or self._progress.conversation is None:
                    record_recovery(error, {"turns": len(self._progress.turns)})
                    raise
                prompt = with_format(repair_prompt(error, attempts_left - 1), response)
            text = await self._turn(sandbox, carrier, prompt, repair=True)
            text = await self._resumed(sandbox, carrier, text)
        raise AssertionError("the last attempt returns or raises")

    async def _resumed(self, sandbox: OpenedSandbox, carrier: Turns, text: str) -> str:
        """Texts that arrived after the agent answered continue the conversation (STEER-06)."""
        steering = self.options.steering
        while steering is not None and self._progress.conversation is not None and steering.has(None):
            texts = steering.take(None, "resumed")
            for one in texts:
                self._observation.emit(SteerEvent(text=one, mode="resumed"))
            prompt = with_format("\n\n".join(texts), self.options.response)
            text = await self._turn(sandbox, carrier, prompt)
        return text


class _Borrowed:
    """A sandbox that somebody else opened and will close."""

    name = "borrowed"

    def __init__(self, sandbox: OpenedSandbox) -> None:
        self._sandbox = sandbox

    def open(self, _folder: Path, _run_id: str, /) -> Any:
        return nullcontext(self._sandbox)
