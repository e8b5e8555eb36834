"""Open documents: after any edits the server's text is the client's, in every encoding (REL-17)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outpost_lsp.lsp.documents import Change, Document, Documents, differs_from_disk
from outpost_lsp.protocol.names import ENCODINGS, Encoding
from outpost_lsp.protocol.positions import encoded_units, split_lines, without_line_end

_TEXT = st.text(alphabet="ab\u4e2d\U0001f600\n\r", max_size=25)


def _document(text: str) -> Document:
    return Document("file:///a.py", Path("/a.py"), "python", 1, text)


def _places(text: str) -> list[tuple[int, int]]:
    """Every place that a position can name, as (line, code point)."""
    return [
        (number, column)
        for number, line in enumerate(split_lines(text))
        for column in range(len(without_line_end(line)) + 1)
    ]


def _offset(text: str, place: tuple[int, int]) -> int:
    return sum(map(len, split_lines(text)[: place[0]])) + place[1]


@settings(max_examples=400)
@given(_TEXT, st.sampled_from(ENCODINGS), st.lists(st.tuples(st.integers(0), st.integers(0), _TEXT), max_size=8))
def test_the_text_after_edits_is_the_text_the_client_has(
    text: str, encoding: Encoding, edits: list[tuple[int, int, str]]
) -> None:
    document = _document(text)
    for first, second, new in edits:
        places = _places(text)
        start, end = sorted((places[first % len(places)], places[second % len(places)]))
        lines = split_lines(text)
        asked = Change(
            (start[0], encoded_units(lines[start[0]], start[1], encoding)),
            (end[0], encoded_units(lines[end[0]], end[1], encoding)),
            new,
        )
        document.apply(asked, encoding)
        text = text[: _offset(text, start)] + new + text[_offset(text, end) :]
        assert document.text == text
        assert document.lines == split_lines(text)


def test_a_change_without_a_range_replaces_everything() -> None:
    document = _document("old\n")
    document.apply(Change(None, None, "new\r\ntext"), "utf-16")
    assert document.text == "new\r\ntext"
    assert document.lines == ["new\r\n", "text"]


def test_a_range_past_the_end_is_cut_to_the_text() -> None:
    document = _document("one\ntwo")
    document.apply(Change((0, 99), (99, 99), "!"), "utf-16")
    assert document.text == "one!"


def test_a_range_with_swapped_ends_is_put_in_order() -> None:
    document = _document("abcdef")
    document.apply(Change((0, 4), (0, 1), "-"), "utf-16")
    assert document.text == "a-ef"


def test_documents_are_found_by_uri_and_by_path() -> None:
    documents = Documents()
    first, second = _document("a"), Document("file:///%61.py", Path("/a.py"), "python", 1, "b")
    documents.open(first)
    documents.open(second)
    assert documents.at(Path("/a.py")) is second
    assert documents.close("file:///a.py") is first
    assert documents.at(Path("/a.py")) is second
    assert documents.close("file:///nothing") is None
    assert len(documents) == 1


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"a\r\n", "a\r\n"),
        (b"\xef\xbb\xbfa", "a"),
        (b"caf\xe9", "caf\xe9"),
        ("\ufeffa".encode("utf-16-le"), "a"),
    ],
)
def test_a_document_that_only_decodes_its_file_is_not_unsaved(tmp_path: Path, data: bytes, text: str) -> None:
    file = tmp_path / "a"
    file.write_bytes(data)
    assert not differs_from_disk(file, text)
    assert differs_from_disk(file, text + "x")


def test_a_document_without_a_file_is_unsaved(tmp_path: Path) -> None:
    assert differs_from_disk(tmp_path / "gone", "")


def test_a_large_document_takes_edits_quickly_enough_to_type(benchmark_guard: Any) -> None:
    document = _document("some text of a line\n" * 500_000)
    with benchmark_guard(20.0):
        for number in range(500):
            document.apply(Change((number * 900, 3), (number * 900, 5), "xy\nz"), "utf-16")
    assert len(document.lines) == 500_501
