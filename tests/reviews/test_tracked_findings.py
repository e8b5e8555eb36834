"""Findings follow edits (U-01, U-02, REL-18)."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outpost_lsp.domain.anchor import Anchor, SourceText, find_quote
from outpost_lsp.domain.finding import Finding, Span, Suggestion, TextReplacement, fingerprint
from outpost_lsp.reviews.edit import edit_between
from outpost_lsp.reviews.tracking import TrackedFinding, follow, place, share_left

TEXT = "def first():\n    return 1\n\n\ndef second():\n    value = compute(first)\n    return value\n"


def finding(text: str, quote: str, *, number: int = 1, suggestion: Suggestion | None = None) -> Finding:
    anchor = find_quote(text, quote, line_hint=0)
    assert isinstance(anchor, Anchor)
    return Finding(
        id=f"r-{number}",
        run_id="r",
        agent="reviewer",
        path="a.py",
        span=anchor.span,
        severity="warning",
        code="c",
        title="t",
        quote=anchor.text,
        fingerprint=fingerprint("a.py", "c", anchor.text, anchor.ordinal),
        suggestion=suggestion,
    )


def with_suggestion(text: str, quote: str, replacement: str, *, of: str = "") -> Finding:
    """A finding that suggests to replace its quote, or the part `of` it."""
    made = finding(text, quote)
    anchor = find_quote(text, of or quote)
    assert isinstance(anchor, Anchor)
    edits = (TextReplacement(span=anchor.span, text=replacement),)
    return made.model_copy(update={"suggestion": Suggestion(title="Fix", edits=edits)})


def moved(tracked: TrackedFinding, old: str, new: str) -> Finding:
    edit = edit_between(old, new)
    assert edit is not None
    source = SourceText(new)
    follow([tracked], edit, source)
    return tracked.shown(source)


def quoted(text: str, span: Span) -> str:
    source = SourceText(text)
    start = source.line_starts[span.start_line] + span.start_character
    return source.text[start : source.line_starts[span.end_line] + span.end_character]


def test_lines_above_move_a_finding_and_lines_below_do_not() -> None:
    tracked = place(finding(TEXT, "value = compute(first)"), SourceText(TEXT))
    above = "# one\n# two\n# three\n" + TEXT
    shown = moved(tracked, TEXT, above)
    assert (shown.span.start_line, shown.status) == (8, "open")
    below = above + "# end\n"
    assert moved(tracked, above, below).span == shown.span


def test_an_edit_inside_the_quote_makes_a_finding_stale_as_a_hint_that_says_so() -> None:
    tracked = place(finding(TEXT, "value = compute(first)"), SourceText(TEXT))
    shown = moved(tracked, TEXT, TEXT.replace("compute(first)", "compute(first, 2)"))
    assert (shown.status, shown.severity) == ("stale", "hint")
    assert "edited" in shown.detail
    assert not tracked.is_withdrawn


def test_a_finding_whose_quote_is_mostly_gone_is_withdrawn_and_comes_back_with_its_text() -> None:
    original = finding(TEXT, "value = compute(first)")
    tracked = place(original, SourceText(TEXT))
    gone = TEXT.replace("    value = compute(first)\n", "")
    assert moved(tracked, TEXT, gone).status == "stale"
    assert tracked.is_withdrawn
    assert moved(tracked, gone, TEXT) == original
    assert not tracked.is_withdrawn


def test_undo_brings_a_stale_finding_back_as_it_was() -> None:
    original = finding(TEXT, "return value")
    tracked = place(original, SourceText(TEXT))
    edited = TEXT.replace("return value", "return values")
    moved(tracked, TEXT, edited)
    assert moved(tracked, edited, TEXT) == original


def test_an_equal_text_elsewhere_does_not_keep_a_finding_alive() -> None:
    text = "a = 1\nreturn value\n" + "# line\n" * 20 + "return value\n"
    tracked = place(finding(text, "return value"), SourceText(text))
    assert tracked.start == 6
    shown = moved(tracked, text, text.replace("return value\n", "", 1))
    assert shown.status == "stale"


def test_the_nearer_of_equal_texts_is_the_findings_own_when_it_is_placed_again() -> None:
    text = "x = 1\n" * 3 + "# gap\n" * 30 + "x = 1\n"
    late = finding(text, "x = 1")
    late = late.model_copy(update={"span": late.span.model_copy(update={"start_line": 33, "end_line": 33})})
    assert place(late, SourceText(text)).shown(SourceText(text)).span.start_line == 33


def test_a_suggestion_moves_with_its_finding() -> None:
    span = Span(start_line=5, start_character=12, end_line=5, end_character=19)
    suggestion = Suggestion(title="Fix", edits=(TextReplacement(span=span, text="other"),))
    tracked = place(finding(TEXT, "value = compute(first)", suggestion=suggestion), SourceText(TEXT))
    new = "# top\n" + TEXT.replace("    value = compute(first)", "        value = compute(first)")
    shown = moved(tracked, TEXT, new)
    assert shown.suggestion is not None
    assert quoted(new, shown.suggestion.edits[0].span) == "compute"


@pytest.mark.parametrize(
    ("replacement", "text", "status"),
    [
        ("total = 1", "above\ntotal = 1\n", "fixed"),
        ("total  =  1", "above\ntotal = 1\n", "fixed"),
        ("", "above\n\n", "fixed"),
        ("total = 1", "above\ntotal = 12\n", "stale"),
        ("total = 1", "above\n\n", "stale"),
        ("of:amount", "above\ntotal = amount + 1\n", "fixed"),
        ("of:amount", "above\ntotal = other + 1\n", "stale"),
    ],
)
def test_a_finding_whose_suggestion_stands_in_its_place_is_fixed_and_open_again_after_undo(
    replacement: str, text: str, status: str
) -> None:
    before = "above\ntotal = count + 1\n"
    of = "count" if replacement.startswith("of:") else ""
    found = with_suggestion(before, "total = count + 1", replacement.removeprefix("of:"), of=of)
    tracked = place(found, SourceText(before))
    changed = edit_between(before, text)
    back = edit_between(text, before)
    assert changed is not None
    assert back is not None
    follow([tracked], changed, SourceText(text))
    shown = tracked.shown(SourceText(text))
    assert shown.status == status
    assert shown.suggestion is None
    if replacement == "total = 1":
        assert place(found, SourceText(text)).shown(SourceText(text)).status == status
    follow([tracked], back, SourceText(before))
    assert tracked.shown(SourceText(before)) == found


def test_a_file_that_lost_the_quote_has_a_stale_finding_when_it_is_placed() -> None:
    tracked = place(finding(TEXT, "value = compute(first)"), SourceText("nothing\nof\nit\n"))
    assert tracked.is_stale
    assert tracked.is_withdrawn


def test_half_of_a_quote_is_half_of_it() -> None:
    assert share_left("abcdefghij", "abcde") == 0.5
    assert share_left("one\ntwo", "  one\n  two  ") == 1.0
    assert share_left("value = compute(first)", "zzz") < 0.5


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="ab\n😀", max_size=40), st.text(alphabet="ab\n😀", max_size=40))
def test_the_edit_between_two_texts_turns_the_one_into_the_other(old: str, new: str) -> None:
    edit = edit_between(old, new)
    if edit is None:
        assert old == new
        return
    inserted = new[edit.start : edit.new_end]
    assert old[: edit.start] + inserted + old[edit.end :] == new
    assert edit.shift == len(new) - len(old)


def test_no_finding_stands_where_its_quote_is_not_after_many_random_edits() -> None:
    chance = random.Random(7)
    text = "".join(f"line {number} = call_{number % 5}({number})\n" for number in range(60))
    tracked = [
        place(finding(text, f"line {number} = call_{number % 5}({number})", number=number), SourceText(text))
        for number in range(0, 60, 3)
    ]
    for _ in range(400):
        start = chance.randrange(len(text) + 1)
        end = min(len(text), start + chance.choice((0, 0, 1, 5, 40)))
        new = text[:start] + chance.choice(("", "x", "\n", "more\ntext\n", "😀")) + text[end:]
        edit = edit_between(text, new)
        if edit is None:
            continue
        source = SourceText(new)
        follow(tracked, edit, source)
        for one in tracked:
            shown = one.shown(source)
            if shown.status == "open":
                assert quoted(new, shown.span).split() == one.finding.quote.split()
        text = new
