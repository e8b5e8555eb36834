"""Quotes find their place, or the fault that says why they have none."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpost_lsp.domain.anchor import Anchor, AnchorFault, SourceText, find_quote, quote_places, touches

PYTHON = """\
def first(value):
    if value:
        return None
    return value


def second(value):
    if value:
        return None
    return [value]
"""


def place(text: str, quote: str, **options) -> tuple[int, int, int, int]:
    found = find_quote(text, quote, **options)
    assert isinstance(found, Anchor), found
    span = found.span
    return span.start_line, span.start_character, span.end_line, span.end_character


def fault(text: str, quote: str, **options) -> AnchorFault:
    found = find_quote(text, quote, **options)
    assert isinstance(found, AnchorFault), found
    return found


def test_a_whole_line_is_found_without_its_indentation():
    assert place(PYTHON, "    return [value]\n") == (9, 4, 9, 18)


def test_part_of_a_line_is_found():
    assert place(PYTHON, "second(value)") == (6, 4, 6, 17)


def test_U_04_a_wrong_line_number_does_not_matter_when_the_quote_is_there_once():
    assert place(PYTHON, "return [value]", line_hint=0)[0] == 9
    assert place(PYTHON, "return [value]", line_hint=4000)[0] == 9


def test_the_line_decides_between_equal_places():
    assert place(PYTHON, "return None", line_hint=3)[0] == 2
    assert place(PYTHON, "return None", line_hint=7)[0] == 8


def test_changed_lines_decide_before_the_line_does():
    assert place(PYTHON, "return None", line_hint=2, prefer=[(7, 10)])[0] == 8
    assert place(PYTHON, "return None", line_hint=2, prefer=[(0, 10)])[0] == 2
    assert place(PYTHON, "return None", line_hint=2, prefer=[(4, 5)])[0] == 2


def test_without_anything_to_decide_by_the_quote_is_ambiguous():
    found = fault(PYTHON, "return None")
    assert found.reason == "ambiguous"
    assert found.lines == (2, 8)
    assert "lines 3, 9" in found.message


def test_two_places_equally_far_away_are_ambiguous():
    assert fault(PYTHON, "return None", line_hint=5).reason == "ambiguous"


def test_a_whole_line_wins_over_part_of_another_when_nothing_else_decides():
    assert place("x = 1  # one\nx = 1\n", "x = 1") == (1, 0, 1, 5)
    assert place("x = 1  # one\nx = 1\n", "x = 1", line_hint=0)[0] == 0


def test_a_place_that_cuts_no_word_wins_over_one_that_does():
    assert place("maximum = value\nmax = 1\n", "max", line_hint=0)[0] == 1
    assert place("maximum = 3\n", "max") == (0, 0, 0, 3)


def test_several_places_on_one_line_are_no_guess_about_the_line():
    assert place("a = a + a\n", "a") == (0, 0, 0, 1)


@pytest.mark.parametrize("quote", ["", "  \n\t\n", "\r\n"])
def test_a_blank_quote_says_so(quote):
    assert fault(PYTHON, quote).reason == "blank"


def test_an_absent_quote_says_which_line_is_missing():
    assert "line 2 stands nowhere" in fault(PYTHON, "def first(value):\n    if values:").message
    assert "one below the other" in fault(PYTHON, "def first(value):\n    return value").message
    assert fault(PYTHON, "return [values]").reason == "absent"


def test_a_common_indentation_does_not_count():
    assert place(PYTHON, "if value:\n    return None\nreturn [value]") == (7, 4, 9, 18)
    assert place(PYTHON, "            if value:\n                return None\n            return [value]") == (
        7,
        4,
        9,
        18,
    )


def test_a_relative_indentation_counts():
    assert fault(PYTHON, "if value:\nreturn None\nreturn [value]").reason == "absent"


def test_a_quote_whose_first_line_lost_its_indentation_is_found():
    assert place(PYTHON, "if value:\n        return None\n    return [value]") == (7, 4, 9, 18)


def test_tabs_against_spaces_is_a_common_indentation():
    assert place("\tif x:\n\t\treturn\n", "    if x:\n    \treturn") == (0, 1, 1, 8)


def test_a_quote_may_begin_and_end_in_the_middle_of_a_line():
    text = "    call(one,\n        two).then(three)\n"
    assert place(text, "(one,\n    two)") == (0, 8, 1, 12)


def test_trailing_white_space_and_blank_lines_do_not_count():
    assert place("one  \n\t\ntwo\t\nthree\n", "\n\none\n\ntwo   \n\n") == (0, 0, 2, 3)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("quote_end", ["\n", "\r\n", "\r"])
def test_line_ends_do_not_count_and_the_text_keeps_its_own(end, quote_end):
    found = find_quote(end.join(["zero", "one", "two", "three"]), quote_end.join(["one", "two"]))
    assert isinstance(found, Anchor)
    assert (found.span.start_line, found.span.end_line, found.span.end_character) == (1, 2, 3)
    assert found.text == f"one{end}two"


def test_a_byte_order_mark_is_no_part_of_the_text():
    assert place("\ufeffimport os\n", "import os") == (0, 0, 0, 9)


def test_the_last_line_needs_no_line_end():
    assert place("a\nlast", "last") == (1, 0, 1, 4)


def test_separators_inside_a_line_do_not_end_it():
    text = "a = '\u2028\x0c\x85\x1c'\nb = 2\n"
    assert place(text, "b = 2")[0] == 1
    assert place(text, "'\u2028\x0c\x85\x1c'") == (0, 4, 0, 10)


def test_U_39_characters_are_counted_in_code_points():
    assert place("x = '😀漢字' + broken\n", "broken") == (0, 12, 0, 18)


def test_places_overlap_by_lines():
    assert [anchor.span.start_line for anchor in quote_places("}\n}\n}\n", "}\n}")] == [0, 1]
    assert place("}\n}\n}\n", "}\n}", line_hint=1)[0] == 1


def test_the_ordinal_is_the_place_among_equal_quotes():
    found = find_quote(PYTHON, "return None", line_hint=8)
    assert isinstance(found, Anchor)
    assert (found.ordinal, found.count) == (1, 2)


def test_the_ordinal_does_not_depend_on_how_the_quote_was_indented():
    text = "if a:\n    f()\n    g()\nif b:\n    f()\n    g()\n"
    for quote in ("f()\ng()", "    f()\n    g()", "f()\n    g()\n"):
        found = find_quote(text, quote, line_hint=4)
        assert isinstance(found, Anchor)
        assert (found.ordinal, found.count) == (1, 2)


def test_a_line_counted_by_line_feeds_is_translated_where_returns_stand_alone():
    source = SourceText("a\rb\nc\r\nd\re\nf")
    assert [source.line_after_line_feeds(line) for line in range(4)] == [0, 2, 3, 5]


def test_an_empty_range_touches_both_lines_it_stands_between():
    assert touches([(5, 5)], 4, 4)
    assert touches([(5, 5)], 5, 5)
    assert not touches([(5, 5)], 3, 3)
    assert not touches([(5, 5)], 6, 6)
    assert touches([(5, 7)], 6, 9)
    assert not touches([(5, 7)], 7, 9)


def test_REL_16_a_line_of_five_megabytes_is_searched_in_linear_time():
    line = "a" * 5_000_000
    started = time.monotonic()
    assert place(f"{line} needle {line}", "needle") == (0, 5_000_001, 0, 5_000_007)
    assert fault(f"{line}\n{line}", "b" * 1000).reason == "absent"
    assert time.monotonic() - started < 20


def test_a_quote_that_stands_everywhere_ends_in_a_fault_and_not_in_a_long_wait():
    started = time.monotonic()
    assert fault("x\n" * 1_000_000, "x\n" * 500, line_hint=3).reason == "ambiguous"
    assert place("}\n" * 100_000, "}", line_hint=70_000)[0] == 70_000
    assert time.monotonic() - started < 30


CHARACTERS = st.sampled_from(["a", "b", " ", "\t", "\n", "\r\n", "\r", "é", "😀", "\u2028", "(", "_"])
TEXTS = st.lists(CHARACTERS, max_size=60).map("".join)


@given(TEXTS, st.integers(0, 60), st.integers(0, 60))
def test_any_piece_of_a_text_is_found_where_it_was_taken_from(text, left, right):
    start, end = sorted((min(left, len(text)), min(right, len(text))))
    piece = text[start:end]
    places = quote_places(text, piece)
    if not piece.strip():
        assert places == ()
        return
    stripped_start = start + len(piece) - len(piece.lstrip())
    found = {(anchor.start, anchor.end) for anchor in places}
    for anchor in places:
        assert text[anchor.start : anchor.end] == anchor.text
        assert anchor.text.split() == piece.split()
    # A piece that cuts a word gives way to places that do not, and one that overlaps itself to the place before.
    exact = (stripped_start, stripped_start + len(piece.strip()))
    if exact not in found and not any(start < exact[1] and exact[0] < end for start, end in found):
        word = (text[exact[0] - 1 : exact[0]], text[exact[1] : exact[1] + 1])
        assert any(side.isalnum() or side == "_" for side in word)
        assert places


@given(TEXTS, TEXTS)
def test_what_is_found_reads_like_the_quote(text, quote):
    found = find_quote(text, quote, line_hint=0)
    if isinstance(found, Anchor):
        assert found.text.split() == quote.split()
        assert found.text == found.text.strip()
