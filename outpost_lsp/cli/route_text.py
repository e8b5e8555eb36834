"""Why a step took its route, in a few words: the same ones on the terminal, in its timeline and on the HTML page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from outpost_lsp.domain.markdown import one_line

_REASONS: Final[Mapping[str, str]] = {"confidence": "not sure enough"}
_LONGEST_RULE: Final = 80


class Reasoned(Protocol):
    """A selection, as the event and as the timeline hold it."""

    @property
    def reason(self) -> str:
        """`selected`, `confidence` or `unavailable`."""

    @property
    def confidence(self) -> float | None:
        """From 0 to 1; absent without a valid answer."""

    @property
    def reported_confidence(self) -> float | None:
        """What the service said, where the confidence was worked out from the probabilities."""

    @property
    def rule(self) -> str | None:
        """The decider's own name for what it applied."""


def route_facts(route: Reasoned) -> list[str]:
    """The reason, the confidence and the rule."""
    facts = [_REASONS.get(route.reason, route.reason)]
    if route.confidence is not None:
        facts.append(f"confidence {route.confidence:.2f}")
    if route.reported_confidence is not None:
        facts.append(f"{route.reported_confidence:.2f} reported")
    if route.rule is not None:
        facts.append(f"rule {one_line(route.rule, _LONGEST_RULE)}")
    return facts
