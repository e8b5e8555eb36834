"""Against the mock of jevcompat: each way in which it can break the protocol is accepted or refused as it must be."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from outpost_lsp.decisions.decide import decide
from outpost_lsp.decisions.system_one import SystemOneDecisionProvider
from outpost_lsp.domain.decision import Choice, ChoiceAnswer, Decision, DecisionResult, Noul, Score, ScoreAnswer
from outpost_lsp.domain.usage import UNKNOWN, Usage
from outpost_lsp.errors import OutpostError, unavailable_fault
from tests.conformance.third_party import interpreter, started

QUESTIONS = Decision(
    {
        "route": Choice("Which model?", {"fast": "Routine", "Deep": "Reasoning", "prüfen": "Check"}),
        "risk": Score("How risky?", ["low", "medium", "high"]),
        "done": Noul("Finished?"),
    }
)
STATE = {"step": 4, "recentText": ["zwei Tests schlagen fehl ✗"]}

ACCEPTED = {
    "plain-content-type",
    "text-errors",
    "models-404",
    "auth-x-api-key",
    "auth-plain",
    "auth-invalid-403-text",
    "auth-rejects-header",
    "reject-array-state",
    "strict-ids",
    "forbid-extra",
    "string-only-text",
    "noul-two-sided",
    "noul-needs-instructions",
    "no-null-description",
    "cap-64",
    "cap-5-levels",
    "accept-map-score",
    "no-usage",
    "unprefixed-extra",
    "score-no-legend",
    "confidence-margin",
    "500-on-unknown-type",
    "accept-boolean",
    "validation-400",
    "error-flat",
    "id-leaks",
    "batch-leaks",
    "order-leaks",
}
REFUSED = {
    "wrong-route": ("provider", "check base_url"),
    "reject-jev-latest": ("provider", "404"),
    "xssi-200": ("response", "not JSON"),
    "first-question-only": ("response", "'risk' is missing"),
    "nfd-keys": ("response", "probabilities"),
    "float-usage": ("response", "usage"),
    "extra-answer": ("response", "nobody asked for"),
    "boolean-type": ("response", "done.type"),
    "nan": ("response", "not finite"),
    "noul-range": ("response", "done.noul"),
    "choice-no-confidence": ("response", "route.confidence"),
    "choice-key-case": ("response", "route.probabilities"),
    "choice-sum": ("response", "route.probabilities"),
    "choice-second": ("response", "more probable"),
    "legend-1-based": ("response", "legend"),
    "score-keys-1-based": ("response", "risk.probabilities"),
    "score-sum": ("response", "risk.probabilities"),
    "score-argmax": ("response", "risk.score"),
    "confidence-over": ("response", "confidence"),
}


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, str]]:
    with started("serve_jevcompat.py") as addresses:
        yield addresses


async def ask(base_url: str, *, key: Any = None, model: str = "jev-latest", **options: Any) -> DecisionResult:
    provider = SystemOneDecisionProvider(base_url, key)
    try:
        return await decide(provider, model, options.pop("decision", QUESTIONS), options.pop("state", STATE), **options)
    finally:
        await provider.aclose()


async def failing(base_url: str, **options: Any) -> OutpostError:
    with pytest.raises(OutpostError) as caught:
        await ask(base_url, **options)
    return caught.value


def test_every_fault_of_the_mock_is_judged_here(servers: dict[str, str]) -> None:
    listed = subprocess.run(
        [interpreter(), "-m", "jevcompat", "mock", "--list-faults"], check=False, capture_output=True, text=True
    )
    if listed.returncode != 0:
        script = "import json; from jevcompat.mock import FAULTS; print(json.dumps(list(FAULTS)))"
        listed = subprocess.run([interpreter(), "-c", script], check=True, capture_output=True, text=True)
    known = {name for name in servers if " " not in name} - {"clean", "key", "busy", "sampled", "noisy"}
    assert all(name in listed.stdout for name in known)
    assert known == ACCEPTED | set(REFUSED)
    assert not ACCEPTED & set(REFUSED)


async def test_a_conforming_server_answers_all_three_kinds(servers: dict[str, str]) -> None:
    result = await ask(servers["clean"])
    assert result.model == "jevcompat-mock-0.1"
    assert result.usage.is_complete
    assert result.usage.input > 0
    assert result.truncated is None
    route, risk = result.answers["route"], result.answers["risk"]
    assert isinstance(route, ChoiceAnswer)
    assert isinstance(risk, ScoreAnswer)
    assert set(route.probabilities) == {"fast", "Deep", "prüfen"}
    assert risk.legend == {"0": "low", "1": "medium", "2": "high"}


@pytest.mark.parametrize("fault", sorted(ACCEPTED))
async def test_a_fault_that_does_not_touch_the_answer_is_accepted(servers: dict[str, str], fault: str) -> None:
    result = await ask(servers[fault])
    assert set(result.answers) == set(QUESTIONS.questions)
    assert result.usage.is_complete is (fault != "no-usage")


@pytest.mark.parametrize("fault", sorted(REFUSED))
async def test_a_fault_that_touches_the_answer_is_refused(servers: dict[str, str], fault: str) -> None:
    code, says = REFUSED[fault]
    receipts: list[Usage] = []
    error = await failing(servers[fault], account=receipts.append)
    assert (error.code, says in error.message) == (code, True), error.message
    assert unavailable_fault(error) is None
    assert len(receipts) == 1
    # Valid usage counts even when the answer is refused; a body that cannot be read leaves none.
    without_receipt = {"wrong-route", "reject-jev-latest", "xssi-200", "nan", "float-usage"}
    assert (receipts[0] == UNKNOWN) is (fault in without_receipt)


@pytest.mark.parametrize("name", ["sampled", "noisy"])
async def test_a_server_that_samples_its_answers_is_accepted(servers: dict[str, str], name: str) -> None:
    for _ in range(10):
        await ask(servers[name])


async def test_the_right_key_is_accepted(servers: dict[str, str]) -> None:
    assert (await ask(servers["key"], key="right")).model == "jevcompat-mock-0.1"


@pytest.mark.parametrize(("key", "status"), [(None, 403), ("wrong", 401)])
async def test_a_missing_or_wrong_key_is_no_outage(servers: dict[str, str], key: str | None, status: int) -> None:
    error = await failing(servers["key"], key=key)
    assert (error.code, error.details["status"]) == ("provider", status)
    assert "api_key" in error.message
    assert unavailable_fault(error) is None


@pytest.mark.parametrize(
    ("fault", "key", "status"),
    [
        ("auth-x-api-key with a key", "right", 403),
        ("auth-plain with a key", None, 401),
        ("auth-invalid-403-text with a key", "wrong", 401),
        ("auth-rejects-header", "any", 401),
    ],
)
async def test_other_ways_to_refuse_a_key_come_to_the_same(
    servers: dict[str, str], fault: str, key: str | None, status: int
) -> None:
    error = await failing(servers[fault], key=key)
    assert (error.code, error.details["status"]) == ("provider", status)


async def test_a_busy_server_is_a_quota(servers: dict[str, str]) -> None:
    error = await failing(servers["busy"])
    assert (error.code, error.details["retryAfterMs"]) == ("quota", 0)
    assert "resetAt" in error.details


async def test_a_strict_server_does_not_know_auto(servers: dict[str, str]) -> None:
    error = await failing(servers["clean"], model="auto")
    assert error.details["status"] == 400
    assert "jev-latest" in error.message


async def test_a_pasted_base_of_an_sdk_gets_the_remedy(servers: dict[str, str]) -> None:
    error = await failing(servers["clean"].removesuffix("/v1"))
    assert "version prefix" in error.message


@pytest.mark.parametrize("count", [2, 255])
async def test_two_to_255_options_are_answered(servers: dict[str, str], count: int) -> None:
    decision = Decision({"route": Choice("Which?", {f"o{number}": "x" for number in range(count)})})
    answer = (await ask(servers["clean"], decision=decision)).answers["route"]
    assert isinstance(answer, ChoiceAnswer)
    assert len(answer.probabilities) == count


@pytest.mark.parametrize("count", [2, 10])
async def test_two_to_ten_levels_are_answered(servers: dict[str, str], count: int) -> None:
    decision = Decision({"risk": Score("How?", [f"level {number}" for number in range(count)])})
    assert (await ask(servers["clean"], decision=decision)).answers["risk"].type == "score"


@pytest.mark.parametrize("name", ["q", "a b", "ключ", "question/1", "😀", '"'])
async def test_any_name_of_a_question_makes_the_trip(servers: dict[str, str], name: str) -> None:
    assert set((await ask(servers["clean"], decision=Decision({name: Noul("Done?")}))).answers) == {name}


@pytest.mark.parametrize("state", ["", "text ✗", {}, {"a": [1, None, True, "é"]}])
async def test_any_text_or_object_is_a_state(servers: dict[str, str], state: Any) -> None:
    assert (await ask(servers["clean"], state=state)).model == "jevcompat-mock-0.1"
