"""The last words of an offline review: what was found, what was read, what was not, and what rules cannot see.

The lines that name findings have one form, so that the coordinator can count them in a reviewer's answer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

from outpost_lsp.domain.finding import SEVERITIES, Severity
from outpost_lsp.models.rule_based.assignment import Assignment
from outpost_lsp.models.rule_based.review_state import ReviewState

WHO: Final = "This is the rule-based offline review: no language model took part."
LIMITS: Final = (
    "Rules catch slips, not logic: on real bugs a clean result proves little. "
    "Confidence is fixed per severity, not a judgement."
)
_NAMED: Final = 20
_SHORTENED: Final = (
    "The conversation was shortened on the way. What was reported before is shown at its lines and not counted here; "
    "reported since then:"
)
_LINE: Final = re.compile(r"^- (error|warning|information|hint) `([^`\n]+?):(\d+)`: (.+)$", re.MULTILINE)
_SCOPES: Final = {
    "uncommitted": "the uncommitted changes",
    "staged": "the staged changes",
    "unstaged": "the unstaged changes",
    "branch": "the changes of the branch",
    "commit": "the commit",
    "file": "the file",
    "selection": "the selection",
    "workspace": "the workspace",
}


@dataclass(frozen=True, slots=True)
class NamedFinding:
    """A finding as a summary names it."""

    severity: Severity
    path: str
    line: int
    title: str

    def __str__(self) -> str:
        return f"- {self.severity} `{self.path}:{self.line}`: {self.title}"


def named_findings(text: str) -> list[NamedFinding]:
    """The findings that a summary names, in its order."""
    return [
        NamedFinding(_severity(severity), path, int(line), title) for severity, path, line, title in _LINE.findall(text)
    ]


def counted(severities: Sequence[str]) -> str:
    """`2 errors, 1 hint`: counts by severity, worst first; `nothing` when there is nothing."""
    counts = Counter(severities)
    words = [
        f"{counts[severity]} {severity}{'' if counts[severity] == 1 or severity == 'information' else 's'}"
        for severity in SEVERITIES
        if counts[severity]
    ]
    return ", ".join(words) or "nothing"


def review_summary(state: ReviewState) -> str:
    """The final answer of a review."""
    parts = [WHO, _found(state), _read(state)]
    parts.extend(part for part in (_not_read(state), _uncompared(state), _refused(state), _unheard(state)) if part)
    parts.append(LIMITS)
    return "\n\n".join(parts)


def _found(state: ReviewState) -> str:
    places: dict[tuple[str, int, str], NamedFinding] = {}
    for key, report in state.reported.items():
        placing = state.placed.get(key)
        if placing is None or placing.is_merged:
            continue
        line, title = placing.line or key.line, placing.title or str(report.get("title", ""))
        severity = _severity(placing.severity or str(report.get("severity")))
        # Two reports that came to one finding are counted as the run counts them.
        places.setdefault((key.path, line, title), NamedFinding(severity, key.path, line, title))
    shown = list(places.values())
    shown.sort(key=lambda found: (SEVERITIES.index(found.severity), found.path, found.line))
    forgotten = any(not sides.analysed and path in state.checked_before for path, sides in state.sides.items())
    if forgotten:
        return "\n".join([_SHORTENED, *map(str, shown[:_NAMED])])
    if not shown:
        return f"Nothing found in {_subject(state.assignment)}."
    lines = [f"Found in {_subject(state.assignment)}: {counted([found.severity for found in shown])}."]
    lines.extend(str(found) for found in shown[:_NAMED])
    if len(shown) > _NAMED:
        lines.append(f"- and {len(shown) - _NAMED} more")
    return "\n".join(lines)


def _read(state: ReviewState) -> str:
    checked = state.checked_count
    text = f"Read and checked: {_files(checked)}"
    if checked and state.assignment.is_change and any(sides.base for sides in state.sides.values()):
        text += ", compared with the base side"
    text += "."
    if state.deleted:
        text += f" Deleted by the change: {_files(len(state.deleted))}."
    return text


def _not_read(state: ReviewState) -> str:
    lines = []
    if state.listing_trouble:
        lines.append(f"- the list of files: {state.listing_trouble}")
    elif state.assignment.is_change and "git" not in state.tools:
        lines.append("- the list of changes: there is no git tool to ask for it")
    if state.binary:
        lines.append(f"- {_files(len(state.binary))} of a binary kind: {_names(state.binary)}")
    if state.left_out:
        lines.append(f"- {_files(len(state.left_out))} made elsewhere or minified: {_names(state.left_out)}")
    if state.unlisted:
        lines.append(f"- {_files(state.unlisted)} beyond what the list shows")
    unread = state.unread()
    lines.extend(f"- `{sides.file.path}`: {sides.trouble or _why_unread(state)}" for sides in unread[:_NAMED])
    if len(unread) > _NAMED:
        lines.append(f"- and {_files(len(unread) - _NAMED)} more")
    return "Not read:\n" + "\n".join(lines) if lines else ""


def _why_unread(state: ReviewState) -> str:
    if "read_file" not in state.tools:
        return "there is no tool to read files"
    return "too many files for one review" if state.stopped_reading else "its text was cut from the conversation"


def _uncompared(state: ReviewState) -> str:
    troubled = [sides for sides in state.sides.values() if sides.analysed and sides.base_trouble]
    without_git = state.assignment.is_change and "git" not in state.tools
    if without_git:
        return "The base side could not be read without a git tool: what was there before may be among the findings."
    if not troubled:
        return ""
    lines = [f"- `{sides.file.path}`: {sides.base_trouble}" for sides in troubled[:_NAMED]]
    return "Checked without comparing, so what was there before may be among the findings:\n" + "\n".join(lines)


def _refused(state: ReviewState) -> str:
    if not state.refusals:
        return ""
    reasons = Counter(refusal.reason for refusal in state.refusals)
    lines = [f"- {count} x {reason}" for reason, count in reasons.most_common(5)]
    return f"Reports that were not taken: {len(state.refusals)}\n" + "\n".join(lines)


def _unheard(state: ReviewState) -> str:
    if not state.remarks:
        return ""
    return "Words sent to the review while it ran were not followed: rules take no instructions."


def _subject(assignment: Assignment) -> str:
    return "the patch" if assignment.is_patch else _SCOPES.get(assignment.scope, "what was asked for")


def _files(count: int) -> str:
    return f"{count} file" if count == 1 else f"{count} files"


def _names(paths: Sequence[str]) -> str:
    named = ", ".join(f"`{path}`" for path in paths[:5])
    return named if len(paths) <= 5 else f"{named} and {len(paths) - 5} more"


def _severity(word: str) -> Severity:
    found: Mapping[str, Any] = {severity: severity for severity in get_args(Severity)}
    severity: Severity = found.get(word, "hint")
    return severity
