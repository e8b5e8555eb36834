"""Findings as workflow commands, which GitHub shows beside the changed lines.

Every value is escaped as the runner expects, so that no text of a finding can end its command or begin another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from outpost_lsp.domain.finding import Finding, Severity
from outpost_lsp.domain.markdown import plain

_COMMAND: Final[dict[Severity, str]] = {
    "error": "error",
    "warning": "warning",
    "information": "notice",
    "hint": "notice",
}


def github_lines(findings: Iterable[Finding]) -> Iterator[str]:
    """One command per finding. Lines and columns count from 1; a column is given only within one line."""
    for finding in findings:
        span = finding.span
        properties = {
            "file": finding.path,
            "line": str(span.start_line + 1),
            "endLine": str(span.end_line + 1),
            "title": f"{finding.title} ({finding.code})",
        }
        if span.start_line == span.end_line:
            properties["col"] = str(span.start_character + 1)
            properties["endColumn"] = str(max(span.end_character, span.start_character + 1))
        listed = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
        yield f"::{_COMMAND[finding.severity]} {listed}::{_message(plain(finding.detail) or finding.title)}"


def _message(text: str) -> str:
    # A lone carriage return starts a new line for some readers, so it is escaped like the line feed.
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
