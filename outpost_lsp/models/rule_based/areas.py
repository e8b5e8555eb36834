"""How the offline coordinator splits a change: by folder, in few areas of comparable size. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from outpost_lsp.models.rule_based.assignment import ScopeFile

_MOST_AREAS: Final = 6
_SMALL: Final = 2
"""Areas of fewer files than this are put together."""
_LARGE_SHARE: Final = 0.6
_LARGE: Final = 12


@dataclass(frozen=True, slots=True)
class Area:
    """Files that one reviewer looks at."""

    name: str
    files: tuple[ScopeFile, ...]


def split_into_areas(files: Sequence[ScopeFile]) -> tuple[Area, ...]:
    """Areas by top folder; a folder that holds most of a large change is split once more, small ones are joined."""
    groups = _by_folder(files, 1)
    for name, members in list(groups.items()):
        if len(members) > _LARGE and len(members) > _LARGE_SHARE * len(files):
            del groups[name]
            groups.update(_by_folder(members, 2))
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    kept = [item for item in ordered if len(item[1]) >= _SMALL][: _MOST_AREAS - 1]
    rest = [item for item in ordered if item not in kept]
    areas = [Area(name, tuple(members)) for name, members in kept]
    if len(rest) == 1 or (not kept and len(rest) <= 3):
        areas.extend(Area(name, tuple(members)) for name, members in rest)
    elif rest:
        joined = tuple(file for _, members in rest for file in members)
        areas.append(Area(", ".join(name for name, _ in rest[:3]) + (" and others" if len(rest) > 3 else ""), joined))
    return tuple(areas)


def _by_folder(files: Sequence[ScopeFile], depth: int) -> dict[str, list[ScopeFile]]:
    groups: dict[str, list[ScopeFile]] = defaultdict(list)
    for file in files:
        folders = file.path.split("/")[:-1][:depth]
        groups["/".join(folders) + "/" if folders else "the top folder"].append(file)
    return dict(groups)
