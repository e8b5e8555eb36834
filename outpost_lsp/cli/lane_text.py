"""The steps of a run as rows of boxes for a terminal: a row for each agent, a box for each step, coloured by its route."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from outpost_lsp.cli.lanes import Box, Lanes
from outpost_lsp.cli.terminal import BLUE, BOLD, DIM, GREEN, RED, YELLOW, Paint
from outpost_lsp.domain.markdown import one_line

_MAGENTA: Final = "35"
_CYAN: Final = "36"
_ROUTES: Final = (BLUE, YELLOW, GREEN, _MAGENTA, _CYAN, RED)
_LONGEST_NAME: Final = 20
_LONGEST_LABEL: Final = 10


def lane_rows(lanes: Lanes, paint: Paint, width: int) -> Iterator[str]:
    """The rows; where a run has more steps than fit into `width`, they go on below."""
    if not lanes.columns:
        return
    colours = {route.choice: _ROUTES[number % len(_ROUTES)] for number, route in enumerate(lanes.routes)}
    names = [f"{'  ' * lane.depth}{one_line(lane.name, _LONGEST_NAME)}" for lane in lanes.lanes]
    left = max(len(name) for name in names) + 2
    cell = max(len(_label(box)) for box in lanes.boxes) + 1
    fitting = max((width - left) // cell, 1)
    for first in range(0, lanes.columns, fitting):
        columns = range(first, min(first + fitting, lanes.columns))
        for name, lane in zip(names, lanes.lanes, strict=True):
            boxes = {box.column: box for box in lane.boxes if box.column in columns}
            if boxes:
                cells = (_cell(boxes.get(column), cell, colours, paint) for column in columns)
                yield (paint(name, BOLD) + " " * (left - len(name)) + "".join(cells)).rstrip()


def _label(box: Box) -> str:
    label = "" if box.route is None else f" {one_line(box.route.choice, _LONGEST_LABEL)}"
    # A label that was taken on doubt or outage is marked.
    doubt = "?" if box.route is not None and box.route.reason != "selected" else ""
    found = f" *{len(box.step.findings)}" if box.step.findings else ""
    return f"[{box.step.index}{label}{doubt}{found}]"


def _cell(box: Box | None, width: int, colours: dict[str, str], paint: Paint) -> str:
    if box is None:
        return paint("·", DIM).ljust(1) + " " * (width - 1)
    label = _label(box)
    colour = DIM if box.route is None else colours[box.route.choice]
    return paint(label, colour) + " " * (width - len(label))
