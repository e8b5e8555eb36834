"""What an external agent tells while it works, as the events that every agent's work is told by (EVT rules).

The invariant: what is told here is text to be shown; nothing in it is acted upon. An open tool call holds the idle
clock, as a built-in agent's does (EXEC-04).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

from outpost_lsp.domain.event import (
    Event,
    FileChangeEvent,
    RawEvent,
    ReasoningEvent,
    TextDeltaEvent,
    TextEvent,
    ToolEvent,
    ToolResultEvent,
)
from outpost_lsp.domain.permission import Resources
from outpost_lsp.domain.sandbox import Lease
from outpost_lsp.errors import OutpostError
from outpost_lsp.harness.runtime import Activity

_PREVIEW: Final = 2_000
_RAW_KEPT: Final = 16_384
_MAX_TEXT: Final = 16 * 1024 * 1024


@dataclass(slots=True)
class AgentCall:
    """A tool call of the agent, as far as it has told of it."""

    id: str
    kind: str = "other"
    title: str = ""
    raw_input: Any = None
    paths: tuple[str, ...] = ()
    content: list[Any] = field(default_factory=list)
    is_told: bool = False
    is_done: bool = False

    def learn(self, update: Any, lease: Lease) -> None:
        """Take in what an update says; what it leaves out stays."""
        self.kind = update.kind or self.kind
        self.title = update.title or self.title
        if update.raw_input is not None:
            self.raw_input = update.raw_input
        if update.content is not None:
            self.content = list(update.content)
        named = [location.path for location in update.locations or ()]
        named += [item.path for item in self.content if item.type == "diff"]
        if named:
            self.paths = tuple(dict.fromkeys(relative(lease, path) for path in named))

    @property
    def shown_input(self) -> dict[str, Any]:
        """The input as events and questions show it."""
        shown = {"title": self.title, "paths": list(self.paths), "input": self.raw_input}
        return {name: value for name, value in shown.items() if value not in (None, "", [])}

    @property
    def resources(self) -> Resources:
        """What permissions look at."""
        command = self.raw_input.get("command") if isinstance(self.raw_input, Mapping) else None
        if isinstance(command, list) and all(isinstance(part, str) for part in command):
            command = shlex.join(command)
        return Resources(self.paths, command if isinstance(command, str) and self.kind == "execute" else None)


class Updates:
    """The updates of one prompt, from the first to the answer."""

    def __init__(
        self, emit: Callable[[Event], None], lease: Lease, activity: Activity, on_text: Callable[[str], None]
    ) -> None:
        self._emit = emit
        self._lease = lease
        self._activity = activity
        self._on_text = on_text
        self._calls: dict[str, AgentCall] = {}
        self._held = ExitStack()
        self._open = 0
        self._message: list[str] = []
        self._message_id: str | None = None
        self._since_call: list[str] = []
        self._answer = ""
        self._length = 0

    @property
    def answer(self) -> str:
        """What the agent said last: everything since its last tool call that says anything."""
        return "".join(self._since_call) or self._answer

    def close(self) -> None:
        """The prompt has ended: tell the last message, and let the idle clock go."""
        self._end_message()
        self._held.close()

    def call(self, id: str) -> AgentCall:
        """The call of this id; a new one when the agent has told of none."""
        return self._calls.setdefault(id, AgentCall(id))

    def take(self, update: Any) -> None:
        """One update; what is unknown is told as it is."""
        match update.session_update:
            case "agent_message_chunk" if update.content.type == "text":
                self._text(update.content.text, update.message_id)
            case "agent_thought_chunk" if update.content.type == "text":
                self._emit(ReasoningEvent(text=update.content.text))
            case "tool_call" | "tool_call_update":
                self._tool(update)
            case "user_message_chunk":
                # Our own words, said back.
                self._activity.touch()
            case _:
                self._raw(update)

    def _text(self, text: str, message_id: str | None) -> None:
        if not text:
            return
        if message_id is not None and message_id != self._message_id:
            if self._message and self._since_call:
                self._since_call.append("\n\n")
            self._end_message()
            self._message_id = message_id
        self._length += len(text)
        if self._length > _MAX_TEXT:
            raise OutpostError("response", f"the agent's answer exceeds {_MAX_TEXT} characters")
        self._message.append(text)
        self._since_call.append(text)
        self._emit(TextDeltaEvent(text=text))
        self._on_text(text)

    def _end_message(self) -> None:
        if self._message:
            text = "".join(self._message)
            self._message.clear()
            self._emit(TextEvent(text=text))

    def _tool(self, update: Any) -> None:
        call = self.call(update.tool_call_id)
        call.learn(update, self._lease)
        if not call.is_told:
            self._begin(call)
        if update.status in ("completed", "failed") and not call.is_done:
            self._finish(call, is_error=update.status == "failed", raw_output=update.raw_output)

    def _begin(self, call: AgentCall) -> None:
        call.is_told = True
        self._end_message()
        said = "".join(self._since_call)
        if said.strip():
            self._answer = said
        self._since_call.clear()
        if self._open == 0:
            self._held.enter_context(self._activity.hold())
        self._open += 1
        self._emit(ToolEvent(name=call.kind, input=call.shown_input, call_id=call.id))

    def _finish(self, call: AgentCall, *, is_error: bool, raw_output: Any) -> None:
        call.is_done = True
        self._open -= 1
        if self._open == 0:
            self._held.close()
        text = "\n".join(filter(None, (_shown(item, self._lease) for item in call.content)))
        if not text and raw_output is not None:
            text = raw_output if isinstance(raw_output, str) else str(raw_output)
        self._emit(
            ToolResultEvent(
                call_id=call.id, name=call.kind, is_error=is_error, preview=text[:_PREVIEW], characters=len(text)
            )
        )
        changes = [
            {"path": relative(self._lease, item.path), "kind": "added" if item.old_text is None else "modified"}
            for item in call.content
            if item.type == "diff"
        ]
        if changes and not is_error:
            self._emit(FileChangeEvent(changes=tuple(changes), call_id=call.id))

    def _raw(self, update: Any) -> None:
        size = len(update.model_dump_json(by_alias=True, exclude_none=True))
        if size > _RAW_KEPT:
            self._emit(RawEvent(value={"sessionUpdate": update.session_update}, bytes=size, truncated=True))
        else:
            self._emit(RawEvent(value=update.model_dump(mode="json", by_alias=True, exclude_none=True), bytes=size))


def relative(lease: Lease, path: str) -> str:
    """A path as the repository knows it; one outside stays as it is."""
    try:
        return lease.files.normalise(path) or "."
    except OutpostError:
        return path


def _shown(item: Any, lease: Lease) -> str:
    match item.type:
        case "content" if item.content.type == "text":
            return str(item.content.text)
        case "content":
            return f"[{item.content.type}]"
        case "diff":
            return f"{'wrote' if item.old_text is None else 'changed'} {relative(lease, item.path)}"
        case _:
            return f"[terminal {item.terminal_id}]"
