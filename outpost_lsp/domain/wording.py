"""Numbers with their nouns, and waits, for sentences that people read."""

from __future__ import annotations


def count_of(number: int, one: str, many: str | None = None) -> str:
    """`1 file`, `2 files`; `many` where a plain `s` is not the plural."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def ended(text: str) -> str:
    """A text as a sentence: with a full stop, unless it has an end of its own. For words that others chose."""
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def wait_text(seconds: float | None) -> str:
    """` in 0.4 s`, ` in 12 s`, ` at once`, or nothing where no wait is known; ready to stand behind a verb."""
    if seconds is None:
        return ""
    # Most first waits are shorter than a second.
    return " at once" if seconds < 0.05 else f" in {seconds:.1f} s" if seconds < 9.95 else f" in {seconds:.0f} s"
