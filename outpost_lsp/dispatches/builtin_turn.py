"""A turn of an agent with a built-in harness: its conversation, its loop, its receipt."""

from __future__ import annotations

import time

from anyio import to_thread

from outpost_lsp.dispatches.observation import DispatchObservation
from outpost_lsp.dispatches.options import DispatchOptions
from outpost_lsp.dispatches.progress import Progress
from outpost_lsp.dispatches.redaction import conversation_mask
from outpost_lsp.dispatches.result import Turn
from outpost_lsp.dispatches.sandboxing import OpenedSandbox, conversations_of
from outpost_lsp.dispatches.turn_runtime import turn_runtime
from outpost_lsp.dispatches.turns import carried
from outpost_lsp.domain.event import ConversationEvent, FinishedEvent, PhaseEvent, ResultEvent, SummaryEvent
from outpost_lsp.harness.abandoned import end_abandoned
from outpost_lsp.harness.agent import Agent
from outpost_lsp.harness.budget import Budget
from outpost_lsp.harness.cancellation import breathe
from outpost_lsp.harness.context import measure
from outpost_lsp.harness.gate import Gate
from outpost_lsp.harness.loop import Loop
from outpost_lsp.harness.runtime import Memory, TurnRuntime, captured
from outpost_lsp.harness.subagent import store_of
from outpost_lsp.storage.conversations import ConversationStore
from outpost_lsp.storage.transcript import Transcript, TranscriptVersion


class BuiltInTurns:
    """Carries the turns of one agent within one dispatch; they share a conversation and a budget."""

    def __init__(
        self, agent: Agent, name: str, options: DispatchOptions, observation: DispatchObservation, progress: Progress
    ) -> None:
        self.agent = agent
        self._name = name
        self._options = options
        self._observation = observation
        self._progress = progress
        self._budget = Budget(name, agent.harness.limits.usage, options.budget)

    async def turn(self, sandbox: OpenedSandbox, prompt: str, *, repair: bool = False) -> str:
        """One turn, from a prompt to an answer. Whatever happens, its usage counts and its transcript is free again."""
        observation, progress, options = self._observation, self._progress, self._options
        runtime = self._runtime(sandbox, repair=repair)
        started = time.monotonic()
        await breathe()
        store = store_of(self.agent, runtime)
        memory = await self._memory(store)
        try:
            if memory.conversation is not None and store is not None:
                progress.conversation = memory.conversation
                progress.seen.append((store, memory.conversation))
                await breathe()
                observation.emit(ConversationEvent(id=memory.conversation))
            await breathe()
            observation.emit(PhaseEvent(name="running", agent=self._name))
            await breathe()
        except BaseException:
            memory.close()
            raise
        permissions = self.agent.harness.permissions
        loop = Loop(
            runtime,
            self.agent,
            name=self._name,
            memory=memory,
            budget=self._budget,
            gate=Gate(() if permissions is None else (permissions,), runtime.asking),
        )
        status = 1
        try:
            text = await carried(
                loop.run(prompt),
                activity=runtime.activity,
                deadline_s=options.deadline_s,
                idle_s=options.idle_s,
                idle_warning_s=options.idle_warning_s,
                emit=observation.emit,
            )
            status = 0
            observation.emit(ResultEvent(text=text))
            observation.emit(FinishedEvent())
        finally:
            await end_abandoned(runtime.abandoned, progress.note)
            memory.close()
            progress.seen.extend(runtime.conversations)
            progress.usage = progress.usage + runtime.total
            progress.answered_by(runtime.answered_models)
            duration_ms = round((time.monotonic() - started) * 1000)
            observation.emit(SummaryEvent(duration_ms=duration_ms, status=status, tokens=runtime.total))
        await observation.watchdog_settled()
        kept = store is not None and memory.conversation is not None
        progress.turns.append(
            Turn(
                text=text,
                usage=runtime.total,
                duration_ms=duration_ms,
                conversation=memory.conversation,
                transcript=captured(store, memory.conversation) if kept else None,  # type: ignore[arg-type]
            )
        )
        return text

    async def close(self) -> None:
        """Nothing of a turn outlives it."""

    def _runtime(self, sandbox: OpenedSandbox, *, repair: bool) -> TurnRuntime:
        options = self._options
        runtime = turn_runtime(sandbox, options, self._observation, self._progress, repair=repair)
        runtime.store = None if sandbox.layout is None else conversations_of(sandbox.layout)
        runtime.mask = conversation_mask(options.redact)
        self._observation.runtime = runtime
        return runtime

    async def _memory(self, store: ConversationStore | None) -> Memory:
        continuation = self._options.continuation
        if store is None:
            return Memory(None)
        version: TranscriptVersion = 1 if self.agent.harness.routing is None else 2
        model = self.agent.model.name
        # Reading an old conversation may mean megabytes of JSON.
        if self._progress.conversation is not None:
            known = self._progress.conversation
            return Memory(await to_thread.run_sync(lambda: _measured(store.open(known, version=version))))
        if continuation is None:
            return Memory(store.create(model=model, version=version))
        if continuation.fork:
            fork = await to_thread.run_sync(
                lambda: _measured(store.fork(continuation.id, model=model, version=version))
            )
            return Memory(fork)
        return Memory(await to_thread.run_sync(lambda: _measured(store.open(continuation.id, version=version))))


def _measured(transcript: Transcript) -> Transcript:
    measure(transcript.history)
    return transcript
