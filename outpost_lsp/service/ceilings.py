"""Ceilings above every agent of a run: money of one run, tokens and money of a workspace's day.

A run's ceiling is broken above it, like an agent's own limits; a day's is reached at equality (BUD-03). Neither counts
unknown spending as none: what cannot be told under a ceiling ends the run with a `configuration` fault (BUD-06). Made
by the service for each dispatch; the engine's accounting calls `charge` before anybody is told.

These are no `WorkflowBudget`, which is for programs that use the library: a run's ceiling is broken above it rather than
at it, and a day's counts what stands in the records of every process, so that neither could be an account in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from outpost_lsp.config.prices import price_table
from outpost_lsp.config.schema import CeilingSettings
from outpost_lsp.domain.price import ModelPriceTable, unpriced, usage_cost
from outpost_lsp.domain.usage import COUNTERS, ZERO, Usage, UsageLimits
from outpost_lsp.errors import OutpostError, configuration
from outpost_lsp.harness.budget import Budget, Ceiling
from outpost_lsp.storage.identifiers import now_text
from outpost_lsp.storage.runs import RunStore

if TYPE_CHECKING:
    from outpost_lsp.service.handle import RunHandle
    from outpost_lsp.service.outpost import Outpost
    from outpost_lsp.service.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Allowance:
    """A `[budget]` table: ceilings in tokens, and one in money."""

    tokens: Mapping[str, int]
    cost: float | None = None

    @classmethod
    def of(cls, settings: CeilingSettings) -> Allowance:
        """The allowance that a table of the configuration describes."""
        tokens: dict[str, int] = {name: limit for name in COUNTERS if (limit := getattr(settings, name)) is not None}
        return cls(tokens, settings.cost)

    @property
    def limits(self) -> UsageLimits | None:
        """The ceilings in tokens; `None` when there are none."""
        return UsageLimits(**dict(self.tokens)) if self.tokens else None

    def __bool__(self) -> bool:
        return bool(self.tokens) or self.cost is not None


class RunCostCeiling:
    """What one run may cost."""

    def __init__(self, limit: float, prices: ModelPriceTable) -> None:
        self._limit = limit
        self._prices = prices
        self._used = ZERO

    def charge(self, usage: Usage) -> OutpostError | None:
        """Add a receipt; the fault when the run costs too much, or when nobody can tell."""
        self._used = self._used + usage
        cost = usage_cost(self._used, self._prices)
        if not cost.complete:
            return _unknown_cost("per_run", unpriced(self._used, self._prices))
        if cost.amount <= self._limit:
            return None
        return _spent("this run", "per_run", "cost", self._limit, cost.amount, self._prices.currency)


class DayCeiling:
    """What the runs of a workspace may use together in one day; replays use nothing.

    `reached` is told the fault once a receipt reaches the ceiling, so that the other live runs end too (BUD-05).
    """

    def __init__(
        self,
        allowance: Allowance,
        store: RunStore,
        workspace: str,
        prices: ModelPriceTable | None,
        reached: Callable[[OutpostError], None],
    ) -> None:
        self._allowance = allowance
        self._store = store
        self._workspace = workspace
        self._prices = prices
        self._reached = reached

    def check(self) -> OutpostError | None:
        """The fault when nothing is left for a new run."""
        return self._exceeded(ZERO)

    def charge(self, usage: Usage) -> OutpostError | None:
        """Add a receipt. The records on disk hold every earlier one, also those of other processes."""
        if self._allowance.tokens and not usage.is_complete:
            return configuration(
                "[budget] per_day is set in tokens, and a request did not report its usage: remove the ceiling or use a "
                "service that reports usage"
            )
        fault = self._exceeded(usage)
        if fault is not None:
            self._reached(fault)
        return fault

    def _exceeded(self, latest: Usage) -> OutpostError | None:
        spent = self._store.spent(_midnight(), workspace=self._workspace)
        used = spent.usage + latest
        for counter in COUNTERS:
            limit = self._allowance.tokens.get(counter)
            if limit is not None and used.count(counter) >= limit:
                return _spent("today's runs", "per_day", counter, limit, used.count(counter), "tokens")
        if self._allowance.cost is None or self._prices is None:
            return None
        latest_cost = usage_cost(latest, self._prices)
        if not latest_cost.complete:
            return _unknown_cost("per_day", unpriced(latest, self._prices))
        amount = spent.amounts.get(self._prices.currency, 0.0) + latest_cost.amount
        if amount >= self._allowance.cost:
            return _spent("today's runs", "per_day", "cost", self._allowance.cost, amount, self._prices.currency)
        return None


def run_budget(per_run: Allowance, prices: ModelPriceTable | None, day: DayCeiling | None) -> Budget | None:
    """The account above an agent's own limits; `None` where nobody set a ceiling."""
    ceilings: list[Ceiling] = [] if day is None else [day]
    if per_run.cost is not None:
        if prices is None:
            raise _unknown_cost("per_run")
        ceilings.append(RunCostCeiling(per_run.cost, prices))
    if not ceilings and per_run.limits is None:
        return None
    return Budget("this run", per_run.limits, ceilings=tuple(ceilings))


def _midnight() -> str:
    # The day of the person, not of Greenwich.
    today = datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
    return now_text(today)


def _spent(whose: str, key: str, counter: str, limit: float, used: float, unit: str) -> OutpostError:
    name = counter.replace("_", " ")
    what = f"{name} {unit}" if unit == "tokens" else unit
    return OutpostError(
        "limit",
        f"{whose} used {used:,.6g} {what} of the {limit:,.6g} that [budget] {key} allows; raise it to go on",
        {"limit": "budget", "budget": key, "counter": counter, "ceiling": limit, "used": used},
    )


def _unknown_cost(key: str, named: str = "") -> OutpostError:
    return configuration(
        f"[budget] {key} is set in money, and what a request cost cannot be told: give every model a price and use "
        f"services that report usage, or set the ceiling in tokens{named}"
    )


def day_ceiling(outpost: Outpost, workspace: Workspace, handle: RunHandle) -> DayCeiling | None:
    """The ceiling of a workspace's day; reached, it ends every other live run of the workspace (BUD-05).

    A replay uses nothing, and has none.
    """
    allowance = Allowance.of(workspace.settings.budget.per_day)
    if not allowance or handle.run.kind == "replay":
        return None

    def reached(fault: OutpostError) -> None:
        for other in outpost.live.of(workspace):
            if other is not handle and other.run.kind != "replay":
                other.fail(fault)

    return DayCeiling(allowance, workspace.runs, str(workspace.folder), price_table(workspace.settings), reached)
