"""What an analyser is given and gives back, and how two sides of a change are compared.

Pure values and functions. The analyser itself is handed in by a higher floor (`review.rules` holds the default one), so
that nothing here starts a process. `brought_by_change` is the measure of every change review: what the base has too is
not news, wherever it moved (offline rules: base comparison).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Final

from outpost_lsp.domain.finding import SEVERITIES, Severity, normalised_quote

_SAME_LINE: Final = 0.66
"""How alike two quotes must be to count as one line that was edited."""
_OF_HABITS: Final = 0.5
"""The confidence in what is worth a look."""
_MAX_DIFFED_LINES: Final = 4_000
"""Beyond this many lines between the first and the last difference the whole stretch counts as changed."""


@dataclass(frozen=True, slots=True)
class SourceText:
    """A file to analyse: its repository-relative path and its text, lines ending in LF."""

    path: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RawFinding:
    """A fault that a rule found in one text, before anybody compared it with another side.

    `quote` holds whole lines of the text, `line` is the number of the first one (from 1). `key` tells apart two faults
    of one code on one line, and follows a fault whose line was edited: it never holds a line number. With `only_new`
    the finding is worth saying only when a base was there to compare with and lacks it.
    """

    rule: str
    code: str
    severity: Severity
    title: str
    detail: str
    line: int
    quote: str
    key: str = ""
    confidence: float = 0.7
    replacement: str | None = None
    only_new: bool = False
    also: tuple[RawFinding, ...] = ()
    """Lesser faults at the same place that this one speaks for."""
    whole_file: bool = False
    """The fault belongs to the file and not to its line: a base that has it anywhere has it."""

    is_habit: bool = False
    """Dangerous or careless rather than wrong: a warning where a change brings it, worth a look in code that stands; so
    it is told there with `only_new`, too."""

    hides_others: bool = False
    """The text could not be read as a whole because of this fault: others may be there."""

    @property
    def parts(self) -> list[RawFinding]:
        """The finding by itself, and each that it speaks for."""
        return [replace(self, also=()), *self.also] if self.also else [self]

    @property
    def as_it_stands(self) -> RawFinding:
        """The finding as it is told where nothing says that it is new: habits of the code are no warnings then."""
        parts = worst_first(
            [
                replace(part, severity="information", confidence=_OF_HABITS)
                if part.is_habit and part.severity == "warning"
                else part
                for part in self.parts
            ]
        )
        return replace(parts[0], also=tuple(parts[1:]))

    @property
    def described(self) -> str:
        """The detail, with what else is wrong at this place."""
        titles = dict.fromkeys(part.title for part in self.also if part.title != self.title)
        more = "".join(f" Also here: {title[0].lower()}{title[1:]}." for title in titles)
        return f"{self.detail}{more}"

    @property
    def last_line(self) -> int:
        """The number of the last quoted line."""
        return self.line + self.quote.count("\n")


Analyse = Callable[[Sequence[SourceText]], Awaitable[Sequence[Sequence[RawFinding]]]]
"""Analyses many texts at once and answers in their order. A fault of the analyser is raised, never an empty answer."""

Compare = Callable[[SourceText, SourceText], Sequence[RawFinding]]
"""What a change took away: the old and the new side give faults that the new side alone does not show. Pure."""


def worst_first(findings: Sequence[RawFinding]) -> list[RawFinding]:
    """By severity, then by line."""
    return sorted(findings, key=lambda found: (SEVERITIES.index(found.severity), found.line, found.code))


def brought_by_change(
    after: Sequence[RawFinding], before: Sequence[RawFinding], changed: Sequence[tuple[int, int]]
) -> tuple[list[RawFinding], list[RawFinding]]:
    """Split the findings of the new side in those the change brought and those the base has too.

    `changed` holds the changed lines of the new side (half-open, from 1): of equal faults, those outside it are taken
    as the old ones. First equal faults on equal lines are paired, then equal faults on lines that were edited, then
    faults of one code on lines that are nearly the same.
    """
    left = [part for found in before for part in found.parts]
    parts = [part for found in after for part in found.parts]
    remaining = sorted(parts, key=lambda found: (is_within(found, changed), found.line))
    if any(found.hides_others for found in before):
        # The base could not be read by the rules: only what stands in changed lines can be laid to the change.
        remaining = [found for found in remaining if is_within(found, changed)]
    for alike in (_same_place, _same_fault, _same_line_edited):
        remaining, left = _unpaired(remaining, left, alike)
    new = {id(part) for part in remaining}
    brought: list[RawFinding] = []
    older: list[RawFinding] = []
    for found in after:
        fresh = worst_first([part for part in found.parts if id(part) in new])
        if fresh:
            brought.append(replace(fresh[0], also=tuple(fresh[1:])) if found.also else found)
        else:
            older.append(found)
    return worst_first(brought), worst_first(older)


def _unpaired(
    after: Sequence[RawFinding], before: Sequence[RawFinding], alike: Callable[[RawFinding, RawFinding], bool]
) -> tuple[list[RawFinding], list[RawFinding]]:
    """What is left of both sides when everything that is alike was put together, each with at most one partner."""
    buckets: dict[tuple[str, str], list[RawFinding]] = defaultdict(list)
    for candidate in before:
        buckets[_group(candidate)].append(candidate)
    unpaired = []
    for found in after:
        bucket = buckets[_group(found)]
        partner = next((index for index, candidate in enumerate(bucket) if alike(found, candidate)), None)
        if partner is None:
            unpaired.append(found)
        else:
            bucket.pop(partner)
    return unpaired, [candidate for bucket in buckets.values() for candidate in bucket]


def changed_lines(before: str, after: str) -> tuple[tuple[int, int], ...]:
    """The lines of `after` that `before` does not have in that order: half-open ranges, from 1."""
    old, new = before.split("\n"), after.split("\n")
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    old, middle = old[start : len(old) - end], new[start : len(new) - end]
    if not middle:
        return ()
    if not old or len(old) + len(middle) > _MAX_DIFFED_LINES:
        return ((start + 1, start + 1 + len(middle)),)
    blocks = SequenceMatcher(None, old, middle, autojunk=False).get_opcodes()
    return tuple((start + 1 + j1, start + 1 + j2) for tag, _, _, j1, j2 in blocks if tag != "equal" and j2 > j1)


def is_within(found: RawFinding, ranges: Sequence[tuple[int, int]]) -> bool:
    """Whether a quoted line of the finding lies in one of the ranges."""
    return any(found.line < end and found.last_line >= start for start, end in ranges)


def _group(found: RawFinding) -> tuple[str, str]:
    return found.code, found.rule


def _same_place(one: RawFinding, other: RawFinding) -> bool:
    if one.whole_file:
        return one.key == other.key
    return one.key == other.key and normalised_quote(one.quote) == normalised_quote(other.quote)


def _same_fault(one: RawFinding, other: RawFinding) -> bool:
    # A key that names something (a variable, an attribute) follows a line whose words were changed around it.
    return bool(one.key) and one.key == other.key and _alike(one.quote, other.quote) > 0.4


def _same_line_edited(one: RawFinding, other: RawFinding) -> bool:
    return _alike(one.quote, other.quote) >= _SAME_LINE


def _alike(one: str, other: str) -> float:
    return SequenceMatcher(None, normalised_quote(one), normalised_quote(other), autojunk=False).ratio()
