"""The state a router is shown by default: the conversation as it stands before a step (ROUTE-20 to ROUTE-24).

It is never cut. Each message and tool is checked and encoded once, whatever the number of steps that show it, so that
a step costs what is new. The harness makes one per step; decision providers read it as JSON or as bytes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from outpost_lsp.domain.decision import PreparedState
from outpost_lsp.domain.lossless import lossless_fault
from outpost_lsp.domain.message import Message, ReasoningBlock, TextBlock, ToolCallBlock, ToolResultBlock
from outpost_lsp.domain.model import ToolSpec
from outpost_lsp.errors import OutpostError

_VALUE_FORM = "routing-state"
_BYTES_FORM = "routing-state-bytes"


class RoutingState(PreparedState):
    """Session instructions, visible messages, available tools, step number and the model active before the step."""

    __slots__ = ("_messages", "_model", "_step", "_system", "_tools")

    def __init__(
        self, *, system: str | None, messages: Sequence[Message], tools: Sequence[ToolSpec], step: int, model: str
    ) -> None:
        self._system = system or ""
        self._messages = messages
        self._tools = tools
        self._step = step
        self._model = model
        for message in messages:
            message.kept(_VALUE_FORM, visible_message)

    def __len__(self) -> int:
        """How many messages there are."""
        return len(self._messages)

    def message(self, index: int) -> dict[str, Any]:
        """One visible message as JSON, for a reader that needs only the last ones. Do not change it."""
        return self._messages[index].kept(_VALUE_FORM, visible_message)

    def value(self) -> dict[str, Any]:
        return {
            "system": self._system,
            "messages": [message.kept(_VALUE_FORM, visible_message) for message in self._messages],
            "tools": [
                {"name": tool.name, "description": tool.description, "inputSchema": dict(tool.input_schema)}
                for tool in self._tools
            ],
            "step": self._step,
            "model": self._model,
        }

    def encoded(self) -> bytes:
        return b"".join(
            (
                b'{"system":',
                _json_bytes(self._system),
                b',"messages":[',
                b",".join([message.encoded(_BYTES_FORM, _message_bytes) for message in self._messages]),
                b'],"tools":[',
                b",".join([tool.encoded(_BYTES_FORM, _tool_bytes) for tool in self._tools]),
                b'],"step":',
                b"%d" % self._step,
                b',"model":',
                _json_bytes(self._model),
                b"}",
            )
        )


def visible_message(message: Message) -> dict[str, Any]:
    """A message without its opaque reasoning; one that held nothing else keeps its place (ROUTE-21)."""
    content = [_block(block) for block in message.content if not isinstance(block, ReasoningBlock)]
    visible = {"role": message.role, "content": content}
    if fault := lossless_fault(visible, "state.messages"):
        raise OutpostError("configuration", f"ModelRouting: {fault}")
    return visible


def _block(block: TextBlock | ToolCallBlock | ToolResultBlock) -> dict[str, Any]:
    # By hand, since the general encoder gives up on a deeply nested tool input and costs more.
    match block:
        case TextBlock():
            return {"type": "text", "text": block.text}
        case ToolCallBlock():
            return {"type": "tool-call", "id": block.id, "name": block.name, "input": block.input}
        case ToolResultBlock():
            result = {"type": "tool-result", "callId": block.call_id, "content": block.content}
            return {**result, "isError": True} if block.is_error else result


def _message_bytes(message: Message) -> bytes:
    return _json_bytes(message.kept(_VALUE_FORM, visible_message))


def _tool_bytes(tool: ToolSpec) -> bytes:
    return _json_bytes({"name": tool.name, "description": tool.description, "inputSchema": dict(tool.input_schema)})


def _json_bytes(value: Any) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except RecursionError:
        raise OutpostError("configuration", "ModelRouting: state: the value is nested too deeply") from None
    try:
        return text.encode()
    except UnicodeEncodeError:
        # A model or a file may bring half of a surrogate pair into the conversation. Services refuse it, and a run
        # must not end for it: the router sees the mark that says "unreadable" in its place.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
