"""Counts, rule by rule, how often the built-in decider agrees with the labelled steps.

Run ``python -m tests.decisions.count_record`` to write the record that is shipped; a test compares the two.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import outpost_lsp.decisions.rules as rules
from outpost_lsp.decisions.facts import Facts
from outpost_lsp.domain.decision import Choice, Decision, DecisionRequest
from tests.decisions.labelled_steps import STEPS, LabelledStep

RECORD = Path(rules.__file__).with_name("rules_record.json")
ROUTE = Decision({"route": Choice("Which model takes the next step?", {"fast": "Routine tools", "deep": "Reasoning"})})


def applied_rule(step: LabelledStep) -> rules.Rule:
    """The rule that speaks for a labelled step."""
    return rules.first_match(Facts(DecisionRequest(model="rules", questions=ROUTE, state=step.state)))


def count(steps: Iterable[LabelledStep]) -> dict[str, dict[str, int]]:
    """Right and seen for every rule that spoke, in the order of the table."""
    found: dict[str, dict[str, int]] = {rule.name: {"right": 0, "seen": 0} for rule in (*rules.RULES, rules.NO_RULE)}
    for step in steps:
        rule = applied_rule(step)
        counts = found[rule.name]
        counts["seen"] += 1
        counts["right"] += step.label == ("fast" if rule.route == "cheapest" else "deep")
    return {name: counts for name, counts in found.items() if counts["seen"]}


def record_text(steps: Iterable[LabelledStep] = STEPS) -> str:
    """The file as it is shipped."""
    return json.dumps(count(steps), indent=2) + "\n"


if __name__ == "__main__":
    RECORD.write_text(record_text(), encoding="utf-8")
    for name, counts in count(STEPS).items():
        print(f"{name:20} {counts['right']:3} of {counts['seen']}")
