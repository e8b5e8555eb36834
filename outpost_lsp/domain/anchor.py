"""A quote -> its place in a text; it refuses to guess.

A quote is compared line by line; line ends, trailing white space and a common indentation do not count, and a quote may
begin and end in the middle of a line. Which of several equal places is meant is decided by changed lines first and by
the nearness to a hinted line second; when neither decides, the answer is a fault that says so. The findings tool and
the tracking of findings both stand on this. Time grows with the length of the text, however long its lines are.

Lines end at LF, CRLF or a lone CR, as they do in editors; a byte-order mark at the start is no part of the text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Final, Literal

from outpost_lsp.domain.finding import Span

LineRange = tuple[int, int]
"""Lines from 0, half open. An empty range stands between two lines: both count as touched."""

_Place = tuple[int, int]
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_WORK_LIMIT: Final = 2_000_000
_SHOWN_PLACES: Final = 10


class SourceText:
    """A text cut into lines once, so that many quotes can be looked up in it."""

    def __init__(self, text: str) -> None:
        self.text = text.removeprefix("\ufeff")

    @cached_property
    def line_starts(self) -> list[int]:
        """Where each line begins; a text that ends in a line end has an empty last line."""
        if "\r" not in self.text:
            return [0, *accumulate(len(line) + 1 for line in self._lines[:-1])]
        return [0, *(match.end() for match in _LINE_END.finditer(self.text))]

    @cached_property
    def stripped(self) -> list[str]:
        """Each line without white space at its ends."""
        return [line.strip() for line in self._lines]

    @cached_property
    def indentations(self) -> list[str]:
        """The white space before each line's first visible character; empty for a blank line."""
        return [
            indentation(line) if stripped else "" for line, stripped in zip(self._lines, self.stripped, strict=True)
        ]

    @cached_property
    def joined(self) -> str:
        """The stripped lines, one LF between them: the text that quotes are looked up in."""
        return "\n".join(self.stripped)

    @cached_property
    def joined_starts(self) -> list[int]:
        """Where each line begins in `joined`."""
        return [0, *accumulate(len(line) + 1 for line in self.stripped[:-1])]

    def line_of(self, offset: int) -> int:
        """The line that holds the character at `offset`."""
        return bisect_right(self.line_starts, offset) - 1

    def span(self, start: int, end: int) -> Span:
        """The span between two offsets."""
        first, last = self.line_of(start), self.line_of(end)
        return Span(
            start_line=first,
            start_character=start - self.line_starts[first],
            end_line=last,
            end_character=end - self.line_starts[last],
        )

    def line_after_line_feeds(self, number: int) -> int:
        """The line here of the line with this number where only LF ends lines, as git and `read_file` count."""
        if self._lone_returns == 0:
            return number
        starts = self._line_feed_starts
        if number >= len(starts):
            return len(self.line_starts) - 1 + number - (len(starts) - 1)
        return self.line_of(starts[number])

    @cached_property
    def _lone_returns(self) -> int:
        return self.text.count("\r") - self.text.count("\r\n")

    @cached_property
    def _line_feed_starts(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer("\n", self.text))]

    @cached_property
    def _lines(self) -> list[str]:
        return _LINE_END.split(self.text) if "\r" in self.text else self.text.split("\n")


@dataclass(frozen=True, slots=True)
class Anchor:
    """Where a quote stands. `text` is the source as it is there, without white space at its ends."""

    span: Span
    text: str
    start: int
    end: int
    ordinal: int
    """Its place among the equal quotes of the text, from 0."""
    count: int
    """How many equal quotes the text holds."""
    whole_lines: bool
    """Whether nothing else stands on its first and last line."""


@dataclass(frozen=True, slots=True)
class AnchorFault:
    """Why a quote has no place, in words for whoever gave it. `lines` are the candidates, from 0."""

    reason: Literal["blank", "absent", "ambiguous"]
    message: str
    lines: tuple[int, ...] = ()


