"""The settings as a person reads them: every value with where it came from, and no secret among them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from outpost_lsp.config.faults import Origin, key_text
from outpost_lsp.config.sources import LoadedSettings
from outpost_lsp.config.toml_lines import Path

_BUILT_IN: Final = Origin("default", "built in")
_HIDDEN: Final = "***"
_USER_INFORMATION: Final = re.compile(r"(?<=://)[^/@\s]*@")


@dataclass(frozen=True, slots=True)
class DescribedValue:
    """A setting. `value` is as in JSON."""

    key: str
    value: Any
    origin: Origin

    def __str__(self) -> str:
        return f"{self.key} = {toml_value(self.value)}  # {self.origin}"


def describe(loaded: LoadedSettings) -> list[DescribedValue]:
    """Every setting in force, in the order of the schema; absent optional ones are left out."""
    values = _values(loaded.settings.model_dump(mode="json", exclude_none=True), ())
    return [
        DescribedValue(key_text(path), _shown(path, value), loaded.origins.origins.get(path) or _nearest(loaded, path))
        for path, value in values
    ]


def to_json(loaded: LoadedSettings) -> dict[str, Any]:
    """The same for programs."""
    return {
        "trusted": loaded.is_trusted,
        "files": [str(path) for path in loaded.files],
        "settings": [
            {
                "key": described.key,
                "value": described.value,
                "place": described.origin.place,
                "source": described.origin.source,
                **({} if described.origin.line is None else {"line": described.origin.line}),
            }
            for described in describe(loaded)
        ],
        "faults": [str(fault) for fault in loaded.faults],
        "refused": [str(fault) for fault in loaded.refused],
        "warnings": [str(fault) for fault in loaded.warnings],
    }


def toml_value(value: Any) -> str:
    """A value as one writes it in TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, dict):
        inside = ", ".join(f"{key_text((name,))} = {toml_value(item)}" for name, item in value.items())
        return "{ " + inside + " }" if inside else "{}"
    if isinstance(value, str):
        return _text(value)
    return str(value)


def _text(value: str) -> str:
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    shown = "".join(escapes.get(mark) or (mark if mark.isprintable() else f"\\U{ord(mark):08x}") for mark in value)
    return f'"{shown}"'


def _values(tree: dict[str, Any], path: Path) -> Iterator[tuple[Path, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _values(value, (*path, name))
        elif not isinstance(value, dict):
            yield (*path, name), value


def _nearest(loaded: LoadedSettings, path: Path) -> Origin:
    # A value inside a list that came as a whole has the list's origin; a default has none of its own.
    while path:
        found = loaded.origins.origins.get(path)
        if found is not None:
            return found
        path = path[:-1]
    return _BUILT_IN


def _shown(path: Path, value: Any) -> Any:
    match path:
        case ("mcp", _, "environment" | "headers", _):
            return _HIDDEN
        case ("mcp", _, "arguments"):
            return [_HIDDEN for _ in value]
    return _without_password(value) if isinstance(value, str) else value


def _without_password(text: str) -> str:
    return _USER_INFORMATION.sub(f"{_HIDDEN}@", text)
