"""The tool calls of one step: prepare all, run in groups, complete all (TOOL and TEXEC rules).

Preparation is sequential and runs nothing. Consecutive read-only calls form one group that runs in parallel; every
other call runs alone. Completion is sequential again, so that all `tool` events come before all `tool-result` events.
Results are kept by position, for a service may repeat a call id within one answer (TOOL-16).
"""

from __future__ import annotations

import asyncio
import inspect
import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread

from outpost_lsp.domain.event import Event, ToolDeniedEvent, ToolEvent, ToolOutputEvent, ToolResultEvent
from outpost_lsp.domain.lossless import why_no_object
from outpost_lsp.domain.message import ToolCallBlock, ToolResultBlock
from outpost_lsp.domain.permission import Resources
from outpost_lsp.domain.sandbox import Channel
from outpost_lsp.domain.tool import OBSERVABLE, InvalidInputError, Tool, ToolContext, ToolOutput
from outpost_lsp.errors import OutpostError, configuration
from outpost_lsp.harness.cancellation import breathe, checkpoint
from outpost_lsp.harness.gate import inside
from outpost_lsp.harness.hooks import HookInput, run_hook, tool_output
from outpost_lsp.sandbox.lease import BorrowedLease
from outpost_lsp.storage.identifiers import now_text

if TYPE_CHECKING:
    from outpost_lsp.harness.loop import Loop

MAX_CONTENT: Final = 100_000
PREVIEW: Final = 2_000
OUTPUT_PIECE: Final = 8_192
_RELEASE_GRACE_S: Final = 0.05
_UNWIND_S: Final = 5.0
"""How long an expired delegation may take to unwind before the next call starts (SUB-18)."""
_CLEANUP_S: Final = 10.0


class LoopTool(Tool):
    """A tool that is carried out by the loop itself rather than in the sandbox: a delegation."""

    @abstractmethod
    async def run_in(self, value: Any, call: ToolCall, parent: Loop) -> ToolOutput:
        """Carry the call out on behalf of `parent`."""


@dataclass(slots=True)
class ToolCall:
    """One call on its way from the model's answer to a result."""

    block: ToolCallBlock
    tool: Tool | None = None
    value: Any = None
    output: ToolOutput | None = None
    started_at: str | None = None
    """When it began to run, after whatever the group made it wait for."""
    duration_ms: int | None = None
    expired: bool = False
    """Its own deadline passed, which is not the same as a cancelled loop."""

    @property
    def joins_group(self) -> bool:
        return self.output is not None or (self.tool is not None and self.tool.read_only)


async def run_calls(loop: Loop, blocks: Sequence[ToolCallBlock]) -> tuple[ToolResultBlock, ...]:
    """Carry out the calls of one answer and give their results in call order."""
    calls: list[ToolCall] = []
    for block in blocks:
        if calls:
            await breathe()
        calls.append(await _prepared(loop, block))
    for group in _groups(calls):
        await _run_group(loop, [call for call in group if call.output is None])
    results = []
    for call in calls:
        results.append(await _completed(loop, call))
        await breathe()
    return tuple(results)


# Preparation


async def _prepared(loop: Loop, block: ToolCallBlock) -> ToolCall:
    call = ToolCall(block)
    loop.emit(ToolEvent(name=block.name, input=block.input, call_id=block.id))
    call.tool = loop.tools.get(block.name)
    if call.tool is None:
        known = ", ".join(sorted(loop.tools)) or "none"
        call.output = ToolOutput(f"There is no tool named {block.name!r}. Tools: {known}.", True)
        return call
    try:
        call.value = call.tool.validated(block.input)
    except InvalidInputError as error:
        reason = why_no_object(block.input) if isinstance(block.input, str) else error
        call.output = ToolOutput(f"Invalid input for {block.name}: {reason}", True)
        return call
    skill = loop.harness.skill_of_tool.get(block.name)
    if skill is not None and skill not in loop.loaded_skills:
        _deny(loop, call, f"load the skill {skill} first")
        return call
    answered: set[Resources] = set()
    if await _denied(loop, call, block.input, answered):
        return call
    await _before_tool(loop, call, answered)
    return call


