"""Everything that is wrong with a tree of settings at once, also beside what cannot be read.

What has a fault of its own is cut out, and the rest is judged without it: whoever corrects a file sees all of its faults
and not one after the other. What only the cut seems to say is left out. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from outpost_lsp.config.checks import Fault, cross_faults, names_nothing
from outpost_lsp.config.faults import expectation, path_of
from outpost_lsp.config.schema import Settings
from outpost_lsp.config.toml_lines import Path

_TABLES: Final = ("providers", "models", "deciders", "routing", "agents", "mcp")
"""Tables whose keys are the user's own names."""


def judged(tree: Mapping[str, Any]) -> tuple[Settings | None, list[Fault]]:
    """The settings that a tree means, `None` where it cannot be read as a whole, and everything that is wrong with it."""
    try:
        settings = Settings.model_validate(tree)
    except ValidationError:
        return None, _faults(tree)
    return settings, cross_faults(settings)


def _faults(tree: Mapping[str, Any]) -> list[Fault]:
    rest, found, cuts = _copy(tree), list[Fault](), list[Path]()
    while wrong := _ill(rest):
        ill = {_owner(path) for path in (*cuts, *(path for path, is_missing, _ in wrong if not is_missing))}
        # An entry that cannot be read is not asked for more.
        found += [(path, text) for path, is_missing, text in wrong if not is_missing or _owner(path) not in ill]
        # Without what it needs an entry means nothing at all.
        places = [path[:-1] if is_missing else path for path, is_missing, _ in wrong]
        before = len(cuts)
        cuts += [place for place in places if _cut(rest, place)]
        if len(cuts) == before:
            return found
    stray = _Stray(tree, rest, cuts)
    return found + [fault for fault in cross_faults(Settings.model_validate(rest)) if not stray.says(*fault)]


class _Stray:
    """Knows the faults that only the cuts made."""

    def __init__(self, tree: Mapping[str, Any], rest: Mapping[str, Any], cuts: list[Path]) -> None:
        self._rest = rest
        self._cuts = frozenset(cuts)
        self._owners = {_owner(place) for place in cuts}
        self._gone = {name for table in _TABLES for name in _names(tree, table) - _names(rest, table)}

    def says(self, path: Path, text: str) -> bool:
        """Whether nothing is known of this fault as long as what was cut out is not corrected."""
        owner = _owner(path)
        if names_nothing(text):
            # What an agent names depends on its sort.
            sort = {(*owner, "command"), (*owner, "candidates")}
            is_unknown = any(text.startswith(f"[{cut[0]}]") for cut in self._cuts if len(cut) == 1)
            return is_unknown or _value(self._rest, path) in self._gone or not sort.isdisjoint(self._cuts)
        # Ceilings in money are judged by the prices of models and deciders.
        is_unpriced = any(cut[0] in ("models", "deciders") for cut in self._cuts)
        return owner in self._owners or (path[0] == "budget" and is_unpriced)


def _names(tree: Mapping[str, Any], table: str) -> set[str]:
    entries = tree.get(table)
    return set(entries) if isinstance(entries, Mapping) else set()


def _ill(tree: Mapping[str, Any]) -> list[tuple[Path, bool, str]]:
    """What cannot be read: the place, whether something is missing there, and what is expected."""
    try:
        Settings.model_validate(tree)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        return [(path_of(fault, tree), fault["type"] == "missing", expectation(fault)) for fault in faults]
    return []


def _cut(tree: dict[str, Any], path: Path) -> bool:
    """Take out what is at the path, with the list that it is an item of; whether anything was there."""
    names = list(path)
    while any(isinstance(name, int) for name in names):
        names.pop()
    inner: Any = tree
    for name in names[:-1]:
        inner = inner.get(name) if isinstance(inner, dict) else None
    return bool(names) and isinstance(inner, dict) and inner.pop(names[-1], inner) is not inner


def _owner(path: Path) -> Path:
    """The entry or section that a path is in."""
    return path[:2] if path and path[0] in _TABLES else path[:1]


def _value(tree: Any, path: Path) -> Any:
    """What is written at the path; `None` where nothing is."""
    for name in path:
        if isinstance(name, int):
            tree = tree[name] if isinstance(tree, list | tuple) and name < len(tree) else None
        else:
            tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree


def _copy(tree: Any) -> Any:
    return {name: _copy(value) for name, value in tree.items()} if isinstance(tree, Mapping) else tree
