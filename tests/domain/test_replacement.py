"""A replacement becomes an edit of the quote, with the line ends and the indentation of its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpost_lsp.domain.anchor import Anchor, SourceText, find_quote
from outpost_lsp.domain.replacement import replacement_edit

SOURCE = "def f(x):\n    if x:\n        return 1\n    return 2\n"


def applied(text: str, quote: str, replacement: str, **options) -> str:
    source = SourceText(text)
    anchor = find_quote(source, quote, **options)
    assert isinstance(anchor, Anchor), anchor
    edit = replacement_edit(source, anchor, quote, replacement)
    if edit is None:
        return text
    lines, span = source.line_starts, edit.span
    start, end = lines[span.start_line] + span.start_character, lines[span.end_line] + span.end_character
    return source.text[:start] + edit.text + source.text[end:]


@pytest.mark.parametrize(
    ("quote", "replacement", "expected"),
    [
        ("return 2", "return 3", SOURCE.replace("return 2", "return 3")),
        ("    return 2\n", "    return 3\n", SOURCE.replace("return 2", "return 3")),
        ("x:", "x > 1:", SOURCE.replace("if x:", "if x > 1:")),
        ("return 2", "if y:\n    return 3", "def f(x):\n    if x:\n        return 1\n    if y:\n        return 3\n"),
        (
            "    return 2",
            "    if y:\n        return 3",
            "def f(x):\n    if x:\n        return 1\n    if y:\n        return 3\n",
        ),
        ("if x:\n    return 1", "if y:\n    return 0", SOURCE.replace("if x", "if y").replace("return 1", "return 0")),
        (
            "if x:\n        return 1",
            "if y:\n        return 0",
            SOURCE.replace("if x", "if y").replace("return 1", "return 0"),
        ),
        ("        return 1", "    pass", SOURCE.replace("        return 1", "    pass")),
        ("        return 1\n", "", "def f(x):\n    if x:\n    return 2\n"),
        (
            "x:\n        return 1",
            "y:\n        return 0",
            SOURCE.replace("if x", "if y").replace("return 1", "return 0"),
        ),
        ("return 2", "return 2", SOURCE),
        ("    return 2", "    return 2\n\n", SOURCE),
    ],
)
def test_the_replacement_takes_the_place_of_the_quote(quote, replacement, expected):
    assert applied(SOURCE, quote, replacement) == expected


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_U_41_line_ends_are_those_of_the_place(end):
    text = SOURCE.replace("\n", end)
    expected = "def f(x):\n    if x:\n        a\n        b\n    return 2\n".replace("\n", end)
    assert applied(text, "return 1", "a\nb") == expected
    assert applied(text, "return 1", "a\r\nb") == expected


def test_U_41_in_a_mixed_file_the_nearest_line_end_counts():
    assert applied("a\nb\r\nc\n", "b", "x\ny") == "a\nx\r\ny\r\nc\n"
    assert applied("a\r\nb", "b", "x\ny") == "a\r\nx\r\ny"
    assert applied("b", "b", "x\ny") == "x\ny"


def test_tabs_stay_tabs():
    assert applied("\tif x:\n\t\ty\n", "if x:\n\ty", "if z:\n\ty\n\tw") == "\tif z:\n\t\ty\n\t\tw\n"


def test_deleting_the_last_line_leaves_no_white_space():
    assert applied("a\n    b", "b", " \n") == "a\n"
    assert applied("a b c\n", "b", "") == "a  c\n"


@given(
    st.lists(st.sampled_from(["a", "  b", "    c", "", "\td"]), min_size=1, max_size=6),
    st.integers(0, 5),
    st.integers(0, 5),
    st.sampled_from(["\n", "\r\n"]),
)
def test_putting_the_quote_in_its_own_place_changes_nothing(lines, first, last, end):
    text = end.join(lines) + end
    start = min(first, last)
    quoted = lines[start : max(first, last) + 1]
    if any(line.strip() for line in quoted):
        visible = next(index for index, line in enumerate(quoted) if line.strip())
        quote = "\n".join(quoted)
        assert applied(text, quote, quote, line_hint=start + visible) == text
