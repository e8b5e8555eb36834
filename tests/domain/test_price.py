"""Prices: what a usage costs, and that an unknown cost never looks like none."""

from __future__ import annotations

from typing import Any

import pytest

from outpost_lsp.domain.price import ModelPrice, ModelPriceTable, UsageCost, usage_cost
from outpost_lsp.domain.usage import UNKNOWN, ZERO, ModelUsage, Usage
from outpost_lsp.errors import OutpostError

PRICES = ModelPriceTable("EUR", {"small": {"input": 2, "output": 8}})
FULL = ModelPriceTable("USD", {"m": ModelPrice(input=10, output=20, cached=1, cache_created=12)})


@pytest.mark.parametrize(
    ("currency", "models", "names"),
    [
        ("GBP", {}, "currency"),
        ("EUR", {" ": {"input": 1, "output": 1}}, "blank"),
        ("EUR", {"m": {"input": -1, "output": 1}}, "input"),
        ("EUR", {"m": {"input": float("nan"), "output": 1}}, "input"),
        ("EUR", {"m": {"input": float("inf"), "output": 1}}, "input"),
        ("EUR", {"m": {"input": "1", "output": 1}}, "input"),
        ("EUR", {"m": {"input": True, "output": 1}}, "input"),
        ("EUR", {"m": {"input": 1}}, "output"),
        ("EUR", {"m": {"input": 1, "output": 1, "tier": 1}}, "tier"),
        ("EUR", {"m": 5}, "price"),
        ("EUR", [], "models"),
        ("EUR", {1: {"input": 1, "output": 1}}, "models"),
    ],
)
def test_PRICE_01_a_wrong_table_is_refused_by_name(currency: Any, models: Any, names: str) -> None:
    with pytest.raises(OutpostError, match=names) as caught:
        ModelPriceTable(currency, models)
    assert caught.value.code == "configuration"


def test_PRICE_01_missing_cache_rates_are_the_input_rate() -> None:
    usage = Usage(input=1_000_000, cached=400_000, cache_created=100_000, output=0).attributed("small")
    assert usage_cost(usage, PRICES).amount == 2


def test_PRICE_01_a_table_does_not_follow_later_changes() -> None:
    models = {"m": {"input": 1.0, "output": 1.0}}
    table = ModelPriceTable("EUR", models)
    models["m"]["input"] = 99.0
    models.clear()
    assert table.models["m"].input == 1
    with pytest.raises(TypeError):
        table.models["n"] = ModelPrice(input=1, output=1)  # type: ignore[index]


def test_PRICE_02_the_four_parts_have_their_own_rates() -> None:
    usage = Usage(input=1_000_000, cached=200_000, cache_created=300_000, output=50_000).attributed("m")
    expected = 0.5 * 10 + 0.2 * 1 + 0.3 * 12 + 0.05 * 20
    assert usage_cost(usage, FULL) == UsageCost(currency="USD", amount=expected, complete=True)


def test_PRICE_02_nothing_is_subtracted_when_the_cache_is_outside_input() -> None:
    part = ModelUsage(input=100_000, cached=900_000, output=0, input_includes_cache=False)
    usage = Usage(input=100_000, cached=900_000, output=0, models={"m": part})
    assert usage_cost(usage, FULL) == UsageCost(currency="USD", amount=1.0 + 0.9, complete=True)


def test_PRICE_02_an_example_in_euros_is_exact() -> None:
    usage = Usage(input=100_000, output=50_000).attributed("small")
    assert usage_cost(usage, PRICES) == UsageCost(currency="EUR", amount=0.60, complete=True)


def test_PRICE_03_cached_parts_above_input_are_an_error() -> None:
    usage = Usage(input=1, cached=5, output=0, models={"m": ModelUsage(input=1, cached=5, output=0)})
    with pytest.raises(OutpostError, match="usage of m") as caught:
        usage_cost(usage, FULL)
    assert caught.value.code == "configuration"


@pytest.mark.parametrize(
    ("usage", "complete"),
    [
        (Usage(input=10, output=5).attributed("small"), True),
        (Usage(input=10, output=5, complete=False).attributed("small"), False),
        (Usage(input=10, output=5, models={"small": ModelUsage(input=10, output=5, complete=False)}), False),
        (Usage(input=10, output=5).attributed("unpriced"), False),
        (Usage(input=10, output=5).attributed("small") + ZERO.attributed("unpriced"), True),
        (Usage(input=10, output=5), False),
        (Usage(input=10, output=5, models={"small": ModelUsage(input=9, output=5)}), False),
        (UNKNOWN, False),
        (ZERO, True),
    ],
)
def test_PRICE_04_complete_says_whether_every_token_had_a_price(usage: Usage, complete: bool) -> None:
    assert usage_cost(usage, PRICES).complete is complete


def test_PRICE_04_an_unknown_cost_can_be_told_from_a_free_one() -> None:
    assert not usage_cost(Usage(input=10, output=5).attributed("unpriced"), PRICES).is_known
    assert usage_cost(ZERO, PRICES).is_known
    assert usage_cost(Usage(input=10, output=5, complete=False).attributed("small"), PRICES).is_known


def test_PRICE_05_names_match_exactly() -> None:
    assert usage_cost(Usage(input=10, output=5).attributed("Small"), PRICES).amount == 0
    assert usage_cost(Usage(input=10, output=5).attributed("small-2026"), PRICES).complete is False


def test_PRICE_06_a_router_request_costs_what_its_decision_model_costs() -> None:
    prices = ModelPriceTable("USD", {"deep": {"input": 10, "output": 20}, "auto": {"input": 1, "output": 0}})
    run = Usage(input=1000, output=100).attributed("deep") + Usage(input=500, output=3).attributed("auto")
    assert usage_cost(run, prices).amount == pytest.approx((1000 * 10 + 100 * 20 + 500 * 1) / 1_000_000)


def test_PRICE_07_costs_in_one_currency_add_up_and_stay_incomplete() -> None:
    known = UsageCost(currency="EUR", amount=0.1, complete=True)
    assert known + known == UsageCost(currency="EUR", amount=0.2, complete=True)
    assert (known + UsageCost(currency="EUR", amount=0, complete=False)).complete is False
    with pytest.raises(OutpostError, match="do not add up"):
        _ = known + UsageCost(currency="USD", amount=1, complete=True)
