"""A ceiling over many dispatches: when it is reached, who is told, and what a resumed account remembers."""

from __future__ import annotations

from typing import Any

import pytest

from outpost_lsp.domain.price import ModelPriceTable
from outpost_lsp.domain.usage import UNKNOWN, Usage, UsageLimits
from outpost_lsp.domain.workflow_budget import (
    CostLimit,
    WorkflowBudget,
    WorkflowLimits,
    checkpoint_from_json,
    total_cost,
)
from outpost_lsp.errors import OutpostError

PRICES = ModelPriceTable("EUR", {"small": {"input": 1_000_000, "output": 1_000_000}})


def spent(tokens: int, model: str = "small", *, complete: bool | None = None) -> Usage:
    return Usage(input=0, output=tokens, complete=complete).attributed(model)


def fault(action: Any) -> OutpostError:
    with pytest.raises(OutpostError) as caught:
        action()
    return caught.value


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"attempts": -1}, "attempts"),
        ({"attempts": 1.5}, "attempts"),
        ({"attempts": True}, "attempts"),
        ({"tokens": 1}, "tokens"),
        ({"cost": {"currency": "EUR", "limit": 1.0}}, "prices"),
        ({"cost": {"currency": "USD", "limit": 1.0}, "prices": PRICES}, "USD"),
        ({"cost": {"currency": "EUR", "limit": -1.0}, "prices": PRICES}, "limit"),
        ({"cost": {"currency": "EUR", "limit": float("inf")}, "prices": PRICES}, "limit"),
        ({"cost": {"currency": "EUR", "limit": float("nan")}, "prices": PRICES}, "limit"),
    ],
)
def test_BUD_01_a_wrong_budget_is_refused_by_name(options: dict[str, Any], names: str) -> None:
    error = fault(lambda: WorkflowLimits(**options))
    assert error.code == "configuration"
    assert names in error.message


@pytest.mark.parametrize(
    ("limits", "dimension"),
    [
        (WorkflowLimits(attempts=0), "attempts"),
        (WorkflowLimits(usage=UsageLimits(output=0)), "output"),
        (WorkflowLimits(prices=PRICES, cost=CostLimit(currency="EUR", limit=0)), "cost"),
    ],
)
def test_BUD_01_a_limit_of_zero_allows_nothing(limits: WorkflowLimits, dimension: str) -> None:
    error = fault(WorkflowBudget(limits).begin_attempt)
    assert (error.code, error.details["limit"], error.details["dimension"]) == ("limit", "budget", dimension)


def test_BUD_02_one_turn_is_one_attempt_whatever_its_requests() -> None:
    budget = WorkflowBudget(WorkflowLimits(attempts=2))
    with budget.begin_attempt() as attempt:
        for _ in range(5):
            attempt.report_usage(spent(3))
    with budget.begin_attempt():
        pass
    assert budget.usage.attempts == 2
    assert budget.usage.tokens.output == 15
    assert fault(budget.begin_attempt).details["observed"] == 2
    assert budget.usage.attempts == 2


def test_BUD_03_a_workflow_limit_is_reached_at_equality() -> None:
    budget = WorkflowBudget(WorkflowLimits(usage=UsageLimits(output=10)))
    with budget.begin_attempt() as attempt:
        attempt.report_usage(spent(9))
        error = fault(lambda: attempt.report_usage(spent(1)))
    assert dict(error.details) == {"limit": "budget", "dimension": "output", "ceiling": 10, "observed": 10}


def test_BUD_04_tokens_are_added_before_they_are_checked() -> None:
    budget = WorkflowBudget(WorkflowLimits(usage=UsageLimits(output=10)))
    attempt = budget.begin_attempt()
    fault(lambda: attempt.report_usage(spent(25)))
    assert budget.usage.tokens.output == 25


