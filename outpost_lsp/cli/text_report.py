"""Findings for people: where, how bad, what, the source with a mark under it, and why.

The source is shown as it was reviewed. A long line is cut around its mark, and a long quote after a few lines, so that
one finding stays readable at a glance. Text of a model or a file is shown with what a terminal would act on, or a
reader would not see, spelled out (SEC-19).
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Final
from unicodedata import combining, east_asian_width

from outpost_lsp.cli.terminal import BLUE, BOLD, DIM, GREEN, RED, YELLOW, Paint
from outpost_lsp.domain.finding import SEVERITIES, Finding, Severity
from outpost_lsp.domain.markdown import plain, visible

_COLOURS: Final[dict[Severity, tuple[str, ...]]] = {
    "error": (RED, BOLD),
    "warning": (YELLOW, BOLD),
    "information": (BLUE, BOLD),
    "hint": (DIM,),
}
_SHOWN_LINES: Final = 6
_TAB: Final = 4

SourceLines = Callable[[str], Sequence[str]]
"""The lines of a reviewed file, without their ends; empty when it cannot be read."""


def text_report(findings: Sequence[Finding], source: SourceLines, *, width: int, paint: Paint) -> Iterator[str]:
    """The report, line by line, worst finding of each file first in the order of the text."""
    for path, group in groupby(findings, key=lambda finding: finding.path):
        lines = source(path)
        for finding in group:
            yield from _finding(finding, lines, width, paint)
            yield ""


def summary_line(findings: Sequence[Finding], paint: Paint) -> str:
    """How many of what: the last line of a report."""
    if not findings:
        return paint("No findings.", GREEN, BOLD)
    counts = [(severity, sum(finding.severity == severity for finding in findings)) for severity in SEVERITIES]
    parts = ", ".join(
        paint(f"{count} {_plural(severity, count)}", *_COLOURS[severity]) for severity, count in counts if count
    )
    return f"{len(findings)} {'finding' if len(findings) == 1 else 'findings'}: {parts}"


def _finding(finding: Finding, lines: Sequence[str], width: int, paint: Paint) -> Iterator[str]:
    span = finding.span
    # A name with a line break must not pass for the beginning of another finding.
    path = visible(finding.path).replace("\n", "\\u{000A}")
    place = paint(f"{path}:{span.start_line + 1}:{span.start_character + 1}", BOLD)
    yield f"{place}: {paint(finding.severity, *_COLOURS[finding.severity])}: {visible(finding.title)}"
    yield from _excerpt(finding, lines, width, paint)
    for paragraph in plain(finding.detail).strip().split("\n"):
        yield from textwrap.wrap(
            paragraph,
            max(width, 24),
            initial_indent="    ",
            subsequent_indent="    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    yield "    " + paint(_facts(finding), DIM)


def _excerpt(finding: Finding, lines: Sequence[str], width: int, paint: Paint) -> Iterator[str]:
    span = finding.span
    shown = list(lines[span.start_line : span.end_line + 1])
    quoted = finding.quote.splitlines() or [""]
    if not shown or quoted[0].strip() not in shown[0]:
        # The file has changed since, or is not at hand: the quote is what was reviewed.
        shown = quoted
        marks = [(0, len(line)) for line in shown]
    else:
        marks = [_mark(line, number, finding) for number, line in enumerate(shown)]
    margin = len(str(span.start_line + len(shown)))
    for number, (line, (start, end)) in enumerate(zip(shown[:_SHOWN_LINES], marks, strict=False)):
        text, mark = _fit(line, start, end, max(width - margin - 7, 20))
        yield f"    {paint(str(span.start_line + number + 1).rjust(margin) + ' |', DIM)} {text}"
        if len(shown) == 1 and mark.strip():
            bar = paint(" " * margin + " |", DIM)
            yield f"    {bar} {paint(mark, *_COLOURS[finding.severity])}"
    if len(shown) > _SHOWN_LINES:
        yield f"    {paint(' ' * margin + ' | …', DIM)}"


def _mark(line: str, number: int, finding: Finding) -> tuple[int, int]:
    span = finding.span
    start = span.start_character if number == 0 else len(line) - len(line.lstrip())
    end = span.end_character if span.start_line + number == span.end_line else len(line)
    return start, max(end, start)


def _fit(line: str, start: int, end: int, room: int) -> tuple[str, str]:
    """The line and the mark below it, both with tabs and unsafe characters spelled out, cut to the room there is."""
    before, marked, after = (_cells(part) for part in (line[:start], line[start:end], line[end:]))
    left, middle = _columns(before), max(_columns(marked), 1)
    if left + middle + _columns(after) > room and left > room // 3:
        cut = len(before) - room // 3
        before, left = "…" + before[max(cut, 0) :], 0
        left = _columns(before)
    text = before + marked + after
    if _columns(text) > room:
        text = text[: room - 1] + "…"
    return text, " " * left + "^" * max(min(middle, room - left), 1)


def _cells(text: str) -> str:
    return visible(text.expandtabs(_TAB))


def _columns(text: str) -> int:
    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)


def _facts(finding: Finding) -> str:
    facts = [visible(finding.code)]
    if finding.confidence is not None:
        facts.append(f"confidence {finding.confidence:g}")
    if finding.in_diff is False:
        facts.append("outside the change")
    if finding.suggestion is not None:
        facts.append("has a suggested fix")
    return " · ".join(facts)


def _plural(severity: Severity, count: int) -> str:
    return severity if count == 1 or severity == "information" else severity + "s"
