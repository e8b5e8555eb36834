"""What a hover over a finding shows: what it is, who found it and how sure they were."""

from __future__ import annotations

from collections.abc import Sequence

from outpost_lsp.domain.finding import Finding, Span
from outpost_lsp.domain.markdown import one_line, plain, safe_markdown


def findings_at(findings: Sequence[Finding], line: int, character: int) -> list[Finding]:
    """The findings whose span holds a place."""
    return [finding for finding in findings if _holds(finding.span, line, character)]


def overlapping(findings: Sequence[Finding], span: Span) -> list[Finding]:
    """The findings that a span touches."""
    start, end = (span.start_line, span.start_character), (span.end_line, span.end_character)
    return [
        finding
        for finding in findings
        if (finding.span.start_line, finding.span.start_character) <= end
        and start <= (finding.span.end_line, finding.span.end_character)
    ]


def hover_markdown(findings: Sequence[Finding]) -> str:
    """The findings as harmless Markdown."""
    return "\n\n---\n\n".join(_markdown(finding) for finding in findings)


def hover_text(findings: Sequence[Finding]) -> str:
    """The findings as plain text, for clients that show no Markdown."""
    return "\n\n".join(
        f"{finding.severity}: {one_line(finding.title)}\n\n{plain(finding.detail)}\n\n{_origin(finding)}".replace(
            "\n\n\n\n", "\n\n"
        )
        for finding in findings
    )


def _markdown(finding: Finding) -> str:
    title = safe_markdown(one_line(finding.title))
    parts = [f"**{finding.severity}** {title}"]
    if finding.detail.strip():
        parts.append(safe_markdown(finding.detail))
    parts.append(f"*{safe_markdown(_origin(finding))}*")
    return "\n\n".join(parts)


def _origin(finding: Finding) -> str:
    agents = " and ".join(one_line(agent) for agent in (finding.agent, *finding.also_by))
    parts = [one_line(finding.code), f"found by {agents}"]
    if finding.model:
        route = f" (route {one_line(finding.route)})" if finding.route else ""
        parts.append(f"model {one_line(finding.model)}{route}")
    if finding.status == "open" and finding.dismissal is not None:
        parts.append(f"its dismissal ended {one_line(finding.dismissal.until or '')}")
    if finding.confidence is not None:
        parts.append(f"confidence {finding.confidence:.2f}")
    return " · ".join(parts)


def _holds(span: Span, line: int, character: int) -> bool:
    return (span.start_line, span.start_character) <= (line, character) <= (span.end_line, span.end_character)