async def _before_tool(loop: Loop, call: ToolCall, answered: set[Resources]) -> None:
    assert call.tool is not None
    current = call.block.model_copy(update={"input": call.value})
    replaced = False
    for hook in loop.harness.hook_table.of("before-tool"):
        given = HookInput(sandbox=loop.hook_lease, model=loop.model, step=loop.step, call=current)
        result = await run_hook(hook, given, loop.emit)
        if result is None:
            continue
        if "deny" in result:
            _deny(loop, call, result["deny"])
            return
        if result["input"] is not current.input:
            current, replaced = current.model_copy(update={"input": result["input"]}), True
    if not replaced:
        return
    try:
        call.value = call.tool.validated(current.input)
    except InvalidInputError as error:
        call.output = ToolOutput(f"Invalid input for {call.block.name}, put there by a hook: {error}", True)
        return
    await _denied(loop, call, current.input, answered)


async def _denied(loop: Loop, call: ToolCall, given: Any, answered: set[Resources]) -> bool:
    """Whether the call may not run. `given` is its input as it stands now, which a person may be shown (SEC-20)."""
    assert call.tool is not None
    if not loop.gate:
        return False
    resources = inside(loop.runtime.lease, call.tool.resources_of(call.value))
    reason = await loop.gate.denial(call.block.name, given, resources, answered, loop.run_id)
    if reason is not None:
        _deny(loop, call, reason)
    return reason is not None


def _deny(loop: Loop, call: ToolCall, reason: str) -> None:
    loop.emit(ToolDeniedEvent(call_id=call.block.id, name=call.block.name, reason=reason))
    call.output = ToolOutput(f"Denied: {reason}", True)


# Execution


def _groups(calls: Sequence[ToolCall]) -> list[list[ToolCall]]:
    groups: list[list[ToolCall]] = []
    open_group = False
    for call in calls:
        if call.joins_group and open_group:
            groups[-1].append(call)
        else:
            groups.append([call])
        open_group = call.joins_group
    return groups


async def _run_group(loop: Loop, calls: Sequence[ToolCall]) -> None:
    if len(calls) == 1:
        calls[0].output = await _run(loop, calls[0])
        return
    if not calls:
        return
    room = asyncio.Semaphore(loop.harness.tool_execution.concurrency)

    async def run_when_there_is_room(call: ToolCall) -> None:
        async with room:
            call.output = await _run(loop, call)

    tasks = [asyncio.ensure_future(run_when_there_is_room(call)) for call in calls]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        await _stop(tasks, _CLEANUP_S)
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


async def _run(loop: Loop, call: ToolCall) -> ToolOutput:
    assert call.tool is not None
    call.started_at, began = now_text(), time.monotonic()
    try:
        return await _within_deadline(loop, call.tool, call)
    except Exception as error:
        # A tool may have swallowed the cancellation of the loop; it must not become a result.
        await checkpoint()
        breach = loop.runtime.fatal or loop.budget.ancestor_breach()
        if breach is not None:
            raise breach from (None if breach is error else error)
        if loop.harness.tool_execution.on_error == "fail":
            raise
        return ToolOutput(str(error) or type(error).__name__, True)
    finally:
        call.duration_ms = round((time.monotonic() - began) * 1000)


async def _within_deadline(loop: Loop, tool: Tool, call: ToolCall) -> ToolOutput:
    deadline_s = loop.harness.tool_execution.deadline_s
    given = _Given(loop, call)
    with loop.runtime.activity.hold():
        task = asyncio.ensure_future(given.execute(tool))
        try:
            done, _ = await asyncio.wait((task,), timeout=deadline_s)
            if not done:
                call.expired = True
                given.end()
                if not isinstance(tool, LoopTool):
                    loop.runtime.abandoned.append((tool.name, task))
                await _stop((task,), _UNWIND_S if isinstance(tool, LoopTool) else _RELEASE_GRACE_S)
                raise OutpostError(
                    "timeout",
                    f"the tool {tool.name} did not finish within {deadline_s:g} s",
                    {"tool": tool.name, "deadlineS": deadline_s},
                )
            if task.cancelled():
                raise OutpostError("aborted", f"the tool {tool.name} cancelled itself")
            return tool_output(task.result(), f"tool {tool.name}")
        finally:
            given.end()
            if not (task.done() or call.expired):
                if not isinstance(tool, LoopTool):
                    # Whoever waits for the turn may give up before this does.
                    loop.runtime.abandoned.append((tool.name, task))
                await _stop((task,), _CLEANUP_S)