def test_BUD_04_before_an_attempt_cost_comes_first_then_completeness_attempts_and_tokens() -> None:
    used = WorkflowBudget()
    with used.begin_attempt() as attempt:
        attempt.report_usage(spent(5, complete=False))
    checkpoint = used.checkpoint()
    tokens = UsageLimits(output=5)
    cost = {"prices": PRICES, "cost": CostLimit(currency="EUR", limit=5)}

    def dimension(**limits: Any) -> Any:
        return fault(WorkflowBudget(WorkflowLimits(**limits), checkpoint).begin_attempt).details["dimension"]

    assert dimension(usage=tokens, attempts=1, **cost) == "cost"
    assert dimension(usage=tokens, attempts=1) == "attempts"
    assert dimension(usage=tokens) == "usage"
    assert dimension(usage=tokens, attempts=2) == "output"


def test_BUD_04_a_report_checks_cost_before_tokens() -> None:
    limits = WorkflowLimits(usage=UsageLimits(output=5), prices=PRICES, cost=CostLimit(currency="EUR", limit=5))
    attempt = WorkflowBudget(limits).begin_attempt()
    assert fault(lambda: attempt.report_usage(spent(5))).details["dimension"] == "cost"


def test_BUD_05_exhausted_attempts_let_running_ones_finish() -> None:
    told: list[OutpostError] = []
    budget = WorkflowBudget(WorkflowLimits(attempts=1))
    running = budget.begin_attempt(told.append)
    fault(budget.begin_attempt)
    running.report_usage(spent(1000))
    running.end()
    assert told == []


@pytest.mark.parametrize(
    ("limits", "usage"),
    [
        (WorkflowLimits(usage=UsageLimits(output=5)), spent(5)),
        (WorkflowLimits(usage=UsageLimits(output=5)), UNKNOWN),
        (WorkflowLimits(prices=PRICES, cost=CostLimit(currency="EUR", limit=5)), spent(5)),
        (WorkflowLimits(prices=PRICES, cost=CostLimit(currency="EUR", limit=5)), spent(1, "unpriced")),
    ],
)
def test_BUD_05_exhausted_tokens_cost_or_completeness_end_running_attempts_too(
    limits: WorkflowLimits, usage: Usage
) -> None:
    told: list[OutpostError] = []
    budget = WorkflowBudget(limits)
    other = budget.begin_attempt(told.append)
    finished = budget.begin_attempt(told.append)
    finished.end()
    reporter = budget.begin_attempt(told.append)
    error = fault(lambda: reporter.report_usage(usage))
    assert told == [error]
    assert fault(lambda: other.report_usage(spent(1))) is error
    assert told == [error]
    assert fault(budget.begin_attempt) is error


def test_BUD_06_incomplete_usage_under_a_token_limit_is_a_configuration_fault() -> None:
    attempt = WorkflowBudget(WorkflowLimits(usage=UsageLimits(output=5))).begin_attempt()
    error = fault(lambda: attempt.report_usage(UNKNOWN))
    assert error.code == "configuration"
    assert "did not report its usage" in error.message


def test_BUD_06_an_incomplete_cost_under_a_cost_limit_is_a_fault_even_with_attempts() -> None:
    limits = WorkflowLimits(attempts=9, prices=PRICES, cost=CostLimit(currency="EUR", limit=5))
    attempt = WorkflowBudget(limits).begin_attempt()
    error = fault(lambda: attempt.report_usage(spent(1, complete=False)))
    assert error.code == "configuration"
    assert error.details["dimension"] == "cost"
    unpriced = Usage(input=1, output=1).attributed("auto")
    error = fault(lambda: WorkflowBudget(limits).begin_attempt().report_usage(unpriced))
    assert error.message.endswith("; there is no price for auto")


def test_BUD_06_a_lower_bound_that_reaches_the_cost_limit_is_exceeded_rather_than_unknown() -> None:
    limits = WorkflowLimits(prices=PRICES, cost=CostLimit(currency="EUR", limit=5))
    attempt = WorkflowBudget(limits).begin_attempt()
    assert fault(lambda: attempt.report_usage(spent(6, complete=False))).code == "limit"


def test_BUD_07_with_attempts_incomplete_usage_is_only_a_warning_given_once() -> None:
    budget = WorkflowBudget(WorkflowLimits(attempts=3, usage=UsageLimits(output=50)))
    with budget.begin_attempt() as attempt:
        attempt.report_usage(UNKNOWN)
        attempt.report_usage(UNKNOWN)
    assert len(budget.warnings) == 1
    assert "lower bound" in budget.warnings[0]


