"""The offline fixer: puts a finding's ready replacement in place, and nothing else. It writes no code of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from outpost_lsp.domain.message import Message, ToolCallBlock, ToolResultBlock
from outpost_lsp.models.rule_based.assignment import FIX_FENCE, FixOrder, fix_order
from outpost_lsp.models.rule_based.sides import Call
from outpost_lsp.models.rule_based.tool_text import Page, parse_page, short_reason
from outpost_lsp.models.rule_based.turn import Turn, current_task, tool_names

_WHO: Final = "This is the rule-based offline fixer: no language model took part."
_AROUND: Final = 60


def next_turn(messages: Sequence[Message], tools: Sequence[object]) -> Turn:
    """What the fixer says next."""
    task = current_task(messages, FIX_FENCE)
    if task.question is not None:
        return Turn(f"{_WHO}\n\nIt cannot discuss its work; this is what it said:\n\n{task.answer}")
    order = fix_order(task.brief)
    if order is None:
        return Turn(
            f"{_WHO} It can put the ready replacement of a finding in place, and the task names no such finding. "
            "To have code written, configure a model for this agent."
        )
    if order.replacement is None:
        return Turn(
            f"{_WHO} The finding in `{order.path}` comes without a ready replacement, and rules cannot write one. "
            "Nothing was changed. To have it fixed, configure a model for this agent."
        )
    return _step(order, _last_exchange(messages[task.start + 1 :]), tool_names(tools))


def _step(order: FixOrder, exchange: tuple[ToolCallBlock, ToolResultBlock] | None, tools: frozenset[str]) -> Turn:
    if exchange is None:
        first = max(1, order.line - _AROUND)
        limit = 2 * _AROUND + order.quote.count("\n") + 1
        if "read_file" in tools:
            return Turn(
                "Reading the place.", (Call("read_file", {"path": order.path, "offset": first, "limit": limit}),)
            )
        return _edit(order.path, order.quote, order.replacement or "")
    call, result = exchange
    if call.name == "edit_file":
        if result.is_error:
            return Turn(f"{_WHO} The replacement could not be put in place: {short_reason(result.content)}")
        return Turn(f"{_WHO} The ready replacement of the finding was put in place in `{order.path}`. {_title(order)}")
    page = None if result.is_error else parse_page(result.content)
    if page is None:
        return Turn(f"{_WHO} `{order.path}` could not be read: {short_reason(result.content)}")
    return _placed(order, page)


def _placed(order: FixOrder, page: Page) -> Turn:
    text = "\n".join(page.lines)
    quote = order.quote.replace("\r\n", "\n")
    starts = [match.start() for match in re.finditer(re.escape(quote), text)]
    if not starts:
        return Turn(f"{_WHO} The quoted text does not stand in `{order.path}` any more. Nothing was changed.")
    start = min(starts, key=lambda offset: abs(text.count("\n", 0, offset) + page.first - order.line))
    # Whole lines are replaced, and neighbours are taken along until the text stands only once among what was read.
    lines = list(page.lines)
    first = text.count("\n", 0, start)
    last = first + quote.count("\n")
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", start + len(quote))
    ending = text[start + len(quote) : line_end if line_end >= 0 else None]
    replacement = (order.replacement or "").replace("\r\n", "\n")
    before = lines[first : last + 1]
    after = (text[line_start:start] + replacement + ending).split("\n")
    while _count(lines, before) > 1 and (first > 0 or last < len(lines) - 1):
        if first > 0:
            first -= 1
            before, after = [lines[first], *before], [lines[first], *after]
        if last < len(lines) - 1:
            last += 1
            before, after = [*before, lines[last]], [*after, lines[last]]
    return _edit(order.path, "\n".join(before), "\n".join(after))


def _count(lines: Sequence[str], block: Sequence[str]) -> int:
    size = len(block)
    return sum(list(lines[start : start + size]) == list(block) for start in range(len(lines) - size + 1))


def _edit(path: str, old: str, new: str) -> Turn:
    return Turn(
        "Putting the ready replacement in place.",
        (Call("edit_file", {"path": path, "old_text": old, "new_text": new}),),
    )


def _title(order: FixOrder) -> str:
    return f"It was: {order.title}" if order.title else ""


def _last_exchange(messages: Sequence[Message]) -> tuple[ToolCallBlock, ToolResultBlock] | None:
    found = None
    calls: Mapping[str, ToolCallBlock] = {}
    for message in messages:
        if message.role == "assistant":
            calls = {call.id: call for call in message.calls}
        else:
            for result in message.results:
                if result.call_id in calls:
                    found = (calls[result.call_id], result)
    return found