async def _stop(tasks: Sequence[asyncio.Future[Any]], within_s: float) -> None:
    """Cancel what still runs and wait for it, bounded; what ignores that is abandoned and its late value dropped."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        with anyio.CancelScope(shield=True):
            await asyncio.wait(running, timeout=within_s)
    for task in running:
        task.add_done_callback(_drop)


def _drop(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()


class _Given:
    """What one call holds: a borrowed sandbox and the right to report, both of which end with it (TOOL-12)."""

    def __init__(self, loop: Loop, call: ToolCall) -> None:
        self._loop = loop
        self._call = call
        self._over = False
        self._lease: BorrowedLease | None = None

    async def execute(self, tool: Tool) -> Any:
        try:
            return await self._execute(tool)
        except SystemExit as error:
            # Through a task it would end the program, and with it everything else that runs.
            raise OutpostError("process", f"the tool {tool.name} called for the program's end") from error

    async def _execute(self, tool: Tool) -> Any:
        if isinstance(tool, LoopTool):
            return await tool.run_in(self._call.value, self._call, self._loop)
        self._lease = BorrowedLease(self._loop.runtime.lease, on_output=self._output)
        context = ToolContext(
            sandbox=self._lease,
            call_id=self._call.block.id,
            model=self._loop.model,
            observe=self._observe,
            report=self._report,
            route=self._loop.route,
        )
        if inspect.iscoroutinefunction(tool.execute):
            return await tool.execute(self._call.value, context)
        # A plain function must not hold up the event loop (TDEF-09).
        result = await anyio.to_thread.run_sync(
            partial(tool.execute, self._call.value, context), abandon_on_cancel=True
        )
        return await result if inspect.isawaitable(result) else result

    def end(self) -> None:
        self._over = True
        if self._lease is not None:
            self._lease.end()

    def _check(self) -> None:
        if self._over:
            raise OutpostError("aborted", f"the call of {self._call.block.name} has ended")

    def _observe(self, event: Event) -> None:
        self._check()
        if event.kind not in OBSERVABLE:
            raise configuration(f"observe: a tool may report {', '.join(OBSERVABLE)}, not {event.kind}")
        self._loop.emit(event)

    def _report(self, event: Event) -> None:
        self._check()
        self._loop.emit(event)

    def _output(self, channel: Channel, text: str) -> None:
        if self._over:
            return
        for start in range(0, len(text), OUTPUT_PIECE):
            piece = text[start : start + OUTPUT_PIECE]
            self._loop.emit(ToolOutputEvent(call_id=self._call.block.id, channel=channel, text=piece))


# Completion


async def _completed(loop: Loop, call: ToolCall) -> ToolResultBlock:
    assert call.output is not None
    output = call.output
    for hook in loop.harness.hook_table.of("after-tool"):
        given = HookInput(sandbox=loop.hook_lease, model=loop.model, step=loop.step, call=call.block, result=output)
        result = await run_hook(hook, given, loop.emit)
        if result is not None:
            output = tool_output(result["result"], f"hook {hook.name}")
    content = output.content
    characters = len(content)
    if characters > MAX_CONTENT:
        content = f"{content[:MAX_CONTENT]}\n[{characters - MAX_CONTENT} characters removed]"
    loop.emit(
        ToolResultEvent(
            call_id=call.block.id,
            name=call.block.name,
            is_error=output.is_error,
            preview=content[:PREVIEW],
            characters=characters,
            started_at=call.started_at,
            duration_ms=call.duration_ms,
        )
    )
    return ToolResultBlock(call_id=call.block.id, content=content, is_error=True if output.is_error else None)
