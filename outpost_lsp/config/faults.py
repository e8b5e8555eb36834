"""What is wrong with a configuration, in words: file, line where known, key, and what was expected.

A fault never quotes a value: it might be a key that was put in the wrong place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Any, Final, Literal

from pydantic_core import ErrorDetails

from outpost_lsp.config.toml_lines import Path

Place = Literal["default", "user", "workspace", "client"]
"""Where a value can come from; later places win."""

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_TAGS: Final = frozenset(("[key]", "word", "table"))
_PATTERNS: Final[Mapping[str, str]] = {
    r"\S": "text that is not blank is expected",
    r"^[A-Za-z0-9_-]{1,64}$": "a name of letters, digits, '_' and '-' is expected, at most 64 characters",
    r"^[A-Za-z0-9_-]{1,32}$": "a name of letters, digits, '_' and '-' is expected, at most 32 characters",
    r"^[A-Za-z_][A-Za-z0-9_]*$": "the name of an environment variable is expected, never its value",
    r"^([A-Za-z_][A-Za-z0-9_]*)?$": "the name of an environment variable is expected, never its value",
}
_WANTED: Final[Mapping[str, str]] = {
    "string_type": "text",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "tuple_type": "a list",
    "model_type": "a table",
    "mapping_type": "a table",
    "dict_type": "a table",
}


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value stands."""

    place: Place
    source: str
    line: int | None = None

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}"


@dataclass(frozen=True, slots=True)
class ConfigurationFault:
    """One thing that is wrong, and where. `key` is empty when it is the whole file."""

    origin: Origin
    key: str
    message: str

    def __str__(self) -> str:
        return f"{self.origin}: {self.key}: {self.message}" if self.key else f"{self.origin}: {self.message}"


def key_text(path: Sequence[str | int]) -> str:
    """A path as one writes it in TOML."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            shown = part if _BARE_KEY.fullmatch(part) else '"' + part.replace("\\", "\\\\").replace('"', '\\"') + '"'
            text += f".{shown}" if text else shown
    return text


def path_of(error: ErrorDetails, tree: Any) -> Path:
    """The path in `tree` that a validation error speaks of."""
    path: list[str | int] = []
    for part in error["loc"]:
        below = _below(tree, part)
        if below is None and part in _TAGS:
            continue
        tree = below
        path.append(part)
    return tuple(path)


def expectation(error: ErrorDetails) -> str:
    """What was expected instead, as half a sentence."""
    context, kind = error.get("ctx", {}), error["type"]
    if kind in _WANTED:
        return f"{_WANTED[kind]} is expected, not {kind_of(error['input'])}"
    match kind:
        case "missing":
            return "it is needed"
        case "literal_error":
            return f"{context['expected']} is expected".replace("'", '"')
        case "string_pattern_mismatch":
            return _PATTERNS.get(context["pattern"], "another text is expected")
        case "finite_number":
            return "a finite number is expected"
        case "greater_than_equal":
            return f"a number from {context['ge']:g} is expected"
        case "greater_than":
            return f"a number above {context['gt']:g} is expected"
        case "less_than_equal":
            return f"a number up to {context['le']:g} is expected"
        case "too_short":
            return f"a list of at least {context['min_length']} is expected"
        case _:
            return str(error["msg"])


def _below(tree: Any, part: str | int) -> Any:
    if isinstance(tree, Mapping):
        return tree.get(part)
    if isinstance(tree, list | tuple) and isinstance(part, int) and part < len(tree):
        return tree[part]
    return None


def kind_of(value: Any) -> str:
    """The kind of a value, in words."""
    kinds: tuple[tuple[type | tuple[type, ...], str], ...] = (
        (bool, "true or false"),
        (str, "text"),
        (int, "a whole number"),
        (float, "a number"),
        ((list, tuple), "a list"),
        (dict, "a table"),
        ((datetime, date, time), "a date"),
    )
    return next((words for kind, words in kinds if isinstance(value, kind)), "nothing")
