"""Edits of a document turn one text into the other, in every position encoding, and name nothing that stays."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outpost_lsp.lsp.applying import text_edits

_ENDS = ("\n", "\n", "\r\n", "\r")
_LINES = st.tuples(st.text("ab\u00e9\U0001f600\u2028 ", max_size=4), st.sampled_from(_ENDS)).map("".join)
_TEXTS = st.tuples(st.lists(_LINES, max_size=10), st.sampled_from(["", "end", "\U0001f600"])).map(
    lambda drawn: "".join(drawn[0]) + drawn[1]
)


@pytest.mark.parametrize(
    ("encoding", "codec", "width"), [("utf-8", "utf-8", 1), ("utf-16", "utf-16-le", 2), ("utf-32", "utf-32-le", 4)]
)
@settings(max_examples=150, deadline=None)
@given(before=_TEXTS, after=_TEXTS)
def test_the_edits_make_the_new_text(encoding: str, codec: str, width: int, before: str, after: str) -> None:
    edits = text_edits(before, after, cast("Any", SimpleNamespace(encoding=encoding)))
    assert edited(before, edits, codec, width) == after
    if before == after:
        assert edits == []


def edited(text: str, edits: list[dict[str, Any]], codec: str, width: int) -> str:
    """The text as a client changes it: positions are of the text before, and edits do not overlap."""
    pieces, position = [], 0
    for edit in edits:
        start, end = (offset(text, edit["range"][side], codec, width) for side in ("start", "end"))
        assert position <= start <= end
        pieces += [text[position:start], edit["newText"]]
        position = end
    return "".join([*pieces, text[position:]])


def offset(text: str, place: dict[str, int], codec: str, width: int) -> int:
    """Lines end in a line feed, a carriage return, or both; nothing else ends one."""
    start = 0
    for _ in range(place["line"]):
        while text[start] not in "\r\n":
            start += 1
        start += 2 if text[start : start + 2] == "\r\n" else 1
    within = text[start:].encode(codec)[: place["character"] * width]
    return start + len(within.decode(codec))
