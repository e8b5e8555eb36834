"""A run as one HTML page that needs nothing else: no script, no font, no address on the network.

Every text is escaped: a page shows what a model or a file wrote and does nothing with it (SEC-19).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final

from outpost_lsp.cli.progress import tokens_text
from outpost_lsp.domain.markdown import visible
from outpost_lsp.domain.run import Run
from outpost_lsp.errors import configuration
from outpost_lsp.service.timeline import Route, Step, Subagent, Timeline, ToolCall

_STYLE: Final = """
:root { color-scheme: light dark; --line: color-mix(in srgb, currentColor 20%, transparent); }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1rem; margin: 0; }
code, pre { font: 13px/1.45 ui-monospace, monospace; } pre { white-space: pre-wrap; overflow-wrap: anywhere; }
.facts { opacity: .7; } .error { color: #c33; } .note { opacity: .8; }
section { border-left: 3px solid var(--line); padding: .2rem 0 .2rem 1rem; margin: .8rem 0; }
details { margin: .2rem 0; } summary { cursor: pointer; } summary b { color: #2a7; } summary .error b { color: inherit; }
table { border-collapse: collapse; } td, th { padding: .1rem .8rem .1rem 0; text-align: left; }
"""


def write_page(path: Path, run: Run, timeline: Timeline) -> None:
    """Write the page; `configuration` when the file cannot be written."""
    try:
        path.write_text("\n".join(page(run, timeline)) + "\n", "utf-8")
    except OSError as error:
        raise configuration(f"--html {path}: {error.strerror or error}") from error


def page(run: Run, timeline: Timeline) -> Iterator[str]:
    """The page, piece by piece."""
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    yield f"<title>{_text(run.title)}</title><style>{_STYLE}</style></head><body>"
    yield f"<h1>{_text(run.title)}</h1>"
    yield f'<p class="facts">{_text(_facts(run))}</p>'
    if run.error is not None:
        yield f'<p class="error">{_text(run.error.code)}: {_text(run.error.message)}</p>'
    if run.notes:
        yield "<ul>" + "".join(f'<li class="note">{_text(note)}</li>' for note in run.notes) + "</ul>"
    names = {subagent.id: subagent for subagent in timeline.subagents}
    yield from _usage(run, timeline)
    for step in timeline.steps:
        yield from _step(run, step, timeline.routes, names)
    if run.text:
        yield f"<h2>Answer</h2><pre>{_text(run.text)}</pre>"
    yield "</body></html>"


def _usage(run: Run, timeline: Timeline) -> Iterator[str]:
    if not timeline.usage:
        return
    yield "<table><tr><th>agent</th><th>tokens</th></tr>"
    for one in timeline.usage:
        name = run.agent if one.subagent_id is None else one.name or one.subagent_id
        yield f"<tr><td>{_text(name)}</td><td>{_text(tokens_text(one.usage))}</td></tr>"
    yield f"<tr><td>together</td><td>{_text(tokens_text(run.usage))}</td></tr></table>"


def _step(run: Run, step: Step, routes: Sequence[Route], names: dict[str, Subagent]) -> Iterator[str]:
    subagent = names.get(step.subagent_id or "")
    who = run.agent if subagent is None else subagent.name
    depth = 0 if subagent is None else _depth(subagent, names)
    yield f'<section style="margin-left:{depth * 2}rem"><h2>{_text(who)}, step {step.index}</h2>'
    route = next((one for one in routes if one.step == step.index and one.subagent_id == step.subagent_id), None)
    facts = [tokens_text(step.usage)]
    if route is not None:
        confidence = "" if route.confidence is None else f", confidence {route.confidence:.2f}"
        facts.insert(0, f"route {route.choice} ({route.reason}{confidence}), model {route.model}")
    yield f'<p class="facts">{_text("; ".join(facts))}</p>'
    for text in step.texts:
        yield f"<pre>{_text(text)}</pre>"
    for call in step.tools:
        yield from _call(call)
    for note in step.notes:
        yield f'<p class="note">{_text(note)}</p>'
    yield "</section>"


def _call(call: ToolCall) -> Iterator[str]:
    failed = call.status in ("failed", "denied")
    told = (
        f'<span class="error"><b>{_text(call.name)}</b> {call.status}</span>'
        if failed
        else f"<b>{_text(call.name)}</b>"
    )
    yield f"<details><summary>{told}</summary><pre>{_text(json.dumps(call.input, ensure_ascii=False, indent=2))}</pre>"
    if call.preview:
        yield f"<pre>{_text(call.preview)}</pre>"
    yield "</details>"


def _depth(subagent: Subagent, names: dict[str, Subagent]) -> int:
    depth, parent = 1, subagent.parent_id
    while parent is not None and parent in names and depth < 16:
        depth, parent = depth + 1, names[parent].parent_id
    return depth


def _facts(run: Run) -> str:
    facts = [run.id, run.agent, run.status, run.started_at, tokens_text(run.usage)]
    if run.models:
        facts.append(", ".join(run.models))
    if run.cost is not None:
        facts.append(f"{'' if run.cost.complete else 'at least '}{run.cost.amount:.4f} {run.cost.currency}")
    return " · ".join(facts)


def _text(text: str) -> str:
    return escape(visible(text))
