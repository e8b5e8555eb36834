"""The answers to typed questions, and the contract of the service that gives them (DEC rules).

Answers stand here as they were received: nothing is rounded or worked out again. What makes one valid is in
`decisions/answers.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from outpost_lsp.domain.lossless import encode_json
from outpost_lsp.domain.question import Choice, Decision, Noul, Question, Score
from outpost_lsp.domain.usage import Usage

__all__ = [
    "Answer",
    "Choice",
    "ChoiceAnswer",
    "Decision",
    "DecisionProvider",
    "DecisionProviderResult",
    "DecisionRequest",
    "DecisionResult",
    "Noul",
    "NoulAnswer",
    "PreparedState",
    "Question",
    "Score",
    "ScoreAnswer",
]


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


class PreparedState(ABC):
    """A state whose parts were checked and encoded before, so that a request costs what is new.

    Both readings must be of one and the same lossless JSON value; `decide` does not check it again.
    """

    __slots__ = ()

    @abstractmethod
    def value(self) -> dict[str, Any]:
        """The state as a JSON object. Do not change what is returned: its parts are shared."""

    @abstractmethod
    def encoded(self) -> bytes:
        """The state as UTF-8 JSON."""


class DecisionRequest:
    """What a decision provider is asked: `model`, `questions` and `state`, all lossless JSON.

    `state` is text, a list or an object. A provider that speaks JSON takes the encoded forms, which cost less.
    """

    __slots__ = ("_questions", "_state", "model")

    def __init__(
        self,
        *,
        model: str,
        questions: Decision | Mapping[str, Any],
        state: str | list[Any] | dict[str, Any] | PreparedState,
    ) -> None:
        self.model = model
        self._questions = questions if isinstance(questions, Decision) else Decision(questions)
        self._state = state

    @property
    def decision(self) -> Decision:
        """The questions as they were declared."""
        return self._questions

    @property
    def questions(self) -> dict[str, Any]:
        """The questions as they go on the wire, a copy."""
        return self._questions.to_json()

    @property
    def state(self) -> Any:
        """The state as a JSON value; do not change it."""
        return self._state.value() if isinstance(self._state, PreparedState) else self._state

    @property
    def raw_state(self) -> str | list[Any] | dict[str, Any] | PreparedState:
        """The state as it was handed in, for a provider that reads a prepared state in parts."""
        return self._state

    def encoded_state(self) -> bytes:
        """The state as UTF-8 JSON; `configuration` when a text of it is no Unicode."""
        return self._state.encoded() if isinstance(self._state, PreparedState) else encode_json(self._state, "state")

    def to_json(self) -> dict[str, Any]:
        """The request as one JSON object, for whoever watches."""
        return {"model": self.model, "state": self.state, "questions": self.questions}


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionProviderResult:
    """What a decision provider gave back, not yet validated. `usage`: a `Usage` or a mapping of its counters."""

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

    def to_json(self) -> dict[str, Any]:
        """The result as one JSON object with the names of the wire, absent fields left out."""
        body: dict[str, Any] = {
            "provider": self.provider,
            "model": self.model,
            "answers": {name: _answer_json(answer) for name, answer in self.answers.items()},
            "usage": self.usage.to_json(),
        }
        if self.truncated is not None:
            body["truncated"] = self.truncated
        if self.metadata is not None:
            body["metadata"] = self.metadata
        return body


def _answer_json(answer: Answer) -> dict[str, Any]:
    match answer:
        case ChoiceAnswer():
            return {
                "type": "choice",
                "choice": answer.choice,
                "probabilities": dict(answer.probabilities),
                "confidence": answer.confidence,
            }
        case ScoreAnswer():
            body = {
                "type": "score",
                "score": answer.score,
                "probabilities": dict(answer.probabilities),
                "confidence": answer.confidence,
            }
            return body if answer.legend is None else {**body, "legend": dict(answer.legend)}
        case NoulAnswer():
            return {"type": "noul", "noul": answer.noul}


class DecisionProvider(Protocol):
    """A service that answers typed questions about a state. One request, never a retry (SYS-17)."""

    @property
    def name(self) -> str: ...

    async def request(self, request: DecisionRequest, /) -> DecisionProviderResult: ...