def find_quote(
    text: str | SourceText, quote: str, *, line_hint: int | None = None, prefer: Sequence[LineRange] = ()
) -> Anchor | AnchorFault:
    """The place of `quote`. `line_hint` (from 0) and `prefer` only decide between equal places."""
    source = text if isinstance(text, SourceText) else SourceText(text)
    lines = quote_lines(quote)
    if not lines:
        return AnchorFault("blank", "the quote is blank; quote the source text that shows the fault")
    places = _places(source, lines)
    if places is None:
        return AnchorFault("ambiguous", "the quote stands at too many places; extend it")
    if not places:
        return AnchorFault("absent", _why_absent(source, lines))
    chosen = _choose(source, places, line_hint, prefer)
    if chosen is not None:
        return _anchor(source, places, chosen)
    candidates = sorted({source.line_of(start) for start, _ in places})
    shown = ", ".join(str(line + 1) for line in candidates[:_SHOWN_PLACES])
    more = f" and {len(candidates) - _SHOWN_PLACES} more" if len(candidates) > _SHOWN_PLACES else ""
    return AnchorFault(
        "ambiguous",
        f"the quote stands at {len(places)} places (lines {shown}{more}); extend the quote or give the line",
        tuple(candidates),
    )


def quote_places(text: str | SourceText, quote: str) -> tuple[Anchor, ...]:
    """All places of `quote`, in the order of the text. Places that cut a word count only where no other exist."""
    source = text if isinstance(text, SourceText) else SourceText(text)
    lines = quote_lines(quote)
    places = (_places(source, lines) or []) if lines else []
    return tuple(_anchor(source, places, index) for index in range(len(places)))


def quote_lines(quote: str) -> list[str]:
    """The lines of a quote without white space at their ends, blank ones at both ends of the quote left out."""
    lines = [line.rstrip() for line in _LINE_END.split(quote.removeprefix("\ufeff"))]
    first = next((index for index, line in enumerate(lines) if line), len(lines))
    last = next((index for index in range(len(lines), 0, -1) if lines[index - 1]), 0)
    return lines[first:last]


def indentation(line: str) -> str:
    """The white space a line begins with."""
    return line[: len(line) - len(line.lstrip())]


def common_margin(indentations: Sequence[str]) -> str:
    """What all of the indentations begin with."""
    if not indentations:
        return ""
    least, greatest = min(indentations), max(indentations)
    length = next(
        (i for i, (left, right) in enumerate(zip(least, greatest, strict=False)) if left != right), len(least)
    )
    return least[:length]


def touches(ranges: Iterable[LineRange], first: int, last: int) -> bool:
    """Whether any of the ranges shares a line with `first` to `last` (inclusive), or stands between or beside them."""
    return any(
        start - 1 <= last and first <= end if start == end else start <= last and first < end for start, end in ranges
    )


def _places(source: SourceText, lines: list[str]) -> list[_Place] | None:
    """Start and end of each place; `None` when there are too many to look at."""
    found = []
    work = 0
    for start, end in _matches(source, lines):
        work += len(lines)
        if work > _WORK_LIMIT:
            return None
        if start < end:
            found.append((start, end))
    unbroken = [(start, end) for start, end in found if not _cuts_a_word(source.text, start, end)]
    return unbroken or found


def _matches(source: SourceText, lines: list[str]) -> Iterator[_Place]:
    """Start and end of each place; an empty place where only the indentation differs, so that looking is counted."""
    if len(lines) == 1:
        # What fits into a line needs no lines to be found.
        needle = lines[0].strip()
        position = source.text.find(needle)
        while position >= 0:
            yield position, position + len(needle)
            position = source.text.find(needle, position + len(needle))
        return
    needle = "\n".join(line.strip() for line in lines)
    indents = [indentation(line) for line in lines]
    position = source.joined.find(needle) if lines[0].strip() in source.text else -1
    while position >= 0:
        first = bisect_right(source.joined_starts, position) - 1
        column = position - source.joined_starts[first]
        start = source.line_starts[first] + len(source.indentations[first]) + column
        if _same_indentation(source, lines, indents, first, column):
            last = first + len(lines) - 1
            end_column = position + len(needle) - source.joined_starts[last]
            yield start, source.line_starts[last] + len(source.indentations[last]) + end_column
        else:
            yield start, start
        # Places may overlap by lines: three closing braces hold two times two.
        position = source.joined.find(needle, position + 1)


