"""The built-in decider: a short table over facts of the step, read from top to bottom, the first match wins.

It is a heuristic, not a model, and says so: it answers in the process, spends no tokens, names the rule it applied
and claims no more confidence than its record of labelled steps earns. The record is shipped beside this file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final, Literal

from outpost_lsp.decisions.facts import Facts
from outpost_lsp.decisions.hard_words import has_hard_word
from outpost_lsp.domain.decision import Choice, DecisionProviderResult, DecisionRequest
from outpost_lsp.domain.usage import ZERO
from outpost_lsp.errors import OutpostError, configuration

LONG_REQUEST_WORDS: Final = 14
MODEL: Final = "outpost-rules/1"


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the table. `route`: the cheapest candidate, or the one to fall back to."""

    name: str
    route: Literal["cheapest", "fallback"]
    says: str
    matches: Callable[[Facts], bool]


RULES: Final[tuple[Rule, ...]] = (
    Rule("repair-pending", "fallback", "an answer or a tool's arguments were refused", lambda f: f.repair_pending),
    Rule("repeated-failures", "fallback", "two or more tool results failed", lambda f: f.failures_in_a_row >= 2),
    Rule("repeated-call", "fallback", "the same call was made twice", lambda f: f.last_call_repeated),
    Rule("more-diagnostics", "fallback", "there are more diagnostics than before", lambda f: f.diagnostics_rose),
    Rule("failed-after-edit", "fallback", "a tool failed after an edit", lambda f: f.last_failed and f.edited),
    Rule("hard-words", "fallback", "the newest text has a hard word", lambda f: has_hard_word(f.newest_text)),
    Rule(
        "long-request",
        "fallback",
        f"the request has over {LONG_REQUEST_WORDS} words",
        lambda f: (f.request_words or 0) > LONG_REQUEST_WORDS,
    ),
    Rule("short-request", "cheapest", "the request is short", lambda f: f.request_words is not None),
    Rule("single-failure", "cheapest", "one tool result failed, nothing was edited", lambda f: f.last_failed),
    Rule("read-only", "cheapest", "a tool looked at something", lambda f: f.last_succeeded and f.last_call_reads),
    Rule(
        "clean-step", "cheapest", "a tool succeeded, no diagnostics", lambda f: f.last_succeeded and f.diagnostics == 0
    ),
)
NO_RULE: Final = Rule("no-rule", "fallback", "nothing else matched", lambda _: True)


class RulesDecisionProvider:
    """Routes by the table `RULES`.

    `cheapest` and `fallback` name the two labels that the table may choose, ``fast`` and ``deep`` unless given.
    `record`: for each rule how often it was right and how often it was seen, instead of the shipped counts.
    """

    name = "rules"
    identity = "rules:1"

    def __init__(
        self,
        cheapest: str = "fast",
        fallback: str = "deep",
        *,
        record: Mapping[str, tuple[int, int]] | None = None,
    ) -> None:
        if cheapest == fallback:
            raise configuration("RulesDecisionProvider: cheapest and fallback: two different labels are expected")
        self._cheapest = cheapest
        self._fallback = fallback
        self._record = None if record is None else _checked(record)

    async def request(self, request: DecisionRequest, /) -> DecisionProviderResult:
        """Apply the table to the state of the request."""
        name, labels = self._route_question(request)
        rule = first_match(Facts(request))
        right, seen = (shipped_record() if self._record is None else self._record).get(rule.name, (0, 0))
        choice = self._cheapest if rule.route == "cheapest" else self._fallback
        probabilities, confidence = _claim(labels, choice, right, seen)
        return DecisionProviderResult(
            model=MODEL,
            answers={
                name: {
                    "type": "choice",
                    "choice": choice,
                    "probabilities": probabilities,
                    "confidence": confidence,
                }
            },
            usage=ZERO,
            truncated=False,
            metadata={"x_rule": rule.name, "x_says": rule.says, "x_seen": seen, "x_right": right},
        )

    def _route_question(self, request: DecisionRequest) -> tuple[str, tuple[str, ...]]:
        questions = request.decision.questions
        for name, question in questions.items():
            if not isinstance(question, Choice):
                raise _unsupported(f"{name!r} is a {question.type} question")
            missing = {self._cheapest, self._fallback} - set(question.criteria)
            if missing:
                raise _unsupported(
                    f"{name!r} has no label {min(missing)!r}; name its labels with cheapest and fallback"
                )
        if len(questions) != 1:
            raise _unsupported("more than one question was asked")
        name, question = next(iter(questions.items()))
        assert isinstance(question, Choice)
        return name, tuple(question.criteria)


def first_match(facts: Facts) -> Rule:
    """The rule that speaks for a step."""
    return next((rule for rule in RULES if rule.matches(facts)), NO_RULE)


@cache
def shipped_record() -> Mapping[str, tuple[int, int]]:
    """For each rule how often it was right and how often it was seen, over the labelled steps of the tests."""
    text = files(__package__).joinpath("rules_record.json").read_text(encoding="utf-8")
    return _checked({name: (counts["right"], counts["seen"]) for name, counts in json.loads(text).items()})


def _claim(labels: tuple[str, ...], choice: str, right: int, seen: int) -> tuple[dict[str, float], float]:
    """What the record allows to claim: never all, and never less than an even share."""
    even = 1 / len(labels)
    chosen = max(even, (right + 1) / (seen + 2))
    rest = (1 - chosen) / (len(labels) - 1)
    return {label: chosen if label == choice else rest for label in labels}, (chosen - even) / (1 - even)


def _checked(record: Mapping[str, tuple[int, int]]) -> Mapping[str, tuple[int, int]]:
    known = {rule.name for rule in (*RULES, NO_RULE)}
    for name, counts in record.items():
        if name not in known:
            raise configuration(f"RulesDecisionProvider: record: there is no rule {name!r}")
        if not _are_counts(counts):
            raise configuration(
                f"RulesDecisionProvider: record.{name}: (right, seen) with right up to seen is expected"
            )
    return MappingProxyType(dict(record))


def _are_counts(counts: Any) -> bool:
    return (
        isinstance(counts, tuple)
        and len(counts) == 2
        and all(type(count) is int for count in counts)
        and 0 <= counts[0] <= counts[1]
    )


def _unsupported(what: str) -> OutpostError:
    return configuration(f"rules: unsupported: {what}; this decider answers one question, which model takes a step")
