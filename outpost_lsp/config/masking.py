"""Keys by value: the patterns that find one in a text, plain or encoded, so that no text that leaves holds it (SEC-16)."""

from __future__ import annotations

import base64
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final
from urllib.parse import quote

SHORTEST_KEY: Final = 8
"""Shorter values are ordinary words too often to be masked."""

MASK: Final = "[redacted]"


def mask_patterns(values: Iterable[str]) -> tuple[re.Pattern[str], ...]:
    """Patterns for each value: as it is, percent-encoded, and in base64 wherever it may stand in a longer text."""
    spellings = {
        spelling
        for value in values
        if len(value) >= SHORTEST_KEY
        for spelling in _spellings(value)
        if len(spelling) >= 8
    }
    # Longer ones first, so that no spelling leaves the rest of a longer one behind.
    return tuple(re.compile(re.escape(spelling)) for spelling in sorted(spellings, key=lambda text: (-len(text), text)))


def masked(text: str, patterns: Sequence[re.Pattern[str]]) -> str:
    """The text with every key replaced."""
    for pattern in patterns:
        text = pattern.sub(MASK, text)
    return text


class KeyFilter(logging.Filter):
    """A log filter for handlers: masks the keys that `patterns` gives at each record, in messages and tracebacks."""

    def __init__(self, patterns: Callable[[], Sequence[re.Pattern[str]]]) -> None:
        super().__init__()
        self._patterns = patterns

    def filter(self, record: logging.LogRecord) -> bool:
        patterns = self._patterns()
        if patterns:
            message = masked(record.getMessage(), patterns)
            if record.exc_info and not record.exc_text:
                record.exc_text = logging.Formatter().formatException(record.exc_info)
            if record.exc_text:
                record.exc_text = masked(record.exc_text, patterns)
            record.msg, record.args = message, None
        return True


def _spellings(value: str) -> Iterator[str]:
    yield value
    encoded = quote(value, safe="")
    yield encoded
    yield re.sub(r"%[0-9A-F]{2}", lambda found: found[0].lower(), encoded)
    data = value.encode("utf-8", "surrogatepass")
    for shift in range(3):
        # What comes before and after decides over the first and last characters; those between are always the same.
        padded = base64.b64encode(b"\0" * shift + data).decode("ascii").rstrip("=")
        first = {0: 0, 1: 2, 2: 3}[shift]
        last = len(padded) if (shift + len(data)) % 3 == 0 else len(padded) - 1
        yield padded[first:last]
        yield padded[first:last].translate(str.maketrans("+/", "-_"))
