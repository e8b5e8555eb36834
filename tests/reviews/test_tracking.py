"""Findings follow their text: checked step by step against what any reader of the text could tell."""

from __future__ import annotations

import time
from itertools import pairwise

from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from outpost_lsp.domain.anchor import Anchor, SourceText, find_quote, quote_places
from outpost_lsp.domain.finding import Finding
from outpost_lsp.reviews.edit import edit_between
from outpost_lsp.reviews.tracking import TrackedFinding, follow, place, place_all

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
QUOTE = "total = price / count"
PIECES = st.sampled_from(["a", " ", "\n", "\r\n", "total", " = ", "price", QUOTE, "count\n", "é", "😀", "    "])
SNIPPETS = st.lists(PIECES, max_size=4).map("".join)
WANTED = "".join(QUOTE.split())
EDITS = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), SNIPPETS), max_size=8)


def finding(text: str, quote: str = QUOTE, **options) -> Finding:
    anchor = find_quote(text, quote, **options)
    assert isinstance(anchor, Anchor)
    return Finding(
        id="1",
        run_id="r",
        agent="a",
        path="p",
        span=anchor.span,
        severity="error",
        code="c",
        title="t",
        quote=anchor.text,
        fingerprint="f",
    )


def edited(text: str, edit: tuple[float, float, str]) -> str:
    first, second, new = edit
    start, end = sorted((round(first * len(text)), round(second * len(text))))
    end = min(end, start + 30)
    return text[:start] + new + text[end:]


def step(tracked: TrackedFinding, old: str, new: str) -> None:
    edit = edit_between(old, new)
    if edit is not None:
        assert old[: edit.start] == new[: edit.start]
        assert old[edit.end :] == new[edit.new_end :]
        follow([tracked], edit, SourceText(new))


@UNHURRIED
@given(SNIPPETS, SNIPPETS, EDITS)
def test_REL_18_a_finding_is_never_shown_whole_where_its_quote_is_not(before, after, edits):
    text = f"{before}\n{QUOTE}\n{after}"
    tracked = place(finding(text, line_hint=SourceText(before).line_of(len(before)) + 1), SourceText(text))
    for edit in edits:
        new = edited(text, edit)
        step(tracked, text, new)
        text = new
        assert 0 <= tracked.start <= tracked.end <= len(text)
        if not tracked.is_stale:
            assert text[tracked.start : tracked.end] == QUOTE
        if not quote_places(text, QUOTE):
            assert tracked.is_stale
        shown = tracked.shown(SourceText(text))
        assert shown.status == ("stale" if tracked.is_stale else "open")


@UNHURRIED
# The stretch that goes and what is left behind it begin with equal letters, and only what is left is the quote's.
@example("price", "", [(0.0, 0.5, "")])
@given(SNIPPETS, SNIPPETS, EDITS)
def test_U_01_random_edits_leave_what_a_model_of_the_quotes_characters_says(before, after, edits):
    """The model: each character of the text knows which of the quote's it is, and edits move and remove them."""
    letters: list[tuple[str, int | None]] = [(letter, None) for letter in f"{before}\n"]
    letters += [(letter, number) for number, letter in enumerate(QUOTE)]
    letters += [(letter, None) for letter in f"\n{after}"]
    text = "".join(letter for letter, _ in letters)
    assume(text.count(QUOTE) == 1)
    tracked = place(finding(text), SourceText(text))
    steps = [letters]
    for first, second, new in edits:
        start, end = sorted((round(first * len(letters)), round(second * len(letters))))
        end = min(end, start + 30)
        letters = letters[:start] + [(letter, None) for letter in new] + letters[end:]
        steps.append(letters)
    was_replaced = False
    # Forwards, and back again by undoing each.
    for old, new in pairwise([*steps, *reversed(steps[:-1])]):
        old_text, text = ("".join(letter for letter, _ in one) for one in (old, new))
        step(tracked, old_text, text)
        own = [index for index, (_, number) in enumerate(new) if number is not None]
        if QUOTE in text:
            # An equal text may take the place of one that was taken apart; where the own one is alone it is that.
            is_own_place = len(own) == len(QUOTE) and own[-1] - own[0] == len(QUOTE) - 1 and text.count(QUOTE) == 1
            was_replaced = was_replaced or not is_own_place
            if is_own_place:
                assert (tracked.start, tracked.is_stale) == (own[0], False)
                was_replaced = False
            continue
        assert tracked.is_stale
        foreign = "".join("|" if number is not None else letter for letter, number in new if not letter.isspace())
        if any(WANTED[at : at + 2] in foreign for at in range(len(WANTED) - 1)):
            # Other text looks like parts of the quote; what is left of it cannot be told apart from that.
            continue
        left = sum(length for length in runs_of(new) if length > 2) / len(WANTED)
        # Which of two equal letters was removed no text tells, so that one or two may count otherwise.
        if left < 0.5 - 4 / len(WANTED):
            assert tracked.is_withdrawn
        if left >= 0.5 + 2 / len(WANTED):
            assert not tracked.is_withdrawn or was_replaced


