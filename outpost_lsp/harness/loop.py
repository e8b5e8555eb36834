"""One turn of an agent, step by step (section 5 of the engine rules).

A step is: compact, route, ask the model, run its tool calls. The loop ends when the model answers. It owns its history,
its counters, its budget and its gate; everything else it shares with its ancestors through the `TurnRuntime`.
Cancellation is that of the task that runs it: no token, no flag.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import assert_never

from outpost_lsp.domain.event import (
    CompactionEvent,
    Event,
    InstructionsLoadedEvent,
    ReasoningEvent,
    SkillsLoadedEvent,
    SteerEvent,
    StepEvent,
    StopPreventedEvent,
    TextEvent,
    UsageSource,
)
from outpost_lsp.domain.message import Message, ReasoningBlock, TextBlock, user, without_reasoning
from outpost_lsp.domain.model import ModelResult, ModelSpec
from outpost_lsp.domain.tool import Tool
from outpost_lsp.domain.usage import Usage
from outpost_lsp.errors import OutpostError, configuration
from outpost_lsp.harness.agent import MAX_DELEGATION_DEPTH, Agent, Harness
from outpost_lsp.harness.asking import ask_model, remembered_cut, summarize
from outpost_lsp.harness.budget import Budget
from outpost_lsp.harness.cancellation import breathe, checkpoint
from outpost_lsp.harness.context import (
    CompactionInput,
    ContextStrategy,
    compacted,
)
from outpost_lsp.harness.gate import Gate
from outpost_lsp.harness.hooks import HookInput, run_hook
from outpost_lsp.harness.instructions import (
    InstructionContext,
    Prompts,
    loaded_skills,
    resolve_all,
    skill_catalogue,
)
from outpost_lsp.harness.routing import RoutingContext, select_route
from outpost_lsp.harness.runtime import Memory, TurnRuntime
from outpost_lsp.harness.tool_calls import run_calls
from outpost_lsp.sandbox.lease import BorrowedLease
from outpost_lsp.tools.mcp_server import running_servers


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
        self._prompts: Prompts | None = None
        self.system: str | None = None
        """The session's instructions, resolved when the turn began."""

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
            event = event.with_values(subagent_id=self.run_id)
        self.runtime.observe(event)
        if self.runtime.fatal is not None:
            raise self.runtime.fatal

    async def run(self, prompt: str) -> str:
        """Carry the agent from a prompt to its answer; its MCP servers live as long as this (MCP-02)."""
        servers = self.harness.mcp_servers
        if not servers:
            return await self._steps(prompt)
        async with running_servers(servers, self.runtime.lease) as running:
            self._add(running.tools)
            self._prompts = running
            return await self._steps(prompt)

    def _add(self, tools: Mapping[str, Tool]) -> None:
        if twice := sorted(tools.keys() & self.harness.tool_table.keys()):
            raise configuration(f"tools: two tools are named {twice[0]!r}: one of them is of an MCP server")
        if not self.runtime.read_only:
            self.tools = {**self.tools, **tools}
            self.tool_specs = (*self.tool_specs, *(tool.spec for tool in tools.values()))

    async def _steps(self, prompt: str) -> str:
        await self._open(prompt)
        while True:
            answer = await self._one_step()
            self.budget.check()
            if answer is not None:
                return answer

    # Opening

    async def _open(self, prompt: str) -> None:
        harness = self.harness
        given = InstructionContext(sandbox=self.hook_lease, model=self.model, note=self.runtime.note, mcp=self._prompts)
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
        self.system = "\n\n".join(text for text in texts if text.strip()) or None
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
        result = await ask_model(self)
        if self.harness.hook_table.has("after-model"):
            for hook in self.harness.hook_table.of("after-model"):
                given = HookInput(sandbox=self.hook_lease, model=self.model, step=self.step, result=result)
                await run_hook(hook, given, self.emit)
        self._emit_content(result)
        await breathe()
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
            await self.apply(strategy, forced=False)

    async def apply(self, strategy: ContextStrategy, *, forced: bool) -> bool:
        """Let one strategy shorten the history; whether it did. `forced`: the service refused it as too long."""
        given = CompactionInput(
            messages=self.memory.history.snapshot(),
            step=self.step,
            model=self.model,
            summarize=partial(summarize, self),
            forced=forced,
        )
        messages = await compacted(strategy, given)
        if messages is None:
            return False
        kept = without_reasoning(messages)
        self.memory.compact(kept)
        self.emit(CompactionEvent(strategy=strategy.name, messages=len(kept)))
        await breathe()
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
            system=self.system,
            tools=self.tool_specs,
        )
        try:
            selection = await select_route(
                routing,
                context,
                observe=lambda event: self.runtime.observe_decision(event, self.run_id),
                account=lambda usage: self.account(usage, "decision", routing.model),
                verbose=self.runtime.verbose,
            )
        finally:
            # A cancelled loop raises its cancellation before any fault of the router (ROUTE-34).
            await checkpoint()
        self.budget.check()
        self.model = selection.model
        self.route = selection.event.choice
        self.memory.record_selection(selection.event.to_json())
        self.emit(selection.event)
        if selection.outage is not None:
            # Once a run and cause: a wrong address would otherwise send every step to the fallback without a word.
            self.runtime.note(f"routing: {selection.outage}; {selection.event.choice} took the step")

    async def _hooks_before_model(self) -> None:
        for hook in self.harness.hook_table.of("before-model"):
            given = HookInput(
                sandbox=self.hook_lease, model=self.model, step=self.step, messages=tuple(self.memory.history)
            )
            await run_hook(hook, given, self.emit)

    def account(self, usage: Usage, source: UsageSource, model: str, *, attempt_cut: bool = False) -> None:
        """Count a receipt of this loop; raises the breach of the outermost budget it broke."""
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
                for message in remembered_cut(result):
                    self.memory.append(message)
                raise OutpostError(
                    "limit",
                    f"the model's answer at step {self.step} was cut off by its output limit; raise max_output_tokens",
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
        await self.memory.append_results(Message(role="user", content=(*results, *steered)))

    def _count_calls(self, calls: int) -> None:
        self._tool_calls += calls
        limit = self.harness.limits.max_tool_calls
        if limit is not None and self._tool_calls > limit:
            raise OutpostError(
                "limit",
                f"{self.name} exceeded its limit of {limit} tool calls: {self._tool_calls} requested",
                {"limit": "maxToolCalls", "step": self.step, "agent": self.name, "ceiling": limit},
            )
