"""Lossless JSON: values that survive a trip through JSON unchanged (JSON rules).

Only the exact built-in types count. Nothing user-defined is executed while checking, so a value that passes can be
encoded, compared and stored without surprises.
"""

from __future__ import annotations

import math
from typing import Any

from outpost_lsp.domain.record import MAX_SAFE_INTEGER


def lossless_fault(value: Any, path: str = "value") -> str | None:
    """Why `value` is not lossless JSON, with the path of the first offence; `None` when it is."""
    return _fault(value, path, ())


def _fault(value: Any, path: str, ancestors: tuple[int, ...]) -> str | None:
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return None
    if kind is int:
        return None if abs(value) <= MAX_SAFE_INTEGER else f"{path}: the integer is beyond 2^53 - 1"
    if kind is float:
        if not math.isfinite(value):
            return f"{path}: the number is not finite"
        return f"{path}: negative zero" if value == 0 and math.copysign(1, value) < 0 else None
    if kind is not dict and kind is not list:
        return f"{path}: {kind.__name__} is not JSON"
    if id(value) in ancestors:
        return f"{path}: the value contains itself"
    within = (*ancestors, id(value))
    if kind is list:
        for index, item in enumerate(value):
            if fault := _fault(item, f"{path}[{index}]", within):
                return fault
        return None
    for key, item in value.items():
        if type(key) is not str:
            return f"{path}: the key {key!r} is not text"
        if fault := _fault(item, f"{path}.{key}", within):
            return fault
    return None