def runs_of(letters: list[tuple[str, int | None]]) -> list[int]:
    """The lengths of the stretches of the quote that are still together, white space aside."""
    lengths, last = [], None
    for letter, number in letters:
        if letter.isspace():
            continue
        if (
            number is not None
            and last is not None
            and len("".join(QUOTE[last + 1 : number].split())) == 0
            and number > last
        ):
            lengths[-1] += 1
        elif number is not None:
            lengths.append(1)
        last = number
    return lengths


@UNHURRIED
@given(SNIPPETS, SNIPPETS, st.floats(0, 1), st.floats(0, 1), SNIPPETS)
def test_U_01_an_edit_beside_the_quote_moves_the_finding_with_it(before, after, first, second, new):
    head, tail = f"{before}\n", f"\n{after}"
    text = head + QUOTE + tail
    tracked = place(finding(text, line_hint=SourceText(head).line_of(len(head))), SourceText(text))
    assert (tracked.start, tracked.end) == (len(head), len(head) + len(QUOTE))
    start, end = sorted((round(first * len(before)), round(second * len(before))))
    moved = before[:start] + new + before[end:] + "\n" + QUOTE + tail
    assume(moved.count(QUOTE) == text.count(QUOTE) == 1)
    step(tracked, text, moved)
    assert not tracked.is_stale
    assert moved[tracked.start : tracked.end] == QUOTE
    assert tracked.start == len(moved) - len(tail) - len(QUOTE)
    below = moved + new
    assume(below.count(QUOTE) == 1)
    step(tracked, moved, below)
    assert (tracked.start, tracked.is_stale) == (len(moved) - len(tail) - len(QUOTE), False)


@UNHURRIED
@given(SNIPPETS, SNIPPETS, EDITS)
def test_undoing_everything_brings_the_finding_back_as_it_was(before, after, edits):
    text = f"{before}\n{QUOTE}\n{after}"
    assume(text.count(QUOTE) == 1)
    original = finding(text)
    tracked = place(original, SourceText(text))
    texts = [text]
    for edit in edits:
        texts.append(edited(texts[-1], edit))
        step(tracked, texts[-2], texts[-1])
    for old, new in zip(reversed(texts), reversed(texts[:-1]), strict=False):
        step(tracked, old, new)
    assert tracked.shown(SourceText(text)) == original
    assert not tracked.is_stale


@UNHURRIED
@given(st.integers(0, len(QUOTE)), st.integers(0, len(QUOTE)))
def test_at_least_half_of_the_quote_has_to_be_left(first, second):
    start, end = sorted((first, second))
    text = f"above\n{QUOTE}\nbelow\n"
    tracked = place(finding(text), SourceText(text))
    remaining = QUOTE[:start] + QUOTE[end:]
    step(tracked, text, f"above\n{remaining}\nbelow\n")
    visible = len("".join(QUOTE.split()))
    gone = len("".join(QUOTE[start:end].split()))
    if gone == 0:
        return
    share = (visible - gone) / visible
    assert tracked.is_stale
    if share < 0.5:
        assert tracked.is_withdrawn
    if share > 0.5 + 4 / visible:
        assert not tracked.is_withdrawn


@UNHURRIED
@given(SNIPPETS, SNIPPETS)
def test_after_a_restart_a_finding_is_placed_by_its_quote(before, after):
    original = finding(f"x\n{QUOTE}\n")
    text = f"{before}\n{QUOTE}\n{after}"
    assume(text.count(QUOTE) == 1)
    tracked = place(original, SourceText(text))
    assert (tracked.start, tracked.is_stale) == (len(before) + 1, False)
    gone = place(original, SourceText(f"{before}\n{after}".replace(QUOTE, "")))
    assert gone.is_stale


