"""A run as one HTML page that needs nothing else: no script, no font, no address on the network.

Every text is escaped: a page shows what a model or a file wrote and does nothing with it (SEC-19).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Final

from outpost_lsp.cli.costs import costed
from outpost_lsp.cli.lanes import Box, Lane, Lanes, lanes_of
from outpost_lsp.cli.picture import COLOURS, cost_text, duration_text, legend, picture
from outpost_lsp.cli.progress import call_text, tokens_text
from outpost_lsp.cli.route_text import route_facts
from outpost_lsp.domain.finding import SEVERITIES
from outpost_lsp.domain.markdown import visible
from outpost_lsp.domain.run import Run
from outpost_lsp.errors import configuration
from outpost_lsp.service.timeline_shape import Route, Timeline, ToolCall

_LIGHT: Final = (
    "--paper:#fff;--ink:#1c2733;--quiet:#5a6875;--line:#d4dbe2;--card:#f5f7f9;--plain:#8794a1;--error:#c62f2f;"
    "--warning:#b26a00;--information:#2463c4;--hint:#6b7885;"
    "--c0:#2463c4;--c1:#c2570c;--c2:#0b8068;--c3:#8a44c4;--c4:#a67400;--c5:#c22d66;--c6:#4c7d1c;--c7:#3f6c7d"
)
_DARK: Final = (
    "--paper:#12171d;--ink:#e3e9ef;--quiet:#98a6b4;--line:#323d48;--card:#1a212a;--plain:#7b8996;--error:#ff7a70;"
    "--warning:#f0ad4e;--information:#6fa8ff;--hint:#9aa7b3;"
    "--c0:#6fa8ff;--c1:#f59a53;--c2:#3cc9a7;--c3:#c08bf2;--c4:#dcb247;--c5:#f478a4;--c6:#97cc5c;--c7:#83b7cb"
)
_STYLE: Final = (
    f":root{{color-scheme:light dark;{_LIGHT}}}@media(prefers-color-scheme:dark){{:root{{{_DARK}}}}}"
    """
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem;
  color: var(--ink); background: var(--paper); }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .3rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; }
h3 { font-size: 1rem; margin: 0; } a { color: inherit; }
code, pre { font: 13px/1.45 ui-monospace, monospace; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .4rem 0; }
.quiet { color: var(--quiet); } .error { color: var(--error); } .prose { font: inherit; }
.succeeded { color: var(--c2); } .failed { color: var(--error); } .cancelled, .interrupted { color: var(--warning); }
.facts { display: flex; flex-wrap: wrap; gap: .5rem; padding: 0; margin: 1rem 0; list-style: none; }
.facts li { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .35rem .7rem; }
.facts b { display: block; font-size: .75rem; font-weight: 500; color: var(--quiet); }
.notes { color: var(--quiet); padding-left: 1.2rem; }
.picture { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .6rem; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; padding: 0; margin: .5rem 0; list-style: none;
  font-size: .85rem; color: var(--quiet); }
.legend i { display: inline-block; width: 13px; height: 13px; border-radius: 3px; margin-right: .4rem;
  vertical-align: -2px; background: var(--c); }
.legend i.second, .legend i.unsure { background: none; width: 18px; border: 3px solid var(--c); }
.legend i.unsure { border: 1.5px dashed var(--c); } .legend b { margin-right: .4rem; }
.legend i.mark { width: 10px; height: 10px; border-radius: 0; transform: rotate(45deg); vertical-align: 0; }
svg { display: block; } svg a { text-decoration: none; } svg text { fill: var(--ink); font: 13px system-ui, sans-serif; }
svg .lane { font-weight: 600; } svg .small { font-size: 11px; fill: var(--quiet); }
svg .number, svg .middle { text-anchor: middle; } svg tspan.error { fill: var(--error); font-weight: 700; }
.base { stroke: var(--line); } .input { fill: var(--c); opacity: .35; } .output { fill: var(--c); }
.edge { fill: none; stroke: var(--c); stroke-width: 1.5; }
.unsure .edge { stroke-dasharray: 4 3; } .second .edge { stroke-width: 4; } svg a:hover .edge, svg a:focus .edge { stroke: var(--ink); }
.branch { fill: none; stroke: var(--plain); stroke-width: 1.8; opacity: .8; } .branch.failed { stroke: var(--error); }
.branch.started { stroke-dasharray: 5 4; } .finding { fill: var(--c); stroke: var(--card); }
.plain { --c: var(--plain); } """
    + " ".join(f".route{number} {{ --c: var(--c{number}); }}" for number in range(COLOURS))
    + " ".join(f".{name}:is(.finding,.mark,.severity) {{ --c: var(--{name}); }}" for name in SEVERITIES)
    + """
