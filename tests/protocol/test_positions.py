"""Positions in three encodings, against a slow model that counts character by character (U-39, REL-17)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpost_lsp.domain.finding import Span
from outpost_lsp.protocol.names import ENCODINGS, Encoding
from outpost_lsp.protocol.positions import (
    code_points,
    encoded_units,
    place,
    position_json,
    range_json,
    span_of,
    split_lines,
)

_ALPHABET = "ab é\u4e2d\U0001f600\U00010000\u0301"
_LINES = st.text(alphabet=_ALPHABET, max_size=12)
_TEXTS = st.text(alphabet="ab\u4e2d\U0001f600\n\r\u2028\x0b\x85", max_size=30)


def _width(character: str, encoding: Encoding) -> int:
    if encoding == "utf-32":
        return 1
    return len(character.encode(encoding if encoding == "utf-8" else "utf-16-le")) // (1 if encoding == "utf-8" else 2)


@given(_LINES, st.sampled_from(ENCODINGS), st.integers(0, 60))
def test_an_offset_means_as_many_code_points_as_counting_says(line: str, encoding: Encoding, units: int) -> None:
    expected, seen = 0, 0
    for character in line:
        seen += _width(character, encoding)
        if seen > units:
            break
        expected += 1
    assert code_points(line, units, encoding) == expected


@given(_LINES, st.sampled_from(ENCODINGS))
def test_every_code_point_comes_back_from_its_offset(line: str, encoding: Encoding) -> None:
    for index in range(len(line) + 1):
        assert code_points(line, encoded_units(line, index, encoding), encoding) == index


@given(_TEXTS)
def test_lines_end_with_lf_crlf_and_cr_and_nothing_else(text: str) -> None:
    lines = split_lines(text)
    assert "".join(lines) == text
    assert not lines[-1].endswith(("\n", "\r"))
    for line in lines[:-1]:
        assert line.endswith(("\n", "\r"))
        content = line[:-2] if line.endswith("\r\n") else line[:-1]
        assert "\n" not in content
        assert "\r" not in content


@pytest.mark.parametrize(("encoding", "units"), [("utf-8", 10), ("utf-16", 6), ("utf-32", 5)])
def test_a_place_after_an_emoji_and_cjk_is_the_same_character_in_each_encoding(encoding: Encoding, units: int) -> None:
    line = "\U0001f600\u4e2d = x\r\n"
    assert line[code_points(line, units, encoding)] == "x"
    assert encoded_units(line, 5, encoding) == units


def test_positions_past_the_end_are_cut_to_the_text() -> None:
    lines = split_lines("one\r\ntwo")
    assert place(lines, 0, 99, "utf-16") == (0, 3)
    assert place(lines, 7, 3, "utf-16") == (1, 3)
    assert place(lines, -1, -1, "utf-16") == (0, 0)


def test_a_range_with_swapped_ends_is_put_in_order() -> None:
    lines = split_lines("one\ntwo\n")
    expected = Span(start_line=0, start_character=1, end_line=1, end_character=2)
    assert span_of(lines, (1, 2), (0, 1), "utf-16") == expected


def test_a_span_becomes_a_range_in_the_encoding() -> None:
    lines = split_lines("\U0001f600a\nb")
    span = Span(start_line=0, start_character=1, end_line=1, end_character=1)
    assert range_json(lines, span, "utf-16") == {
        "start": {"line": 0, "character": 2},
        "end": {"line": 1, "character": 1},
    }


def test_a_place_in_a_text_that_is_gone_is_passed_on_as_counted() -> None:
    assert position_json([], 4, 2, "utf-16") == {"line": 4, "character": 2}


def test_a_lone_surrogate_counts_as_one_unit_in_utf_16() -> None:
    assert encoded_units("\ud800x", 1, "utf-16") == 1
    assert code_points("\ud800x", 1, "utf-16") == 1
