"""What became of a run, in one sentence for a person (U-15)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, Literal

from outpost_lsp.domain.finding import SEVERITIES, Severity
from outpost_lsp.domain.markdown import one_line
from outpost_lsp.domain.run import Run

Level = Literal["error", "warning", "info"]
MESSAGE_TYPES: Final[dict[Level, int]] = {"error": 1, "warning": 2, "info": 3}


def outcome(run: Run, severities: Iterable[Severity] = ()) -> tuple[Level, str]:
    """How bad it is and what to say. `severities` are those of the findings that the run published."""
    title = one_line(run.title, 80).removesuffix(".")
    match run.status:
        case "failed":
            reason = one_line(run.error.message, 400) if run.error is not None else "no reason is known"
            return "error", f"{title} failed: {reason}"
        case "cancelled":
            return "info", f"{title}: cancelled"
        case "interrupted":
            return "warning", f"{title}: interrupted; the conversation can be continued"
        case _:
            return "info", f"{title}: {_success(run, severities)}"


def _success(run: Run, severities: Iterable[Severity]) -> str:
    parts = []
    if run.kind == "review" or run.findings:
        parts.append(findings_text(run.findings, severities) if run.findings else "nothing found")
    if run.rejected:
        parts.append(f"{count(run.rejected, 'finding')} refused: the quote or path does not exist")
    if run.changes is not None and run.disposition == "pending":
        files, added, removed = run.changes.files, run.changes.insertions, run.changes.deletions
        parts.append(f"{count(files, 'file')} changed (+{added} -{removed}), waiting to be applied")
    elif run.kind == "fix" and run.disposition == "none":
        # What was asked for is a change: without one, nobody may take the finding for settled.
        parts.append("nothing was changed")
    return ", ".join(parts) or "done"


def without_links(text: str) -> str:
    """A message in which some editors would find Markdown links, with none of them."""
    return text.replace("](", "] (")


def findings_text(total: int, severities: Iterable[Severity] = ()) -> str:
    """How many findings, the bad ones named."""
    counts = Counter(severities)
    worst = [count(counts[severity], severity) for severity in SEVERITIES[:2] if counts[severity]]
    return count(total, "finding") + (f" ({', '.join(worst)})" if worst else "")


def count(number: int, thing: str) -> str:
    """A number with its thing."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
