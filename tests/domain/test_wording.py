"""Numbers and waits in sentences."""

from __future__ import annotations

import pytest

from outpost_lsp.domain.wording import count_of, ended, wait_text


@pytest.mark.parametrize(
    ("number", "words", "told"),
    [
        (0, ("file",), "0 files"),
        (1, ("file",), "1 file"),
        (1200, ("file",), "1,200 files"),
        (1, ("run has", "runs have"), "1 run has"),
        (2, ("run has", "runs have"), "2 runs have"),
    ],
)
def test_a_number_agrees_with_its_noun(number: int, words: tuple[str, ...], told: str) -> None:
    assert count_of(number, *words) == told


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(None, ""), (0.0, " at once"), (0.3, " in 0.3 s"), (2.0, " in 2.0 s"), (9.97, " in 10 s"), (61.4, " in 61 s")],
)
def test_a_short_wait_is_not_told_as_none(seconds: float | None, told: str) -> None:
    assert wait_text(seconds) == told


@pytest.mark.parametrize(
    ("text", "told"),
    [("it left", "it left."), ("it left.", "it left."), ("why?", "why?"), ("it broke!", "it broke!"), ("so…", "so…")],
)
def test_a_sentence_that_others_end_has_one_end(text: str, told: str) -> None:
    assert ended(text) == told
