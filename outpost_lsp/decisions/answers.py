"""What makes the answers of a decision service valid (DEC-20 to DEC-26).

Every number is kept exactly as it was received: checked, never rounded, renormalised or worked out again. A failing
check is a `response` fault that names the question and the field, and quotes nothing of the answer but numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from outpost_lsp.domain.decision import (
    Answer,
    Choice,
    ChoiceAnswer,
    Decision,
    Noul,
    NoulAnswer,
    Question,
    Score,
    ScoreAnswer,
)
from outpost_lsp.errors import OutpostError

_SLACK: Final = 0.00001
_HALF_OF_FOURTH_DECIMAL: Final = 0.00005
_FLOAT_NOISE: Final = 1e-12
"""So that a sum exactly at the tolerance is not refused for how floating point writes it."""


def read_answers(decision: Decision, answers: Any) -> Mapping[str, Answer]:
    """The typed answers, exactly one for each question of `decision`."""
    if not isinstance(answers, Mapping):
        raise _invalid("answers: an object is expected")
    missing = [name for name in decision.questions if name not in answers]
    if missing:
        raise _invalid(f"answers: {missing[0]!r} is missing")
    if len(answers) != len(decision.questions):
        raise _invalid("answers: there is one that nobody asked for")
    return MappingProxyType(
        {name: _answer(name, question, answers[name]) for name, question in decision.questions.items()}
    )


def _answer(name: str, question: Question, raw: Any) -> Answer:
    path = f"answers.{name}"
    if not isinstance(raw, Mapping):
        raise _invalid(f"{path}: an object is expected")
    if raw.get("type") != question.type:
        raise _invalid(f"{path}.type: {question.type!r} is expected")
    match question:
        case Choice():
            return _choice(path, question, raw)
        case Score():
            return _score(path, question, raw)
        case Noul():
            return NoulAnswer(_probability(f"{path}.noul", raw.get("noul")))


def _choice(path: str, question: Choice, raw: Mapping[str, Any]) -> ChoiceAnswer:
    probabilities = _probabilities(path, raw.get("probabilities"))
    if set(probabilities) != set(question.criteria):
        raise _invalid(f"{path}.probabilities: exactly the labels of the question are expected")
    confidence = _probability(f"{path}.confidence", raw.get("confidence"))
    _check_total(path, probabilities.values(), _half_unit((*probabilities.values(), confidence)))
    choice = raw.get("choice")
    if not isinstance(choice, str) or choice not in probabilities:
        raise _invalid(f"{path}.choice: a label of the question is expected")
    if probabilities[choice] + _SLACK < max(probabilities.values()):
        raise _invalid(f"{path}.choice: another label is more probable")
    return ChoiceAnswer(choice, MappingProxyType(probabilities), confidence)


def _score(path: str, question: Score, raw: Mapping[str, Any]) -> ScoreAnswer:
    levels = {str(level): level for level in range(len(question.criteria))}
    probabilities = _probabilities(path, raw.get("probabilities"))
    if not probabilities or not probabilities.keys() <= levels.keys():
        raise _invalid(f"{path}.probabilities: levels from 0 to {len(levels) - 1} as text are expected")
    confidence = _probability(f"{path}.confidence", raw.get("confidence"))
    score = _number(f"{path}.score", raw.get("score"))
    if not 0 <= score <= len(levels) - 1:
        raise _invalid(f"{path}.score: a number from 0 to {len(levels) - 1} is expected")
    half_unit = _half_unit((*probabilities.values(), confidence, score))
    _check_total(path, probabilities.values(), half_unit)
    expected = math.fsum(levels[level] * probability for level, probability in probabilities.items())
    tolerance = _SLACK + half_unit + half_unit * sum(levels[level] for level in probabilities)
    if abs(score - expected) > tolerance + _FLOAT_NOISE:
        raise _invalid(f"{path}.score: {score} is not what the probabilities give, {expected:.6g}")
    return ScoreAnswer(score, MappingProxyType(probabilities), confidence, _legend(path, levels, raw))


def _legend(path: str, levels: Mapping[str, int], raw: Mapping[str, Any]) -> Mapping[str, str] | None:
    if "legend" not in raw:
        return None
    legend = raw["legend"]
    if not isinstance(legend, Mapping) or legend.keys() != levels.keys():
        raise _invalid(f"{path}.legend: an object with a text for every level is expected")
    if not all(isinstance(text, str) for text in legend.values()):
        raise _invalid(f"{path}.legend: texts are expected")
    return MappingProxyType(dict(legend))


def _probabilities(path: str, raw: Any) -> dict[str, float]:
    if not isinstance(raw, Mapping):
        raise _invalid(f"{path}.probabilities: an object is expected")
    return {label: _probability(f"{path}.probabilities", value) for label, value in raw.items()}


def _check_total(path: str, probabilities: Iterable[float], half_unit: float) -> None:
    values = tuple(probabilities)
    total = math.fsum(values)
    if abs(total - 1) > _SLACK + half_unit * len(values) + _FLOAT_NOISE:
        raise _invalid(f"{path}.probabilities: they add up to {total:.6g}, not to 1")


def _half_unit(numbers: Iterable[float]) -> float:
    """Half a unit of the last decimal that a service shows, when it shows fewer than four (DEC-22)."""
    shown = max(_decimals(number) for number in numbers)
    return 0.5 * 10.0 ** -max(2, shown) if shown < 4 else _HALF_OF_FOURTH_DECIMAL


def _decimals(number: float) -> int:
    # The shortest text that gives the number back; a power of ten below -4 shows at least five decimals.
    text = repr(float(number))
    if "e" in text:
        return 0 if "e+" in text else 5
    fraction = text.partition(".")[2]
    return 0 if fraction == "0" else len(fraction)


def _probability(path: str, value: Any) -> float:
    number = _number(path, value)
    if not 0 <= number <= 1:
        raise _invalid(f"{path}: a number from 0 to 1 is expected")
    return number


def _number(path: str, value: Any) -> float:
    # A boolean is an integer to Python, and negative zero equals zero; neither is a probability (DEC-21).
    if type(value) is int:
        return value
    if type(value) is not float or not math.isfinite(value) or (value == 0 and math.copysign(1, value) < 0):
        raise _invalid(f"{path}: a finite number is expected")
    return value


def _invalid(message: str) -> OutpostError:
    return OutpostError("response", f"the decision service gave an invalid answer: {message}")
