"""A reviewer's remark about a place in the code (section 2 of the protocol).

Places are counted in lines and Unicode code points, both from 0; faces convert to what their reader counts in.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Final, Literal

from pydantic import Field

from outpost_lsp.domain.record import NonBlank, Record

Severity = Literal["error", "warning", "information", "hint"]
SEVERITIES: Final[tuple[Severity, ...]] = ("error", "warning", "information", "hint")
"""Worst first."""

FindingStatus = Literal["open", "stale", "dismissed", "fixed"]


class Span(Record):
    """A half-open range: lines from 0, characters in code points from 0."""

    start_line: int
    start_character: int
    end_line: int
    end_character: int


class TextReplacement(Record):
    """Text to put in place of a span of the finding's own file."""

    span: Span
    text: str


class Suggestion(Record):
    """A ready fix of the finding's own file."""

    title: str
    edits: tuple[TextReplacement, ...]


class Dismissal(Record):
    """Somebody said not to show a finding, why, and until when (RFC 3339)."""

    reason: str | None = None
    at: str
    until: str | None = None


class Finding(Record):
    """One remark, anchored by the text it quotes."""

    id: str
    run_id: str
    agent: str
    also_by: tuple[str, ...] = ()
    """Other agents that reported the same; known only where findings are shown."""
    path: str
    """Relative to the repository, POSIX form."""
    span: Span
    severity: Severity
    code: NonBlank
    title: NonBlank
    detail: str = ""
    quote: str
    suggestion: Suggestion | None = None
    in_diff: bool | None = None
    dismissal: Dismissal | None = None
    confidence: Annotated[float, Field(ge=0, le=1)] | None = None
    status: FindingStatus = "open"
    fingerprint: str
    model: str | None = None
    """The service model that was active when it was reported."""
    route: str | None = None
    """The routing label in force then."""


def normalised_quote(quote: str) -> str:
    """The quote with runs of white space as one space, for fingerprints: indentation and line ends do not count."""
    return " ".join(quote.split())


def fingerprint(path: str, code: str, quote: str, ordinal: int) -> str:
    """Stable across runs and line moves: path, code, normalised quote, and its place among equal quotes of the file."""
    text = "\0".join((path, code, normalised_quote(quote), str(ordinal)))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def severity_at_least(severity: Severity, floor: Severity) -> bool:
    """Whether `severity` is as bad as `floor` or worse."""
    return SEVERITIES.index(severity) <= SEVERITIES.index(floor)
