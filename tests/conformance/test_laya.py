"""Against laya's own HTTP server: its rounding, its limits, its load, its strict mode and a proxy in front of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from outpost_lsp.decisions.decide import decide
from outpost_lsp.decisions.system_one import SystemOneDecisionProvider
from outpost_lsp.domain.decision import (
    Choice,
    ChoiceAnswer,
    Decision,
    DecisionResult,
    Noul,
    NoulAnswer,
    Score,
    ScoreAnswer,
)
from outpost_lsp.domain.usage import UNKNOWN, Usage
from outpost_lsp.errors import OutpostError, unavailable_fault
from tests.conformance.third_party import started

ROUTE = Choice("Which model takes the next step?", {"fast": "Routine tools", "deep": "Reasoning"})
RISK = Score("How risky?", ["low", "medium", "high"])
DECISION = Decision({"route": ROUTE, "risk": RISK, "done": Noul("Finished?")})


@pytest.fixture(scope="module")
def laya() -> Iterator[str]:
    with started("serve_laya.py", environment={"LAYA_API_KEY": "right"}) as base_url:
        yield base_url


async def ask(
    base_url: str, state: Any = "s", *, key: Any = "right", model: str = "auto", **options: Any
) -> DecisionResult:
    provider = SystemOneDecisionProvider(base_url, key)
    try:
        return await decide(provider, model, options.pop("decision", DECISION), state, **options)
    finally:
        await provider.aclose()


async def failing(base_url: str, state: Any = "s", **options: Any) -> OutpostError:
    with pytest.raises(OutpostError) as caught:
        await ask(base_url, state, **options)
    return caught.value


async def test_all_three_kinds_are_answered_and_auto_is_known(laya: str) -> None:
    state = {"stub": {"p": {"route": {"fast": 0.0615, "deep": 0.9385}, "done": {"true": 0.0412}}}}
    result = await ask(laya, state)
    route, risk = result.answers["route"], result.answers["risk"]
    assert isinstance(route, ChoiceAnswer)
    assert isinstance(risk, ScoreAnswer)
    assert (route.choice, route.probabilities["deep"]) == ("deep", 0.9385)
    assert result.answers["done"] == NoulAnswer(0.0412)
    assert result.usage == Usage(input=40, output=0)
    assert result.truncated is False
    assert result.metadata["routing"]["reason"] == "stub"


@pytest.mark.parametrize("model", ["auto", "jev-latest"])
async def test_both_spellings_of_the_model_are_known(laya: str, model: str) -> None:
    assert (await ask(laya, model=model)).model


async def test_three_even_levels_add_up_to_9999_and_are_accepted(laya: str) -> None:
    risk = (await ask(laya)).answers["risk"]
    assert isinstance(risk, ScoreAnswer)
    assert sum(risk.probabilities.values()) == pytest.approx(0.9999)
    assert risk.probabilities == {"0": 0.3333, "1": 0.3333, "2": 0.3333}
    assert risk.score in (0.9999, 1.0)


@pytest.mark.parametrize("count", [3, 7, 100])
async def test_even_options_are_accepted_at_any_count(laya: str, count: int) -> None:
    decision = Decision({"route": Choice("Which?", {f"o{number}": "x" for number in range(count)})})
    answer = (await ask(laya, decision=decision)).answers["route"]
    assert isinstance(answer, ChoiceAnswer)
    assert answer.probabilities["o0"] == round(1 / count, 4)


async def test_a_state_of_over_50000_characters_is_refused_with_its_remedy(laya: str) -> None:
    assert (await ask(laya, "a" * 50_000)).model
    error = await failing(laya, "a" * 50_001)
    assert (error.code, error.details["status"]) == ("provider", 413)
    assert "reduced state" in error.message
    assert unavailable_fault(error) is None


async def test_too_many_options_are_refused(laya: str) -> None:
    decision = Decision({"route": Choice("Which?", {f"o{number}": "x" for number in range(101)})})
    assert (await failing(laya, decision=decision)).details["status"] == 413


async def test_a_body_of_over_two_mebibytes_is_refused(laya: str) -> None:
    assert (await failing(laya, {"a": "x" * (2 * 1024 * 1024)})).details["status"] == 413


async def test_an_unknown_model_is_refused(laya: str) -> None:
    error = await failing(laya, model="acme/none")
    assert (error.code, error.details["status"]) == ("provider", 422)


@pytest.mark.parametrize("key", [None, "wrong"])
async def test_a_missing_or_wrong_key_is_refused(laya: str, key: str | None) -> None:
    error = await failing(laya, key=key)
    assert (error.code, error.details["status"]) == ("provider", 401)


async def test_a_crash_of_the_model_is_an_outage(laya: str) -> None:
    error = await failing(laya, {"stub": {"fail": True}})
    assert dict(error.details) == {"status": 500, "unavailable": "HTTP 500"}


async def test_a_truncated_state_is_refused_after_its_usage_was_counted(laya: str) -> None:
    receipts: list[Usage] = []
    state = {"stub": {"truncated": ["route"]}}
    error = await failing(laya, state, account=receipts.append)
    assert (error.code, error.details["truncated"]) == ("response", True)
    assert receipts == [Usage(input=40, output=0)]
    assert (await ask(laya, state, allow_truncated=True)).truncated is True


async def test_a_missing_usage_stays_unknown(laya: str) -> None:
    assert (await ask(laya, {"stub": {"drop_usage": True}})).usage == UNKNOWN


async def test_a_slow_model_meets_the_deadline(laya: str) -> None:
    provider = SystemOneDecisionProvider(laya, "right", timeout_s=0.3)
    with pytest.raises(OutpostError) as caught:
        await decide(provider, "auto", DECISION, {"stub": {"sleep": 2}})
    await provider.aclose()
    assert caught.value.code == "timeout"


async def test_too_many_at_once_is_an_outage_with_its_wait() -> None:
    environment = {"LAYA_MAX_CONCURRENT": "1"}
    with started("serve_laya.py", environment=environment) as base_url:
        errors: list[OutpostError] = []

        async def ask_slowly() -> None:
            try:
                await ask(base_url, {"stub": {"sleep": 3}}, key=None)
            except OutpostError as error:
                errors.append(error)

        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(ask_slowly)
    assert errors
    assert {error.code for error in errors} == {"provider"}
    assert dict(errors[0].details) == {"status": 503, "unavailable": "HTTP 503", "retryAfterMs": 1000}


async def test_a_body_that_comes_too_slowly_is_an_outage() -> None:
    with started("serve_laya.py", environment={"LAYA_BODY_READ_TIMEOUT": "0.000001"}) as base_url:
        error = await failing(base_url, {"a": "x" * 1_000_000}, key=None)
    assert error.details["status"] == 408
    assert unavailable_fault(error) is not None


async def test_strict_mode_hides_truncation_and_makes_up_a_usage() -> None:
    with started("serve_laya.py", environment={"LAYA_JEV_STRICT": "1"}) as base_url:
        result = await ask(base_url, {"stub": {"truncated": ["route"], "drop_usage": True}}, key=None)
    assert result.truncated is None
    assert result.usage == Usage(input=0, output=0)


async def test_a_proxy_in_front_of_it_is_accepted_and_drops_truncation() -> None:
    with started("serve_laya.py") as base_url:
        upstream = base_url.removesuffix("/v1")
        with started("serve_jevcompat.py", upstream) as addresses:
            result = await ask(addresses[f"proxy of {upstream}"], {"step": 1}, key=None, model="jev-latest")
    assert set(result.answers) == {"route", "risk", "done"}
    assert result.truncated is None
