"""What the encoders of all wire forms share: bytes that are made once per message and joined per request.

A step of a long conversation costs what it adds: encoded messages are kept with the history, encoded tools with their
definitions, and a request is one join of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from outpost_lsp.domain.message import History, Message, ReasoningBlock
from outpost_lsp.domain.model import ToolSpec

Encoder = tuple[str, Callable[[Message], bytes]]
"""The name of a wire form with whatever its bytes depend on, and what makes the bytes."""


def json_bytes(value: Any) -> bytes:
    """Compact JSON in UTF-8; half a surrogate pair, which UTF-8 does not have, becomes a question mark."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_as_plain).encode("utf-8", "replace")


def arguments_text(value: Any) -> str:
    """The input of a call as the JSON text of an object.

    What the model sent broken is a text here; services that parse what they are sent would refuse the whole
    conversation because of it, so it travels inside an object.
    """
    if not isinstance(value, Mapping):
        value = {"invalid": value}
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_as_plain)


def message_pieces(messages: Sequence[Message], form: str, encode: Callable[[Message], bytes]) -> Sequence[bytes]:
    """The bytes of all messages, without those that have nothing to say in this form."""
    if isinstance(messages, History):
        return messages.encoded(form, encode)
    return [piece for message in messages if (piece := message.encoded(form, encode))]


def has_reasoning(message: Message) -> bool:
    """Whether the bytes of a message depend on whom they are for."""
    return any(isinstance(block, ReasoningBlock) for block in message.content)


def encoded_tools(tools: Sequence[ToolSpec], form: str, encode: Callable[[ToolSpec], bytes]) -> bytes:
    """The member `tools` with a comma before it, or nothing when there are none (LOOP-03)."""
    if not tools:
        return b""
    return b',"tools":[' + b",".join([tool.encoded(form, encode) for tool in tools]) + b"]"


def _as_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
