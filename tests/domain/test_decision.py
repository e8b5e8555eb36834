"""Declared questions: what is accepted, what is refused, and that a declaration cannot change afterwards."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any

import pytest

from outpost_lsp.domain.decision import (
    Choice,
    ChoiceAnswer,
    Decision,
    DecisionRequest,
    DecisionResult,
    Noul,
    NoulAnswer,
    PreparedState,
    Score,
    ScoreAnswer,
)
from outpost_lsp.domain.usage import Usage
from outpost_lsp.errors import OutpostError

TWO = {"fast": "Routine tools", "deep": "Reasoning"}


class Route(StrEnum):
    FAST = "fast"
    DEEP = "deep"


def refused(make: Any) -> str:
    with pytest.raises(OutpostError) as caught:
        make()
    assert caught.value.code == "configuration"
    return caught.value.message


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: Decision({}), "questions"),
        (lambda: Decision([]), "questions"),  # type: ignore[arg-type]
        (lambda: Decision({" ": Noul("Done?")}), "a name is blank"),
        (lambda: Decision({1: Noul("Done?")}), "a name is blank"),  # type: ignore[dict-item]
        (lambda: Decision({"q": {"type": "boolean", "instructions": "Done?"}}), "questions.q.type"),
        (lambda: Decision({"q": {"instructions": "Done?"}}), "questions.q.type"),
        (lambda: Decision({"q": {"type": ["noul"], "instructions": "Done?"}}), "questions.q.type"),
        (lambda: Decision({"q": "Done?"}), "questions.q"),  # type: ignore[dict-item]
        (lambda: Decision({"q": {"type": "noul"}}), "instructions"),
        (lambda: Decision({"q": {"type": "choice", "instructions": "Which?"}}), "criteria"),
        (lambda: Decision({"q": {"type": "noul", "instructions": "Done?", "weight": 1}}), "weight"),
        (lambda: Decision({"q": {"type": "noul", "instructions": "Done?", 1: 2}}), "questions.q"),
        (lambda: Choice("Which?", TWO, weight=1), "weight"),
        (lambda: Score("How?", ["a", "b"], weight=1), "weight"),
        (lambda: Noul("Done?", None, weight=1), "weight"),
        (lambda: Choice(" \n", TWO), "instructions"),
        (lambda: Choice(5, TWO), "instructions"),  # type: ignore[arg-type]
        (lambda: Choice("Which?", {"fast": "x", " ": "y"}), "a label is blank"),
        (lambda: Choice("Which?", {"fast": "x", "deep": " "}), "criteria.deep"),
        (lambda: Choice("Which?", {"fast": "x", "deep": None}), "criteria.deep"),  # type: ignore[dict-item]
        (lambda: Choice("Which?", {"fast": "x"}), "2 to 255"),
        (lambda: Choice("Which?", {str(label): "x" for label in range(256)}), "2 to 255"),
        (lambda: Choice("Which?", ["fast", "deep"]), "criteria"),  # type: ignore[arg-type]
        (lambda: Choice("Which?", {None: "x", "deep": "y"}), "criteria"),
        (lambda: Choice("Which?", {True: "x", False: "y"}), "criteria"),
        (lambda: Choice("Which?", {float("nan"): "x", "deep": "y"}), "criteria"),
        (lambda: Score("How?", ["only"]), "criteria"),
        (lambda: Score("How?", ["x"] * 11), "criteria"),
        (lambda: Score("How?", ["low", " "]), "criteria.1"),
        (lambda: Score("How?", {"low", "high"}), "criteria"),  # type: ignore[arg-type]
        (lambda: Score("How?", "low"), "criteria"),
        (lambda: Score("How?", {"0": "low", "1": "high"}), "criteria"),  # type: ignore[arg-type]
        (lambda: Noul("Done?", {"true": "yes"}), "both"),
        (lambda: Noul("Done?", {"true": "yes", "false": "no", "maybe": "?"}), "both"),
        (lambda: Noul("Done?", {"true": "yes", "false": ""}), "criteria.false"),
        (lambda: Decision({"\ud800": Noul("Done?")}), "surrogate"),
        (lambda: Decision({"q": Noul("half a pair \ud800")}), "instructions"),
    ],
)
def test_DEC_01_ERR_01_a_wrong_declaration_is_refused_by_name(make: Any, names: str) -> None:
    assert names in refused(make)


@pytest.mark.parametrize("count", [2, 255])
def test_DEC_01_the_counts_at_the_border_are_accepted(count: int) -> None:
    assert len(Choice("Which?", {str(label): "x" for label in range(count)}).criteria) == count


@pytest.mark.parametrize("count", [2, 10])
def test_DEC_01_the_levels_at_the_border_are_accepted(count: int) -> None:
    assert len(Score("How?", ["x"] * count).criteria) == count


def test_DEC_02_the_declaration_is_a_frozen_copy() -> None:
    labels = dict(TWO)
    levels = ["low", "high"]
    questions: dict[str, Any] = {
        "route": Choice("Which?", labels),
        "risk": Score("How?", levels),
        "done": Noul("Done?"),
    }
    decision = Decision(questions)
    labels["third"] = "new"
    levels.append("higher")
    questions.clear()
    assert decision.kind == "decision"
    assert set(decision.questions) == {"route", "risk", "done"}
    assert decision.questions["route"].criteria == TWO
    assert decision.questions["risk"].criteria == ("low", "high")
    with pytest.raises(TypeError):
        decision.questions["more"] = Noul("?")  # type: ignore[index]
    with pytest.raises(TypeError):
        decision.questions["route"].criteria["more"] = "?"  # type: ignore[index]
    with pytest.raises(Exception, match="frozen"):
        decision.questions["route"].instructions = "other"  # type: ignore[misc]
    wire = decision.to_json()
    wire["route"]["criteria"].clear()
    assert decision.to_json()["route"]["criteria"] == TWO


def test_DEC_02_a_mapping_declares_the_same_question_as_the_class() -> None:
    written = Decision(
        {
            "route": {"type": "choice", "instructions": "Which?", "criteria": TWO},
            "risk": {"type": "score", "instructions": "How?", "criteria": ["low", "high"]},
            "done": {"type": "noul", "instructions": "Done?", "criteria": {"true": "yes", "false": "no"}},
        }
    )
    built = Decision(
        {
            "route": Choice("Which?", TWO),
            "risk": Score("How?", ["low", "high"]),
            "done": Noul("Done?", {"true": "yes", "false": "no"}),
        }
    )
    assert written.to_json() == built.to_json() == json.loads(built.encoded)
    assert "criteria" not in Decision({"q": Noul("Done?")}).to_json()["q"]


def test_DEC_03_numeric_labels_become_the_text_that_json_makes_of_them() -> None:
    assert set(Choice("Which?", {1: "x", 2.0: "y", 2.5: "z"}).criteria) == {"1", "2", "2.5"}
    assert "same text" in refused(lambda: Choice("Which?", {1: "x", "1": "y", "2": "z"}))


def test_DEC_03_a_member_of_a_text_enumeration_is_its_value() -> None:
    criteria = Choice("Which?", {Route.FAST: "x", Route.DEEP: "y"}).criteria
    assert [type(label) for label in criteria] == [str, str]
    assert list(Decision({"route": Choice("Which?", criteria)}).to_json()["route"]["criteria"]) == ["fast", "deep"]


class Prepared(PreparedState):
    def value(self) -> dict[str, Any]:
        return {"step": 1}

    def encoded(self) -> bytes:
        return b'{"step":1}'


def test_a_request_shows_the_same_state_as_json_and_as_bytes() -> None:
    for state in ("text", {"step": 1}, [1], Prepared()):
        request = DecisionRequest(model="m", questions=Decision({"q": Noul("Done?")}), state=state)
        assert json.loads(request.encoded_state()) == request.state
        assert request.to_json() == {"model": "m", "state": request.state, "questions": request.questions}


def test_a_request_may_be_made_from_plain_questions() -> None:
    request = DecisionRequest(model="m", questions={"q": {"type": "noul", "instructions": "Done?"}}, state="s")
    assert request.questions == {"q": {"type": "noul", "instructions": "Done?"}}


def test_a_result_is_written_with_the_names_of_the_wire() -> None:
    answers = {
        "route": ChoiceAnswer("fast", {"fast": 1, "deep": 0}, 1),
        "risk": ScoreAnswer(0, {"0": 1}, 1, {"0": "low", "1": "high"}),
        "size": ScoreAnswer(0, {"0": 1}, 1),
        "done": NoulAnswer(0.5),
    }
    result = DecisionResult(provider="p", model="m", answers=answers, usage=Usage(input=1, output=2))
    assert result.to_json() == {
        "provider": "p",
        "model": "m",
        "answers": {
            "route": {"type": "choice", "choice": "fast", "probabilities": {"fast": 1, "deep": 0}, "confidence": 1},
            "risk": {
                "type": "score",
                "score": 0,
                "probabilities": {"0": 1},
                "confidence": 1,
                "legend": {"0": "low", "1": "high"},
            },
            "size": {"type": "score", "score": 0, "probabilities": {"0": 1}, "confidence": 1},
            "done": {"type": "noul", "noul": 0.5},
        },
        "usage": {"input": 1, "cached": 0, "output": 2},
    }
