"""Typed questions about a state, and the contract of the service that answers them (DEC rules)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field, field_validator

from outpost_lsp.domain.lossless import lossless_fault
from outpost_lsp.domain.record import Declaration, NonBlank
from outpost_lsp.domain.usage import Usage
from outpost_lsp.errors import OutpostError


class Choice(Declaration):
    """Which one of 2 to 255 labels."""

    type: Literal["choice"] = "choice"
    instructions: NonBlank
    criteria: Mapping[str, NonBlank]

    def __init__(self, instructions: str, criteria: Mapping[Any, str]) -> None:
        super().__init__(instructions=instructions, criteria=criteria)

    @field_validator("criteria", mode="before")
    @classmethod
    def _labels_are_text(cls, value: Any) -> Any:
        # Numeric labels become text, as JSON would make them (DEC-03).
        if not isinstance(value, Mapping):
            return value
        return {str(key) if type(key) in (int, float) else key: text for key, text in value.items()}

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

    def __init__(self, instructions: str, criteria: Any) -> None:
        super().__init__(instructions=instructions, criteria=criteria)


class Noul(Declaration):
    """How probable a yes is."""

    type: Literal["noul"] = "noul"
    instructions: NonBlank
    criteria: Mapping[str, NonBlank] | None = None

    def __init__(self, instructions: str, criteria: Mapping[str, str] | None = None) -> None:
        super().__init__(instructions=instructions, criteria=criteria)

    @field_validator("criteria")
    @classmethod
    def _both_sides(cls, value: Mapping[str, str] | None) -> Mapping[str, str] | None:
        if value is None:
            return None
        if set(value) != {"true", "false"}:
            raise ValueError('both "true" and "false" are expected, or neither')
        return MappingProxyType(dict(value))


Question = Choice | Score | Noul


class Decision:
    """A frozen, nonempty map of names to questions (DEC-01, DEC-02)."""

    kind: Literal["decision"] = "decision"
    __slots__ = ("_questions", "_wire")

    def __init__(self, questions: Mapping[str, Question]) -> None:
        if not isinstance(questions, Mapping) or not questions:
            raise OutpostError("configuration", "Decision: questions: at least one question is expected")
        for name, question in questions.items():
            if not isinstance(name, str) or not name.strip():
                raise OutpostError("configuration", "Decision: questions: a name is blank")
            if not isinstance(question, Choice | Score | Noul):
                raise OutpostError("configuration", f"Decision: questions.{name}: a Choice, Score or Noul is expected")
        self._questions: Mapping[str, Question] = MappingProxyType(dict(questions))
        self._wire: dict[str, Any] = {name: _question_json(question) for name, question in questions.items()}
        if fault := lossless_fault(self._wire, "questions"):
            raise OutpostError("configuration", f"Decision: {fault}")

    @property
    def questions(self) -> Mapping[str, Question]:
        """The questions by name."""
        return self._questions

    def to_json(self) -> dict[str, Any]:
        """The questions as they go on the wire; do not change what is returned."""
        return self._wire


def _question_json(question: Question) -> dict[str, Any]:
    body: dict[str, Any] = {"type": question.type, "instructions": question.instructions}
    if question.criteria is not None:
        body["criteria"] = (
            dict(question.criteria) if isinstance(question.criteria, Mapping) else list(question.criteria)
        )
    return body


@dataclass(frozen=True, slots=True)
class ChoiceAnswer:
    """The chosen label with the probabilities and the confidence as the service reported them."""

    choice: str
    probabilities: Mapping[str, float]
    confidence: float
    type: Literal["choice"] = "choice"


@dataclass(frozen=True, slots=True)
class ScoreAnswer:
    """The level, possibly fractional. A level missing from `probabilities` has probability 0."""

    score: float
    probabilities: Mapping[str, float]
    confidence: float
    legend: Mapping[str, str] | None = None
    type: Literal["score"] = "score"


@dataclass(frozen=True, slots=True)
class NoulAnswer:
    """The probability of yes."""

    noul: float
    type: Literal["noul"] = "noul"


Answer = ChoiceAnswer | ScoreAnswer | NoulAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRequest:
    """What a decision provider is asked. `state` is text, a list or an object of lossless JSON."""

    model: str
    questions: Mapping[str, Any]
    state: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionProviderResult:
    """What a decision provider gave back, not yet validated."""

    model: Any
    answers: Any
    usage: Any = None
    truncated: Any = None
    metadata: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionResult:
    """A validated answer. An absent `truncated` means unknown (DEC-17)."""

    provider: str
    model: str
    answers: Mapping[str, Answer]
    usage: Usage
    truncated: bool | None = None
    metadata: Any = None


class DecisionProvider(Protocol):
    """A service that answers typed questions about a state. One request, never a retry (SYS-17)."""

    @property
    def name(self) -> str: ...

    async def request(self, request: DecisionRequest, /) -> DecisionProviderResult: ...
