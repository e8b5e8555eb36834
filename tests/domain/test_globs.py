"""Section 10 of the tool rules: the globs of permissions."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpost_lsp.domain.globs import path_glob, text_glob


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("src/**", "src/a.py", True),
        ("src/**", "src/a/b.py", True),
        ("src/**", "src", False),
        ("src/**", "src/", True),
        ("**/.env", ".env", True),
        ("**/.env", "a/b/.env", True),
        ("**/.env", "a/b.env", False),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("a/**/b", "a/xb", False),
        ("*.py", "a.py", True),
        ("*.py", "a/b.py", False),
        ("a*b*c", "abbbc", True),
        ("a*b*c", "abb/c", False),
        ("?.py", "é.py", True),
        ("?.py", "/.py", False),
        ("**", "", True),
        ("**", "a/b", True),
        ("*", "", True),
        ("[ab].py", "a.py", False),
        ("[ab].py", "[ab].py", True),
        ("{a,b}", "a", False),
        ("a.py", "axpy", False),
        ("A.py", "a.py", False),
        ("a.py", "a.py\n", False),
        ("*", "a\nb", True),
        ("**/*.py", "x/y/z.py", True),
        ("**/*.py", "z.py", True),
        ("a**b", "a/x/b", True),
        ("a**/b", "ax/y/b", True),
        ("", "", True),
        ("", "a", False),
    ],
)
def test_path_globs(pattern, path, matches):
    assert (path_glob(pattern).fullmatch(path) is not None) is matches


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("rm *", "rm -rf /a/b", True),
        ("rm *", "cd x && rm y", False),
        ("*rm *", "cd x && rm y\nls", True),
        ("git **", "git log\n-n 1", True),
        ("git", "git log", False),
        ("cat ?", "cat /", False),
        ("cat ?", "cat x", True),
        ("mcp_*", "mcp_docs_search", True),
        ("$(*)", "$(x)", True),
    ],
)
def test_text_globs(pattern, text, matches):
    assert (text_glob(pattern).fullmatch(text) is not None) is matches


def plain_expression(pattern: str, run: str) -> re.Pattern[str]:
    """The rules written down as they read, without a thought for speed."""
    pieces, index = [], 0
    while index < len(pattern):
        if pattern.startswith("**/", index) and (index == 0 or pattern[index - 1] == "/"):
            pieces.append("(?:[^/]*/)*")
            index += 3
        elif pattern.startswith("**", index):
            pieces.append(".*")
            index += 2
        else:
            pieces.append({"*": run, "?": "[^/]"}.get(pattern[index], re.escape(pattern[index])))
            index += 1
    return re.compile("".join(pieces), re.DOTALL)


PATTERNS = st.lists(st.sampled_from(["a", "b", "/", "*", "**", "?", "**/"]), max_size=8).map("".join)
TEXTS = st.text("ab/\n", max_size=10)


@given(PATTERNS, TEXTS)
def test_globs_match_what_the_rules_say(pattern, text):
    assert bool(path_glob(pattern).fullmatch(text)) == bool(plain_expression(pattern, "[^/]*").fullmatch(text))
    assert bool(text_glob(pattern).fullmatch(text)) == bool(plain_expression(pattern, ".*").fullmatch(text))


@pytest.mark.parametrize("pattern", ["*a*a*a*a*a*b", "**a**a**a**a**b", "**/a/**/a/**/a/**/b", "**a*a*a*b"])
def test_a_long_text_costs_no_more_than_its_length(pattern):
    started = time.monotonic()
    assert text_glob(pattern).fullmatch("a" * 20_000) is None
    assert path_glob(pattern).fullmatch("a/" * 2_000) is None
    assert path_glob(pattern).fullmatch("a" * 255) is None
    assert time.monotonic() - started < 30
