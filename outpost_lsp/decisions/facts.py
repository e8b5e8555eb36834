"""The facts of a step, read from the state that a router is shown by default.

Reading starts at the end of the conversation and stops as soon as a fact is known, so that a step costs the same
however long the conversation is. A fact that is not there is `None`; nothing is guessed from a state of another form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Final

from outpost_lsp.domain.decision import DecisionRequest
from outpost_lsp.domain.routing_state import RoutingState

RECENT_CHARACTERS: Final = 2_000

_READING: Final = frozenset({"list", "read", "search", "status", "diff", "find", "grep", "glob", "log", "show", "view"})
_EDITING: Final = frozenset({"write", "edit", "delete", "move", "rename", "replace", "patch", "insert", "create"})
_GIT_READING: Final = frozenset({"status", "diff", "log", "show"})
_REPAIR_REQUESTS: Final = ("Your answer could not be used:",)
_REFUSED_CALLS: Final = ("Invalid input for ", "There is no tool named ")


class Facts:
    """What the rules look at. Everything is read when it is first asked for."""

    def __init__(self, request: DecisionRequest) -> None:
        state = request.raw_state
        self._prepared = state if isinstance(state, RoutingState) else None
        self._state: Mapping[str, Any] = {}
        if self._prepared is None:
            value = request.state
            self._state = value if isinstance(value, Mapping) else {}

    @cached_property
    def last_message(self) -> Mapping[str, Any] | None:
        """The message that the next step answers, when it is the user's or holds tool results."""
        last = next(self._backwards(), None)
        return last if last is not None and last.get("role") == "user" else None

    @cached_property
    def newest_text(self) -> str:
        """The end of the newest text of the user or of a tool."""
        texts = [_text(block) for block in _blocks(self.last_message)]
        return "\n".join(text for text in texts if text)[-RECENT_CHARACTERS:]

    @cached_property
    def repair_pending(self) -> bool:
        """Whether the last answer or the arguments of its last call were refused for their form."""
        for block in _blocks(self.last_message):
            text = _text(block)
            if _is_failed(block) and text.startswith(_REFUSED_CALLS):
                return True
            if block.get("type") == "text" and text.startswith(_REPAIR_REQUESTS):
                return True
        return False

    @cached_property
    def request_words(self) -> int | None:
        """How many words the user's request has, at the first step after it."""
        blocks = _blocks(self.last_message)
        if not blocks or any(block.get("type") == "tool-result" for block in blocks):
            return None
        return sum(len(_text(block).split()) for block in blocks)

    @cached_property
    def failures_in_a_row(self) -> int:
        """How many tool results failed one after the other, the last one included."""
        count = 0
        for result in self._results():
            if not _is_failed(result):
                break
            count += 1
        return count

    @cached_property
    def last_result(self) -> Mapping[str, Any] | None:
        """The last tool result, when the step answers tool results."""
        results = [block for block in _blocks(self.last_message) if block.get("type") == "tool-result"]
        return results[-1] if results else None

    @cached_property
    def last_call(self) -> Mapping[str, Any] | None:
        """The call that the last result answers."""
        return next(self._calls(), None) if self.last_result is not None else None

    @cached_property
    def last_call_repeated(self) -> bool:
        """Whether the last two calls had the same name and the same arguments."""
        if self.last_call is None:
            return False
        calls = self._calls()
        last, before = next(calls), next(calls, None)
        return before is not None and _same_call(last, before)

    @property
    def last_failed(self) -> bool:
        """Whether the step answers a failed tool result."""
        return self.last_result is not None and _is_failed(self.last_result)

    @property
    def last_succeeded(self) -> bool:
        """Whether the step answers a tool result that is no failure."""
        return self.last_result is not None and not _is_failed(self.last_result)

    @cached_property
    def edited(self) -> bool:
        """Whether a call of this turn changed a file."""
        failed = {result.get("callId") for result in self._results() if _is_failed(result)}
        return any(_is_editing(call) and call.get("id") not in failed for call in self._calls())

    @cached_property
    def last_call_reads(self) -> bool:
        """Whether the last call only looked at something."""
        return self.last_call is not None and _is_reading(self.last_call)

    @cached_property
    def diagnostics(self) -> int | None:
        """How many diagnostics there are, in a state that says so."""
        return _count(self._state.get("diagnostics"))

    @property
    def diagnostics_rose(self) -> bool:
        """Whether there are more of them than at the step before."""
        before = _count(self._state.get("previousDiagnostics"))
        return self.diagnostics is not None and before is not None and self.diagnostics > before

    def _backwards(self) -> Iterator[Mapping[str, Any]]:
        if self._prepared is not None:
            for index in range(len(self._prepared) - 1, -1, -1):
                yield self._prepared.message(index)
            return
        messages = self._state.get("messages")
        for message in reversed(messages if isinstance(messages, list) else []):
            if isinstance(message, Mapping):
                yield message

    def _turn(self) -> Iterator[Mapping[str, Any]]:
        """The messages after the user's request, the newest first."""
        for message in self._backwards():
            if message.get("role") == "user" and not any(
                block.get("type") == "tool-result" for block in _blocks(message)
            ):
                return
            yield message

    def _results(self) -> Iterator[Mapping[str, Any]]:
        yield from self._reversed("tool-result")

    def _calls(self) -> Iterator[Mapping[str, Any]]:
        yield from self._reversed("tool-call")

    def _reversed(self, kind: str) -> Iterator[Mapping[str, Any]]:
        for message in self._turn():
            yield from (block for block in reversed(_blocks(message)) if block.get("type") == kind)


def _blocks(message: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    content = None if message is None else message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        return []
    return [block for block in content if type(block) is dict or isinstance(block, Mapping)]


def _text(block: Mapping[str, Any]) -> str:
    text = block.get("content") if block.get("type") == "tool-result" else block.get("text")
    return text if isinstance(text, str) else ""


def _is_failed(block: Mapping[str, Any]) -> bool:
    return block.get("type") == "tool-result" and block.get("isError") is True


def _same_call(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    return left.get("name") == right.get("name") and left.get("input") == right.get("input")


def _words(name: Any) -> frozenset[str]:
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name) if isinstance(name, str) else ""
    return frozenset(re.split(r"[^a-z0-9]+", text.lower()))


def _is_editing(call: Mapping[str, Any]) -> bool:
    return bool(_words(call.get("name")) & _EDITING)


def _is_reading(call: Mapping[str, Any]) -> bool:
    words = _words(call.get("name"))
    if words & _EDITING:
        return False
    given = call.get("input")
    if words == {"git"} and isinstance(given, Mapping):
        return given.get("command") in _GIT_READING
    return bool(words & _READING)


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None
