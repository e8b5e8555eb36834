"""The answers of a service: what is accepted to the last decimal, and what is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outpost_lsp.decisions.answers import read_answers
from outpost_lsp.decisions.decide import decide
from outpost_lsp.domain.decision import (
    Choice,
    ChoiceAnswer,
    Decision,
    DecisionProviderResult,
    Noul,
    NoulAnswer,
    Question,
    Score,
    ScoreAnswer,
)
from outpost_lsp.errors import OutpostError
from tests.decisions.providers import giving

LEVELS = ["low", "medium", "high"]


def labels(count: int) -> list[str]:
    return [f"o{number}" for number in range(count)]


def choice_of(probabilities: dict[str, Any], confidence: Any = 0.123456789, **changes: Any) -> dict[str, Any]:
    best = max(probabilities, key=lambda label: probabilities[label]) if probabilities else ""
    return {"type": "choice", "choice": best, "probabilities": probabilities, "confidence": confidence, **changes}


def read_choice(raw: Any, names: list[str] | None = None) -> ChoiceAnswer:
    question = Choice("Which?", dict.fromkeys(names or list(raw["probabilities"]), "x"))
    answer = read_answers(Decision({"q": question}), {"q": raw})["q"]
    assert isinstance(answer, ChoiceAnswer)
    return answer


def score_of(score: Any, probabilities: Any, confidence: Any = 0.123456789, **changes: Any) -> dict[str, Any]:
    return {"type": "score", "score": score, "probabilities": probabilities, "confidence": confidence, **changes}


def read_score(raw: Any) -> ScoreAnswer:
    answer = read_answers(Decision({"q": Score("How?", LEVELS)}), {"q": raw})["q"]
    assert isinstance(answer, ScoreAnswer)
    return answer


def refused(question: Question, raw: Any) -> str:
    with pytest.raises(OutpostError) as caught:
        read_answers(Decision({"q": question}), {"q": raw})
    assert caught.value.code == "response"
    return caught.value.message


TWO = Choice("Which?", {"fast": "x", "deep": "y"})
THREE = Score("How?", LEVELS)
DONE = Noul("Done?")
GOOD = choice_of({"fast": 0.9, "deep": 0.1})
GOOD_SCORE = score_of(1.1, {"0": 0.2, "1": 0.5, "2": 0.3})


@pytest.mark.parametrize("model", ["", " ", None, 5, ["m"], "\udc00"])
async def test_DEC_20_the_answered_model_is_nonblank(model: Any) -> None:
    provider = giving(DecisionProviderResult(model=model, answers={"q": {"type": "noul", "noul": 0}}))
    with pytest.raises(OutpostError, match="model") as caught:
        await decide(provider, "m", Decision({"q": DONE}), "s")
    assert caught.value.code == "response"


@pytest.mark.parametrize("truncated", ["yes", 0, 1, [], [True, False]])
async def test_DEC_20_truncated_is_one_boolean(truncated: Any) -> None:
    provider = giving(
        DecisionProviderResult(model="m", answers={"q": {"type": "noul", "noul": 0}}, truncated=truncated)
    )
    with pytest.raises(OutpostError, match="truncated") as caught:
        await decide(provider, "m", Decision({"q": DONE}), "s")
    assert caught.value.code == "response"


@pytest.mark.parametrize("answers", [None, [], "text", {}, {"other": GOOD}, {"q": GOOD, "other": GOOD}, {"Q": GOOD}])
def test_DEC_20_there_is_exactly_one_answer_for_each_question(answers: Any) -> None:
    with pytest.raises(OutpostError, match="answers") as caught:
        read_answers(Decision({"q": TWO}), answers)
    assert caught.value.code == "response"


@pytest.mark.parametrize("kind", ["boolean", "unsupported", "multi_label", "Choice", "score", "noul", None, 1, []])
def test_DEC_20_the_type_of_an_answer_is_the_type_of_its_question(kind: Any) -> None:
    assert "q.type" in refused(TWO, {**GOOD, "type": kind})
    assert "q.type" in refused(TWO, {name: value for name, value in GOOD.items() if name != "type"})


@pytest.mark.parametrize("raw", [None, "fast", 1, ["fast"]])
def test_DEC_20_an_answer_is_an_object(raw: Any) -> None:
    assert "answers.q: an object" in refused(TWO, raw)


BAD_NUMBERS = [float("nan"), float("inf"), -0.0, -0.1, 1.0000001, True, False, "0.5", None, [], 10**400]


@pytest.mark.parametrize("number", BAD_NUMBERS)
def test_DEC_21_a_confidence_is_a_finite_number_from_0_to_1(number: Any) -> None:
    assert "confidence" in refused(TWO, {**GOOD, "confidence": number})
    assert "confidence" in refused(THREE, {**GOOD_SCORE, "confidence": number})


@pytest.mark.parametrize("number", BAD_NUMBERS)
def test_DEC_21_a_probability_is_a_finite_number_from_0_to_1(number: Any) -> None:
    assert "probabilities" in refused(TWO, {**GOOD, "probabilities": {"fast": 0.9, "deep": number}})
    assert "probabilities" in refused(THREE, {**GOOD_SCORE, "probabilities": {"0": 0.5, "1": number}})
    assert "noul" in refused(DONE, {"type": "noul", "noul": number})


def test_DEC_21_a_missing_confidence_or_noul_is_refused() -> None:
    assert "confidence" in refused(TWO, {name: value for name, value in GOOD.items() if name != "confidence"})
    assert "confidence" in refused(THREE, {name: value for name, value in GOOD_SCORE.items() if name != "confidence"})
    assert "noul" in refused(DONE, {"type": "noul"})


@pytest.mark.parametrize("number", [0, 1, 0.0, 1.0, 5e-324, 0.9999])
def test_DEC_21_integers_and_the_borders_are_accepted(number: Any) -> None:
    answers = read_answers(Decision({"q": DONE}), {"q": {"type": "noul", "noul": number, "confidence": 0.9}})
    assert answers["q"] == NoulAnswer(number)


@pytest.mark.parametrize("count", [2, 3, 7, 255])
def test_DEC_22_equiprobable_options_rounded_to_four_decimals_are_accepted(count: int) -> None:
    even = round(1 / count, 4)
    answer = read_choice(choice_of(dict.fromkeys(labels(count), even)))
    assert set(answer.probabilities.values()) == {even}


@pytest.mark.parametrize(
    ("probabilities", "accepted"),
    [
        ((0.5001, 0.50001), True),  # 1.00011, exactly the tolerance of two options
        ((0.5001, 0.50002), False),
        ((0.5, 0.49989), True),
        ((0.5, 0.49988), False),
        ((0.3333, 0.3333, 0.3333), True),
        ((0.33346, 0.3333, 0.3334), True),  # 1.00016, exactly the tolerance of three
        ((0.33347, 0.3333, 0.3334), False),
        ((0.6, 0.6), False),
        ((0.0, 0.0), False),
    ],
)
def test_DEC_22_the_total_is_one_within_half_a_unit_of_the_fourth_decimal_per_entry(
    probabilities: tuple[float, ...], accepted: bool
) -> None:
    raw = choice_of(dict(zip(labels(len(probabilities)), probabilities, strict=True)))
    if accepted:
        read_choice(raw)
    else:
        assert "add up" in refused(Choice("Which?", dict.fromkeys(raw["probabilities"], "x")), raw)


@pytest.mark.parametrize(
    ("probabilities", "confidence", "accepted"),
    [
        ((0.33, 0.33, 0.33), 0.01, True),  # two decimals shown: half a unit is 0.005
        ((0.34, 0.34, 0.33), 0.01, True),
        ((0.33, 0.33, 0.33), 0.0123, False),  # one number shows four decimals
        ((0.333, 0.333, 0.333), 0.01, True),  # three decimals shown
        ((0.333, 0.333, 0.332), 0.01, False),  # 0.998, and three options at three decimals allow 0.00151
        ((0.3, 0.3, 0.4), 0.1, True),
        ((0.3, 0.3, 0.3), 0.1, False),  # one decimal is taken as two
        ((0.17, 0.17, 0.17, 0.17, 0.17, 0.17), 0.5, True),  # 1.02, and six options allow 0.03
        ((0.2, 0.2, 0.2, 0.2, 0.17), 0.5, False),
    ],
)
def test_DEC_22_a_service_that_shows_fewer_decimals_gets_the_tolerance_of_what_it_shows(
    probabilities: tuple[float, ...], confidence: float, accepted: bool
) -> None:
    raw = choice_of(dict(zip(labels(len(probabilities)), probabilities, strict=True)), confidence)
    if accepted:
        read_choice(raw)
    else:
        assert "add up" in refused(Choice("Which?", dict.fromkeys(raw["probabilities"], "x")), raw)


@settings(deadline=None)
@given(st.lists(st.floats(0.001, 1000), min_size=2, max_size=40), st.sampled_from([2, 3, 4, 5, 6, 17]))
def test_DEC_22_whatever_a_service_rounds_honestly_is_accepted(weights: list[float], decimals: int) -> None:
    total = sum(weights)
    rounded = [round(weight / total, decimals) for weight in weights]
    # A confidence of the same number of decimals, as the service would show it.
    read_choice(choice_of(dict(zip(labels(len(rounded)), rounded, strict=True)), round(1 / 3, decimals)))


@pytest.mark.parametrize(
    "probabilities",
    [
        {"fast": 1.0},
        {"fast": 0.5, "deep": 0.5, "more": 0.0},
        {"Fast": 0.9, "deep": 0.1},
        {},
        None,
        [0.9, 0.1],
        {"fast": 0.9, "deep ": 0.1},
    ],
)
def test_DEC_23_every_label_is_present_and_no_other(probabilities: Any) -> None:
    assert "probabilities" in refused(TWO, {**GOOD, "probabilities": probabilities})


def test_DEC_23_the_chosen_label_is_a_most_probable_one() -> None:
    assert "more probable" in refused(TWO, {**GOOD, "choice": "deep"})
    tie = choice_of({"fast": 0.5, "deep": 0.5}, choice="deep")
    assert read_choice(tie).choice == "deep"
    near = choice_of({"fast": 0.500005, "deep": 0.499995}, choice="deep")
    assert read_choice(near).choice == "deep"
    assert "more probable" in refused(TWO, choice_of({"fast": 0.50001, "deep": 0.49999}, choice="deep"))


@pytest.mark.parametrize("choice", [None, "other", 1, ["fast"], ""])
def test_DEC_23_ROUTE_37_the_chosen_label_is_one_of_the_question(choice: Any) -> None:
    assert "q.choice" in refused(TWO, {**GOOD, "choice": choice})


@pytest.mark.parametrize(
    ("score", "probabilities", "accepted"),
    [
        (0.8136, {"0": 0.3396, "1": 0.5073, "2": 0.1532}, True),
        (0.814, {"0": 0.3396, "1": 0.5073, "2": 0.1532}, False),
        (0.8137, {"0": 0.34, "1": 0.5073, "2": 0.1532}, False),
        (1, {"1": 1}, True),
        (0, {"0": 1}, True),
        (2, {"2": 1.0}, True),
        (0.9999, {"0": 0.3333, "1": 0.3333, "2": 0.3333}, True),
        (1.33, {"0": 0.33, "2": 0.67}, True),
        (1.35, {"0": 0.33, "2": 0.67}, True),
        (1.37, {"0": 0.33, "2": 0.67}, False),
        (1.0999, {"0": 0.2333, "1": 0.4333, "2": 0.3333}, True),
    ],
)
def test_DEC_24_the_score_is_what_the_probabilities_give(
    score: float, probabilities: dict[str, float], accepted: bool
) -> None:
    # A confidence of two decimals, so that the other numbers decide how many are shown.
    raw = score_of(score, probabilities, 0.5)
    if accepted:
        assert read_score(raw).score == score
    else:
        refused(THREE, raw)


@pytest.mark.parametrize("score", [-0.1, 2.1, -0.0, float("nan"), True, "1", None, 3])
def test_DEC_24_the_score_lies_between_the_levels(score: Any) -> None:
    assert "score" in refused(THREE, score_of(score, {"0": 0.0, "1": 1.0}))


@pytest.mark.parametrize(
    "probabilities",
    [{}, None, [0.2, 0.5, 0.3], {"1": 0.2, "2": 0.5, "3": 0.3}, {"low": 1.0}, {"01": 1.0}, {"1.0": 1.0}],
)
def test_DEC_24_the_levels_are_counted_from_zero_as_text(probabilities: Any) -> None:
    assert "probabilities" in refused(THREE, score_of(1, probabilities))


@pytest.mark.parametrize(
    "legend",
    [
        None,
        LEVELS,
        {"0": "low"},
        {"1": "low", "2": "medium", "3": "high"},
        {"0": "low", "1": "medium", "2": 3},
        {"0": "low", "1": "medium", "2": "high", "3": "higher"},
    ],
)
def test_DEC_25_a_legend_maps_every_level_to_a_text_and_nothing_else(legend: Any) -> None:
    assert "legend" in refused(THREE, {**GOOD_SCORE, "legend": legend})


def test_DEC_25_a_legend_may_be_absent() -> None:
    assert read_score(GOOD_SCORE).legend is None
    legend = {"2": "high", "0": "low", "1": "medium"}
    assert read_score({**GOOD_SCORE, "legend": legend}).legend == legend


def test_DEC_26_unknown_fields_of_an_answer_are_dropped() -> None:
    extended = {**GOOD, "answer_confidence": 0.9, "action": {"act_probability": 1.0}, "legend": ["x"]}
    assert read_choice(extended) == read_choice(GOOD)


@pytest.mark.parametrize("metadata", [{"a": float("nan")}, {"a": -0.0}, {"a": 2**53}, {1: 2}, {"a": {1}}, object()])
async def test_DEC_26_metadata_is_lossless_json(metadata: Any) -> None:
    provider = giving(DecisionProviderResult(model="m", answers={"q": {"type": "noul", "noul": 0}}, metadata=metadata))
    with pytest.raises(OutpostError, match="metadata") as caught:
        await decide(provider, "m", Decision({"q": DONE}), "s")
    assert caught.value.code == "response"


def test_answers_cannot_be_changed_afterwards() -> None:
    answer = read_choice(GOOD)
    with pytest.raises(TypeError):
        answer.probabilities["fast"] = 0.0  # type: ignore[index]