.severity { color: var(--c); font-weight: 600; }
section { border-left: 4px solid var(--c); border-radius: 4px; padding: .2rem 0 .3rem 1rem; margin: .9rem 0;
  scroll-margin-top: 1rem; } section:target { background: var(--card); }
section p { margin: .1rem 0; } details { margin: .2rem 0; } summary { cursor: pointer; }
.tables { overflow-x: auto; } table { border-collapse: collapse; }
td, th { padding: .25rem 1.2rem .25rem 0; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
"""
)


def write_page(path: Path, run: Run, timeline: Timeline) -> None:
    """Write the page; `configuration` when the file cannot be written."""
    try:
        path.write_text("\n".join(page(run, timeline)) + "\n", "utf-8")
    except OSError as error:
        raise configuration(f"--html {path}: {error.strerror or error}") from error


def page(run: Run, timeline: Timeline) -> Iterator[str]:
    """The page, piece by piece."""
    run, timeline = costed(run, timeline)
    lanes = lanes_of(run, timeline)
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    yield "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    yield f"<title>{_text(run.title)}</title><style>{_STYLE}</style></head><body>"
    yield f"<h1>{_text(run.title)}</h1>"
    yield from _facts(run, timeline)
    if run.error is not None:
        yield f'<p class="error">{_text(run.error.code)}: {_text(run.error.message)}</p>'
    if timeline.untold is not None:
        yield f'<p class="quiet">No steps to show: {_text(timeline.untold)}.</p>'
    if lanes.columns:
        yield f'<div class="picture">{"".join(picture(lanes))}</div>'
        yield from legend(lanes)
    if run.text:
        yield f'<h2>Answer</h2><pre class="prose">{_text(run.text)}</pre>'
    yield from _findings(lanes)
    yield from _usage(run, timeline)
    if run.notes:
        yield "<h2>Notes</h2>"
        yield '<ul class="notes">' + "".join(f"<li>{_text(note)}</li>" for note in run.notes) + "</ul>"
    if lanes.columns:
        yield "<h2>Steps</h2>"
    colours = {route.choice: number % COLOURS for number, route in enumerate(lanes.routes)}
    places = {box.column: (lane, box) for lane in lanes.lanes for box in lane.boxes}
    for column in sorted(places):
        yield from _step(*places[column], colours)
    yield "</body></html>"


def _facts(run: Run, timeline: Timeline) -> Iterator[str]:
    facts = [("Agent", run.agent), ("Started", _moment(run.started_at))]
    if (took := _took(run)) is not None:
        facts.append(("Took", took))
    facts.append(("Tokens", tokens_text(run.usage, "unknown")))
    if run.cost is not None:
        facts.append(("Cost", cost_text(run.cost, unknown="unknown")))
    if run.models:
        facts.append(("Models", ", ".join(run.models)))
    if timeline.subagents:
        facts.append(("Delegations", str(len(timeline.subagents))))
    facts.append(("Findings", str(run.findings)))
    facts.append(("Run", run.id))
    yield f'<ul class="facts"><li><b>Status</b><span class="{run.status}">{run.status}</span></li>'
    yield "".join(f"<li><b>{name}</b>{_text(value)}</li>" for name, value in facts) + "</ul>"


def _moment(text: str) -> str:
    try:
        return f"{datetime.fromisoformat(text).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    except ValueError:
        return text


def _took(run: Run) -> str | None:
    try:
        ended = datetime.fromisoformat(run.finished_at or "")
        return duration_text(max(round((ended - datetime.fromisoformat(run.started_at)).total_seconds() * 1000), 0))
    except (ValueError, TypeError):
        return None


def _findings(lanes: Lanes) -> Iterator[str]:
    found = [(lane, box, finding) for lane in lanes.lanes for box in lane.boxes for finding in box.step.findings]
    if not found:
        return
    yield '<h2>Findings</h2><div class="tables"><table>'
    yield "<tr><th>severity</th><th>place</th><th>finding</th><th>reported</th></tr>"
    for lane, box, finding in sorted(found, key=lambda one: one[1].column):
        yield (
            f'<tr><td class="severity {finding.severity}">{finding.severity}</td>'
            f"<td><code>{_text(finding.path)}:{finding.line}</code></td><td>{_text(finding.title)}</td>"
            f'<td><a href="#step{box.column + 1}">{_text(lane.name)}, step {box.step.index}</a></td></tr>'
        )
    yield "</table></div>"


def _usage(run: Run, timeline: Timeline) -> Iterator[str]:
    if not timeline.usage:
        return
    rows = [(name, one.usage, one.cost) for name, one in zip(_names(run, timeline), timeline.usage, strict=True)]
    rows.append(("together", run.usage, run.cost))
    costs = any(cost is not None for *_, cost in rows)
    yield '<h2>Usage</h2><div class="tables"><table><tr><th>agent</th><th class="n">tokens</th>'
    yield ('<th class="n">cost</th>' if costs else "") + "</tr>"
    for name, usage, cost in rows:
        money = "unknown" if cost is None else cost_text(cost, unknown="unknown")
        cell = f'<td class="n">{_text(money)}</td>' if costs else ""
        yield f'<tr><td>{_text(name)}</td><td class="n">{_text(tokens_text(usage, "unknown"))}</td>{cell}</tr>'
    yield "</table></div>"


def _names(run: Run, timeline: Timeline) -> Iterator[str]:
    """Who used what; the delegations of one agent are numbered."""
    names = [run.agent if one.subagent_id is None else one.name or one.subagent_id for one in timeline.usage]
    seen: Counter[str] = Counter()
    for name in names:
        seen[name] += 1
        yield name if names.count(name) == 1 else f"{name}, delegation {seen[name]}"


def _step(lane: Lane, box: Box, colours: Mapping[str, int]) -> Iterator[str]:
    step, route = box.step, box.route
    kind = "plain" if route is None else f"route{colours[route.choice]}"
    yield f'<section id="step{box.column + 1}" class="{kind}" style="margin-left:{lane.depth * 2}rem">'
    yield f"<h3>{_text(lane.name)}, step {step.index}</h3>"
    facts = [tokens_text(step.usage), duration_text(step.duration_ms)]
    if step.cost is not None:
        facts.append(cost_text(step.cost))
    if route is not None:
        facts.insert(0, _route_text(route))
    yield f'<p class="quiet">{_text("; ".join(facts))}</p>'
    for text in step.texts:
        yield f'<pre class="prose">{_text(text)}</pre>'
    for call in step.tools:
        yield from _call(call)
    for note in step.notes:
        yield f'<p class="quiet">{_text(note)}</p>'
    yield "</section>"


def _route_text(route: Route) -> str:
    return f"route {route.choice} ({', '.join(route_facts(route))}), model {route.model}"


def _call(call: ToolCall) -> Iterator[str]:
    failed = call.status in ("failed", "denied")
    told = (
        f'<span class="error"><b>{_text(call.name)}</b> {call.status}</span>'
        if failed
        else f"<b>{_text(call.name)}</b>"
    )
    took = "" if call.duration_ms is None else f' <span class="quiet">{duration_text(call.duration_ms)}</span>'
    given = f' <span class="quiet">{_text(call_text(call.input))}</span>'
    yield f"<details><summary>{told}{given}{took}</summary>"
    yield f"<pre>{_text(json.dumps(call.input, ensure_ascii=False, indent=2))}</pre>"
    if call.preview:
        yield f"<pre>{_text(call.preview)}</pre>"
    yield "</details>"


def _text(text: str) -> str:
    return escape(visible(text))
