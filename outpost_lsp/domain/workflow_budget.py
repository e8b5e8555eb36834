"""A ceiling over many dispatches: attempts, tokens and money (BUD rules).

Pure accounting, fed synchronously by the engine: nothing here waits, cancels or shows anything by itself. A ceiling is
reached at equality, unlike the ceilings of a loop. What breaks is remembered, so that every later attempt is told the
same, and attempts under way are told through the callback they began with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from pydantic import ValidationError, model_validator

from outpost_lsp.domain.price import Currency, ModelPriceTable, Rate, UsageCost, unpriced, usage_cost
from outpost_lsp.domain.record import Declaration, Record, SafeInt, describe
from outpost_lsp.domain.usage import ZERO, Usage, UsageLimits
from outpost_lsp.errors import OutpostError

OnBreach = Callable[[OutpostError], None]

_INCOMPLETE_WARNING: Final = "a request did not report its usage: the tokens counted for the budget are a lower bound"


class CostLimit(Declaration):
    """A ceiling in money."""

    currency: Currency
    limit: Rate


class WorkflowLimits(Declaration):
    """The ceilings of a workflow; 0 allows nothing (BUD-01)."""

    attempts: SafeInt | None = None
    usage: UsageLimits | None = None
    prices: ModelPriceTable | None = None
    cost: CostLimit | None = None

    @model_validator(mode="after")
    def _cost_needs_prices(self) -> WorkflowLimits:
        if self.cost is not None and self.prices is None:
            raise ValueError("cost: a limit in money needs prices")
        if self.cost is not None and self.prices is not None and self.cost.currency != self.prices.currency:
            raise ValueError(f"cost: the limit is in {self.cost.currency}, the prices are in {self.prices.currency}")
        return self


class WorkflowUsage(Record):
    """What a workflow used so far (BUD-11)."""

    attempts: SafeInt
    tokens: Usage
    cost: UsageCost | None = None


class WorkflowCheckpoint(Record):
    """What a resumed workflow needs to go on counting. The cost is worked out anew from the prices then given."""

    attempts: SafeInt
    tokens: Usage
    receipts: tuple[str, ...] = ()


class WorkflowBudget:
    """The running account of one workflow.

    An attempt is one turn of an agent, whatever its number of requests (BUD-02). `warnings` says, once, what was let
    pass (BUD-07).
    """

    __slots__ = ("_attempts", "_breach", "_limits", "_receipts", "_running", "_tokens", "_warnings")

    def __init__(self, limits: WorkflowLimits | None = None, checkpoint: WorkflowCheckpoint | None = None) -> None:
        self._limits = limits or WorkflowLimits()
        self._attempts = 0 if checkpoint is None else checkpoint.attempts
        self._tokens = ZERO if checkpoint is None else checkpoint.tokens
        # A dictionary keeps the order in which the receipts came.
        self._receipts: dict[str, None] = dict.fromkeys(() if checkpoint is None else checkpoint.receipts)
        self._running: dict[Attempt, None] = {}
        self._breach: OutpostError | None = None
        self._warnings: list[str] = []

    @property
    def usage(self) -> WorkflowUsage:
        """The totals over tasks, retries, rounds and resumed checkpoints."""
        cost: UsageCost | None = None
        try:
            cost = self._cost()
        except OutpostError as error:
            self._warn(f"the cost could not be worked out: {error.message}")
        return WorkflowUsage(attempts=self._attempts, tokens=self._tokens, cost=cost)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was let pass, each once."""
        return tuple(self._warnings)

    def checkpoint(self) -> WorkflowCheckpoint:
        """The counters as they stand, to be stored and given to a later budget."""
        return WorkflowCheckpoint(attempts=self._attempts, tokens=self._tokens, receipts=tuple(self._receipts))

    def begin_attempt(self, on_breach: OnBreach | None = None) -> Attempt:
        """Count a new attempt, or raise what forbids it (BUD-04).

        `on_breach` is called when another attempt breaks the budget in a way that ends running ones too (BUD-05).
        """
        if self._breach is not None:
            raise self._breach
        for check in (self._cost_fault, self._completeness_fault, self._attempts_fault, self._tokens_fault):
            if (fault := check()) is not None:
                raise fault
        self._attempts += 1
        attempt = Attempt(self._report, self._end, on_breach)
        self._running[attempt] = None
        return attempt

    def _report(self, attempt: Attempt, usage: Usage, receipt: str | None) -> None:
        if attempt not in self._running:
            raise OutpostError("configuration", "workflow budget: usage is reported during an attempt only")
        if receipt is not None:
            if receipt in self._receipts:
                return
            self._receipts[receipt] = None
        self._tokens = self._tokens + usage
        for check in (self._cost_fault, self._completeness_fault, self._tokens_fault):
            if (fault := check()) is not None:
                self._break(attempt, fault)
                raise self._breach or fault
        if self._limits.attempts is not None and not self._tokens.is_complete:
            self._warn(_INCOMPLETE_WARNING)

    def _end(self, attempt: Attempt) -> None:
        self._running.pop(attempt, None)

    def _break(self, reporter: Attempt, fault: OutpostError) -> None:
        if self._breach is not None:
            return
        self._breach = fault
        for attempt in tuple(self._running):
            if attempt is reporter or attempt.on_breach is None:
                continue
            try:
                attempt.on_breach(fault)
            except Exception as error:  # noqa: BLE001 - one listener must not keep the others from being told
                self._warn(f"an attempt could not be told that the budget is used up: {error}")

    def _warn(self, warning: str) -> None:
        if warning not in self._warnings:
            self._warnings.append(warning)

    def _cost(self) -> UsageCost | None:
        return None if self._limits.prices is None else usage_cost(self._tokens, self._limits.prices)

    def _cost_fault(self) -> OutpostError | None:
        limit, prices = self._limits.cost, self._limits.prices
        if limit is None or prices is None:
            return None
        cost = usage_cost(self._tokens, prices)
        if cost.amount >= limit.limit:
            return _reached("cost", limit.limit, cost.amount, limit.currency)
        if cost.complete:
            return None
        return OutpostError(
            "configuration",
            "the budget has a limit in money, and the cost so far is unknown: give a price for every model and use "
            f"services that report usage{unpriced(self._tokens, prices)}",
            {"dimension": "cost"},
        )

    def _completeness_fault(self) -> OutpostError | None:
        limits = self._limits.usage
        if limits is None or not limits.set_counters() or self._tokens.is_complete or self._limits.attempts is not None:
            return None
        return OutpostError(
            "configuration",
            "the budget has a limit in tokens, and a request did not report its usage: limit attempts instead, or use "
            "services that report usage",
            {"dimension": "usage"},
        )

    def _attempts_fault(self) -> OutpostError | None:
        limit = self._limits.attempts
        if limit is None or self._attempts < limit:
            return None
        return _reached("attempts", limit, self._attempts, "attempts")

    def _tokens_fault(self) -> OutpostError | None:
        for counter, limit in self._limits.usage.set_counters() if self._limits.usage is not None else ():
            used = self._tokens.count(counter)
            if used >= limit:
                return _reached(_CAMEL.get(counter, counter), limit, used, f"{counter.replace('_', ' ')} tokens")
        return None


