"""Details of a fault as an editor gets them: a program's output is kept whole in our records and shortened here (FAULT-08)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

LONGEST: Final = 2_000
_BEGINNING: Final = 500


def short_details(details: Mapping[str, Any]) -> dict[str, Any]:
    """The same details, each text of at most 2,000 characters: its beginning, and its end, where programs say why."""
    return {name: _shortened(value) if isinstance(value, str) else value for name, value in details.items()}


def _shortened(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    mark = f"\n[... {len(text)} characters in all ...]\n"
    return text[:_BEGINNING] + mark + text[_BEGINNING + len(mark) - LONGEST :]
