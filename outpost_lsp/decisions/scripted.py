"""A decision provider that answers from a list: the public double for tests, demonstrations and dry runs.

It records what it was asked and spends nothing. Whoever routes in a test gives it the labels that its steps shall get.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from outpost_lsp.domain.decision import Choice, DecisionProviderResult, DecisionRequest, Noul, Score
from outpost_lsp.domain.usage import ZERO, Usage
from outpost_lsp.errors import OutpostError

Reply = str | tuple[str, float] | DecisionProviderResult | BaseException | Callable[[DecisionRequest], Any]


class ScriptedDecisionProvider:
    """Gives one reply per request, in order.

    A reply is a label, a label with its confidence, a whole `DecisionProviderResult`, an exception to raise, or a
    function (plain or a coroutine) of the request that gives one of these. With `repeat`, the last reply answers all
    later requests too; without, a request too many is a `configuration` fault.
    """

    def __init__(
        self,
        replies: Iterable[Reply],
        *,
        name: str = "scripted",
        model: str = "scripted/1",
        usage: Usage | None = ZERO,
        repeat: bool = False,
    ) -> None:
        self.name = name
        self.identity = name
        self.requests: list[DecisionRequest] = []
        self._replies = list(replies)
        self._model = model
        self._usage = usage
        self._repeat = repeat

    async def request(self, request: DecisionRequest, /) -> DecisionProviderResult:
        """Record the request and give the next reply."""
        index = len(self.requests)
        self.requests.append(request)
        if index >= len(self._replies):
            if not self._repeat or not self._replies:
                raise OutpostError("configuration", f"{self.name}: there is no reply left for request {index + 1}")
            index = len(self._replies) - 1
        reply: Any = self._replies[index]
        if not isinstance(reply, str | tuple | DecisionProviderResult | BaseException) and callable(reply):
            reply = reply(request)
            if inspect.isawaitable(reply):
                reply = await reply
        if isinstance(reply, BaseException):
            raise reply
        if isinstance(reply, DecisionProviderResult):
            return reply
        label, confidence = reply if isinstance(reply, tuple) else (reply, 1.0)
        return DecisionProviderResult(
            model=self._model, answers=_answers(request, label, confidence), usage=self._usage, truncated=False
        )


def _answers(request: DecisionRequest, label: str, confidence: float) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    for name, question in request.decision.questions.items():
        match question:
            case Choice():
                answers[name] = _choice(name, question, label, confidence)
            case Score():
                answers[name] = {"type": "score", "score": 0, "probabilities": {"0": 1}, "confidence": 1}
            case Noul():
                answers[name] = {"type": "noul", "noul": 0.5}
    return answers


def _choice(name: str, question: Choice, label: str, confidence: float) -> dict[str, Any]:
    if label not in question.criteria:
        raise OutpostError("configuration", f"scripted decisions: {label!r} is no label of {name!r}")
    # The probability that the documented formula of confidence turns into this confidence.
    even = 1 / len(question.criteria)
    chosen = min(1.0, even + confidence * (1 - even))
    rest = (1 - chosen) / (len(question.criteria) - 1)
    return {
        "type": "choice",
        "choice": label,
        "probabilities": {other: chosen if other == label else rest for other in question.criteria},
        "confidence": confidence,
    }
