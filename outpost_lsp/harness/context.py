"""Keeping a history within bounds: strategies that shorten it, idempotently (CTX rules)."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from outpost_lsp.domain.message import (
    History,
    Message,
    ReasoningBlock,
    Snapshot,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    user,
)
from outpost_lsp.domain.model import ModelSpec
from outpost_lsp.domain.record import Declaration, NonBlank
from outpost_lsp.errors import OutpostError

SUMMARY_SYSTEM: Final = (
    "You condense the working history of a coding agent. Keep what the agent needs to go on: the task, decisions and "
    "their reasons, files and lines that matter, what was tried, what is left to do. Leave out pleasantries. Answer "
    "with the summary alone."
)
_SUMMARY_HEADING: Final = "Summary of the earlier conversation:"
_CUT: Final = re.compile(r"\n\[cut from \d+ characters\]\Z")
_LONGEST_NOTE: Final = 64
_CHARACTERS_PER_TOKEN: Final = 4
_WINDOW_SHARE: Final = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionInput:
    """What a strategy is given. `summarize` is an accounted model request (CTX-07)."""

    messages: Sequence[Message]
    step: int
    model: ModelSpec
    summarize: Callable[[Sequence[Message]], Awaitable[str]]
    forced: bool = False
    """The service refused the history as too long: shorten it even below the strategy's own trigger (CTX-11)."""


CompactFunction = Callable[[CompactionInput], Any]


class ContextStrategy(Declaration):
    """A named way to shorten a history. `compact` returns the new messages, or nothing to leave it as it is."""

    name: NonBlank
    compact: CompactFunction

    def __init__(self, name: str, compact: CompactFunction) -> None:
        super().__init__(name=name, compact=compact)


async def compacted(strategy: ContextStrategy, given: CompactionInput) -> Sequence[Message] | None:
    """What the strategy makes of the history; `configuration` when that is no list of messages."""
    result = strategy.compact(given)
    if inspect.isawaitable(result):
        result = await result
    if result is None:
        return None
    if not isinstance(result, Sequence) or not all(isinstance(message, Message) for message in result):
        raise OutpostError("configuration", f"context strategy {strategy.name}: a list of messages is expected")
    return result


def truncate_tool_results(keep_recent: int = 4, max_characters: int = 2_000) -> ContextStrategy:
    """Cut long tool results in all but the last `keep_recent` messages that hold results (CTX-03, CTX-04)."""
    _positive("truncate_tool_results", keep_recent=keep_recent, max_characters=max_characters)

    def compact(given: CompactionInput) -> list[Message] | None:
        with_results = _places(given.messages, "with-results", _has_results)
        recent = 1 if given.forced else keep_recent
        if len(with_results) <= recent:
            return None
        first_kept = with_results[-recent]
        too_long = _places(
            given.messages,
            f"results-over-{max_characters}",
            lambda message: _shortened(message, max_characters) is not message,
        )
        shortened = {
            index: _shortened(given.messages[index], max_characters) for index in too_long if index < first_kept
        }
        if not shortened:
            return None
        return [shortened.get(index, message) for index, message in enumerate(given.messages)]

    return ContextStrategy("truncate_tool_results", compact)


def summarize_history(trigger_characters: int | None = None, keep_recent_messages: int = 6) -> ContextStrategy:
    """Put a summary in place of the middle of a long history (CTX-05).

    Without an explicit trigger it is 70 % of the model's context window where that is known, at 4 characters a
    token (CTX-09), else 400,000 characters.
    """
    _positive("summarize_history", keep_recent_messages=keep_recent_messages)
    if trigger_characters is not None:
        _positive("summarize_history", trigger_characters=trigger_characters)

    async def compact(given: CompactionInput) -> list[Message] | None:
        trigger = trigger_characters or _trigger(given.model)
        if not given.forced and _size(given.messages) <= trigger:
            return None
        messages = list(given.messages)
        keep = 2 if given.forced else keep_recent_messages
        cut = _cut_point(messages, keep)
        if cut is None or _is_summary(messages[1:cut]):
            return None
        summary = await given.summarize(messages[1:cut])
        return [messages[0], user(f"{_SUMMARY_HEADING}\n\n{summary}"), *messages[cut:]]

    return ContextStrategy("summarize_history", compact)


