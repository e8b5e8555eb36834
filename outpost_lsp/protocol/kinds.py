"""What kind of JSON value something is, in words for whoever sent it."""

from __future__ import annotations

from typing import Any


def kind_of(value: Any) -> str:
    """The kind with its article; `null` by its name."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case dict():
            return "an object"
        case _:
            return "a list"
