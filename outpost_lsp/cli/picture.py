"""The picture of a run: one inline SVG without a script. Lanes are agents, boxes are steps, colours are routes.

A box is as high as its tokens, the output on top of the input; a count that is a lower bound has a broken outline. Over
a box stand the findings it reported, under it its number and duration. Branches are delegations. Colours are classes,
so that the page decides about light and dark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Final

from outpost_lsp.cli.lanes import Box, Branch, Lane, Lanes
from outpost_lsp.cli.progress import tokens_text
from outpost_lsp.cli.route_text import route_facts
from outpost_lsp.domain.finding import SEVERITIES, Severity
from outpost_lsp.domain.markdown import one_line, visible
from outpost_lsp.domain.run import Cost

COLOURS: Final = 8
"""How many colours there are for routes; more labels than these share."""

_COLUMN: Final = 76
_BOX: Final = 44
_TALLEST: Final = 84
_LOWEST: Final = 10
_ABOVE: Final = 30
_BELOW: Final = 44
_LANE: Final = _ABOVE + _TALLEST + _BELOW
_GAP: Final = 18
_CHARACTER: Final = 7.6
_LONGEST_NAME: Final = 24


def picture(lanes: Lanes) -> Iterator[str]:
    """The SVG, piece by piece; nothing when there is no step."""
    if not lanes.columns:
        return
    names = [one_line(lane.name, _LONGEST_NAME) for lane in lanes.lanes]
    left = 24 + max(
        int(len(name) * _CHARACTER) + lane.depth * 12 for name, lane in zip(names, lanes.lanes, strict=True)
    )
    width = left + lanes.columns * _COLUMN + 16
    height = len(lanes.lanes) * (_LANE + _GAP)
    most = max((_tokens(box) for box in lanes.boxes), default=0)
    colours = {route.choice: number % COLOURS for number, route in enumerate(lanes.routes)}
    yield (
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'role="img" aria-label="The steps of the run, a lane for each agent">'
    )
    for branch in lanes.branches:
        yield _branch(branch, left)
    for number, (lane, name) in enumerate(zip(lanes.lanes, names, strict=True)):
        yield from _lane(number, lane, name, left, width)
        for box in lane.boxes:
            yield from _box(box, _base(number), left, most, colours)
    yield "</svg>"


def _lane(number: int, lane: Lane, name: str, left: int, width: int) -> Iterator[str]:
    base = _base(number)
    yield f'<line class="base" x1="{left}" y1="{base}" x2="{width - 8}" y2="{base}"/>'
    x = 8 + lane.depth * 12
    yield f'<text class="lane" x="{x}" y="{base - 8}">{_text(name)}</text>'
    steps = f"{len(lane.boxes)} step{'' if len(lane.boxes) == 1 else 's'}"
    yield f'<text class="small" x="{x}" y="{base + 8}">{steps}</text>'


def _box(box: Box, base: int, left: int, most: int, colours: Mapping[str, int]) -> Iterator[str]:
    step, route = box.step, box.route
    x = _x(box.column, left)
    tall = _height(box, most)
    kind = "plain" if route is None else f"route{colours[route.choice]}"
    unsure = " unsure" if not step.usage.is_complete else ""
    second = " second" if route is not None and route.reason != "selected" else ""
    output = 0 if not _tokens(box) else round(tall * step.usage.output / _tokens(box))
    yield f'<a href="#step{box.column + 1}"><g class="{kind}{unsure}{second}"><title>{_text(_told(box))}</title>'
    yield f'<rect class="input" x="{x}" y="{base - tall}" width="{_BOX}" height="{tall}" rx="4"/>'
    if output:
        yield f'<rect class="output" x="{x}" y="{base - tall}" width="{_BOX}" height="{output}" rx="4"/>'
    yield f'<rect class="edge" x="{x}" y="{base - tall}" width="{_BOX}" height="{tall}" rx="4"/></g>'
    middle = x + _BOX / 2
    yield from _findings(box, middle, base - tall - 11)
    mark = ' <tspan class="error">!</tspan>' if _has_failed(box) else ""
    yield f'<text class="number" x="{middle:g}" y="{base + 15}">{step.index}{mark}</text>'
    yield f'<text class="small middle" x="{middle:g}" y="{base + 28}">{duration_text(step.duration_ms)}</text>'
    if step.cost is not None:
        yield f'<text class="small middle" x="{middle:g}" y="{base + 40}">{cost_text(step.cost, short=True)}</text>'
    yield "</a>"


def _findings(box: Box, middle: float, y: int) -> Iterator[str]:
    counts: dict[Severity, int] = {}
    for finding in box.step.findings:
        counts[finding.severity] = counts.get(finding.severity, 0) + 1
    shown = [severity for severity in SEVERITIES if severity in counts]
    start = middle - (len(shown) - 1) * 7
    for number, severity in enumerate(shown):
        x = start + number * 14
        yield f'<path class="finding {severity}" d="M{x:g} {y - 6}l6 6l-6 6l-6 -6z"><title>{counts[severity]} {severity}</title></path>'
        if counts[severity] > 1:
            yield f'<text class="small middle" x="{x:g}" y="{y - 8}">{counts[severity]}</text>'


def _branch(branch: Branch, left: int) -> str:
    """Down between two columns, along between two lanes, and to the child; and back. Boxes are never crossed."""
    # Between two columns there is room for one that comes and one that goes.
    aside = (_COLUMN - _BOX) // 3
    upper, lower = _base(branch.parent_lane), _base(branch.lane)
    there, back = lower - _ABOVE - _TALLEST - 4, lower - _ABOVE - _TALLEST + 4
    leaves, enters = _x(branch.leaves, left) + _BOX, _x(branch.first, left)
    path = f"M{leaves} {upper - 6}" + _bend(leaves + aside, upper - 6, there, enters - aside, lower - 6) + f"H{enters}"
    if branch.returns is not None:
        out, returns = _x(branch.last, left) + _BOX, _x(branch.returns, left)
        path += f"M{out} {lower - 6}" + _bend(out + aside, lower - 6, back, returns - aside, upper - 6) + f"H{returns}"
    kind = f"branch {branch.subagent.status}"
    told = f"{branch.subagent.name} {branch.subagent.status}"
    return f'<path class="{kind}" d="{path}"><title>{_text(told)}</title></path>'


def _bend(x1: int, y1: int, y: int, x2: int, y2: int) -> str:
    """Along to `x1`, up or down to `y`, along to `x2`, and on to `y2`, with round corners."""
    if abs(x2 - x1) < 2:
        return f"H{x1}V{y2}"
    round_ = min(8, abs(x2 - x1) // 2)
    first = round_ if y > y1 else -round_
    second = round_ if y2 > y else -round_
    turn = round_ if x2 > x1 else -round_
    return f"H{x1}V{y - first}Q{x1} {y} {x1 + turn} {y}H{x2 - turn}Q{x2} {y} {x2} {y + second}V{y2}"


def legend(lanes: Lanes) -> Iterator[str]:
    """What the colours and marks of the picture mean, as far as it has them."""
    boxes = lanes.boxes
    items: list[str] = []
    for number, route in enumerate(lanes.routes):
        count = sum(box.route is not None and box.route.choice == route.choice for box in boxes)
        named = f"{route.choice}: {route.model}, {count} step{'' if count == 1 else 's'}"
        items.append(f'<li><i class="route{number % COLOURS}"></i>{_text(named)}</li>')
    if any(box.route is None for box in boxes):
        items.append('<li><i class="plain"></i>not routed</li>')
    if any(box.route is not None and box.route.reason != "selected" for box in boxes):
        items.append('<li><i class="plain second"></i>taken on doubt or outage</li>')
    if any(not box.step.usage.is_complete for box in boxes):
        items.append('<li><i class="plain unsure"></i>tokens unknown or a lower bound</li>')
    if any(_has_failed(box) for box in boxes):
        items.append('<li><b class="error">!</b>a tool call failed or was denied</li>')
    reported = {finding.severity for box in boxes for finding in box.step.findings}
    shown = [severity for severity in SEVERITIES if severity in reported]
    items += [f'<li><i class="mark {severity}"></i>{severity}</li>' for severity in shown]
    items.append("<li>height: tokens, output on top of input</li>")
    yield f'<ul class="legend">{"".join(items)}</ul>'


def duration_text(milliseconds: int) -> str:
    """A duration in a few characters."""
    if milliseconds < 1_000:
        return f"{milliseconds} ms"
    seconds = milliseconds / 1_000
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"


def cost_text(cost: Cost, *, short: bool = False, unknown: str = "cost unknown") -> str:
    """A cost; an incomplete one is a lower bound, and one of which nothing is known says so."""
    if not cost.is_known:
        return "?" if short else unknown
    amount = f"{cost.amount:.4f}"
    sign = {"USD": "$", "EUR": "€"}.get(cost.currency, "")
    if short:
        return f"{'≥' if not cost.complete else ''}{sign}{amount}"
    return f"{'at least ' if not cost.complete else ''}{amount} {cost.currency}"


def _told(box: Box) -> str:
    parts = [f"step {box.step.index}", tokens_text(box.step.usage), duration_text(box.step.duration_ms)]
    if box.route is not None:
        parts.insert(1, f"route {box.route.choice} ({', '.join(route_facts(box.route))}), {box.route.model}")
    if box.step.cost is not None:
        parts.append(cost_text(box.step.cost))
    if box.step.tools:
        parts.append(", ".join(call.name for call in box.step.tools[:6]))
    return "\n".join(parts)


def _has_failed(box: Box) -> bool:
    return any(call.status in ("failed", "denied") for call in box.step.tools)


def _base(lane: int) -> int:
    return lane * (_LANE + _GAP) + _ABOVE + _TALLEST


def _x(column: int, left: int) -> int:
    return left + column * _COLUMN + (_COLUMN - _BOX) // 2


def _tokens(box: Box) -> int:
    return box.step.usage.input + box.step.usage.output


def _height(box: Box, most: int) -> int:
    return _LOWEST + round((_TALLEST - _LOWEST) * _tokens(box) / most) if most else _LOWEST


def _text(text: str) -> str:
    return escape(visible(text))
