"""A run and its timeline with a cost at everything, or at nothing: where money is counted, an unknown cost says so.

A run's record holds what it cost by the prices of its day; what its steps cost is worked out by those of today. Either
may be without prices.
"""

from __future__ import annotations

import math

from outpost_lsp.domain.run import Cost, Run
from outpost_lsp.domain.usage import COUNTERS, Usage
from outpost_lsp.service.timeline_shape import Timeline


def costed(run: Run, timeline: Timeline) -> tuple[Run, Timeline]:
    """Both, for people to read; what is recorded is not changed."""
    if run.cost is None:
        return _whole_from_parts(run, timeline), timeline
    currency = run.cost.currency

    def cost(known: Cost | None, usage: Usage) -> Cost:
        # What used nothing for certain, as the built-in rules do, has no price to be unknown.
        is_free = usage.is_complete and not any(usage.count(name) for name in COUNTERS)
        return known or Cost(amount=0, currency=currency, complete=is_free)

    steps = tuple(step.model_copy(update={"cost": cost(step.cost, step.usage)}) for step in timeline.steps)
    usage = tuple(one.model_copy(update={"cost": cost(one.cost, one.usage)}) for one in timeline.usage)
    return run, timeline.model_copy(update={"steps": steps, "usage": usage})


def _whole_from_parts(run: Run, timeline: Timeline) -> Run:
    costs = [one.cost for one in timeline.usage if one.cost is not None]
    if not costs:
        return run
    is_complete = run.usage.is_complete and all(cost.complete for cost in costs)
    amount = math.fsum(cost.amount for cost in costs)
    return run.model_copy(update={"cost": Cost(amount=amount, currency=costs[0].currency, complete=is_complete)})
