"""Ceilings of a run and of a day (TBUD, BUD, U-30, U-31)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from outpost_lsp.domain.price import ModelPriceTable
from outpost_lsp.domain.run import Cost, Run
from outpost_lsp.domain.usage import ZERO, Usage
from outpost_lsp.errors import OutpostError
from outpost_lsp.service.ceilings import Allowance, DayCeiling, RunCostCeiling
from outpost_lsp.storage.identifiers import new_run_id, now_text
from outpost_lsp.storage.runs import RunStore

PRICES = ModelPriceTable("USD", {"small": {"input": 1.0, "output": 10.0}})


def used(output: int, *, model: str = "small") -> Usage:
    return Usage(input=0, output=output).attributed(model)


def run(usage: Usage, **changes: object) -> Run:
    base: dict[str, object] = {
        "id": new_run_id(),
        "kind": "review",
        "agent": "reviewer",
        "title": "Review",
        "status": "succeeded",
        "workspace": "/home/me/project",
        "started_at": now_text(),
        "usage": usage,
    }
    return Run.model_validate(base | changes)


def day(store: RunStore, allowance: Allowance, reached: list[OutpostError] | None = None) -> DayCeiling:
    heard = [] if reached is None else reached
    return DayCeiling(allowance, store, "/home/me/project", PRICES, heard.append)


def test_a_run_may_cost_exactly_its_ceiling_and_not_more() -> None:
    ceiling = RunCostCeiling(1.0, PRICES)
    assert ceiling.charge(used(100_000)) is None
    fault = ceiling.charge(used(1))
    assert fault is not None
    assert fault.code == "limit"
    assert fault.details["counter"] == "cost"
    assert fault.details["ceiling"] == 1.0
    assert "USD" in fault.message
    assert "per_run" in fault.message


def test_BUD_06_a_cost_that_cannot_be_told_under_a_ceiling_is_a_configuration_fault() -> None:
    fault = RunCostCeiling(1.0, PRICES).charge(used(10, model="unpriced"))
    assert fault is not None
    assert fault.code == "configuration"
    assert fault.message.endswith("; there is no price for unpriced"), "a decider's model is seldom thought of"


def test_BUD_06_what_has_no_price_is_named_under_a_days_ceiling_and_only_that(tmp_path: Path) -> None:
    ceiling = day(RunStore(tmp_path / "runs"), Allowance({}, 1.0))
    fault = ceiling.charge(used(10) + used(10, model="auto"))
    assert fault is not None
    assert fault.message.endswith("; there is no price for auto")
    unknown = RunCostCeiling(1.0, PRICES).charge(Usage(input=0, output=0, complete=False).attributed("small"))
    assert unknown is not None
    assert "no price for" not in unknown.message


def test_BUD_03_a_days_ceiling_is_reached_at_equality(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.save(run(used(600)))
    reached: list[OutpostError] = []
    ceiling = day(store, Allowance({"output": 1_000}), reached)
    assert ceiling.check() is None
    assert ceiling.charge(used(399)) is None
    fault = ceiling.charge(used(400))
    assert fault is not None
    assert fault.code == "limit"
    assert fault.details == {
        "limit": "budget",
        "budget": "per_day",
        "counter": "output",
        "ceiling": 1_000,
        "used": 1_000,
    }
    assert reached == [fault]


def test_a_days_ceiling_counts_neither_replays_nor_other_workspaces_nor_yesterday(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    yesterday = now_text(datetime.now(UTC) - timedelta(days=1, minutes=1))
    store.save(run(used(1_000), kind="replay"))
    store.save(run(used(1_000), workspace="/home/me/other"))
    store.save(run(used(1_000), id="20200101-000000-000000-abcdef", started_at=yesterday))
    assert day(store, Allowance({"output": 1_000})).check() is None


def test_a_days_ceiling_survives_a_restart_and_sees_runs_of_other_processes(tmp_path: Path) -> None:
    ceiling = day(RunStore(tmp_path), Allowance({"output": 1_000}))
    RunStore(tmp_path).save(run(used(1_000), status="failed"))
    assert ceiling.check() is not None
    assert day(RunStore(tmp_path), Allowance({"output": 1_000})).check() is not None


def test_a_days_ceiling_in_money_adds_the_costs_of_earlier_runs(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.save(run(used(1), cost=Cost(amount=0.75, currency="USD", complete=True)))
    ceiling = day(store, Allowance({}, cost=1.0))
    assert ceiling.charge(used(24_999)) is None
    fault = ceiling.charge(used(25_000))
    assert fault is not None
    assert fault.details["counter"] == "cost"


def test_BUD_06_unknown_usage_under_a_days_ceiling_in_tokens_is_a_configuration_fault(tmp_path: Path) -> None:
    fault = day(RunStore(tmp_path), Allowance({"output": 10})).charge(ZERO.model_copy(update={"complete": False}))
    assert fault is not None
    assert fault.code == "configuration"
