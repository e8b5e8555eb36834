"""Where the steps of a run are drawn: a lane for each agent, a column for each step, in the order in which they began.

Delegations run one at a time, so an agent's runs under the same parent share a lane. Used for pages and terminals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from outpost_lsp.domain.run import Run
from outpost_lsp.service.timeline_shape import Route, Step, Subagent, Timeline


@dataclass(frozen=True, slots=True)
class Box:
    """One step in its place."""

    column: int
    step: Step
    route: Route | None


@dataclass(slots=True)
class Lane:
    """One agent. `depth` is 0 for the main one."""

    name: str
    depth: int
    boxes: list[Box] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Branch:
    """A delegation: from the step that asked for it to the child's lane, and back to the parent's next step."""

    subagent: Subagent
    parent_lane: int
    lane: int
    leaves: int
    """The column of the step that delegates."""
    first: int
    last: int
    returns: int | None
    """The column of the parent's next step, when it had one."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """All of a run."""

    lanes: tuple[Lane, ...]
    branches: tuple[Branch, ...]
    columns: int

    @property
    def routes(self) -> tuple[Route, ...]:
        """One route for each label, in the order in which they were first taken."""
        first: dict[str, Route] = {}
        for box in self.boxes:
            if box.route is not None:
                first.setdefault(box.route.choice, box.route)
        return tuple(first.values())

    @property
    def boxes(self) -> list[Box]:
        """All steps, in order."""
        return sorted((box for lane in self.lanes for box in lane.boxes), key=lambda box: box.column)


def lanes_of(run: Run, timeline: Timeline) -> Lanes:
    """The places of everything in a timeline."""
    subagents = {subagent.id: subagent for subagent in timeline.subagents}
    routes = {(route.subagent_id, route.step): route for route in timeline.routes}
    lanes: list[Lane] = [Lane(run.agent, 0)]
    # A lane's key is the lane of its parent and the agent's name.
    places: dict[tuple[int, str], int] = {}

    def lane_of(subagent_id: str | None, seen: int = 0) -> int:
        subagent = subagents.get(subagent_id or "")
        if subagent is None or seen > len(subagents):
            return 0
        parent = lane_of(subagent.parent_id, seen + 1)
        key = (parent, subagent.name)
        if key not in places:
            places[key] = len(lanes)
            lanes.append(Lane(subagent.name, lanes[parent].depth + 1))
        return places[key]

    for column, step in enumerate(timeline.steps):
        route = routes.get((step.subagent_id, step.index))
        lanes[lane_of(step.subagent_id)].boxes.append(Box(column, step, route))
    branches = [branch for subagent in timeline.subagents if (branch := _branch(subagent, timeline.steps, lane_of))]
    return Lanes(tuple(lanes), tuple(branches), len(timeline.steps))


def _branch(subagent: Subagent, steps: Sequence[Step], lane_of: object) -> Branch | None:
    assert callable(lane_of)
    own = [column for column, step in enumerate(steps) if step.subagent_id == subagent.id]
    parents = [column for column, step in enumerate(steps) if step.subagent_id == subagent.parent_id]
    before = [column for column in parents if column < own[0]] if own else []
    if not own or not before:
        return None
    return Branch(
        subagent=subagent,
        parent_lane=lane_of(subagent.parent_id),
        lane=lane_of(subagent.id),
        leaves=before[-1],
        first=own[0],
        last=own[-1],
        returns=next((column for column in parents if column > own[-1]), None),
    )
