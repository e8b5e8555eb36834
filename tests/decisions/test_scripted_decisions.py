"""The public double: replies in order, requests recorded, nothing invented."""

from __future__ import annotations

from typing import Any

import pytest

from outpost_lsp.decisions.decide import decide
from outpost_lsp.decisions.scripted import ScriptedDecisionProvider
from outpost_lsp.domain.decision import (
    Choice,
    ChoiceAnswer,
    Decision,
    DecisionProviderResult,
    DecisionRequest,
    Noul,
    NoulAnswer,
    Score,
    ScoreAnswer,
)
from outpost_lsp.domain.usage import UNKNOWN, ZERO, Usage
from outpost_lsp.errors import OutpostError

ROUTE = Decision({"route": Choice("Which?", {"fast": "x", "deep": "y", "huge": "z"})})


async def route(provider: ScriptedDecisionProvider, state: Any = "s") -> ChoiceAnswer:
    answer = (await decide(provider, "m", ROUTE, state)).answers["route"]
    assert isinstance(answer, ChoiceAnswer)
    return answer


async def test_labels_are_given_in_order_with_their_confidence() -> None:
    provider = ScriptedDecisionProvider(["fast", ("deep", 0.84), ("huge", 0.0)])
    answers = [await route(provider, f"state {number}") for number in range(3)]
    assert [(answer.choice, answer.confidence) for answer in answers] == [("fast", 1.0), ("deep", 0.84), ("huge", 0.0)]
    assert [request.state for request in provider.requests] == ["state 0", "state 1", "state 2"]


async def test_a_request_too_many_is_refused_unless_the_last_reply_repeats() -> None:
    provider = ScriptedDecisionProvider(["fast"])
    await route(provider)
    with pytest.raises(OutpostError, match="no reply left for request 2"):
        await route(provider)
    repeating = ScriptedDecisionProvider(["fast", "deep"], repeat=True)
    assert [(await route(repeating)).choice for _ in range(4)] == ["fast", "deep", "deep", "deep"]
    with pytest.raises(OutpostError, match="no reply left"):
        await route(ScriptedDecisionProvider([], repeat=True))


async def test_an_exception_is_raised_and_a_function_sees_the_request() -> None:
    error = RuntimeError("down")

    def by_state(request: DecisionRequest) -> Any:
        return "deep" if request.state == "hard" else error

    async def later(request: DecisionRequest) -> Any:
        return ("huge", 0.5)

    provider = ScriptedDecisionProvider([by_state, by_state, later, error])
    assert (await route(provider, "hard")).choice == "deep"
    with pytest.raises(RuntimeError) as caught:
        await route(provider, "easy")
    assert caught.value is error
    assert (await route(provider)).choice == "huge"
    with pytest.raises(RuntimeError) as caught:
        await route(provider)
    assert caught.value is error


async def test_a_whole_result_is_handed_on_as_it_is() -> None:
    result = DecisionProviderResult(model="m", answers={}, usage={"input": 1, "output": 1})
    assert (
        await ScriptedDecisionProvider([result]).request(DecisionRequest(model="m", questions=ROUTE, state="s"))
        is result
    )


@pytest.mark.parametrize(("usage", "counted"), [(ZERO, ZERO), (Usage(input=4, output=1),) * 2, (None, UNKNOWN)])
async def test_usage_is_what_the_test_says(usage: Usage | None, counted: Usage) -> None:
    provider = ScriptedDecisionProvider(["fast"], usage=usage, name="double", model="double/1")
    result = await decide(provider, "m", ROUTE, "s")
    assert (result.usage, result.provider, result.model) == (counted, "double", "double/1")


async def test_questions_of_other_kinds_get_a_neutral_answer() -> None:
    decision = Decision({"route": ROUTE.questions["route"], "risk": Score("How?", ["a", "b"]), "done": Noul("Done?")})
    answers = (await decide(ScriptedDecisionProvider(["fast"]), "m", decision, "s")).answers
    assert answers["risk"] == ScoreAnswer(0, {"0": 1}, 1)
    assert answers["done"] == NoulAnswer(0.5)


async def test_a_label_that_the_question_does_not_have_is_refused() -> None:
    with pytest.raises(OutpostError, match="'slow' is no label of 'route'"):
        await route(ScriptedDecisionProvider(["slow"]))
