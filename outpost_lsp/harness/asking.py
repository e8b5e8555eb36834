"""Asking the model: the request of a step, the summary of a history, and what is told and counted of both.

One accounted request each, whatever becomes of it (CTX-07, LOOP-16 to -20). A full context leads to one compaction and
one more request; nothing is sent again unchanged (CTX-11).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, assert_never

from pydantic import ValidationError

from outpost_lsp.domain.event import (
    ModelErrorEvent,
    ModelRequestEvent,
    ModelResponseEvent,
    ModelRetryEvent,
    ReasoningEvent,
    TextDeltaEvent,
    UsageSource,
)
from outpost_lsp.domain.message import Message, TextBlock, ToolCallBlock, ToolResultBlock
from outpost_lsp.domain.model import Completed, ModelRequest, ModelResult, ReasoningDelta, Retry, TextDelta
from outpost_lsp.domain.record import describe
from outpost_lsp.domain.usage import UNKNOWN, Usage, usage_from_report
from outpost_lsp.errors import OutpostError
from outpost_lsp.harness.cancellation import breathe, checkpoint
from outpost_lsp.harness.context import SUMMARY_SYSTEM, rendered, summarize_history, truncate_tool_results

if TYPE_CHECKING:
    from outpost_lsp.harness.loop import Loop

CUT_OFF: Final = (
    "Cut off: the answer reached its output limit before this call was complete, so it was not run. "
    "Say less at once, or split what you write."
)
_UNCOUNTED_WHEN: Final = frozenset({"timeout", "response"})
"""Faults after which a service may have worked without saying how much."""


async def ask_model(loop: Loop) -> ModelResult:
    """The model's answer to the history as it stands, with the active model's settings."""
    try:
        return await _request(loop, _step_request(loop), "model")
    except OutpostError as error:
        if error.details.get("reason") != "context-length" or not await _make_room(loop):
            raise
    return await _request(loop, _step_request(loop), "model")


async def summarize(loop: Loop, messages: Sequence[Message]) -> str:
    """A summary by the active model; `response` for anything but text that ended by itself (LOOP-20, CTX-08)."""
    request = ModelRequest(
        model=loop.model.name,
        prompt=rendered(messages),
        system=SUMMARY_SYSTEM,
        reasoning=loop.model.reasoning,
        max_output_tokens=loop.model.max_output_tokens,
    )
    loop.budget.check()
    result = await _request(loop, request, "summary")
    if result.reason != "end" or not result.text.strip():
        raise OutpostError("response", f"the summary of the history failed: it ended with {result.reason}")
    return result.text


def remembered_cut(result: ModelResult) -> list[Message]:
    """What a conversation keeps of an answer that its output limit cut off, for the case that it goes on.

    The text and the calls, each answered as what it is: cut off, and not run (LOOP-14). Half a thought cannot be sent
    back to the service that would have signed it.
    """
    content = tuple(
        block
        for block in result.blocks
        if isinstance(block, ToolCallBlock) or (isinstance(block, TextBlock) and block.text)
    )
    if not content:
        return []
    answer = Message(role="assistant", content=content)
    told = [ToolResultBlock(call_id=call.id, content=CUT_OFF, is_error=True) for call in answer.calls]
    return [answer, Message(role="user", content=tuple(told))] if told else [answer]


async def _make_room(loop: Loop) -> bool:
    """One compaction by the harness's strategies, else both built-in ones; whether anything became shorter."""
    strategies = loop.harness.context or (truncate_tool_results(), summarize_history())
    shortened = [await loop.apply(strategy, forced=True) for strategy in strategies]
    return any(shortened)


def _step_request(loop: Loop) -> ModelRequest:
    return ModelRequest(
        model=loop.model.name,
        messages=loop.memory.history,
        system=loop.system,
        tools=loop.tool_specs,
        reasoning=loop.model.reasoning,
        max_output_tokens=loop.model.max_output_tokens,
        cache=loop.harness.cache,
    )


async def _request(loop: Loop, request: ModelRequest, source: UsageSource) -> ModelResult:
    runtime = loop.runtime
    if runtime.verbose:
        loop.emit(ModelRequestEvent(request=_request_json(request)))
    try:
        result = await _answer(loop, request, source)
    except OutpostError as error:
        loop.emit(ModelErrorEvent(message=error.message, model=request.model))
        _count_failed(loop, error, source, request.model)
        raise
    except Exception as error:
        loop.emit(ModelErrorEvent(message=str(error) or type(error).__name__, model=request.model))
        if isinstance(error, ValidationError) and error.title == Usage.__name__:
            raise OutpostError("configuration", describe("usage", error)) from error
        raise
    except BaseException:
        # Cancelled in flight: the service may charge for an answer nobody will read.
        runtime.mark_incomplete()
        raise
    # A response that arrives after cancellation is discarded and not counted (LOOP-18).
    await checkpoint()
    loop.account(_checked(result.usage), source, request.model)
    if runtime.verbose:
        await breathe()
        loop.emit(ModelResponseEvent(response=_result_json(result)))
    answered = result.model or request.model
    if answered not in runtime.answered_models:
        runtime.answered_models.append(answered)
    return result


async def _answer(loop: Loop, request: ModelRequest, source: UsageSource) -> ModelResult:
    provider = loop.harness.model_provider
    if getattr(provider, "stream", None) is None:
        answer: ModelResult = await provider.request(request)
        return answer
    result: ModelResult | None = None
    async with aclosing(provider.stream(request)) as events:
        async for event in events:
            match event:
                case TextDelta():
                    # What a summary says is no part of the conversation that people watch.
                    if source == "model":
                        loop.emit(TextDeltaEvent(text=event.text))
                case ReasoningDelta():
                    if source == "model":
                        loop.emit(ReasoningEvent(text=event.text))
                case Retry():
                    _retried(loop, event, source, request.model)
                case Completed():
                    if result is not None:
                        raise OutpostError("configuration", f"{provider.name}: the stream gave two results")
                    result = event.result
                case _:
                    assert_never(event)
    if result is None:
        raise OutpostError("response", f"{provider.name}: the answer ended without a result")
    return result


def _checked(usage: Any) -> Usage:
    """The counters of an answer as they may be added up; `configuration` for others (TBUD-05, EXEC-07)."""
    if usage is None:
        return UNKNOWN
    if not isinstance(usage, Usage):
        return usage_from_report(usage)
    if usage.models is None and usage.cached + (usage.cache_created or 0) > usage.input:
        raise OutpostError("configuration", "usage: cached and cache_created together exceed input")
    return usage


def _count_failed(loop: Loop, error: OutpostError, source: UsageSource, model: str) -> None:
    """Count what a failed answer reported before it was cut, as a lower bound; else know that something is missing."""
    reported = error.details.get("usage")
    if isinstance(reported, Mapping):
        usage = usage_from_report({**reported, "complete": False})
        loop.account(usage, source, model, attempt_cut=True)
    elif error.code in _UNCOUNTED_WHEN:
        loop.runtime.mark_incomplete()


def _retried(loop: Loop, event: Retry, source: UsageSource, model: str) -> None:
    loop.emit(ModelRetryEvent(attempt=event.attempt, message=event.message, wait_s=event.wait_s or None))
    if event.usage is not None:
        partial = event.usage.model_copy(update={"complete": False})
        loop.account(partial, source, model, attempt_cut=True)


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
