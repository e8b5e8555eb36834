"""What a rule-based part says next, and where in a conversation its task begins."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from outpost_lsp.domain.message import Message
from outpost_lsp.models.rule_based.sides import Call

_AGAIN: Final = re.compile(r"\b(again|re-?(view|run|check|scan)|once more|review|check)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer: text for people, then tool calls. Without calls it is the last one."""

    text: str
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """The part of a conversation that concerns the task at hand.

    `question` is set when the last message is a new one that asks about a task already finished, instead of giving
    one: then `answer` is what was said at the end of it.
    """

    brief: str
    start: int
    question: str | None = None
    answer: str = ""


def current_task(messages: Sequence[Message], fence: str) -> Task:
    """The task that the last message belongs to. A message with a block of `fence` begins one, and so does the first."""
    start = 0
    brief = messages[0].text
    again = 0
    for index, message in enumerate(messages):
        if index == 0 or message.role != "user" or message.results:
            continue
        if f"```{fence}" in message.text:
            start, brief, again = index, message.text, index
        elif _follows_an_answer(messages, index) and _AGAIN.search(message.text):
            again = index
    last = messages[-1]
    finished = _follows_an_answer(messages, len(messages) - 1) and len(messages) - 1 > max(start, again)
    if finished:
        return Task(brief, max(start, again), last.text, _last_answer(messages))
    return Task(brief, max(start, again))


def _follows_an_answer(messages: Sequence[Message], index: int) -> bool:
    # The summary of a shortened history is no answer's follower, whatever words are in it.
    return index > 0 and messages[index - 1].role == "assistant" and not messages[index - 1].calls


def tool_names(tools: Sequence[Any]) -> frozenset[str]:
    """The names of the tools of a request."""
    return frozenset(tool.name for tool in tools)


def _last_answer(messages: Sequence[Message]) -> str:
    answers = (message.text for message in reversed(messages) if message.role == "assistant" and not message.calls)
    return next(answers, "")
