"""Putting trees of settings together: later ones win key by key, and each value remembers where it came from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from outpost_lsp.config.faults import Origin
from outpost_lsp.config.toml_lines import Path

OriginOf = Callable[[Path], Origin]


class MergedTree:
    """A tree of settings from several places. Tables merge at every depth; lists and plain values replace."""

    def __init__(self) -> None:
        self.tree: dict[str, Any] = {}
        self.origins: dict[Path, Origin] = {}
        """Where each plain value, list and empty table comes from."""

    def add(self, tree: Mapping[str, Any], origin_of: OriginOf) -> None:
        """Lay another tree over this one."""
        self._merge(self.tree, tree, (), origin_of)

    def origin(self, path: Path) -> Origin | None:
        """Where the value at `path` comes from; for a table or a missing value, where its nearest neighbour does."""
        while True:
            if path in self.origins:
                return self.origins[path]
            below = [found for place, found in self.origins.items() if place[: len(path)] == path]
            if below:
                return below[-1]
            if not path:
                return None
            path = path[:-1]

    def _merge(self, into: dict[str, Any], tree: Mapping[str, Any], path: Path, origin_of: OriginOf) -> None:
        for name, value in tree.items():
            place = (*path, name)
            if isinstance(value, Mapping):
                known = into.get(name)
                if not isinstance(known, dict):
                    self._forget(place)
                    known = into[name] = {}
                if value:
                    self.origins.pop(place, None)
                elif not known:
                    self.origins[place] = origin_of(place)
                self._merge(known, value, place, origin_of)
            else:
                self._forget(place)
                into[name] = value
                self.origins[place] = origin_of(place)

    def _forget(self, path: Path) -> None:
        for place in [place for place in self.origins if place[: len(path)] == path]:
            del self.origins[place]


def leaves(tree: Mapping[str, Any], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every plain value, list and empty table with its path."""
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, (*path, name))
        else:
            yield (*path, name), value
