"""A finding that follows its text: where its quote stands now, how much of it is left, and how it is shown.

The finding itself stays as it was reported, so that it is back, whole, when its text comes back (undo). Pure; offsets are
code points in the text without a byte-order mark. The board holds these, one per finding.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

from outpost_lsp.domain.anchor import Anchor, SourceText, quote_places
from outpost_lsp.domain.finding import Finding, Span, Suggestion, TextReplacement
from outpost_lsp.reviews.edit import Edit

LEAST_LEFT: Final = 0.5
"""A stale finding is shown while at least this share of its quote is still there."""

_LONGEST_COMPARED: Final = 600
_STALE: Final = "The code that this finding is about was edited since; it may not hold any more."


@dataclass(slots=True)
class TrackedFinding:
    """`finding` as reported; `start` and `end` are where its quote, or what is left of it, stands now.

    `left` is the share of the quote that is still there: 1 while it stands as it was quoted.
    """

    finding: Finding
    start: int
    end: int
    left: float = 1.0
    twins: int = 1
    """The fewest equal texts that the file held while the quote was whole."""
    rank: tuple[int, int] = (0, 1)
    """Which of the equal texts it was, and of how many, when its place was last looked up."""
    swept: int = 0
    """How far behind `start` the quote stood before an edit swept over it: where an undo puts it back."""
    is_settled: bool = False
    """Whether the suggestion's text stands where the quote stood."""

    @property
    def is_stale(self) -> bool:
        """Whether its quote was edited."""
        return self.left < 1

    @property
    def is_withdrawn(self) -> bool:
        """Whether so much of the quote is gone that it is not shown at the code any more."""
        return self.left < LEAST_LEFT

    @property
    def is_fixed(self) -> bool:
        """Whether its quote is gone because somebody applied what settles it; a quote that is back says otherwise."""
        return self.is_stale and (self.is_settled or self.finding.status == "fixed")

    def shown(self, source: SourceText | None) -> Finding:
        """The finding as it is now, in this text."""
        if source is None:
            return self.finding
        span = source.span(self.start, self.end)
        if self.is_fixed:
            return self.finding.model_copy(update={"span": span, "status": "fixed", "suggestion": None})
        if self.is_stale:
            detail = f"*{_STALE}*\n\n{self.finding.detail}".rstrip()
            return self.finding.model_copy(
                update={"span": span, "status": "stale", "severity": "hint", "detail": detail, "suggestion": None}
            )
        status = "open" if self.finding.status == "fixed" else self.finding.status
        if span == self.finding.span and status == self.finding.status:
            return self.finding
        suggestion = self._moved_suggestion(source)
        return self.finding.model_copy(update={"span": span, "suggestion": suggestion, "status": status})

    def _moved_suggestion(self, source: SourceText) -> Suggestion | None:
        """The suggestion at the new place; its edits keep their distance from the quote in lines."""
        suggestion = self.finding.suggestion
        if suggestion is None:
            return None
        old, new = self.finding.span, source.span(self.start, self.end)
        lines = new.start_line - old.start_line
        columns = new.start_character - old.start_character
        edits = []
        for edit in suggestion.edits:
            span = edit.span
            edits.append(
                TextReplacement(
                    span=span.model_copy(
                        update={
                            "start_line": span.start_line + lines,
                            "end_line": span.end_line + lines,
                            # Only the first line of a quote can have moved sideways without being edited.
                            "start_character": span.start_character
                            + (columns if span.start_line == old.start_line and span.start_character else 0),
                            "end_character": span.end_character
                            + (columns if span.end_line == old.start_line and span.end_character else 0),
                        }
                    ),
                    text=edit.text,
                )
            )
        return suggestion.model_copy(update={"edits": tuple(edits)})


def place(finding: Finding, source: SourceText, taken: Collection[int] = ()) -> TrackedFinding:
    """A finding in a text that it was not reported in: by its quote; its line only breaks ties.

    `taken` are the starts of equal texts that are other findings' own.
    """
    offset = _offset(source, finding.span.start_line, finding.span.start_character)
    return _placed_at(finding, source, _nearest(source, finding.quote, offset, taken))


def place_all(findings: Iterable[Finding], source: SourceText) -> list[TrackedFinding]:
    """Findings of a file in a text that they were not reported in; twins keep their order and get a text each."""
    groups: defaultdict[_Twins, list[Finding]] = defaultdict(list)
    for finding in findings:
        groups[_twins(finding)].append(finding)
    placed = []
    for (_, _, quote), group in groups.items():
        if len(group) == 1:
            placed.append(place(group[0], source))
            continue
        group.sort(key=lambda one: (one.span.start_line, one.span.start_character))
        places = quote_places(source, quote)
        wanted = [_offset(source, one.span.start_line, one.span.start_character) for one in group]
        found = dict(_paired(wanted, [anchor.start for anchor in places]))
        for index, finding in enumerate(group):
            placed.append(_placed_at(finding, source, places[found[index]] if index in found else None))
    return placed


