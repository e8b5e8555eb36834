"""The offline provider: a model provider like any other that follows fixed rules and needs no service.

It plays the part that its tools suggest: the reviewer (who can report findings), the coordinator (who can delegate),
the fixer (who can edit); whoever else asks is told what it is. Everything it says follows from the conversation it is
given. The analyser is handed in, so that nothing here starts a process.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

import anyio.to_thread

from outpost_lsp.domain.message import Block, Message, TextBlock, ToolCallBlock, user
from outpost_lsp.domain.model import (
    Completed,
    ModelRequest,
    ModelResult,
    ModelSpec,
    StreamEvent,
    TextDelta,
)
from outpost_lsp.domain.usage import Usage
from outpost_lsp.errors import OutpostError
from outpost_lsp.models.rule_based import coordinator, fixer, reviewer
from outpost_lsp.models.rule_based.analysis import Analyse, Compare
from outpost_lsp.models.rule_based.assignment import FIX_FENCE, REVIEW_FENCE, review_assignment
from outpost_lsp.models.rule_based.review_state import CHECKED_LINE, LAST_CHANGE, ReviewState
from outpost_lsp.models.rule_based.summary import WHO
from outpost_lsp.models.rule_based.turn import Turn, current_task, tool_names

MODEL_NAME: Final = "offline"
_KEPT_STATES: Final = 32
_READ_ON_THE_LOOP: Final = 30_000
"""Characters of tool answers that are read on the event loop."""
_EDIT_TOOLS: Final = frozenset(("edit_file", "write_file"))
_WHAT_IT_IS: Final = (
    "This is the rule-based offline provider, not a language model. It can review what changed with fixed rules, split "
    "such a review into areas for a reviewer, and put the ready replacement of a finding in place. It cannot answer "
    "questions or write code: for that, configure a model."
)


@dataclass(frozen=True, slots=True)
class _Known:
    """The state of a review after a request, the first and last message of that, and what was said to it."""

    state: ReviewState
    first: Message
    last: Message
    turn: Turn


class OfflineProvider:
    """A `ModelProvider` made of rules. `analyse` says what is wrong with a text, `compare` what a change took away.

    Between the steps of one review the provider keeps what it worked out; a conversation it does not know is read again
    from its beginning, with the same result.
    """

    name: Final = "offline"
    identity: Final = "offline"

    def __init__(self, analyse: Analyse, compare: Compare | None = None) -> None:
        self._analyse = analyse
        self._compare = compare
        self._known: OrderedDict[str, _Known] = OrderedDict()

    def validate(self, model: ModelSpec, /) -> None:
        """Any model name will do: there is only this one set of rules."""

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[StreamEvent]:
        """The next turn, its text in pieces and then whole."""
        messages = request.messages if request.messages is not None else (user(request.prompt or ""),)
        turn = await self._turn(request, messages)
        for piece in _pieces(turn.text):
            yield TextDelta(piece)
        blocks: list[Block] = [TextBlock(text=turn.text)] if turn.text else []
        blocks += [
            ToolCallBlock(id=_call_id(messages, index), name=call.tool, input=call.input)
            for index, call in enumerate(turn.calls, 1)
        ]
        yield Completed(
            ModelResult(
                text=turn.text,
                content=tuple(blocks),
                stop_reason="tool-calls" if turn.calls else "end",
                usage=Usage(input=0, output=0),
                model=MODEL_NAME,
            )
        )

    async def _turn(self, request: ModelRequest, messages: Sequence[Message]) -> Turn:
        names = tool_names(request.tools)
        if "report_finding" in names:
            return await self._review(messages, names)
        if coordinator.subagent_tools(request.tools):
            return coordinator.next_turn(messages, request.tools)
        if names & _EDIT_TOOLS or f"```{FIX_FENCE}" in messages[0].text:
            return fixer.next_turn(messages, request.tools)
        if checked := _checked_lines(messages):
            return Turn("\n".join(checked))
        return Turn(_WHAT_IT_IS)

    async def _review(self, messages: Sequence[Message], names: frozenset[str]) -> Turn:
        again = self._known.get(_call_id(messages, 1))
        if again is not None and again.first is messages[0] and again.last is messages[-1]:
            # The same request once more, perhaps because its answer was lost.
            return again.turn
        state, news = self._continued(messages)
        if state is None:
            task = current_task(messages, REVIEW_FENCE)
            if task.question is not None:
                return Turn(f"{WHO} It cannot discuss its result; this is what it said:\n\n{task.answer}")
            state = ReviewState(review_assignment(task.brief) or LAST_CHANGE, names)
            news = messages[task.start + 1 :]
        for message in news:
            await _fed(state, message)
        try:
            turn = await reviewer.next_turn(state, self._analyse, self._compare)
        except OutpostError:
            raise
        except Exception as error:
            raise OutpostError("provider", f"offline review: the analyser failed: {error}", cause=error) from error
        if turn.calls:
            self._known[_call_id(messages, 1)] = _Known(state, messages[0], messages[-1], turn)
            while len(self._known) > _KEPT_STATES:
                self._known.popitem(last=False)
        return turn

    def _continued(self, messages: Sequence[Message]) -> tuple[ReviewState | None, Sequence[Message]]:
        """The state kept when the last calls were made, and what was said since; nobody else has the state now."""
        for index in range(len(messages) - 1, max(-1, len(messages) - 4), -1):
            calls = messages[index].calls
            if not calls:
                continue
            news = messages[index:]
            known = self._known.get(calls[0].id)
            if known is None or known.first is not messages[0]:
                return None, ()
            if any(message.role == "user" and not message.results for message in news):
                return None, ()
            del self._known[calls[0].id]
            return known.state, news
        return None, ()


def _call_id(messages: Sequence[Message], index: int) -> str:
    # Ids differ between the conversations of one run, which share nothing but their events.
    conversation = hashlib.sha256(messages[0].text.encode("utf-8", "replace")).hexdigest()[:8]
    return f"offline_{conversation}_{len(messages)}_{index}"


async def _fed(state: ReviewState, message: Message) -> None:
    # Long answers are read off the event loop, which serves an editor meanwhile.
    if sum(len(result.content) for result in message.results) > _READ_ON_THE_LOOP:
        await anyio.to_thread.run_sync(state.feed, message)
    else:
        state.feed(message)


def _checked_lines(messages: Sequence[Message]) -> list[str]:
    # A request to condense a review's history: what was checked is all that the review needs to go on.
    return list(dict.fromkeys(match[0] for match in CHECKED_LINE.finditer(messages[-1].text)))


def _pieces(text: str) -> list[str]:
    return [piece for piece in re.split(r"(?<=\n\n)", text) if piece]
