"""Token counts: that they add up, that unknown stays unknown, and that a bad report is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from outpost_lsp.domain.usage import UNKNOWN, ZERO, ModelUsage, Usage, UsageLimits, total, usage_from_report
from outpost_lsp.errors import OutpostError

MAX = 2**53 - 1


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    cached = draw(st.integers(0, 1000))
    created = draw(st.none() | st.integers(0, 1000))
    return Usage(
        input=cached + (created or 0) + draw(st.integers(0, 1000)),
        cached=cached,
        cache_created=created,
        output=draw(st.integers(0, 1000)),
        complete=draw(st.sampled_from([None, False])),
    )


@pytest.mark.parametrize("value", [-1, 1.5, 1.0, True, "1", MAX + 1, None, float("nan")])
@pytest.mark.parametrize("counter", ["input", "output", "cached", "cache_created"])
def test_USE_01_counters_are_safe_integers(counter: str, value: Any) -> None:
    if counter == "cache_created" and value is None:
        return
    with pytest.raises(ValidationError):
        Usage(**{"input": 10, "output": 10, counter: value})


def test_USE_01_the_largest_safe_integer_is_accepted() -> None:
    assert Usage(input=MAX, output=MAX).input == MAX


def test_USE_01_cache_parts_stay_within_input() -> None:
    assert Usage(input=5, cached=3, cache_created=2, output=0).cached == 3
    with pytest.raises(ValidationError, match="exceed input"):
        Usage(input=5, cached=3, cache_created=3, output=0)
    with pytest.raises(ValidationError, match="exceed input"):
        Usage(input=5, cached=6, output=0)


def test_USE_02_addition_sums_every_counter() -> None:
    left = Usage(input=10, cached=2, output=3)
    right = Usage(input=5, cached=1, cache_created=4, output=7)
    assert left + right == Usage(input=15, cached=3, cache_created=4, output=10)
    assert (left + left).cache_created is None


def test_USE_02_incomplete_on_either_side_makes_the_sum_incomplete() -> None:
    known, unknown = Usage(input=1, output=1), UNKNOWN
    assert (known + unknown).complete is False
    assert (unknown + known).complete is False
    assert (known + known).complete is None
    assert (Usage(input=1, output=1, complete=True) + known).complete is None


@settings(deadline=None)
@given(usages(), usages(), usages())
def test_USE_02_the_order_of_additions_does_not_matter(first: Usage, second: Usage, third: Usage) -> None:
    assert (first + second) + third == first + (second + third) == total([third, second, first])


@settings(deadline=None)
@given(usages())
def test_USE_02_nothing_added_changes_nothing(usage: Usage) -> None:
    assert usage + ZERO == usage


def test_USE_03_tables_of_models_merge_name_by_name() -> None:
    left = Usage(input=10, output=1).attributed("small") + Usage(input=20, output=2).attributed("large")
    right = Usage(input=5, cached=1, output=1, complete=False).attributed("small")
    merged = (left + right).models
    assert merged == {
        "small": ModelUsage(input=15, cached=1, output=2, complete=False),
        "large": ModelUsage(input=20, output=2),
    }


def test_USE_03_a_table_on_one_side_only_is_kept() -> None:
    with_table = Usage(input=10, output=1).attributed("small")
    assert (with_table + ZERO).models == with_table.models == (ZERO + with_table).models


def test_USE_03_one_model_under_two_cache_conventions_is_refused() -> None:
    inside = Usage(input=5, output=0, models={"m": ModelUsage(input=5, output=0)})
    outside = Usage(
        input=5, output=0, models={"m": ModelUsage(input=5, cached=9, output=0, input_includes_cache=False)}
    )
    with pytest.raises(OutpostError, match="distinct names") as caught:
        _ = inside + outside
    assert caught.value.code == "configuration"
    spelled_out = Usage(input=1, output=0, models={"m": ModelUsage(input=1, output=0, input_includes_cache=True)})
    assert (inside + spelled_out).models is not None


def test_USE_04_the_difference_is_clamped_and_takes_the_newer_completeness() -> None:
    earlier = Usage(input=10, cached=5, cache_created=1, output=9, complete=False)
    newer = Usage(input=15, cached=5, cache_created=3, output=4)
    assert newer.since(earlier) == Usage(input=5, cached=0, cache_created=2, output=0)
    assert earlier.since(newer).complete is False


def test_USE_04_the_difference_of_reports_with_models_keeps_the_models() -> None:
    earlier = Usage(input=10, output=4).attributed("m")
    newer = earlier + Usage(input=3, output=2).attributed("m") + Usage(input=7, output=1).attributed("n")
    assert newer.since(earlier).models == {"m": ModelUsage(input=3, output=2), "n": ModelUsage(input=7, output=1)}


def test_USE_04_a_cache_that_grew_alone_is_no_fault() -> None:
    earlier = Usage(input=10, cached=2, output=0)
    newer = Usage(input=10, cached=8, output=0)
    assert (newer.since(earlier).input, newer.since(earlier).cached) == (0, 6)


@pytest.mark.parametrize(
    "report",
    [
        None,
        [],
        "input",
        {"input": 1},
        {"input": 1, "output": -1},
        {"input": 1, "output": 1.5},
        {"input": 1, "output": True},
        {"input": 1, "output": 1, "reasoning": 1},
        {"input": 1, "output": 1, "complete": "yes"},
        {"input": 1, "output": 1, "complete": 1},
        {"input": 1, "output": 1, "cached": 2},
        {"input": 1, "output": 1, "models": {"m": {"input": 2, "output": 0}}},
        {"input": 1, "output": 1, "models": {"m": {"input": 1, "output": 1}, "n": {"input": 0, "output": 1}}},
        {"input": 1, "output": 1, "models": {"m": {"input": 1, "output": 1, "models": {}}}},
        {"input": 1, "output": 1, "models": {"m": {"input": 1, "output": 1, "inputIncludesCache": "no"}}},
    ],
)
def test_USE_05_a_bad_report_is_refused(report: Any) -> None:
    with pytest.raises(OutpostError, match=r"^usage: ") as caught:
        usage_from_report(report)
    assert caught.value.code == "configuration"
    assert "\n" not in caught.value.message


def test_USE_05_a_good_report_is_read_with_either_spelling() -> None:
    report = {"input": 9, "cached": 2, "cacheCreated": 1, "output": 3, "complete": False}
    assert usage_from_report(report) == usage_from_report(
        {"input": 9, "cached": 2, "cache_created": 1, "output": 3, "complete": False}
    )
    outside = {"input": 9, "cached": 20, "output": 3, "models": {"m": {"input": 9, "cached": 20, "output": 3}}}
    assert usage_from_report(outside).cached == 20


def test_USE_06_an_unreported_request_is_an_incomplete_zero() -> None:
    assert UNKNOWN.to_json() == {"input": 0, "cached": 0, "output": 0, "complete": False}
    assert not UNKNOWN.is_complete
    assert ZERO.is_complete


def test_USE_07_attributing_makes_a_table_of_one_model_unless_there_is_one() -> None:
    usage = Usage(input=9, cached=2, cache_created=1, output=3, complete=False)
    attributed = usage.attributed("m")
    assert attributed.models == {"m": ModelUsage(input=9, cached=2, cache_created=1, output=3, complete=False)}
    assert attributed.attributed("other") is attributed
    assert usage.models is None


def test_USE_08_a_total_counts_each_receipt_once() -> None:
    turn, router, child = Usage(input=4, cached=1, output=2), Usage(input=12, output=3), Usage(input=4, output=2)
    assert total([turn, router, child]) == Usage(input=20, cached=1, output=7)
    assert total([]) == ZERO


def test_LIM_04_a_token_limit_is_exceeded_strictly_above() -> None:
    limits = UsageLimits(input=10, output=5)
    assert limits.exceeded_by(Usage(input=10, output=5)) is None
    assert limits.exceeded_by(Usage(input=10, output=6)) == ("output", 5, 6)
    assert UsageLimits(cache_created=0).exceeded_by(Usage(input=1, cache_created=1, output=0)) == (
        "cache_created",
        0,
        1,
    )


@pytest.mark.parametrize("limits", [{"input": -1}, {"output": 1.5}, {"tokens": 1}, {"input": True}])
def test_LIM_06_a_wrong_token_limit_is_refused_by_name(limits: dict[str, Any]) -> None:
    with pytest.raises(OutpostError, match=next(iter(limits))) as caught:
        UsageLimits(**limits)
    assert caught.value.code == "configuration"