def starts_of_twins(finding: Finding, others: Iterable[TrackedFinding]) -> set[int]:
    """Where the whole quotes of a finding's twins stand: the same agent said the same of each of these equal texts."""
    twins = _twins(finding)
    return {
        one.start
        for one in others
        if one.left == 1 and _twins(one.finding) == twins and one.finding.fingerprint != finding.fingerprint
    }


_Twins = tuple[str, str, str]
"""What findings have in common that mean different ones of equal texts."""


def _twins(finding: Finding) -> _Twins:
    return finding.agent, finding.code, finding.quote


def _paired(wanted: Sequence[int], there: Sequence[int]) -> list[tuple[int, int]]:
    """Which of the offsets there each wanted one gets, as indices: in order, near, and as many as can be."""
    if len(wanted) > len(there):
        return [(index, place) for place, index in _paired(there, wanted)]
    pairs, first = [], 0
    for index, offset in enumerate(wanted):
        # Enough have to be left for those behind.
        choices = range(first, len(there) - (len(wanted) - 1 - index))
        chosen = min(choices, key=lambda place: abs(there[place] - offset))
        pairs.append((index, chosen))
        first = chosen + 1
    return pairs


def _placed_at(finding: Finding, source: SourceText, anchor: Anchor | None) -> TrackedFinding:
    if anchor is not None:
        rank = (anchor.ordinal, anchor.count)
        return TrackedFinding(finding, anchor.start, anchor.end, twins=anchor.count, rank=rank)
    start = min(_offset(source, finding.span.start_line, finding.span.start_character), len(source.text))
    end = min(max(_offset(source, finding.span.end_line, finding.span.end_character), start), len(source.text))
    tracked = TrackedFinding(finding, start, end, min(share_left(finding.quote, source.text[start:end]), 0.999))
    replacement = (_replacement(finding) or "").strip()
    if replacement and source.text.startswith(replacement, start):
        after = start + len(replacement)
        if not (source.text[after : after + 1].isalnum() and replacement[-1].isalnum()):
            tracked.end, tracked.is_settled = after, True
    return tracked


def follow(tracked: Iterable[TrackedFinding], edit: Edit, new: SourceText) -> bool:
    """Move findings through an edit; whether any is shown otherwise than before."""
    changed = False
    first, last, shift = edit.start, edit.end, edit.shift
    is_insertion = first == last
    findings, touched = list(tracked), []
    for one in findings:
        if one.left < 1 or (first < one.end and last > one.start) or (is_insertion and first == one.start):
            touched.append(one)
        elif one.start >= last:
            one.start, one.end, changed = one.start + shift, one.end + shift, True
    if not touched:
        return changed
    taken = _taken_beside(touched, findings)
    for one in sorted(touched, key=_order):
        before = one.start, one.end, one.left
        of_twins = taken[_twins(one.finding)]
        _follow_closely(one, edit, new, of_twins)
        if one.left == 1:
            of_twins.add(one.start)
        changed = changed or before != (one.start, one.end, one.left) or first <= one.start
    return changed


def _taken_beside(
    touched: Iterable[TrackedFinding], findings: Iterable[TrackedFinding]
) -> defaultdict[_Twins, set[int]]:
    """Where the twins stand of findings that an edit touched, as far as it left them alone."""
    closely = {id(one) for one in touched}
    quotes = {one.finding.quote for one in touched}
    taken: defaultdict[_Twins, set[int]] = defaultdict(set)
    for one in findings:
        if one.finding.quote in quotes and id(one) not in closely:
            taken[_twins(one.finding)].add(one.start)
    return taken


def _order(one: TrackedFinding) -> tuple[int, int, int]:
    """The order in the text; of those that an edit swept together, the order in which they were reported."""
    return one.start, one.finding.span.start_line, one.finding.span.start_character


def share_left(quote: str, text: str) -> float:
    """Which share of the quote's visible characters is still in a text, in order."""
    wanted, there = "".join(quote.split()), "".join(text.split())
    if not wanted or wanted in there:
        return 1.0
    if len(wanted) > _LONGEST_COMPARED or len(there) > _LONGEST_COMPARED:
        lines = [line.strip() for line in quote.splitlines() if line.strip()]
        kept = {line.strip() for line in text.splitlines()}
        return sum(len(line) for line in lines if line in kept) / max(sum(map(len, lines)), 1)
    blocks = SequenceMatcher(None, wanted, there, autojunk=False).get_matching_blocks()
    # Scattered single characters are no part of a quote that is left.
    return sum(block.size for block in blocks if block.size > 2) / len(wanted)


