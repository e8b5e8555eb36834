"""One turn of an agent, step by step (section 5 of the engine rules).

A step is: compact, route, ask the model, run its tool calls. The loop ends when the model answers. It owns its history,
its counters, its budget and its gate; everything else it shares with its ancestors through the `TurnRuntime`.
Cancellation is that of the task that runs it: no token, no flag.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import assert_never

from outpost_lsp.domain.event import (
    CompactionEvent,
    Event,
    InstructionsLoadedEvent,
    ModelErrorEvent,
    ModelRequestEvent,
    ModelResponseEvent,
    ModelRetryEvent,
    ReasoningEvent,
    SkillsLoadedEvent,
    SteerEvent,
    StepEvent,
    StopPreventedEvent,
    TextDeltaEvent,
    TextEvent,
    UsageSource,
)
from outpost_lsp.domain.message import Message, ReasoningBlock, TextBlock, user, without_reasoning
from outpost_lsp.domain.model import Completed, ModelRequest, ModelResult, ModelSpec, ReasoningDelta, Retry, TextDelta
from outpost_lsp.domain.tool import Tool
from outpost_lsp.domain.usage import UNKNOWN, Usage
from outpost_lsp.errors import OutpostError
from outpost_lsp.harness.agent import MAX_DELEGATION_DEPTH, Agent, Harness
from outpost_lsp.harness.budget import Budget
from outpost_lsp.harness.cancellation import checkpoint
from outpost_lsp.harness.context import (
    SUMMARY_SYSTEM,
    CompactionInput,
    ContextStrategy,
    compacted,
    rendered,
    summarize_history,
    truncate_tool_results,
)
from outpost_lsp.harness.gate import Gate
from outpost_lsp.harness.hooks import HookInput, run_hook
from outpost_lsp.harness.instructions import InstructionContext, loaded_skills, resolve_all, skill_catalogue
from outpost_lsp.harness.routing import RoutingContext, select_route
from outpost_lsp.harness.runtime import Memory, TurnRuntime
from outpost_lsp.harness.tool_calls import run_calls
from outpost_lsp.sandbox.lease import BorrowedLease

_UNCOUNTED_WHEN = frozenset({"timeout", "response"})


class Loop:
    """The state of one turn of one agent."""

    def __init__(
        self,
        runtime: TurnRuntime,
        agent: Agent,
        *,
        name: str,
        memory: Memory,
        budget: Budget,
        gate: Gate,
        run_id: str | None = None,
        depth: int = 0,
        ceiling: int | None = None,
        extra_tools: Mapping[str, Tool] | None = None,
    ) -> None:
        self.runtime = runtime
        self.agent = agent
        self.name = name
        self.memory = memory
        self.budget = budget
        self.gate = gate
        self.run_id = run_id
        """The run id of a child; `None` for the main loop."""
        self.depth = depth
        own = agent.harness.limits.max_delegation_depth
        self.ceiling = (MAX_DELEGATION_DEPTH if own is None else own) if ceiling is None else ceiling
        self.model: ModelSpec = agent.model
        self.route: str | None = None
        self.step = 0
        table = {**agent.harness.tool_table, **(extra_tools or {})}
        self.tools: Mapping[str, Tool] = (
            {key: tool for key, tool in table.items() if tool.read_only} if runtime.read_only else table
        )
        self.tool_specs = (
            agent.harness.tool_specs
            if len(self.tools) == len(agent.harness.tool_table) and not extra_tools
            else tuple(tool.spec for tool in self.tools.values())
        )
        self.loaded_skills: frozenset[str] = frozenset()
        self._tool_calls = 0
        self._system: str | None = None

    @property
    def harness(self) -> Harness:
        """The harness of this loop's agent."""
        return self.agent.harness

    @property
    def hook_lease(self) -> BorrowedLease:
        """The sandbox as hooks get it: borrowed, so that it cannot be released (TOOL-15)."""
        return BorrowedLease(self.runtime.lease)

    def emit(self, event: Event) -> None:
        """Let an event out, marked with the child's run id where this loop is a child's (SUB-61)."""
        self.runtime.activity.touch()
        if self.run_id is not None and event.subagent_id is None:
            event = event.model_copy(update={"subagent_id": self.run_id})
        self.runtime.observe(event)
        if self.runtime.fatal is not None:
            raise self.runtime.fatal

    async def run(self, prompt: str) -> str:
        """Carry the agent from a prompt to its answer."""
        await self._open(prompt)
        while True:
            answer = await self._one_step()
            self.budget.check()
            if answer is not None:
                return answer

    # Opening

    async def _open(self, prompt: str) -> None:
        harness = self.harness
        given = InstructionContext(sandbox=self.hook_lease, model=self.model, note=self.runtime.note)
        texts = await resolve_all(harness.instructions, given)
        self.emit(InstructionsLoadedEvent(count=len(texts)))
        if harness.skills:
            texts.append(skill_catalogue(harness.skills))
        for hook in harness.hook_table.of("session-start"):
            result = await run_hook(
                hook, HookInput(sandbox=self.hook_lease, model=self.model, step=0, prompt=prompt), self.emit
            )
            if result is not None:
                texts.append(result["instructions"])
        self._system = "\n\n".join(text for text in texts if text.strip()) or None
        self.memory.append(user(prompt, *self._steered()))

    def _steered(self) -> list[str]:
        steering = self.runtime.steering
        if steering is None:
            return []
        texts = steering.take(self.run_id, "injected")
        for text in texts:
            self.emit(SteerEvent(text=text, mode="injected"))
        return texts

    # One step, in the exact order of the rules

    async def _one_step(self) -> str | None:
        await checkpoint()
        self._check_steps()
        self.budget.check()
        self._announce_step()
        await self._compact()
        await self._route()
        await self._hooks_before_model()
        result = await self._ask_model()
        if self.harness.hook_table.has("after-model"):
            for hook in self.harness.hook_table.of("after-model"):
                given = HookInput(sandbox=self.hook_lease, model=self.model, step=self.step, result=result)
                await run_hook(hook, given, self.emit)
        self._emit_content(result)
        return await self._handle(result)

    def _check_steps(self) -> None:
        limit = self.harness.limits.max_steps
        if self.step >= limit:
            raise OutpostError(
                "limit",
                f"{self.name} reached its limit of {limit} steps without an answer",
                {"limit": "maxSteps", "step": self.step + 1, "agent": self.name, "ceiling": limit},
            )
        self.step += 1

    def _announce_step(self) -> None:
        if self.harness.skills:
            loaded = loaded_skills(self.memory.history)
            if new := loaded - self.loaded_skills:
                self.emit(SkillsLoadedEvent(names=tuple(sorted(new))))
            self.loaded_skills = loaded
        self.emit(StepEvent(index=self.step))

    async def _compact(self) -> None:
        for strategy in self.harness.context:
            await self._apply(strategy, forced=False)

    async def _apply(self, strategy: ContextStrategy, *, forced: bool) -> bool:
        given = CompactionInput(
            messages=tuple(self.memory.history),
            step=self.step,
            model=self.model,
            summarize=self._summarize,
            forced=forced,
        )
        messages = await compacted(strategy, given)
        if messages is None:
            return False
        kept = without_reasoning(messages)
        self.memory.compact(kept)
        self.emit(CompactionEvent(strategy=strategy.name, messages=len(kept)))
        return True

    async def _route(self) -> None:
        routing = self.harness.routing
        if routing is None:
            return
        self.budget.check()
        context = RoutingContext(
            step=self.step,
            model=self.model,
            messages=self.memory.history,
            system=self._system,
            tools=self.tool_specs,
        )
        try:
            selection = await select_route(
                routing,
                context,
                observe=lambda event: self.runtime.observe_decision(event, self.run_id),
                account=lambda usage: self._account(usage, "decision", routing.model),
            )
        finally:
            # A cancelled loop raises its cancellation before any fault of the router (ROUTE-34).
            await checkpoint()
        self.budget.check()
        self.model = selection.model
        self.route = selection.event.choice
        self.memory.record_selection(selection.event.to_json())
        self.emit(selection.event)

    async def _hooks_before_model(self) -> None:
        for hook in self.harness.hook_table.of("before-model"):
            given = HookInput(
                sandbox=self.hook_lease, model=self.model, step=self.step, messages=tuple(self.memory.history)
            )
            await run_hook(hook, given, self.emit)

    # The model

    async def _ask_model(self) -> ModelResult:
        try:
            return await self._request(self._step_request(), "model")
        except OutpostError as error:
            if error.details.get("reason") != "context-length" or not await self._make_room():
                raise
        return await self._request(self._step_request(), "model")

    async def _make_room(self) -> bool:
        """One compaction after a request was refused as too long (CTX-11); whether anything became shorter."""
        strategies = self.harness.context or (truncate_tool_results(), summarize_history())
        shortened = [await self._apply(strategy, forced=True) for strategy in strategies]
        return any(shortened)

    def _step_request(self) -> ModelRequest:
        return ModelRequest(
            model=self.model.name,
            messages=self.memory.history,
            system=self._system,
            tools=self.tool_specs,
            reasoning=self.model.reasoning,
            max_output_tokens=self.model.max_output_tokens,
            cache=self.harness.cache,
        )

    async def _request(self, request: ModelRequest, source: UsageSource) -> ModelResult:
        if self.runtime.verbose:
            self.emit(ModelRequestEvent(request=_request_json(request)))
        try:
            result = await self._streamed(request, source)
        except OutpostError as error:
            if error.code in _UNCOUNTED_WHEN:
                self.runtime.mark_incomplete()
            self.emit(ModelErrorEvent(message=error.message))
            raise
        except Exception as error:
            self.emit(ModelErrorEvent(message=str(error) or type(error).__name__))
            raise
        except BaseException:
            # Cancelled in flight: the service may charge for an answer nobody will read.
            self.runtime.mark_incomplete()
            raise
        # A response that arrives after cancellation is discarded and not counted (LOOP-18).
        await checkpoint()
        self._account(result.usage or UNKNOWN, source, request.model)
        if self.runtime.verbose:
            self.emit(ModelResponseEvent(response=_result_json(result)))
        answered = result.model or request.model
        if answered not in self.runtime.answered_models:
            self.runtime.answered_models.append(answered)
        return result

    async def _streamed(self, request: ModelRequest, source: UsageSource) -> ModelResult:
        provider = self.harness.model_provider
        if getattr(provider, "stream", None) is None:
            answer: ModelResult = await provider.request(request)
            return answer
        result: ModelResult | None = None
        async with aclosing(provider.stream(request)) as events:
            async for event in events:
                match event:
                    case TextDelta():
                        if source == "model":
                            self.emit(TextDeltaEvent(text=event.text))
                    case ReasoningDelta():
                        if source == "model":
                            self.emit(ReasoningEvent(text=event.text))
                    case Retry():
                        self._retried(event, source, request.model)
                    case Completed():
                        if result is not None:
                            raise OutpostError("configuration", f"{provider.name}: the stream gave two results")
                        result = event.result
                    case _:
                        assert_never(event)
        if result is None:
            raise OutpostError("response", f"{provider.name}: the answer ended without a result")
        return result

    def _retried(self, event: Retry, source: UsageSource, model: str) -> None:
        self.emit(ModelRetryEvent(attempt=event.attempt, message=event.message, wait_s=event.wait_s or None))
        if event.usage is not None:
            partial = event.usage.model_copy(update={"complete": False})
            self._account(partial, source, model, attempt_cut=True)

    def _account(self, usage: Usage, source: UsageSource, model: str, *, attempt_cut: bool = False) -> None:
        self.runtime.account(
            usage,
            budget=self.budget,
            source=source,
            model=model,
            step=self.step,
            subagent_id=self.run_id,
            emit=self.emit,
            attempt_cut=attempt_cut,
        )

    async def _summarize(self, messages: Sequence[Message]) -> str:
        """An accounted request of the active model over the rendered history (CTX-07, LOOP-20)."""
        request = ModelRequest(
            model=self.model.name,
            prompt=rendered(messages),
            system=SUMMARY_SYSTEM,
            reasoning=self.model.reasoning,
            max_output_tokens=self.model.max_output_tokens,
        )
        self.budget.check()
        result = await self._request(request, "summary")
        if result.reason != "end" or not result.text.strip():
            raise OutpostError("response", f"the summary of the history failed: it ended with {result.reason}")
        return result.text

    # The answer

    def _emit_content(self, result: ModelResult) -> None:
        for block in result.blocks:
            if isinstance(block, TextBlock) and block.text:
                self.emit(TextEvent(text=block.text))
            elif isinstance(block, ReasoningBlock) and block.text:
                self.emit(ReasoningEvent(text=block.text))

    async def _handle(self, result: ModelResult) -> str | None:
        match result.reason:
            case "end":
                return await self._end(result)
            case "tool-calls":
                await self._call_tools(result)
                return None
            case "max-tokens":
                raise OutpostError(
                    "limit",
                    f"the model's answer at step {self.step} was cut off by its output limit",
                    {"limit": "maxOutputTokens", "step": self.step},
                )
            case "refusal":
                raise OutpostError("response", f"the model refused at step {self.step}", {"step": self.step})
            case _:
                assert_never(result.reason)

    async def _end(self, result: ModelResult) -> str | None:
        goes_on = await self._stop_prevented(result.text)
        self.memory.append(Message(role="assistant", content=result.blocks))
        texts = [] if goes_on is None else [goes_on]
        texts += self._steered()
        if not texts:
            return result.text
        if goes_on is not None:
            self.emit(StopPreventedEvent(message=goes_on))
        self.memory.append(user(*texts))
        return None

    async def _stop_prevented(self, text: str) -> str | None:
        for hook in self.harness.hook_table.of("stop"):
            given = HookInput(sandbox=self.hook_lease, model=self.model, step=self.step, text=text)
            result = await run_hook(hook, given, self.emit)
            if result is not None:
                goes_on: str = result["continue"]
                return goes_on
        return None

    async def _call_tools(self, result: ModelResult) -> None:
        message = Message(role="assistant", content=result.blocks)
        calls = message.calls
        if not calls:
            raise OutpostError("response", f"the model asked for tools at step {self.step} and named none")
        self._count_calls(len(calls))
        self.memory.append(message)
        results = await run_calls(self, calls)
        steered = (TextBlock(text=text) for text in self._steered())
        self.memory.append(Message(role="user", content=(*results, *steered)))

    def _count_calls(self, calls: int) -> None:
        self._tool_calls += calls
        limit = self.harness.limits.max_tool_calls
        if limit is not None and self._tool_calls > limit:
            raise OutpostError(
                "limit",
                f"{self.name} exceeded its limit of {limit} tool calls: {self._tool_calls} requested",
                {"limit": "maxToolCalls", "step": self.step, "agent": self.name, "ceiling": limit},
            )


def _request_json(request: ModelRequest) -> dict[str, object]:
    return {
        "model": request.model,
        "system": request.system,
        "prompt": request.prompt,
        "messages": None if request.messages is None else [message.to_json() for message in request.messages],
        "tools": [tool.name for tool in request.tools],
        "reasoning": request.reasoning,
        "maxOutputTokens": request.max_output_tokens,
    }


def _result_json(result: ModelResult) -> dict[str, object]:
    return {
        "text": result.text,
        "content": [block.to_json() for block in result.blocks],
        "stopReason": result.reason,
        "usage": None if result.usage is None else result.usage.to_json(),
    }
