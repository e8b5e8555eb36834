"""What is masked in a line that is written down, and that a line without a secret is not taken apart."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from outpost_lsp.dispatches.redaction import conversation_mask, journal_mask


def line(text: str) -> bytes:
    record = {"seq": 1, "event": {"kind": "text", "text": text, "detail": {"said": [text]}}}
    return json.dumps(record, ensure_ascii=False).encode()


def masked(pattern: str, text: str) -> Any:
    mask = journal_mask([re.compile(pattern)])
    assert mask is not None
    return json.loads(mask(line(text)))["event"]["text"]


@pytest.mark.parametrize(
    ("pattern", "text", "shown"),
    [
        ("sk-live-12", "say sk-live-12 now", "say [redacted] now"),
        (re.escape("sk-live-12"), "say sk-live-12 now", "say [redacted] now"),
        (re.escape("a.b+c(d)"), "a.b+c(d) axb+c(d)", "[redacted] axb+c(d)"),
        ("a.b", "a.b axb", "[redacted] [redacted]"),
        ("key[0-9]+", "key12 keys", "[redacted] keys"),
        (r"key\d", "key1 keyd", "[redacted] keyd"),
        ("(?i)secret", "a SECRET", "a [redacted]"),
        (re.escape('quo"te'), 'a quo"te', "a [redacted]"),
        (re.escape("back\\slash"), "a back\\slash", "a [redacted]"),
        (re.escape("Schlüssel"), "ein Schlüssel", "ein [redacted]"),
        (re.escape("two\nlines"), "two\nlines", "[redacted]"),
        ("two\nlines", "two\nlines", "[redacted]"),
        ("a|b", "a or b", "[redacted] or [redacted]"),
        ("^start", "start it", "[redacted] it"),
    ],
)
def test_OBS_10_words_and_expressions_are_masked(pattern: str, text: str, shown: str) -> None:
    assert masked(pattern, text) == shown


@pytest.mark.parametrize("pattern", ["sk-live-12", re.escape("sk-live-12"), re.escape("a.b+c(d)"), "a b#c"])
@pytest.mark.parametrize("form", [journal_mask, conversation_mask])
def test_a_line_without_the_word_is_the_same_object(pattern: str, form: Any) -> None:
    whole = line("nothing to hide")
    assert form([re.compile(pattern), re.compile("other-word")])(whole) is whole


def test_one_expression_among_words_still_masks_both() -> None:
    mask = journal_mask([re.compile("word-1"), re.compile("w[0-9]{3}")])
    assert mask is not None
    assert json.loads(mask(line("word-1 w123")))["event"]["detail"] == {"said": ["[redacted] [redacted]"]}


def test_without_patterns_there_is_nothing_to_mask() -> None:
    assert journal_mask([]) is None
