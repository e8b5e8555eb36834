"""The commands `runs` and `show`: what was run here, and what happened in a run."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from outpost_lsp.cli.costs import costed
from outpost_lsp.cli.lane_text import lane_rows
from outpost_lsp.cli.lanes import lanes_of
from outpost_lsp.cli.picture import cost_text, duration_text
from outpost_lsp.cli.progress import call_text, tokens_text
from outpost_lsp.cli.route_text import route_facts
from outpost_lsp.cli.session import opened, run_async
from outpost_lsp.cli.status import DONE
from outpost_lsp.cli.terminal import BOLD, DIM, GREEN, RED, YELLOW, Paint, wants_colour
from outpost_lsp.domain.markdown import one_line, visible
from outpost_lsp.domain.run import Run
from outpost_lsp.domain.wording import count_of
from outpost_lsp.errors import configuration
from outpost_lsp.protocol.records import cost_json, run_json
from outpost_lsp.protocol.uris import uri_of
from outpost_lsp.service.timeline_shape import Route, Step, Subagent, Timeline
from outpost_lsp.service.workspace import Workspace

_COLOURS = {"succeeded": GREEN, "failed": RED, "cancelled": YELLOW, "interrupted": YELLOW}


def list_runs(options: argparse.Namespace) -> int:
    """Print the runs of the repository; the exit status."""
    return run_async(lambda: _list_runs(options))


async def _list_runs(options: argparse.Namespace) -> int:
    async with opened(options) as (outpost, workspace):
        runs = outpost.runs(options.limit, options.status)
        if any(run.status == "interrupted" for run in runs):
            # Whether they changed something may only just be looked at.
            await workspace.cleared()
            runs = outpost.runs(options.limit, options.status)
        if options.json:
            print(json.dumps([run_json(run, uri_of) for run in runs], ensure_ascii=False, indent=2))
        else:
            sys.stdout.writelines(f"{line}\n" for line in _table(runs, Paint(colour=wants_colour(sys.stdout))))
            if not runs:
                print("no runs yet", file=sys.stderr)
    return DONE


def _table(runs: Sequence[Run], paint: Paint) -> Iterator[str]:
    for run in runs:
        status = paint(f"{run.status:<11}", *((_COLOURS[run.status],) if run.status in _COLOURS else ()))
        facts = [count_of(run.findings, "finding")] if run.findings else []
        if run.disposition != "none" and run.changes is not None:
            facts.append(f"{count_of(run.changes.files, 'file')} {run.disposition}")
        told = paint(f" ({', '.join(facts)})", DIM) if facts else ""
        yield f"{run.id}  {_local(run.started_at)}  {status}  {one_line(run.title, 80)}{told}"


def _local(moment: str) -> str:
    try:
        return datetime.fromisoformat(moment).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return moment


def show(options: argparse.Namespace) -> int:
    """Print what happened in a run; the exit status."""
    return run_async(lambda: _show(options))


async def _show(options: argparse.Namespace) -> int:
    async with opened(options) as (outpost, workspace):
        run = found_run(workspace, options.run)
        timeline = outpost.timeline(run.id)
        if options.json:
            print(json.dumps(shown_json(run, timeline), ensure_ascii=False, indent=2))
        elif options.html is not None:
            # Writing a page needs what nothing else here does.
            from outpost_lsp.cli.html import write_page

            write_page(Path(options.html), run, timeline)
        else:
            paint = Paint(colour=wants_colour(sys.stdout))
            width = shutil.get_terminal_size((100, 24)).columns
            sys.stdout.writelines(f"{line}\n" for line in shown_text(run, timeline, paint, width))
    return DONE


def found_run(workspace: Workspace, text: str) -> Run:
    """The run with this id, or the only one whose id begins with it."""
    run = workspace.runs.load(text)
    if run is not None:
        return run
    found = [run for run in workspace.runs.list() if run.id.startswith(text)] if text else []
    if len(found) == 1:
        return found[0]
    if found:
        raise configuration(f"run: {len(found)} runs begin with {text!r}; give more of the id")
    raise configuration(f"run: there is no run {text!r} in this repository (see outpost-lsp runs)")


def shown_json(run: Run, timeline: Timeline) -> dict[str, Any]:
    """The run and its timeline, in the protocol's form."""
    told = timeline.to_json()
    for one in (*told["steps"], *told["usage"]):
        one["usage"] = {"cached": 0, "complete": True} | one["usage"]
    costs = [*(step.cost for step in timeline.steps), *(used.cost for used in timeline.usage)]
    for cost, one in zip(costs, (*told["steps"], *told["usage"]), strict=True):
        if cost_json(cost) is None:
            one.pop("cost", None)
    return {"run": run_json(run, uri_of), **told}


def shown_text(run: Run, timeline: Timeline, paint: Paint, width: int = 100) -> Iterator[str]:
    """The run and its timeline for people."""
    run, timeline = costed(run, timeline)
    yield paint(visible(run.title), BOLD)
    cost = "" if run.cost is None else f", {cost_text(run.cost)}"
    yield f"{run.id}  {run.status}  {_local(run.started_at)}  {tokens_text(run.usage)}{cost}"
    if run.error is not None:
        yield paint(f"{run.error.code}: {one_line(run.error.message, 500)}", RED)
    for note in run.notes:
        yield paint(f"note: {one_line(note, 500)}", DIM)
    if timeline.untold is not None:
        yield paint(f"no steps to show: {visible(timeline.untold)}", YELLOW)
    if timeline.steps:
        yield ""
        yield from lane_rows(lanes_of(run, timeline), paint, width)
    names = {subagent.id: subagent for subagent in timeline.subagents}
    for step in timeline.steps:
        yield ""
        yield from _step(run, step, timeline.routes, names, paint)
    if run.text:
        yield ""
        yield visible(run.text).strip()


def _step(run: Run, step: Step, routes: Sequence[Route], names: dict[str, Subagent], paint: Paint) -> Iterator[str]:
    depth = _depth(step.subagent_id, names)
    margin = "  " * depth
    subagent = names.get(step.subagent_id or "")
    who = run.agent if subagent is None else subagent.name
    route = next((one for one in routes if one.step == step.index and one.subagent_id == step.subagent_id), None)
    routed = "" if route is None else f", route {route.choice} ({', '.join(route_facts(route))}), {route.model}"
    cost = "" if step.cost is None else f", {cost_text(step.cost)}"
    took = duration_text(step.duration_ms)
    yield f"{margin}{paint(who, BOLD)} step {step.index}{routed}, {tokens_text(step.usage)}, {took}{cost}"
    for text in step.texts:
        yield f"{margin}  {one_line(text, 160)}"
    for call in step.tools:
        failed = call.status in ("failed", "denied")
        mark = paint(f" {call.status}: {one_line(call.preview or '', 120)}", RED) if failed else ""
        yield f"{margin}  {paint(call.name, GREEN)} {call_text(call.input)}{mark}"
    for note in step.notes:
        yield f"{margin}  {paint(one_line(note, 160), YELLOW)}"


def _depth(subagent_id: str | None, names: dict[str, Subagent]) -> int:
    depth = 0
    while subagent_id is not None and subagent_id in names and depth < 16:
        depth += 1
        subagent_id = names[subagent_id].parent_id
    return depth
