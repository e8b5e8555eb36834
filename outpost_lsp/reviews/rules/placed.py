"""A finding with its exact place, and how findings that speak of one fault become one.

Rules that meet on one place are merged: what one fix would settle is one finding (reviewing guidance: one finding per
fault). Pure functions over the findings of one file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from outpost_lsp.domain.finding import SEVERITIES
from outpost_lsp.models.rule_based.analysis import RawFinding
from outpost_lsp.reviews.rules.table import SAID_ONCE

UNPARSABLE: Final = "invalid-syntax"
"""The rule of a file that does not parse."""
CONFLICT: Final = "conflict-marker"
"""The rule of a merge that was not resolved."""

_LONGEST_QUOTE: Final = 5
_NAMED_LINES: Final = 8


@dataclass(frozen=True, slots=True)
class Placed:
    """A finding and the columns it covers, from 1 and half-open, on its first and last line."""

    finding: RawFinding
    start: tuple[int, int]
    end: tuple[int, int]


def quoted(lines: Sequence[str], first: int, last: int) -> tuple[int, str]:
    """The whole lines to quote for the rows `first` to `last` (from 1), and the first one's number.

    A long stretch is quoted by its first line; the nearest line above stands in for an empty one.
    """
    first = max(1, min(first, len(lines)))
    last = max(first, min(last, len(lines)))
    if last - first >= _LONGEST_QUOTE:
        last = first
    while first > 1 and not "".join(lines[first - 1 : last]).strip():
        first -= 1
        last = first
    return first, "\n".join(lines[first - 1 : last])


def merged(placed: Sequence[Placed]) -> list[RawFinding]:
    """One finding per fault, in the order of the lines."""
    findings = _without_consequences(sorted(placed, key=lambda item: (item.start, item.end, item.finding.rule)))
    findings = _said_once(findings)
    kept: list[Placed] = []
    for item in findings:
        # Only the neighbours that begin on the same line can speak of the same place.
        partner = next(
            (other for other in reversed(kept) if other.start[0] == item.start[0] and _one_fault(other, item)), None
        )
        if partner is None:
            kept.append(item)
        else:
            kept[kept.index(partner)] = _joined(partner, item)
    return [item.finding for item in kept]


def _without_consequences(placed: Sequence[Placed]) -> list[Placed]:
    rules = {item.finding.rule for item in placed}
    if CONFLICT in rules:
        # Everything a parser says of an unresolved merge is said by its markers.
        placed = [item for item in placed if item.finding.rule != UNPARSABLE]
    elif UNPARSABLE in rules:
        first = next(item for item in placed if item.finding.rule == UNPARSABLE)
        placed = [item for item in placed if not item.finding.rule.isupper() and item.finding.rule != UNPARSABLE]
        placed = sorted([*placed, first], key=lambda item: item.start)
    return list(placed)


def _said_once(placed: Sequence[Placed]) -> list[Placed]:
    first: dict[tuple[str, str], int] = {}
    others: dict[int, list[int]] = {}
    kept: list[Placed] = []
    for item in placed:
        key = (item.finding.rule, item.finding.key if item.finding.rule == "F821" else "")
        if item.finding.rule not in SAID_ONCE:
            kept.append(item)
        elif key in first:
            others.setdefault(first[key], []).append(item.finding.line)
        else:
            first[key] = len(kept)
            kept.append(item)
    for index, found in others.items():
        item = kept[index]
        lines = sorted(set(found) - {item.finding.line})
        if lines:
            named = ", ".join(str(line) for line in lines[:_NAMED_LINES])
            more = f" and {len(lines) - _NAMED_LINES} more" if len(lines) > _NAMED_LINES else ""
            detail = f"{item.finding.detail} The same in {'line' if len(lines) == 1 else 'lines'} {named}{more}."
            kept[index] = replace(item, finding=replace(item.finding, detail=detail))
    return kept


def _one_fault(one: Placed, other: Placed) -> bool:
    if one.finding.rule == other.finding.rule:
        return True
    return one.start < other.end and other.start < one.end


def _joined(one: Placed, other: Placed) -> Placed:
    # What is sure speaks for what only a comparison could judge.
    worse, lesser = sorted(
        (one, other), key=lambda item: (item.finding.only_new, SEVERITIES.index(item.finding.severity))
    )
    also = (*worse.finding.also, replace(lesser.finding, also=()), *lesser.finding.also)
    return Placed(replace(worse.finding, also=also), min(one.start, other.start), max(one.end, other.end))
