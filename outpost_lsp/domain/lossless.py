"""Lossless JSON: values that survive a trip through JSON unchanged (JSON rules).

Only the exact built-in types count. Nothing user-defined is executed while checking, and the check itself never
overflows the stack, so a value of any depth gets an answer. Decision states, metadata and cached results pass here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, Final

from outpost_lsp.domain.record import MAX_SAFE_INTEGER
from outpost_lsp.errors import OutpostError

_SHOWN_BEFORE: Final = 30
_SHALLOW: Final = 8

_type_name = type.__dict__["__name__"].__get__
"""Reads the name that Python keeps of a class, so that no metaclass gets a word in."""


def lossless_fault(value: Any, path: str = "value") -> str | None:
    """Why `value` is not lossless JSON, with the path of the first offence; `None` when it is."""
    if _is_lossless(value, _SHALLOW):
        return None
    kind = type(value)
    if kind is not dict and kind is not list:
        return f"{path}: {_plain_fault(value)}"
    steps: list[str] = [path]
    ancestors: set[int] = {id(value)}
    open_containers: list[tuple[Any, Iterator[tuple[Any, Any]]]] = [(value, _entries(value))]
    while open_containers:
        container, entries = open_containers[-1]
        entry = next(entries, None)
        if entry is None:
            open_containers.pop()
            steps.pop()
            ancestors.discard(id(container))
            continue
        key, item = entry
        item_kind = type(item)
        if type(container) is dict and type(key) is not str:
            return f"{''.join(steps)}: a key of type {_type_name(type(key))} is not text"
        if item_kind is str or item_kind is bool or item is None:
            continue
        if item_kind is not dict and item_kind is not list:
            if (fault := _plain_fault(item)) is not None:
                return f"{''.join(steps)}{_step(container, key)}: {fault}"
            continue
        if id(item) in ancestors:
            return f"{''.join(steps)}{_step(container, key)}: the value contains itself"
        ancestors.add(id(item))
        steps.append(_step(container, key))
        open_containers.append((item, _entries(item)))
    return None


def _is_lossless(value: Any, depth: int) -> bool:
    """A quick look, as nearly all values are in order and none of them deep; `False` also when it did not look far enough."""
    kind = type(value)
    if kind is dict:
        if depth == 0:
            return False
        for key, item in value.items():
            if type(key) is not str or (type(item) is not str and not _is_lossless(item, depth - 1)):
                return False
        return True
    if kind is list:
        return depth > 0 and all(_is_lossless(item, depth - 1) for item in value)
    return _plain_fault(value) is None


def encode_json(value: Any, subject: str) -> bytes:
    """Lossless JSON as UTF-8; `configuration` naming `subject` for text that is no Unicode or a nest without end.

    Half of a surrogate pair and a depth of thousands are legal values in Python, and services refuse both.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        # Not chained: the error holds the whole text.
        raise OutpostError("configuration", f"{subject}: a text holds half of a surrogate pair") from None
    except RecursionError:
        raise OutpostError("configuration", f"{subject}: the value is nested too deeply") from None


def _entries(container: Any) -> Iterator[tuple[Any, Any]]:
    return iter(container.items()) if type(container) is dict else iter(enumerate(container))


def _step(container: Any, key: Any) -> str:
    return f".{key}" if type(container) is dict else f"[{key}]"


def _plain_fault(value: Any) -> str | None:
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return None
    if kind is int:
        return None if -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER else "the integer is beyond 2^53 - 1"
    if kind is float:
        if not math.isfinite(value):
            return "the number is not finite"
        return "negative zero" if value == 0 and math.copysign(1, value) < 0 else None
    return f"{_type_name(kind)} is not JSON"


def why_no_object(text: str) -> str:
    """What is wrong, and where, with a text that had to be a JSON object; told to the model that wrote it (TEXEC-12)."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        before = text[max(0, error.pos - _SHOWN_BEFORE) : error.pos]
        after = f", after {before!r}" if before else ""
        if not text[error.pos :].strip():
            return f"the arguments are no JSON, they end in the middle ({place}{after}); send them whole"
        return f"the arguments are no JSON: {error.msg} ({place}{after}); send one JSON object"
    except (ValueError, RecursionError) as error:
        return f"the arguments are no JSON that can be kept: {error}; send one JSON object"
    if isinstance(value, dict) and (fault := lossless_fault(value, "input")) is None:
        return "the arguments are an object inside a text; send the object itself"
    fault = lossless_fault(value, "input") or f"an object is expected, this is {_type_name(type(value))}"
    return f"the arguments cannot be taken: {fault}"