def _same_indentation(source: SourceText, lines: list[str], indents: list[str], first: int, column: int) -> bool:
    there = [source.indentations[first + index] for index, line in enumerate(lines) if line and index]
    here = [indent for index, (indent, line) in enumerate(zip(indents, lines, strict=True)) if line and index]
    if column:
        # The quote begins in the middle of a line: only the lines below it have an indentation to compare.
        return _equal_but_for_a_margin(there, here)
    if there == here and source.indentations[first].endswith(indents[0]):
        # Somebody cut white space before the first line and left the rest as it stands.
        return True
    return _equal_but_for_a_margin([source.indentations[first], *there], [indents[0], *here])


def _equal_but_for_a_margin(there: list[str], here: list[str]) -> bool:
    margin_there, margin_here = len(common_margin(there)), len(common_margin(here))
    return all(left[margin_there:] == right[margin_here:] for left, right in zip(there, here, strict=True))


def _choose(
    source: SourceText, places: Sequence[_Place], line_hint: int | None, prefer: Sequence[LineRange]
) -> int | None:
    """The index of the place that is meant; `None` when that would be a guess."""
    lines = [(source.line_of(start), source.line_of(end)) for start, end in places]
    candidates: Sequence[int] = range(len(places))
    if prefer:
        candidates = [index for index in candidates if touches(prefer, *lines[index])] or candidates
    if line_hint is not None:
        distances = [_distance(*lines[index], line_hint) for index in candidates]
        least = min(distances)
        candidates = [index for index, distance in zip(candidates, distances, strict=True) if distance == least]
    if len({lines[index][0] for index in candidates}) > 1:
        candidates = [index for index in candidates if _is_whole(source, *places[index])]
    # Several places on one line are no guess about the line: the first of them stands for all.
    return candidates[0] if len({lines[index][0] for index in candidates}) == 1 else None


def _distance(first: int, last: int, line_hint: int) -> tuple[int, int]:
    return max(first - line_hint, line_hint - last, 0), abs(first - line_hint)


def _anchor(source: SourceText, places: Sequence[_Place], index: int) -> Anchor:
    start, end = places[index]
    return Anchor(
        span=source.span(start, end),
        text=source.text[start:end],
        start=start,
        end=end,
        ordinal=index,
        count=len(places),
        whole_lines=_is_whole(source, start, end),
    )


def _is_whole(source: SourceText, start: int, end: int) -> bool:
    first, following = source.line_of(start), source.line_of(end) + 1
    line_end = source.line_starts[following] if following < len(source.line_starts) else len(source.text)
    return not source.text[source.line_starts[first] : start].strip() and not source.text[end:line_end].strip()


def _cuts_a_word(text: str, start: int, end: int) -> bool:
    return (start > 0 and _is_word(text[start - 1]) and _is_word(text[start])) or (
        end < len(text) and _is_word(text[end - 1]) and _is_word(text[end])
    )


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _why_absent(source: SourceText, lines: list[str]) -> str:
    missing = [number for number, line in enumerate(lines, 1) if line.strip() not in source.text]
    if len(lines) == 1:
        return "the quote is not in the file; copy it from the file as it stands, without line numbers or diff marks"
    if missing:
        return (
            f"the quote is not in the file: its line {missing[0]} stands nowhere in it; "
            "copy it from the file as it stands, without line numbers or diff marks"
        )
    return (
        "the quote is not in the file: its lines are there, but not one below the other with this indentation; "
        "copy them from the file as they stand"
    )