class Attempt:
    """One turn of an agent under a workflow's budget; a context manager that ends it."""

    __slots__ = ("_end", "_report", "on_breach")

    def __init__(
        self,
        report: Callable[[Attempt, Usage, str | None], None],
        end: Callable[[Attempt], None],
        on_breach: OnBreach | None,
    ) -> None:
        self._report = report
        self._end = end
        self.on_breach = on_breach

    def report_usage(self, usage: Usage) -> None:
        """Add what was used; raises what it broke, after adding it."""
        self._report(self, usage, None)

    def report_usage_once(self, receipt: str, usage: Usage) -> None:
        """The same, unless this receipt was counted before, in an earlier life of the workflow too (BUD-08)."""
        if not isinstance(receipt, str) or not receipt.strip():
            raise OutpostError("configuration", "workflow budget: receipt: nonblank text is expected")
        self._report(self, usage, receipt)

    def end(self) -> None:
        """No more usage is taken from this attempt."""
        self._end(self)

    def __enter__(self) -> Attempt:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.end()


def checkpoint_from_json(stored: Mapping[str, Any]) -> WorkflowCheckpoint:
    """A stored checkpoint; `configuration` when it is none."""
    try:
        return WorkflowCheckpoint.model_validate(stored)
    except ValidationError as error:
        raise OutpostError("configuration", describe("workflow checkpoint", error)) from error


def total_cost(costs: Iterable[UsageCost]) -> UsageCost | None:
    """The sum of costs in one currency; `None` for none."""
    result: UsageCost | None = None
    for cost in costs:
        result = cost if result is None else result + cost
    return result


_CAMEL: Final[Mapping[str, str]] = {"cache_created": "cacheCreated"}


def _reached(dimension: str, limit: float, observed: float, unit: str) -> OutpostError:
    return OutpostError(
        "limit",
        f"the budget of {limit:g} {unit} is used up: {observed:g} used"
        if dimension == "cost"
        else f"the budget of {limit} {unit} is used up: {observed} used",
        {"limit": "budget", "dimension": dimension, "ceiling": limit, "observed": observed},
    )