def _follow_closely(one: TrackedFinding, edit: Edit, new: SourceText, taken: Collection[int]) -> None:
    start = edit.moved(one.start, to_end=False)
    end = max(edit.moved(one.end, to_end=True), start)
    swept = one.swept + (one.start - start if edit.start < one.start < edit.end else 0)
    anchor = _own(one, edit, new, start + swept, taken)
    if anchor is not None and (anchor.count >= one.twins or _is_near(anchor, start, end, new)):
        # No equal text was lost, so this one is the finding's own, even when it was moved far away.
        # Never more twins than before: copies that come and go must not cost the finding its return.
        one.start, one.end, one.left, one.twins = anchor.start, anchor.end, 1.0, min(one.twins, anchor.count)
        one.rank, one.swept = (anchor.ordinal, anchor.count), 0
        one.is_settled = False
        return
    left = share_left(one.finding.quote, new.text[start:end])
    if edit.slack and edit.start <= one.start < edit.end < one.end:
        # What seems to stand before the removed stretch may be what is left of the quote behind it.
        earlier = start - edit.slack
        if (more := share_left(one.finding.quote, new.text[earlier:end])) > left:
            start, swept, left = earlier, swept + edit.slack, more
    one.start, one.end, one.swept = start, end, swept
    one.left = min(left, 0.999)
    replacement = _replacement(one.finding)
    one.is_settled = replacement is not None and replacement.split() == new.text[start:end].split()


def _replacement(finding: Finding) -> str | None:
    """What stands in place of the quote once the suggestion is applied; `None` when that cannot be told."""
    edits = finding.suggestion.edits if finding.suggestion is not None else ()
    if not edits:
        return None
    quote, span, text, position = SourceText(finding.quote), finding.span, "", 0
    for edit in sorted(edits, key=lambda one: (one.span.start_line, one.span.start_character)):
        start = _within(quote, span, edit.span.start_line, edit.span.start_character)
        end = _within(quote, span, edit.span.end_line, edit.span.end_character)
        if start is None or end is None or start < position:
            # It reaches beyond the quote; white space around it aside, the new text is all there is then.
            return edits[0].text if len(edits) == 1 else None
        text += quote.text[position:start] + edit.text
        position = end
    return text + quote.text[position:]


def _within(quote: SourceText, span: Span, line: int, character: int) -> int | None:
    """The offset in the quote of a place in the file; `None` for one outside."""
    line -= span.start_line
    if not 0 <= line < len(quote.line_starts):
        return None
    offset = quote.line_starts[line] + (character - span.start_character if line == 0 else character)
    return offset if quote.line_starts[line] <= offset <= len(quote.text) else None


def _own(one: TrackedFinding, edit: Edit, new: SourceText, offset: int, taken: Collection[int]) -> Anchor | None:
    """Which of the equal texts is the quote of a finding that an edit touched, or that was not there before it.

    A text that the edit left alone was there before and was not the finding's, so those that it made come first. Of
    several it is the one in the same place of the row; when the row is another one, the one nearest to `offset`.
    """
    places = _free_places(new, one.finding.quote, taken)
    made = [anchor for anchor in places if anchor.start <= edit.new_end and anchor.end >= edit.start]
    if len(made) > 1 and (same := [anchor for anchor in made if (anchor.ordinal, anchor.count) == one.rank]):
        return same[0]
    return min(made or places, key=lambda anchor: abs(anchor.start - offset), default=None)


def _nearest(source: SourceText, quote: str, offset: int, taken: Collection[int]) -> Anchor | None:
    """The place of the quote that is nearest to an offset, of those that are not taken."""
    return min(_free_places(source, quote, taken), key=lambda anchor: abs(anchor.start - offset), default=None)


def _free_places(source: SourceText, quote: str, taken: Collection[int]) -> list[Anchor]:
    first_line = quote.strip().split("\n", 1)[0].strip()
    if first_line not in source.text:
        # Looking at once spares most texts the work of being cut into lines.
        return []
    return [anchor for anchor in quote_places(source, quote) if anchor.start not in taken]


def _is_near(anchor: Anchor, start: int, end: int, source: SourceText) -> bool:
    first, last = source.line_of(min(start, len(source.text))), source.line_of(min(end, len(source.text)))
    return first - 1 <= anchor.span.start_line <= last + 1


def _offset(source: SourceText, line: int, character: int) -> int:
    starts = source.line_starts
    return len(source.text) if line >= len(starts) else starts[line] + character
