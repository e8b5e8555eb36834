"""Findings as they are shown: where their text stands now, dismissed or not, and each of them once.

What several agents reported alike (the same fingerprint) is kept for each of them and shown once: as the latest run's
finding, as bad as the worst of them says, with the other agents' names. Used by the board, which holds the findings.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from operator import itemgetter
from typing import Final, NamedTuple

from outpost_lsp.domain.finding import SEVERITIES, Finding
from outpost_lsp.reviews.tracking import TrackedFinding
from outpost_lsp.service.dismissing import Dismissals
from outpost_lsp.service.texts import FileTexts

_PLACE: Final = itemgetter(1, 2)


class Standing(NamedTuple):
    """A finding with the place where it stands now; its own `span` may be where it was reported."""

    finding: Finding
    start_line: int
    start_character: int
    end_line: int
    end_character: int


def alike(findings: Iterable[TrackedFinding]) -> list[list[TrackedFinding]]:
    """The findings of a file, those that mean the same together; the latest run's goes first."""
    groups: dict[str, list[TrackedFinding]] = {}
    for one in findings:
        groups.setdefault(one.finding.fingerprint, []).append(one)
    for group in groups.values():
        if len(group) > 1:
            group.sort(key=lambda one: (one.finding.run_id, one.finding.id), reverse=True)
    return list(groups.values())


class FindingView:
    """Shows the findings of a workspace in the texts that count, under the dismissals in force."""

    def __init__(self, texts: FileTexts, dismissals: Dismissals) -> None:
        self._texts = texts
        self._dismissals = dismissals

    def standing(self, groups: Iterable[list[TrackedFinding]], path: str) -> list[Standing]:
        """Where those that are diagnostics stand, by place; the ones that only moved are not made anew."""
        source = self._texts[path]
        starts = source.line_starts if source is not None else [0]
        may_be_dismissed = self._dismissals.may_speak_of(path)
        found = []
        for group in groups:
            one = group[0]
            if one.left == 1 and len(group) == 1 and one.finding.status == "open" and not may_be_dismissed:
                first, last = bisect_right(starts, one.start) - 1, bisect_right(starts, one.end) - 1
                found.append(Standing(one.finding, first, one.start - starts[first], last, one.end - starts[last]))
            elif not one.is_withdrawn and (shown := self.merged(group, path)).status in ("open", "stale"):
                span = shown.span
                found.append(Standing(shown, span.start_line, span.start_character, span.end_line, span.end_character))
        return sorted(found, key=_PLACE)

    def merged(self, group: list[TrackedFinding], path: str) -> Finding:
        """The first finding as it is shown, with what others of the same meaning add to it."""
        shown = self.of(group[0], path)
        if len(group) == 1:
            return shown
        others = dict.fromkeys(one.finding.agent for one in group if one.finding.agent != shown.agent)
        worst = min((one.finding.severity for one in group), key=SEVERITIES.index)
        severity = shown.severity if shown.status == "stale" else worst
        return shown.model_copy(update={"severity": severity, "also_by": tuple(others)})

    def of(self, tracked: TrackedFinding, path: str) -> Finding:
        """One finding as it is now."""
        is_gone = tracked.is_withdrawn and not tracked.is_fixed
        finding = _withdrawn(tracked.finding) if is_gone else tracked.shown(self._texts[path])
        if finding.status != "dismissed" and not self._dismissals.may_speak_of(path):
            return finding
        dismissal, is_in_force = self._dismissals.of(finding)
        if is_in_force:
            return finding.model_copy(update={"status": "dismissed", "dismissal": dismissal})
        status = "open" if finding.status == "dismissed" else finding.status
        # A dismissal whose date has passed stays on the finding, which is back and says why.
        return finding.model_copy(update={"status": status, "dismissal": dismissal})


def _withdrawn(finding: Finding) -> Finding:
    return finding.model_copy(update={"status": "stale", "severity": "hint", "suggestion": None})