def rendered(messages: Sequence[Message]) -> str:
    """A history as plain text for a summary: reasoning is left out (CTX-07)."""
    parts = []
    for message in messages:
        for block in message.content:
            match block:
                case TextBlock():
                    parts.append(f"{message.role}: {block.text}")
                case ToolCallBlock():
                    parts.append(f"call {block.name} {json.dumps(block.input, ensure_ascii=False)}")
                case ToolResultBlock():
                    parts.append(f"{'error' if block.is_error else 'result'}: {block.content}")
                case ReasoningBlock():
                    pass
    return "\n\n".join(parts)


def measure(history: History) -> None:
    """Measure a history for the strategies here; what was measured is not measured again at any step."""
    history.total("json-size", _json_size)
    history.places("with-results", _has_results)


def _size(messages: Sequence[Message]) -> int:
    if isinstance(messages, Snapshot) and len(messages) == len(messages.history):
        return messages.history.total("json-size", _json_size)
    return sum(_json_size(message) for message in messages)


def _places(messages: Sequence[Message], name: str, test: Callable[[Message], bool]) -> Sequence[int]:
    """Where messages stand that pass a test; of a history that grows each is tested once."""
    if isinstance(messages, Snapshot) and len(messages) == len(messages.history):
        return messages.history.places(name, test)
    return [index for index, message in enumerate(messages) if test(message)]


def _json_size(message: Message) -> int:
    return message.kept("json-size", lambda message: len(message.to_line()))


def _has_results(message: Message) -> bool:
    return any(isinstance(block, ToolResultBlock) for block in message.content)


def _trigger(model: ModelSpec) -> int:
    if model.context_window is None:
        return 400_000
    return int(model.context_window * _CHARACTERS_PER_TOKEN * _WINDOW_SHARE)


def _cut_point(messages: Sequence[Message], keep: int) -> int | None:
    # An assistant message keeps its calls together with the results that follow (CTX-06).
    for index in range(min(max(2, len(messages) - keep), len(messages) - 1), 1, -1):
        if messages[index].role == "assistant":
            return index
    return None


def _is_summary(messages: Sequence[Message]) -> bool:
    # To condense nothing but an earlier summary would cost a request at every step and gain nothing.
    return len(messages) == 1 and messages[0].text.startswith(_SUMMARY_HEADING)


def _shortened(message: Message, max_characters: int) -> Message:
    content = tuple(
        _cut(block, max_characters) if isinstance(block, ToolResultBlock) else block for block in message.content
    )
    unchanged = all(new is old for new, old in zip(content, message.content, strict=True))
    return message if unchanged else Message(role=message.role, content=content)


def _cut(block: ToolResultBlock, max_characters: int) -> ToolResultBlock:
    if len(block.content) <= max_characters:
        return block
    # Only the end can hold it; looking through megabytes would take longer than the event loop may stand still.
    earlier = _CUT.search(block.content, max(len(block.content) - _LONGEST_NOTE, 0))
    if earlier is not None and earlier.start() <= max_characters:
        return block
    note = f"\n[cut from {len(block.content)} characters]"
    if len(block.content) <= max_characters + len(note):
        # To cut it would make it longer.
        return block
    text = block.content[:max_characters] + note
    return block.model_copy(update={"content": text})


def _positive(subject: str, **values: Any) -> None:
    for name, value in values.items():
        if type(value) is not int or value < 1:
            raise OutpostError("configuration", f"{subject}: {name}: a positive integer is expected")