def test_BUD_08_a_receipt_counts_once_and_after_a_resume_too() -> None:
    budget = WorkflowBudget()
    with budget.begin_attempt() as attempt:
        attempt.report_usage_once("r-1", spent(5))
        attempt.report_usage_once("r-1", spent(5))
        attempt.report_usage_once("r-2", spent(5))
    resumed = WorkflowBudget(None, checkpoint_from_json(budget.checkpoint().to_json()))
    with resumed.begin_attempt() as attempt:
        attempt.report_usage_once("r-2", spent(5))
        attempt.report_usage_once("r-3", spent(1))
    assert resumed.usage.tokens.output == 11


@pytest.mark.parametrize("receipt", ["", "  ", None, 5])
def test_BUD_08_a_receipt_has_a_name(receipt: Any) -> None:
    attempt = WorkflowBudget().begin_attempt()
    assert fault(lambda: attempt.report_usage_once(receipt, spent(1))).code == "configuration"


def test_BUD_08_usage_is_taken_during_the_attempt_only() -> None:
    budget = WorkflowBudget()
    attempt = budget.begin_attempt()
    attempt.end()
    assert "during an attempt" in fault(lambda: attempt.report_usage(spent(1))).message
    assert "during an attempt" in fault(lambda: attempt.report_usage_once("r", spent(1))).message
    assert budget.usage.tokens.output == 0


def test_BUD_09_a_listener_that_fails_changes_nothing_for_the_others() -> None:
    budget = WorkflowBudget(WorkflowLimits(usage=UsageLimits(output=5)))

    def failing(_error: OutpostError) -> None:
        raise RuntimeError("listener")

    budget.begin_attempt(failing)
    reached: list[OutpostError] = []
    budget.begin_attempt(reached.append)
    reporter = budget.begin_attempt()
    error = fault(lambda: reporter.report_usage(spent(5)))
    assert error.code == "limit"
    assert reached == [error]
    assert budget.usage.tokens.output == 5
    assert budget.warnings == ("an attempt could not be told that the budget is used up: listener",)


def test_BUD_10_router_usage_counts_like_any_other() -> None:
    budget = WorkflowBudget(WorkflowLimits(usage=UsageLimits(input=10)))
    attempt = budget.begin_attempt()
    attempt.report_usage(Usage(input=6, output=0).attributed("small"))
    assert fault(lambda: attempt.report_usage(Usage(input=4, output=0).attributed("auto"))).details["observed"] == 10


def test_BUD_11_a_checkpoint_keeps_counters_and_the_cost_is_worked_out_anew() -> None:
    budget = WorkflowBudget(WorkflowLimits(prices=PRICES))
    with budget.begin_attempt() as attempt:
        attempt.report_usage(spent(2))
    assert budget.usage.to_json() == {
        "attempts": 1,
        "tokens": spent(2).to_json(),
        "cost": {"currency": "EUR", "amount": 2.0, "complete": True},
    }
    dearer = ModelPriceTable("USD", {"small": {"input": 0, "output": 3_000_000}})
    resumed = WorkflowBudget(WorkflowLimits(prices=dearer), budget.checkpoint())
    assert resumed.usage.cost is not None
    assert (resumed.usage.cost.currency, resumed.usage.cost.amount) == ("USD", 6.0)
    assert WorkflowBudget(None, budget.checkpoint()).usage.cost is None


def test_BUD_11_a_broken_checkpoint_is_refused() -> None:
    assert fault(lambda: checkpoint_from_json({"attempts": -1, "tokens": {}})).code == "configuration"


def test_BUD_11_costs_of_several_workflows_add_up() -> None:
    first = WorkflowBudget(WorkflowLimits(prices=PRICES))
    with first.begin_attempt() as attempt:
        attempt.report_usage(spent(2))
    cost = first.usage.cost
    assert cost is not None
    added = total_cost([cost, cost])
    assert added is not None
    assert added.amount == 4
    assert total_cost([]) is None
