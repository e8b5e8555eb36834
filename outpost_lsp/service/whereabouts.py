"""What became of the findings that a run reported: those that are still there, and why the others are not.

A run's count is of what it published. A later review replaces an agent's findings, a person clears them, and other
agents' findings about the same code are shown as one; a report that says nothing of it would contradict the count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anyio import to_thread
from pydantic import ValidationError

from outpost_lsp.domain.event import FindingEvent
from outpost_lsp.domain.finding import Finding
from outpost_lsp.domain.run import Run
from outpost_lsp.service.workspace import Workspace
from outpost_lsp.storage.journal import read_journal


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """A run's findings as they stand now, and those that are gone, each with what became of it."""

    here: tuple[Finding, ...]
    gone: tuple[tuple[Finding, str], ...]


async def whereabouts(workspace: Workspace, run: Run) -> Whereabouts:
    """Look the findings of a run up, where they are and in its journal."""
    reported = await to_thread.run_sync(_reported, workspace, run)
    here = workspace.board.of_run(run.id)
    known = {finding.id for finding in here}
    gone = [finding for finding in reported if finding.id not in known]
    return Whereabouts(tuple(here), tuple((finding, _became(workspace, finding)) for finding in gone))


def _became(workspace: Workspace, finding: Finding) -> str:
    later = [one for one in workspace.board.find_alike(finding) if one.run_id != finding.run_id]
    if later:
        return f"replaced by the finding of run {max(one.run_id for one in later)}"
    return "no longer there: a later review did not report it again, or it was cleared"


def _reported(workspace: Workspace, run: Run) -> list[Finding]:
    """What the journal says was published, in its last wording; nothing when there is no journal."""
    path = workspace.journal_path(run.id)
    found: dict[str, Finding] = {}
    if run.findings and path.exists():
        for record in read_journal(path):
            finding = _finding(record.event)
            if finding is not None and finding.run_id == run.id and finding.status != "dismissed":
                found[finding.id] = finding
    return list(found.values())


def _finding(event: Mapping[str, Any]) -> Finding | None:
    if event.get("kind") != "finding":
        return None
    try:
        return FindingEvent.model_validate(event).finding
    except ValidationError:
        return None
