"""From the records of a transcript to a history that may be sent to a model.

Messages append, a compaction replaces, everything else changes nothing (TRANS-02). The result is a valid history even
when a mangled record is missing from the middle: what lost its other half is answered or left out, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from outpost_lsp.domain.message import (
    Block,
    History,
    Message,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    user,
)
from outpost_lsp.errors import OutpostError

INTERRUPTED: Final = "Interrupted: the run ended before this call had a result. It was not run again."
LOST: Final = "[A message is missing here: its record was damaged.]"

_BLOCK: Final[TypeAdapter[Block]] = TypeAdapter(Block)
_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "text": frozenset(("type", "text")),
    "tool-call": frozenset(("type", "id", "name", "input")),
    "tool-result": frozenset(("type", "callId", "content", "isError")),
    "reasoning": frozenset(("type", "provider", "model", "data", "text")),
}


def message_from_json(value: Any) -> Message:
    """A stored message; fields of a newer version are passed over. `ValueError` when it is none."""
    if not isinstance(value, dict) or value.get("role") not in ("user", "assistant"):
        raise ValueError("a message needs a role")
    content = value.get("content")
    if not isinstance(content, list) or not content:
        raise ValueError("a message needs content")
    try:
        return Message.model_validate(value)
    except ValidationError:
        return Message(role=value["role"], content=tuple(_block(block) for block in content))


def messages_of(record: Mapping[str, Any]) -> tuple[Message, ...]:
    """The messages that a record holds; none for a session or a selection. `ValueError` when they are malformed."""
    match record["type"]:
        case "message":
            return (message_from_json(record.get("message")),)
        case "compaction":
            messages = record.get("messages")
            if not isinstance(messages, list):
                raise ValueError("a compaction needs messages")
            return tuple(message_from_json(message) for message in messages)
    return ()


def fold(records: Iterable[tuple[Mapping[str, Any], tuple[Message, ...]]]) -> History:
    """The history that records give, each with its messages."""
    history = History()
    for record, messages in records:
        if record["type"] == "compaction":
            history = History()
        for message in messages:
            _add(history, message)
    return history


def readable(message: Message) -> dict[str, Any]:
    """A message as people read it: of reasoning only the text, never the opaque data (CONV-20)."""
    shown = message.to_json()
    for block in shown["content"]:
        if block["type"] == "reasoning":
            for name in ("data", "provider", "model"):
                block.pop(name, None)
    return shown


def interrupted_results(calls: Iterable[ToolCallBlock]) -> Message:
    """The message that answers calls which a crash or a cancellation left open (TRANS-06)."""
    return Message(role="user", content=tuple(_interrupted(call) for call in calls))


def _add(history: History, message: Message) -> None:
    try:
        history.append(message)
    except OutpostError:
        for repaired in _repaired(history, message):
            history.append(repaired)


def _repaired(history: History, message: Message) -> list[Message]:
    open_calls = history.open_calls()
    if message.role == "assistant":
        content = tuple(block for block in message.content if not isinstance(block, ToolResultBlock))
        between = [interrupted_results(open_calls)] if open_calls else []
        if not between and (not history or history[-1].role == "assistant"):
            between = [user(LOST)]
        return [*between, Message(role="assistant", content=content)] if content else between
    results = {result.call_id: result for result in reversed(message.results)}
    answered = [results[call.id] if call.id in results else _interrupted(call) for call in open_calls]
    rest = [block for block in message.content if isinstance(block, TextBlock)]
    return [Message(role="user", content=(*answered, *rest))] if answered or rest else []


def _interrupted(call: ToolCallBlock) -> ToolResultBlock:
    return ToolResultBlock(call_id=call.id, content=INTERRUPTED, is_error=True)


def _block(value: Any) -> Block:
    fields = _FIELDS.get(value.get("type", "")) if isinstance(value, dict) else None
    if fields is None:
        raise ValueError("a block has an unknown type")
    try:
        return _BLOCK.validate_python({name: item for name, item in value.items() if name in fields})
    except ValidationError as error:
        raise ValueError(f"a {value['type']} block is malformed") from error