def test_REL_14_a_keystroke_among_a_thousand_findings_is_quick():
    text = "".join(f"value_{number} = price / count_{number}\n" for number in range(1_000))
    source = SourceText(text)
    tracked = [place(finding(text, f"value_{number} = price / count_{number}"), source) for number in range(1_000)]
    times = []
    for number in range(50):
        at = (number * 997) % len(text)
        new = text[:at] + "x" + text[at:]
        started = time.perf_counter()
        edit = edit_between(text, new)
        assert edit is not None
        follow(tracked, edit, SourceText(new))
        times.append(time.perf_counter() - started)
        text = new
    assert sorted(times)[47] < 0.5


def twins(text: str) -> list[Finding]:
    """What one agent said of each of the equal texts."""
    return [
        finding(text, line_hint=anchor.span.start_line).model_copy(
            update={"id": str(number), "fingerprint": str(number)}
        )
        for number, anchor in enumerate(quote_places(text, QUOTE))
    ]


def test_U_01_of_two_equal_texts_the_one_that_is_cut_and_pasted_takes_its_own_finding_along():
    def block(name: str) -> str:
        return f"def {name}:\n    {QUOTE}\n    return total\n\n\n"

    both, second, pasted = block("f") + block("g"), block("g"), block("g") + block("f")
    tracked = place_all(twins(both), SourceText(both))
    for old, new, lines in (
        (both, second, [1]),
        (second, pasted, [1, 6]),
        (pasted, second, [1]),
        (second, both, [1, 6]),
    ):
        edit = edit_between(old, new)
        assert edit is not None
        follow(tracked, edit, SourceText(new))
        shown = sorted(SourceText(new).line_of(one.start) for one in tracked if not one.is_withdrawn)
        assert shown == lines


@UNHURRIED
@given(st.lists(SNIPPETS, min_size=3, max_size=5))
def test_U_01_equal_texts_that_all_go_and_come_back_have_a_finding_each_again(between):
    text = f"\n{QUOTE}\n".join(between)
    assume(text.count(QUOTE) == len(between) - 1)
    tracked = place_all(twins(text), SourceText(text))
    before = [(one.finding.id, one.start) for one in tracked]
    for old, new in ((text, ""), ("", text)):
        edit = edit_between(old, new)
        assert edit is not None
        follow(tracked, edit, SourceText(new))
    assert [(one.finding.id, one.start) for one in tracked] == before


@UNHURRIED
@given(st.lists(SNIPPETS, min_size=3, max_size=5), SNIPPETS, SNIPPETS)
def test_U_01_a_finding_about_one_of_several_equal_texts_stays_with_it_whatever_an_edit_sweeps_over(
    between, above, below
):
    text = f"\n{QUOTE}\n".join(between)
    grown = f"# {above}\n{text}\n# {below}"
    assume(text.count(QUOTE) == grown.count(QUOTE) == len(between) - 1)
    for number, said in enumerate(twins(text)):
        tracked = place(said, SourceText(text))
        for old, new in pairwise((text, "", text, grown, text)):
            step(tracked, old, new)
            if new:
                assert tracked.left == 1
                assert tracked.start == quote_places(SourceText(new), QUOTE)[number].start


def test_U_01_a_pasted_text_has_its_finding_again_though_an_equal_one_is_nearer():
    first, second, rest = f"def f:\n    {QUOTE}\n", f"def g:\n    {QUOTE}\n", "# rest\n"
    text = first + rest + second
    tracked = place(twins(text)[1], SourceText(text))
    for old, new in pairwise((text, first + rest, second + "# moved\n" + first + rest)):
        step(tracked, old, new)
    assert (tracked.left, SourceText(second).line_of(tracked.start)) == (1, 1)


@UNHURRIED
@given(st.lists(SNIPPETS, min_size=3, max_size=5), SNIPPETS)
def test_U_01_equal_texts_have_a_finding_each_and_keep_their_order_in_a_text_of_another_branch(between, more):
    text = f"\n{QUOTE}\n".join(between)
    moved = f"{more}\n" * 9 + text
    assume(text.count(QUOTE) == moved.count(QUOTE) == len(between) - 1)
    for here, there in ((text, moved), (moved, text)):
        placed = place_all(twins(here), SourceText(there))
        starts = [anchor.start for anchor in quote_places(there, QUOTE)]
        assert [(one.finding.id, one.start) for one in placed] == [(str(at), start) for at, start in enumerate(starts)]
        fewer = place_all(twins(here)[:-1], SourceText(there))
        assert len({one.start for one in fewer}) == len(fewer)
    once = place_all(twins(text), SourceText(f"\n{QUOTE}\n"))
    assert sum(not one.is_stale for one in once) == 1
