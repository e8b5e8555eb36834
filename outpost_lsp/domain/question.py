"""Typed questions, declared once: choice, score and noul, and the decision that holds them (DEC-01 to DEC-03).

A declared question is valid and frozen, and a `Decision` is encoded when it is declared, never again. Applications
write them; `decide` asks them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

from pydantic import Field, field_validator

from outpost_lsp.domain.lossless import encode_json, lossless_fault
from outpost_lsp.domain.record import Declaration, NonBlank
from outpost_lsp.errors import OutpostError


class Choice(Declaration):
    """Which one of 2 to 255 labels. A numeric label becomes text, as JSON would make it (DEC-03)."""

    type: Literal["choice"] = "choice"
    instructions: NonBlank
    criteria: Mapping[str, NonBlank]

    def __init__(self, instructions: str, criteria: Mapping[Any, str], **unknown: Any) -> None:
        super().__init__(instructions=instructions, criteria=criteria, **unknown)

    @field_validator("criteria", mode="before")
    @classmethod
    def _labels_are_text(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        labels = {_label(key): text for key, text in value.items()}
        if len(labels) != len(value):
            raise ValueError("two labels are the same text")
        return labels

    @field_validator("criteria")
    @classmethod
    def _enough_labels(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        if not 2 <= len(value) <= 255:
            raise ValueError("2 to 255 labels are expected")
        if any(not label.strip() for label in value):
            raise ValueError("a label is blank")
        return MappingProxyType(dict(value))


class Score(Declaration):
    """Which of 2 to 10 levels, level 0 first."""

    type: Literal["score"] = "score"
    instructions: NonBlank
    criteria: Annotated[tuple[NonBlank, ...], Field(min_length=2, max_length=10)]

    def __init__(self, instructions: str, criteria: Sequence[str], **unknown: Any) -> None:
        super().__init__(instructions=instructions, criteria=criteria, **unknown)

    @field_validator("criteria", mode="before")
    @classmethod
    def _levels_have_an_order(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise ValueError("a list of level descriptions is expected")
        return tuple(value)


class Noul(Declaration):
    """How probable a yes is."""

    type: Literal["noul"] = "noul"
    instructions: NonBlank
    criteria: Mapping[str, NonBlank] | None = None

    def __init__(self, instructions: str, criteria: Mapping[str, str] | None = None, **unknown: Any) -> None:
        super().__init__(instructions=instructions, criteria=criteria, **unknown)

    @field_validator("criteria")
    @classmethod
    def _both_sides(cls, value: Mapping[str, str] | None) -> Mapping[str, str] | None:
        if value is None:
            return None
        if set(value) != {"true", "false"}:
            raise ValueError('both "true" and "false" are expected, or neither')
        return MappingProxyType(dict(value))


Question = Choice | Score | Noul
_QUESTION_TYPES: Final[Mapping[str, type[Question]]] = MappingProxyType(
    {"choice": Choice, "score": Score, "noul": Noul}
)


class Decision:
    """A frozen, nonempty map of names to questions (DEC-01, DEC-02).

    A question may also be written as the mapping it is on the wire: ``type``, ``instructions`` and ``criteria``.
    """

    kind: Literal["decision"] = "decision"
    __slots__ = ("_encoded", "_questions")

    def __init__(self, questions: Mapping[str, Question | Mapping[str, Any]], **unknown: Any) -> None:
        if unknown:
            raise OutpostError("configuration", f"Decision: {min(unknown)}: there is no such option")
        if not isinstance(questions, Mapping) or not questions:
            raise OutpostError("configuration", "Decision: questions: at least one question is expected")
        declared: dict[str, Question] = {}
        for name, question in questions.items():
            if not isinstance(name, str) or not name.strip():
                raise OutpostError("configuration", "Decision: questions: a name is blank")
            declared[name] = _question(name, question)
        wire = {name: _question_json(question) for name, question in declared.items()}
        if fault := lossless_fault(wire, "questions"):
            raise OutpostError("configuration", f"Decision: {fault}")
        self._questions: Mapping[str, Question] = MappingProxyType(declared)
        self._encoded = encode_json(wire, "Decision: questions")

    @property
    def questions(self) -> Mapping[str, Question]:
        """The questions by name."""
        return self._questions

    @property
    def encoded(self) -> bytes:
        """The questions as JSON, encoded when they were declared."""
        return self._encoded

    def to_json(self) -> dict[str, Any]:
        """The questions as they go on the wire; each call gives a copy of its own."""
        questions: dict[str, Any] = json.loads(self._encoded)
        return questions

    def __repr__(self) -> str:
        return f"Decision({dict(self._questions)!r})"


def _label(key: Any) -> Any:
    if isinstance(key, str):
        return str.__str__(key)  # A member of a text enumeration stands for its value.
    if type(key) is float and math.isfinite(key):
        return str(int(key)) if key.is_integer() else str(key)
    return str(key) if type(key) is int else key


def _question(name: str, question: Any) -> Question:
    if isinstance(question, Choice | Score | Noul):
        return question
    if not isinstance(question, Mapping):
        raise OutpostError("configuration", f"Decision: questions.{name}: a Choice, Score or Noul is expected")
    fields = dict(question)
    declared = fields.pop("type", None)
    kind = _QUESTION_TYPES.get(declared) if isinstance(declared, str) else None
    if kind is None:
        raise OutpostError("configuration", f"Decision: questions.{name}.type: choice, score or noul is expected")
    fields.setdefault("instructions", None)
    if kind is not Noul:
        fields.setdefault("criteria", None)
    try:
        return kind(**fields)
    except OutpostError as error:
        raise OutpostError("configuration", f"Decision: questions.{name}: {error.message}") from error
    except TypeError as error:
        raise OutpostError("configuration", f"Decision: questions.{name}: a field name is not text") from error


def _question_json(question: Question) -> dict[str, Any]:
    body: dict[str, Any] = {"type": question.type, "instructions": question.instructions}
    if question.criteria is not None:
        body["criteria"] = (
            dict(question.criteria) if isinstance(question.criteria, Mapping) else list(question.criteria)
        )
    return body
