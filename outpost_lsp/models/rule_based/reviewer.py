"""The offline reviewer: lists what changed, reads both sides, and reports what the rules say the change brought.

`next_turn` decides from the state alone; analysing is the only thing it waits for. A fault of the analyser ends the
review as a fault, never as a clean result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import anyio.to_thread

from outpost_lsp.domain.finding import SEVERITIES
from outpost_lsp.errors import OutpostError
from outpost_lsp.models.rule_based.analysis import (
    Analyse,
    Compare,
    RawFinding,
    SourceText,
    brought_by_change,
    changed_lines,
    is_within,
    worst_first,
)
from outpost_lsp.models.rule_based.review_state import ReviewState, report_key
from outpost_lsp.models.rule_based.sides import Call, FileSides
from outpost_lsp.models.rule_based.summary import review_summary
from outpost_lsp.models.rule_based.turn import Turn

_LEAST_CALLS: Final = 32
_MOST_CALLS: Final = 160
_READING_STEPS: Final = 40
"""The calls of one step grow with the number of files, so that reading takes about this many steps."""
_LAST_READING_STEP: Final = 70
"""Reading stops here at the latest: the harness has a step limit of its own, and a partial review beats none."""
_MOST_OLDER: Final = 20
"""How many faults that were there before are shown as hints."""


async def next_turn(state: ReviewState, analyse: Analyse, compare: Compare | None = None) -> Turn:
    """What the reviewer says next."""
    ready = state.ready()
    if ready:
        await _analyse(state, ready, analyse, compare)
    reports = _reports(state, [(found, None) for found in _brought(state)])
    listing = state.listing_calls()
    if state.steps >= _LAST_READING_STEP:
        state.stopped_reading = True
        listing = []
    wanted = listing + _batch(state)
    if wanted:
        return Turn(_progress(state, ready, wanted), (*wanted, *reports))
    if not reports:
        reports = _reports(state, [(found, "hint") for found in _older(state)])
    if reports:
        return Turn(_progress(state, ready, ()), tuple(reports))
    _check_that_reports_arrived(state)
    return Turn(review_summary(state))


def _check_that_reports_arrived(state: ReviewState) -> None:
    """Findings that no tool would take are a fault of the review, never a clean result."""
    errors = [refusal for refusal in state.refusals if refusal.is_error]
    if errors and not state.placed and len(errors) == len(state.refusals):
        raise OutpostError(
            "process", f"none of the {len(errors)} findings of the offline review could be reported: {errors[0].reason}"
        )


async def _analyse(state: ReviewState, ready: Sequence[FileSides], analyse: Analyse, compare: Compare | None) -> None:
    after = await _findings(analyse, [SourceText(sides.file.path, sides.text or "") for sides in ready])
    # Only a file with findings needs its base side analysed: without any there is nothing to compare.
    compared = [
        (sides, sides.base_text)
        for sides, found in zip(ready, after, strict=True)
        if found and sides.base_text is not None
    ]
    before = await _findings(
        analyse, [SourceText(sides.file.base_path or sides.file.path, text) for sides, text in compared]
    )
    bases = {id(sides): found for (sides, _), found in zip(compared, before, strict=True)}

    def sort_out() -> None:
        for sides, found in zip(ready, after, strict=True):
            _sort_out(state, sides, found, bases.get(id(sides), []))
            if compare is not None:
                _add_losses(sides, compare)
            sides.release()

    await anyio.to_thread.run_sync(sort_out)


async def _findings(analyse: Analyse, texts: Sequence[SourceText]) -> list[list[RawFinding]]:
    if not texts:
        return []
    answers = await analyse(texts)
    if len(answers) != len(texts):
        raise OutpostError("provider", "offline review: the analyser did not answer for every file")
    return [list(answer) for answer in answers]


def _add_losses(sides: FileSides, compare: Compare) -> None:
    if sides.base_text is None or sides.text is None:
        return
    known = {found.line for found in sides.brought}
    before = SourceText(sides.file.base_path or sides.file.path, sides.base_text)
    lost = [found for found in compare(before, SourceText(sides.file.path, sides.text)) if found.line not in known]
    sides.brought = worst_first([*sides.brought, *lost])


def _sort_out(state: ReviewState, sides: FileSides, after: Sequence[RawFinding], before: Sequence[RawFinding]) -> None:
    if sides.base_text is not None:
        if after:
            changed = changed_lines(sides.base_text, sides.text or "")
            sides.brought, sides.older = brought_by_change(after, before, changed)
        return
    if state.assignment.is_change and sides.file.base_path is None:
        # All in an added file is new; what only a comparison could judge is worth a look.
        kept = [replace(found, severity="information") if found.only_new else found for found in after]
    else:
        kept = [found.as_it_stands for found in after if found.is_habit or not found.only_new]
    if (span := state.assignment.span) is not None:
        last = span.end_line + (1 if span.end_character or span.end_line == span.start_line else 0)
        kept = [found for found in kept if is_within(found, ((span.start_line + 1, last + 1),))]
    sides.brought = worst_first(kept)


def _brought(state: ReviewState) -> list[tuple[FileSides, RawFinding]]:
    return [(sides, found) for sides in state.sides.values() for found in sides.brought]


def _older(state: ReviewState) -> list[tuple[FileSides, RawFinding]]:
    older = [
        (sides, found)
        for sides in state.sides.values()
        for found in sides.older
        if found.severity in ("error", "warning")
    ]
    older.sort(key=lambda pair: SEVERITIES.index(pair[1].severity))
    return older[:_MOST_OLDER]


def _reports(state: ReviewState, wanted: Sequence[tuple[tuple[FileSides, RawFinding], str | None]]) -> list[Call]:
    calls = []
    for (sides, found), severity in wanted:
        report: dict[str, Any] = {
            "path": sides.file.path,
            "quote": found.quote,
            "severity": severity or found.severity,
            "code": found.code,
            "title": found.title,
            "detail": found.described,
            "line": found.line,
            "confidence": found.confidence,
        }
        if severity is not None:
            report["detail"] += " It was there before this change."
        elif state.assignment.is_change and (sides.base_known or sides.file.base_path is None):
            report["caused_by_change"] = True
            report["detail"] += " The base of this change does not have it."
        if found.replacement is not None:
            report["replacement"] = found.replacement
        if report_key(report) not in state.reported:
            calls.append(Call("report_finding", report))
    return calls


def _batch(state: ReviewState) -> list[Call]:
    calls = state.reading_calls()
    per_file = 2 if state.assignment.is_change else 1
    share = -(-len(state.sides) * per_file // _READING_STEPS)
    return calls[: max(_LEAST_CALLS, min(_MOST_CALLS, share))]


def _progress(state: ReviewState, ready: Sequence[FileSides], wanted: Sequence[Call]) -> str:
    lines = []
    if ready:
        lines.append(state.checked_line([sides.file.path for sides in ready]))
    reading = sum(call.tool == "read_file" for call in wanted)
    listing = any(call.tool == "list_files" or "--raw" in call.input.get("arguments", ()) for call in wanted)
    if listing:
        lines.append("Listing what there is to look at.")
    if reading:
        lines.append(f"Reading {reading} {'file' if reading == 1 else 'files'}.")
    return "\n".join(lines)
