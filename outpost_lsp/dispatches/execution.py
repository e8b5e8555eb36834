"""Carrying a validated dispatch through: passes, turns, repairs, and what they leave (DISP-04 to -08, RESP-07, STEER-06)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final

import anyio

from outpost_lsp.dispatches.brief import render
from outpost_lsp.dispatches.observation import DispatchObservation
from outpost_lsp.dispatches.options import DispatchOptions
from outpost_lsp.dispatches.result import DispatchResult, Turn
from outpost_lsp.dispatches.sandboxing import OpenedSandbox, SandboxProvider, conversations_of
from outpost_lsp.dispatches.turns import carried
from outpost_lsp.domain.event import (
    ConversationEvent,
    FinishedEvent,
    PhaseEvent,
    PromptEvent,
    ResultEvent,
    SteerEvent,
    SummaryEvent,
)
from outpost_lsp.domain.price import UsageCost, usage_cost
from outpost_lsp.domain.usage import ZERO, Usage
from outpost_lsp.errors import OutpostError, configuration, record_recovery
from outpost_lsp.harness.agent import DEFAULT
from outpost_lsp.harness.budget import Budget
from outpost_lsp.harness.cancellation import checkpoint
from outpost_lsp.harness.gate import Asking, Gate
from outpost_lsp.harness.loop import Loop
from outpost_lsp.harness.response import ResponseError, repair_prompt, with_format
from outpost_lsp.harness.runtime import Activity, Memory, TurnRuntime, captured
from outpost_lsp.harness.subagent import store_of
from outpost_lsp.storage.conversations import ConversationStore
from outpost_lsp.storage.transcript import TranscriptVersion

_SAVING_S: Final = 10.0


class Execution:
    """One dispatch while it runs."""

    def __init__(self, options: DispatchOptions) -> None:
        self.options = options
        self.turns: list[Turn] = []
        self.usage: Usage = ZERO
        self.notes: list[str] = []
        self.models: list[str] = []
        self.conversation: str | None = None
        self._started = time.monotonic()
        self._seen: list[tuple[ConversationStore, str]] = []
        limits = options.agent.harness.limits.usage
        self._budget = Budget(options.label, limits, options.budget)
        self._observation = DispatchObservation(options, self.note)

    @property
    def _sandbox_id(self) -> str:
        # Each pass has a sandbox of its own, and the first carries the dispatch's name.
        number = self._observation.pass_number
        return self.options.dispatch_id if number == 1 else f"{self.options.dispatch_id}-{number}"

    def note(self, text: str) -> None:
        """Put a line on the run for people to read, once."""
        if text not in self.notes:
            self.notes.append(text)

    async def cold(self, provider: SandboxProvider) -> DispatchResult:
        """Every pass in a sandbox of its own, until one is completed (DISP-05)."""
        await self._locate_continuation(provider)
        results = []
        for number in range(1, self.options.passes + 1):
            one = self if number == 1 else Execution(self.options)
            one._observation.pass_number = number
            results.append(await one._cold_pass(provider))
            if results[-1].completed:
                break
        return results[0] if len(results) == 1 else _combined(results)

    async def _locate_continuation(self, provider: SandboxProvider) -> None:
        continuation = self.options.continuation
        find = getattr(provider, "conversations", None)
        if continuation is None or find is None:
            return
        store: Any = self.options.agent.harness.conversations
        if store is DEFAULT:
            store = await find(self.options.repository)
        if not store.exists(continuation.id):
            raise OutpostError(
                "session",
                f"there is no conversation {continuation.id}",
                {"conversation": continuation.id},
            )

    async def _cold_pass(self, provider: SandboxProvider) -> DispatchResult:
        with self._steered():
            await self._observation.start()
            status: Any = "failed"
            failure: BaseException | None = None
            completed = False
            try:
                async with provider.open(self.options.repository, self._sandbox_id) as sandbox:
                    answer = await self._run(sandbox)
                result = self._result(sandbox, answer)
                status, completed = "done", result.completed
                return result
            except asyncio.CancelledError as error:
                status, failure = "cancelled", error
                self._record(error)
                raise
            except Exception as error:
                failure = error
                self._record(error)
                raise
            finally:
                await self._observation.finish(status, completed=completed, usage=self.usage, failure=failure)

    async def in_opened(self, sandbox: OpenedSandbox) -> DispatchResult:
        """All passes in a sandbox that stays open afterwards (DISP-15)."""
        if sandbox.is_busy:
            raise configuration("the sandbox is busy with another operation")
        sandbox.is_busy = True
        try:
            return await self.cold(_Borrowed(sandbox))
        finally:
            sandbox.is_busy = False

    # Inside a sandbox

    async def _run(self, sandbox: OpenedSandbox) -> tuple[str, Any]:
        self._observation.opened(sandbox)
        for note in sandbox.notes:
            self.note(note)
        try:
            answer = await self._turns(sandbox)
            # No late result: cancelled meanwhile means cancelled (DISP-16).
            await checkpoint()
            return answer
        except BaseException as error:
            await self._save_after_failure(sandbox, error)
            raise
        finally:
            await self._freeze(sandbox)

    async def _freeze(self, sandbox: OpenedSandbox) -> None:
        with anyio.CancelScope(shield=True), anyio.move_on_after(_SAVING_S):
            try:
                changes = await sandbox.freeze()
            except OutpostError as error:
                self.note(f"what the agent changed could not be collected: {error.message}")
                return
            if changes is not None:
                await self._observation.commits(sandbox, changes)

    async def _turns(self, sandbox: OpenedSandbox) -> tuple[str, Any]:
        options, emit = self.options, self._observation.emit
        emit(PhaseEvent(name="preparing prompt", directory=str(sandbox.directory)))
        prompt = await render(
            options.brief,
            lease=sandbox.lease,
            branches={"WORK_BRANCH": "HEAD", "BASE_BRANCH": "HEAD"},
            expansion_s=options.expansion_s,
            warn=options.warn,
            diagnostic=options.diagnostic,
        )
        text = await self._turn(sandbox, with_format(prompt, options.response))
        text = await self._resumed(sandbox, text)
        if options.response is None:
            return text, None
        return await self._typed(sandbox, text)

    async def _typed(self, sandbox: OpenedSandbox, text: str) -> tuple[str, Any]:
        response = self.options.response
        assert response is not None
        for attempts_left in range(response.repairs, -1, -1):
            try:
                return text, response.read(text)
            except ResponseError as error:
                if attempts_left == 0 or self.conversation is None:
                    record_recovery(error, {"turns": len(self.turns)})
                    raise
                prompt = with_format(repair_prompt(error, attempts_left - 1), response)
            text = await self._turn(sandbox, prompt, repair=True)
            text = await self._resumed(sandbox, text)
        raise AssertionError("the last attempt returns or raises")

    async def _resumed(self, sandbox: OpenedSandbox, text: str) -> str:
        """Texts that arrived after the agent answered continue the conversation (STEER-06)."""
        steering = self.options.steering
        while steering is not None and self.conversation is not None and steering.has(None):
            texts = steering.take(None, "resumed")
            for one in texts:
                self._observation.emit(SteerEvent(text=one, mode="resumed"))
            text = await self._turn(sandbox, with_format("\n\n".join(texts), self.options.response))
        return text

    async def _turn(self, sandbox: OpenedSandbox, prompt: str, *, repair: bool = False) -> str:
        options = self.options
        self._observation.emit(PromptEvent(text=prompt))
        runtime = self._runtime(sandbox, repair=repair)
        started = time.monotonic()
        store = store_of(options.agent, runtime)
        memory = self._memory(store)
        if memory.conversation is not None and store is not None:
            self.conversation = memory.conversation
            self._seen.append((store, memory.conversation))
            self._observation.emit(ConversationEvent(id=memory.conversation))
        self._observation.emit(PhaseEvent(name="running", agent=options.label))
        permissions = options.agent.harness.permissions
        loop = Loop(
            runtime,
            options.agent,
            name=options.label,
            memory=memory,
            budget=self._budget,
            gate=Gate((permissions,) if permissions is not None else (), runtime.asking),
        )
        status = 1
        try:
            text = await carried(
                loop.run(prompt),
                activity=runtime.activity,
                deadline_s=options.deadline_s,
                idle_s=options.idle_s,
                idle_warning_s=options.idle_warning_s,
                emit=self._observation.emit,
            )
            status = 0
            self._observation.emit(ResultEvent(text=text))
            self._observation.emit(FinishedEvent())
        finally:
            memory.close()
            self._seen.extend(runtime.conversations)
            self.usage = self.usage + runtime.total
            self.models.extend(model for model in runtime.answered_models if model not in self.models)
            duration_ms = round((time.monotonic() - started) * 1000)
            self._observation.emit(SummaryEvent(duration_ms=duration_ms, status=status, tokens=runtime.total))
        await self._observation.watchdog_settled()
        transcript = None
        if store is not None and self.conversation is not None:
            transcript = captured(store, self.conversation)
        self.turns.append(
            Turn(
                text=text,
                usage=runtime.total,
                duration_ms=duration_ms,
                conversation=self.conversation,
                transcript=transcript,
            )
        )
        return text

    def _runtime(self, sandbox: OpenedSandbox, *, repair: bool) -> TurnRuntime:
        options = self.options
        activity = Activity()
        store = None
        if sandbox.layout is not None:
            store = conversations_of(sandbox.layout)
        runtime = TurnRuntime(
            lease=sandbox.lease,
            observe=self._observation.emit,
            observe_decision=self._observation.emit_decision,
            asking=Asking(options.ask, activity.hold),
            activity=activity,
            note=self.note,
            steering=self._observation.steering,
            store=store,
            on_receipt=options.on_receipt,
            verbose=self._observation.verbose,
            attribute_usage=options.prices is not None,
            read_only=repair,
        )
        self._observation.runtime = runtime
        runtime.total = ZERO
        return runtime

    def _memory(self, store: ConversationStore | None) -> Memory:
        agent, continuation = self.options.agent, self.options.continuation
        if store is None:
            return Memory(None)
        version: TranscriptVersion = 1 if agent.harness.routing is None else 2
        if self.conversation is not None:
            return Memory(store.open(self.conversation, version=version))
        if continuation is None:
            return Memory(store.create(model=agent.model.name, version=version))
        if continuation.fork:
            return Memory(store.fork(continuation.id, model=agent.model.name, version=version))
        return Memory(store.open(continuation.id, version=version))

    # The end

    async def _save_after_failure(self, sandbox: OpenedSandbox, error: BaseException) -> None:
        record_recovery(error, {"directory": str(sandbox.directory)})
        for store, conversation in self._seen:
            try:
                record_recovery(error, {"transcript": str(captured(store, conversation))})
            except OutpostError as fault:
                record_recovery(error, {"capture": fault.message})

    def _record(self, error: BaseException) -> None:
        record_recovery(
            error,
            {
                "conversation": self.conversation,
                "usage": self.usage,
                "notes": tuple(self.notes),
                "models": tuple(self.models),
                "journal": self._observation.journal_path,
            },
        )

    def _result(self, sandbox: OpenedSandbox, answer: tuple[str, Any]) -> DispatchResult:
        last, value = answer
        options = self.options
        marker = next((marker for marker in options.until if marker in last), None)
        cost = self._cost()
        snapshot = sandbox.snapshot
        completed = marker is not None or options.response is not None
        text = "\n".join(turn.text for turn in self.turns)
        return DispatchResult(
            text=text,
            turns=tuple(self.turns),
            usage=self.usage,
            response=value,
            completed=completed,
            completion=marker,
            conversation=self.conversation,
            transcript=self.turns[-1].transcript,
            journal=self._observation.journal_path,
            changes=sandbox.changes,
            cost=cost,
            models=tuple(self.models),
            notes=tuple(self.notes),
            branch="HEAD",
            directory=sandbox.directory,
            base="" if snapshot is None else snapshot.head,
            retained_directory=sandbox.retained_directory,
            observer_errors=self._observation.errors,
            dispatch_id=options.dispatch_id,
            report_data=self._observation.report(self._report_fields(text, cost, sandbox, completed=completed)),
        )

    def _cost(self) -> UsageCost | None:
        if self.options.prices is None:
            return None
        try:
            return usage_cost(self.usage, self.options.prices)
        except OutpostError as error:
            # A failing calculation is no failing run (PRICE-07).
            self.options.warn(f"the cost could not be worked out: {error.message}")
            return None

    def _report_fields(
        self, text: str, cost: UsageCost | None, sandbox: OpenedSandbox, *, completed: bool
    ) -> Mapping[str, Any]:
        changes = sandbox.changes
        diff = None
        if changes is not None:
            diff = {
                "baseline": changes.base,
                "head": changes.commit,
                "files": [
                    {
                        "paths": [file.path] if file.old_path is None else [file.old_path, file.path],
                        "added": file.insertions,
                        "removed": file.deletions,
                        "binary": file.binary,
                    }
                    for file in changes.files
                ],
                "files_changed": len(changes.files),
                "added": sum(file.insertions for file in changes.files),
                "removed": sum(file.deletions for file in changes.files),
                "binary_files": sum(file.binary for file in changes.files),
            }
        return {
            "completed": completed,
            "text": text,
            "branch": "HEAD",
            "commits": [],
            "duration_ms": round((time.monotonic() - self._started) * 1000),
            "usage": self.usage.to_json(),
            "cost": None if cost is None else cost.to_json(),
            "diff": diff,
        }

    def _steered(self) -> Any:
        return self._observation.attached_steering()


class _Borrowed:
    """A sandbox that somebody else opened and will close."""

    name = "borrowed"

    def __init__(self, sandbox: OpenedSandbox) -> None:
        self._sandbox = sandbox

    def open(self, _folder: Any, _run_id: str, /) -> Any:
        from contextlib import nullcontext

        self._sandbox.changes = None
        return nullcontext(self._sandbox)


def _combined(results: list[DispatchResult]) -> DispatchResult:
    from dataclasses import replace

    usage = ZERO
    for result in results:
        usage = usage + result.usage
    return replace(
        results[-1],
        text="\n".join(result.text for result in results),
        turns=tuple(turn for result in results for turn in result.turns),
        usage=usage,
    )
