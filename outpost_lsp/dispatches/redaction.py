"""What a dispatch writes down, with every match of its `redact` patterns masked (CONV-19, OBS-10).

The run itself works on the unmasked texts. What tells a reader how to read a line (kinds, roles, ids, names) is left
alone, so that no pattern can make a transcript or a journal unreadable.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from outpost_lsp.dispatches.observe import redacted
from outpost_lsp.storage.transcript import Mask

_ESCAPED_IN_JSON: Final = re.compile(r'["\\\x00-\x1f]|[^\x00-\x7f]')
_PLAIN: Final = re.compile(r"(?:[^\\.^$*+?{}\[\]|()]|\\[^a-zA-Z0-9\n])+")
"""An expression that matches one word only, with or without the escapes that `re.escape` writes."""
_SPOKEN: Final = ("text", "input", "content")
"""The fields of a block in which somebody's words stand."""

Masks = Sequence[re.Pattern[str]]


def conversation_mask(masks: Masks) -> Mask | None:
    """What masks a line of a transcript; `None` when there is nothing to mask."""
    return _line_mask(masks, _mask_conversation)


def journal_mask(masks: Masks) -> Mask | None:
    """What masks a line of a journal; `None` when there is nothing to mask."""
    return _line_mask(masks, _mask_observation)


def _line_mask(masks: Masks, apply: Callable[[dict[str, Any], Masks], None]) -> Mask | None:
    if not masks:
        return None
    needles = _needles(masks)

    def mask(line: bytes) -> bytes:
        # Most lines hold no secret; those of plain keys are told without taking the line apart.
        if needles is not None and not _holds_any(line, needles):
            return line
        record = json.loads(line)
        apply(record, masks)
        return json.dumps(record, separators=(",", ":")).encode() + (b"\n" if line.endswith(b"\n") else b"")

    return mask


def _needles(masks: Masks) -> tuple[bytes, ...] | None:
    """The patterns as bytes to look for in a line of JSON, when all of them are plain words."""
    found = []
    for mask in masks:
        if mask.flags != re.UNICODE or not _PLAIN.fullmatch(mask.pattern):
            return None
        word = re.sub(r"\\(.)", r"\1", mask.pattern)
        if _ESCAPED_IN_JSON.search(word):
            return None
        found.append(word.encode())
    return tuple(found)


def _holds_any(line: bytes, needles: tuple[bytes, ...]) -> bool:
    for needle in needles:  # noqa: SIM110 - every event passes here, and `any` costs more than the search
        if needle in line:
            return True
    return False


def _mask_conversation(record: dict[str, Any], masks: Masks) -> None:
    messages = [record["message"]] if record["type"] == "message" else record.get("messages", [])
    for message in messages:
        message["content"] = [masked for block in message["content"] if (masked := _masked_block(block, masks))] or [
            {"type": "text", "text": ""}
        ]


def _masked_block(block: dict[str, Any], masks: Masks) -> dict[str, Any] | None:
    if block["type"] == "reasoning" and redacted(block["data"], masks) != block["data"]:
        # Changed reasoning is refused by the service that signed it, so what cannot be kept whole is not kept.
        return None
    return {name: redacted(value, masks) if name in _SPOKEN else value for name, value in block.items()}


def _mask_observation(record: dict[str, Any], masks: Masks) -> None:
    record["event"] = {
        name: value if name == "kind" else redacted(value, masks) for name, value in record["event"].items()
    }
