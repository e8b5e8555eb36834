"""Settings from the command line: `--set KEY=VALUE`, with the key and the value as in TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from typing import Any

from outpost_lsp.errors import configuration


def settings_from_assignments(assignments: Iterable[str]) -> dict[str, Any]:
    """The tree that assignments describe; a value that is no TOML is text. `configuration` for what is no assignment."""
    tree: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key.strip():
            raise configuration(f"--set: KEY=VALUE is expected, such as runs.concurrency=4, not {assignment!r}")
        try:
            path = _path(key)
        except ValueError as error:
            raise configuration(f"--set: {key.strip()!r} is no key") from error
        _put(tree, path, _value(value), assignment)
    return tree


def _path(key: str) -> list[str]:
    parts = []
    table = tomllib.loads(f"{key} = 0")
    while True:
        if len(table) != 1:
            raise ValueError("one key is expected")
        [(part, below)] = table.items()
        parts.append(part)
        if not isinstance(below, dict):
            return parts
        table = below


def _value(text: str) -> Any:
    text = text.strip()
    try:
        return tomllib.loads(f"value = {text}")["value"] if "\n" not in text else text
    except tomllib.TOMLDecodeError:
        return text


def _put(tree: dict[str, Any], path: list[str], value: Any, assignment: str) -> None:
    for part in path[:-1]:
        below = tree.setdefault(part, {})
        if not isinstance(below, dict):
            raise configuration(f"--set: {assignment!r} goes below a value that was set before")
        tree = below
    tree[path[-1]] = value
