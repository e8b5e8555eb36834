"""From a dispatch's progress to its result and its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from outpost_lsp.dispatches.fallback import FallbackRecord
from outpost_lsp.dispatches.observation import DispatchObservation
from outpost_lsp.dispatches.options import DispatchOptions
from outpost_lsp.dispatches.progress import Progress
from outpost_lsp.dispatches.report import merged
from outpost_lsp.dispatches.result import DispatchResult
from outpost_lsp.dispatches.sandboxing import OpenedSandbox
from outpost_lsp.domain.price import UsageCost, usage_cost
from outpost_lsp.domain.usage import total
from outpost_lsp.domain.workflow_budget import total_cost
from outpost_lsp.errors import OutpostError
from outpost_lsp.worktrees.changes import ChangeSet, changed_files
from outpost_lsp.worktrees.git import find_repository


def outcome(
    options: DispatchOptions,
    progress: Progress,
    observation: DispatchObservation,
    sandbox: OpenedSandbox,
    answer: tuple[str, Any],
    fallback: FallbackRecord | None,
) -> DispatchResult:
    """The result of a dispatch whose sandbox has been closed."""
    last, value = answer
    marker = next((marker for marker in options.until if marker in last), None)
    cost = _cost(options, progress)
    completed = marker is not None or options.response is not None
    text = "\n".join(turn.text for turn in progress.turns)
    fields = {
        "completed": completed,
        "text": text,
        "branch": sandbox.branch,
        "commits": [commit.to_json() for commit in sandbox.commits],
        "duration_ms": progress.duration_ms,
        "usage": progress.usage.to_json(),
        "cost": None if cost is None else cost.to_json(),
        "diff": None if sandbox.changes is None else _diff(sandbox.changes),
    }
    return DispatchResult(
        text=text,
        turns=tuple(progress.turns),
        usage=progress.usage,
        response=value,
        completed=completed,
        completion=marker,
        conversation=progress.conversation,
        transcript=progress.turns[-1].transcript if progress.turns else None,
        journal=observation.journal_path,
        changes=sandbox.changes,
        cost=cost,
        models=tuple(progress.models),
        notes=tuple(progress.notes),
        branch=sandbox.branch,
        directory=sandbox.directory,
        base=sandbox.start if sandbox.snapshot is None else sandbox.snapshot.head,
        commits=sandbox.commits,
        retained_directory=sandbox.retained_directory,
        fallback=fallback,
        observer_errors=observation.errors,
        dispatch_id=options.dispatch_id,
        report_data=observation.report(fields),
    )


async def combined(options: DispatchOptions, results: Sequence[DispatchResult]) -> DispatchResult:
    """Several passes as one: text, turns, commits, usage and cost of all, the rest of the last (DISP-05).

    Its report tells the net diff from where the first pass began to where the last ended (REPORT-02).
    """
    last = results[-1]
    if len(results) == 1:
        return last
    together = replace(
        last,
        text="\n".join(result.text for result in results),
        turns=tuple(turn for result in results for turn in result.turns),
        usage=total(result.usage for result in results),
        cost=total_cost(result.cost for result in results if result.cost is not None),
        commits=tuple(commit for result in reversed(results) for commit in result.commits),
    )
    diff, warnings = await _net_diff(options.repository, results)
    fields = {
        "completed": last.completed,
        "text": together.text,
        "branch": last.branch,
        "commits": [commit.to_json() for commit in together.commits],
        "duration_ms": sum(turn.duration_ms for turn in together.turns),
        "usage": together.usage.to_json(),
        "cost": None if together.cost is None else together.cost.to_json(),
        "diff": diff,
    }
    reports = [result.report_data for result in results]
    return replace(together, report_data=merged(reports, fields, warnings, options.redact))


async def _net_diff(folder: Path, results: Sequence[DispatchResult]) -> tuple[Mapping[str, Any] | None, Sequence[str]]:
    first, last = results[0].changes, results[-1].changes
    if first is None or last is None:
        return None, ()
    if first.base == last.base:
        return _diff(last), ()
    try:
        files = await changed_files(await find_repository(folder), first.base, last.commit)
    except OutpostError as error:
        return None, (f"what all passes changed together could not be collected: {error.message}",)
    return _diff(ChangeSet(first.base, last.tree, last.commit, files)), ()


def _cost(options: DispatchOptions, progress: Progress) -> UsageCost | None:
    if options.prices is None:
        return None
    try:
        return usage_cost(progress.usage, options.prices)
    except OutpostError as error:
        # A failing calculation is no failing run (PRICE-07).
        options.warn(f"the cost could not be worked out: {error.message}")
        return None


def _diff(changes: ChangeSet) -> Mapping[str, Any]:
    return {
        "baseline": changes.base,
        "head": changes.commit,
        "files": [
            {
                "paths": [file.path] if file.old_path is None else [file.old_path, file.path],
                "added": file.insertions,
                "removed": file.deletions,
                "binary": file.binary,
            }
            for file in changes.files
        ],
        "files_changed": len(changes.files),
        "added": sum(file.insertions for file in changes.files),
        "removed": sum(file.deletions for file in changes.files),
        "binary_files": sum(file.binary for file in changes.files),
    }
