"""The findings of one run: what was published, what was said twice, what was cut.

All agents of a run share one ledger, so that two reviewers who see the same fault make one finding. It changes only
between awaits of one event loop. The findings tool writes it; whoever ends the run reads the counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from outpost_lsp.domain.finding import SEVERITIES, Finding, Severity, Span

Relation = Literal["repeated", "confirmed", "merged"]


@dataclass(slots=True)
class FindingLedger:
    """The published findings by id, and how many reports came to nothing and why."""

    published: dict[str, Finding] = field(default_factory=dict)
    dismissed: dict[str, Finding] = field(default_factory=dict)
    rejected: int = 0
    """Refused because their path or quote does not exist."""
    cut: int = 0
    """Not published because the run had reached its number of findings."""
    withheld: int = 0
    """Not published because of the settings: outside the change, not sure enough, an excluded file."""
    cut_reported: bool = False
    _given_ids: int = 0
    _by_fingerprint: dict[str, str] = field(default_factory=dict)
    _by_path: dict[str, list[str]] = field(default_factory=dict)

    def next_id(self, run_id: str) -> str:
        """An id for a finding; unique where the run's id is."""
        self._given_ids += 1
        return f"{run_id}-{self._given_ids}"

    def publish(self, finding: Finding) -> None:
        """Remember a finding that is shown from now on."""
        self.published[finding.id] = finding
        self._by_fingerprint[finding.fingerprint] = finding.id
        self._by_path.setdefault(finding.path, []).append(finding.id)

    def twin(self, finding: Finding) -> Finding | None:
        """The published finding that says the same, or speaks of the same text."""
        if (same := self._by_fingerprint.get(finding.fingerprint)) is not None:
            return self.published[same]
        near = (self.published[known] for known in self._by_path.get(finding.path, ()))
        return next((known for known in near if _same_fault(known, finding)), None)

    def join(self, known: Finding, finding: Finding) -> tuple[Finding, Relation]:
        """The published finding after a second report, and how the two relate.

        Another agent's word raises severity and confidence; the same agent's repetition changes nothing. Another kind of
        fault at the same text is written below the first.
        """
        if known.code != finding.code:
            addition = f"**{finding.title}** (`{finding.code}`)\n\n{finding.detail}".rstrip()
            if addition in known.detail:
                return known, "repeated"
            detail = f"{known.detail}\n\n{addition}".lstrip()
            return self._replace(known, finding, detail), "merged"
        if known.agent == finding.agent:
            return known, "repeated"
        return self._replace(known, finding, known.detail), "confirmed"

    def _replace(self, known: Finding, finding: Finding, detail: str) -> Finding:
        confidences = [value for value in (known.confidence, finding.confidence) if value is not None]
        joined = known.model_copy(
            update={
                "detail": detail,
                "severity": worse(known.severity, finding.severity),
                "confidence": max(confidences, default=None),
                "suggestion": known.suggestion or finding.suggestion,
                "in_diff": known.in_diff if known.in_diff == finding.in_diff else True,
            }
        )
        self.published[known.id] = joined
        return joined


def worse(left: Severity, right: Severity) -> Severity:
    """The worse of two severities."""
    return min(left, right, key=SEVERITIES.index)


def _same_fault(known: Finding, finding: Finding) -> bool:
    if known.span == finding.span:
        return True
    return known.code == finding.code and (_holds(known.span, finding.span) or _holds(finding.span, known.span))


def _holds(outer: Span, inner: Span) -> bool:
    return _start(outer) <= _start(inner) and _end(inner) <= _end(outer)


def _start(span: Span) -> tuple[int, int]:
    return span.start_line, span.start_character


def _end(span: Span) -> tuple[int, int]:
    return span.end_line, span.end_character
