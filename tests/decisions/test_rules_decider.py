"""The built-in decider: which rule speaks for which step, and that it claims no more than its record."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from outpost_lsp.decisions.decide import decide
from outpost_lsp.decisions.facts import Facts
from outpost_lsp.decisions.hard_words import has_hard_word
from outpost_lsp.decisions.rules import MODEL, NO_RULE, RULES, RulesDecisionProvider, first_match, shipped_record
from outpost_lsp.domain.decision import Choice, ChoiceAnswer, Decision, DecisionRequest, DecisionResult, Noul, Score
from outpost_lsp.domain.message import Message, ReasoningBlock, TextBlock, ToolCallBlock, ToolResultBlock, user
from outpost_lsp.domain.routing_state import RoutingState
from outpost_lsp.domain.usage import ZERO
from outpost_lsp.errors import OutpostError
from outpost_lsp.harness.response import ResponseError, repair_prompt
from tests.decisions.count_record import RECORD, ROUTE, record_text
from tests.decisions.labelled_steps import (
    LONG,
    Call,
    conversation,
    edited,
    git,
    listed,
    not_found,
    read,
    refused,
    searched,
    shell,
    written,
)


def state_of(messages: list[Message]) -> RoutingState:
    return RoutingState(system="S", messages=messages, tools=(), step=1, model="m")


def rule_of(state: Any) -> str:
    return first_match(Facts(DecisionRequest(model="rules", questions=ROUTE, state=state))).name


def rule_after(request: str, *calls: Call, then: str = "") -> str:
    state = state_of(conversation(request, *calls, then=then))
    # The same facts are read from the prepared state and from its JSON.
    assert rule_of(state) == rule_of(state.value()) == rule_of(json.loads(state.encoded()))
    return rule_of(state)


async def asked(
    state: Any, provider: RulesDecisionProvider | None = None, decision: Decision = ROUTE
) -> DecisionResult:
    return await decide(provider or RulesDecisionProvider(), "rules", decision, state)


def test_rule_1_a_repair_message_of_a_typed_response_is_pending() -> None:
    prompt = repair_prompt(ResponseError("report", "the answer holds no complete <report> block", None), 1)
    assert rule_after(prompt) == "repair-pending"


def test_rule_1_refused_arguments_of_a_tool_are_pending() -> None:
    assert rule_after(LONG, refused("read_file", "Invalid input for read_file: path: text")) == "repair-pending"
    assert rule_after(LONG, refused("open", "There is no tool named 'open'. Tools: none.")) == "repair-pending"
    quoted = read("notes.md", "Invalid input for read_file: path: text")
    assert rule_after(LONG, quoted) == "read-only"


def test_rule_2_two_failed_results_in_a_row() -> None:
    assert rule_after(LONG, not_found("a"), not_found("b")) == "repeated-failures"
    assert rule_after(LONG, not_found("a"), listed("b"), not_found("c")) == "single-failure"
    assert rule_after(LONG, not_found("a"), not_found("b"), listed("c")) == "read-only"


def test_rule_2_failures_of_one_answer_count_each() -> None:
    calls = tuple(ToolCallBlock(id=str(n), name="read_file", input={"path": str(n)}) for n in range(2))
    results = tuple(ToolResultBlock(call_id=str(n), content="no", is_error=True) for n in range(2))
    messages = [user("Read"), Message(role="assistant", content=calls), Message(role="user", content=results)]
    assert rule_of(state_of(messages)) == "repeated-failures"


def test_rule_3_the_same_call_twice_in_a_row() -> None:
    assert rule_after(LONG, listed("a"), listed("a")) == "repeated-call"
    assert rule_after(LONG, read("a", "x"), read("b", "x")) == "read-only"
    assert rule_after(LONG, read("a", "x"), listed("a"), read("a", "x")) == "read-only"


def test_rule_4_diagnostics_rose() -> None:
    base = state_of(conversation(LONG, edited("a.py"))).value()
    assert rule_of({**base, "diagnostics": 2, "previousDiagnostics": 1}) == "more-diagnostics"
    assert rule_of({**base, "diagnostics": 1, "previousDiagnostics": 1}) == "no-rule"
    assert rule_of({**base, "diagnostics": 1}) == "no-rule"
    assert rule_of({**base, "diagnostics": True, "previousDiagnostics": -1}) == "no-rule"


def test_rule_5_a_failure_after_an_edit_of_the_same_turn() -> None:
    failing = shell("pytest", "1 failed", status=1)
    assert rule_after(LONG, edited("a.py"), failing) == "failed-after-edit"
    assert rule_after(LONG, written("a.py"), listed("a.py"), failing) == "failed-after-edit"
    assert rule_after(LONG, refused("edit_file", "not found"), listed("a"), failing) == "single-failure"


def test_rule_5_an_edit_of_an_earlier_turn_does_not_count() -> None:
    failing = shell("pytest", "1 failed", status=1)
    messages = [
        *conversation("Edit it", edited("a.py")),
        Message(role="assistant", content=(TextBlock(text="Done."),)),
        *conversation("Run the tests", failing),
    ]
    assert rule_of(state_of(messages)) == "single-failure"


@pytest.mark.parametrize(
    "text",
    [
        "Why?",
        "the design of it",
        "Refactoring",
        "migrate it",
        "a data RACE here",
        "deadlocks",
        "in a thread",
        "it leaks",
        "security",
        "code review",
        "performance",
        "flaky",
        "a timeout",
        "time-outs",
        "it timed out",
        "Pourquoi ?",
        "la conception",
        "refactoriser",
        "remanier ce module",
        "Réécris-le",
        "migrer les données",
        "un interblocage",
        "un fil d'exécution",
        "un fil d’exécution",
        "une fuite",
        "la sécurité",
        "SÉCURITÉ",
        "se\u0301curite\u0301",
        "relecture",
        "lenteur",
        "instable",
        "le délai d'attente",
    ],
)
def test_rule_6_hard_words_are_found_in_both_languages(text: str) -> None:
    assert has_hard_word(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "designate",
        "trace",
        "brace",
        "racecar",
        "bread",
        "threadbare",
        "preview",
        "anywhy",
        "migraine",
        "filler",
        "fil",
    ],
)
def test_rule_6_words_that_merely_look_alike_do_not_count(text: str) -> None:
    assert not has_hard_word(text)


def test_rule_6_only_the_newest_two_thousand_characters_count() -> None:
    assert rule_after("Fix it", read("a", "deadlock" + "x" * 1_900)) == "hard-words"
    assert rule_after("Fix it", read("a", "deadlock\n" + "x" * 2_000)) == "read-only"
    assert rule_after("Why?", read("a", "x")) == "read-only"
    assert rule_after("Fix it", read("a", "x"), then="Why this file?") == "hard-words"


def test_rule_7_and_8_the_length_of_a_request_decides_at_the_first_step() -> None:
    assert rule_after("word " * 14) == "short-request"
    assert rule_after("word " * 15) == "long-request"
    assert rule_after(LONG, listed("a")) == "read-only"


def test_rule_7_and_8_hold_for_every_turn_of_a_conversation() -> None:
    messages = [*conversation(LONG, listed("a")), Message(role="assistant", content=(TextBlock(text="Done."),))]
    assert rule_of(state_of([*messages, user("Run the tests")])) == "short-request"


def test_rule_9_one_failure_without_an_edit() -> None:
    assert rule_after(LONG, not_found("a")) == "single-failure"


@pytest.mark.parametrize(
    "call",
    [
        listed("a"),
        read("a", "x"),
        searched("a", "x"),
        git("status", "clean"),
        git("diff", "x"),
        git("log", "x"),
        Call("grep", {}, "x"),
        Call("gitDiff", {}, "x"),
        Call("repo-status", {}, "x"),
    ],
)
def test_rule_10_a_tool_that_only_looked_and_succeeded(call: Call) -> None:
    assert rule_after(LONG, call) == "read-only"


@pytest.mark.parametrize("call", [shell("ls", "a"), edited("a"), git("push", "x"), Call("reader_write", {}, "x")])
def test_rule_10_other_tools_do_not_count(call: Call) -> None:
    assert rule_after(LONG, call) == "no-rule"


def test_rule_11_a_clean_step() -> None:
    base = state_of(conversation(LONG, edited("a.py"))).value()
    assert rule_of({**base, "diagnostics": 0}) == "clean-step"
    failed = state_of(conversation(LONG, not_found("a"))).value()
    assert rule_of({**failed, "diagnostics": 0}) == "single-failure"


@pytest.mark.parametrize(
    "state",
    [
        "some text about a deadlock",
        [],
        {},
        {"step": 4, "activeModel": "small", "recentText": ["why", "deadlock"]},
        {"messages": "deadlock"},
        {"messages": []},
        {"messages": [None, 5, "x"]},
        {"messages": [{"role": "assistant", "content": [{"type": "text", "text": "why"}]}]},
        {"messages": [{"role": "user"}]},
        {"messages": [{"role": "user", "content": 5}]},
        {"messages": [{"role": "user", "content": [None, {"type": "tool-result", "content": 5}]}]},
        {"messages": [{"content": "why"}]},
    ],
)
def test_rule_12_facts_that_are_not_there_match_nothing(state: Any) -> None:
    assert rule_of(state) == NO_RULE.name


def test_rule_12_a_message_of_plain_text_is_read_too() -> None:
    assert rule_of({"messages": [{"role": "user", "content": "Why?"}]}) == "hard-words"


def test_opaque_reasoning_is_no_fact() -> None:
    messages = conversation("Fix it", listed("a"))
    thought = ReasoningBlock(provider="p", model="m", data="x", text="why")
    reasoned = messages[1].model_copy(update={"content": (thought, *messages[1].content)})
    assert rule_of(state_of([messages[0], reasoned, messages[2]])) == "read-only"


def test_facts_are_read_from_the_end_of_a_long_conversation() -> None:
    messages = conversation("Fix it", *[listed(f"{n}") if n % 2 else read(f"{n}", "x") for n in range(3000)])

    class Counted(RoutingState):
        __slots__ = ("read",)

        def message(self, index: int) -> dict[str, Any]:
            self.read += 1
            return super().message(index)

    state = Counted(system="", messages=messages, tools=(), step=1, model="m")
    state.read = 0
    assert rule_of(state) == "read-only"
    assert state.read < 60


async def test_the_answer_names_its_rule_and_its_record() -> None:
    result = await asked(state_of(conversation("Why?")), RulesDecisionProvider(record={"hard-words": (17, 21)}))
    assert result.model == MODEL == "outpost-rules/1"
    assert result.provider == "rules"
    assert result.usage == ZERO
    assert result.usage.is_complete
    assert result.truncated is False
    assert result.metadata["x_rule"] == "hard-words"
    assert (result.metadata["x_right"], result.metadata["x_seen"]) == (17, 21)
    answer = result.answers["route"]
    assert isinstance(answer, ChoiceAnswer)
    assert answer.choice == "deep"
    assert answer.probabilities["deep"] == 18 / 23
    assert answer.confidence == pytest.approx(2 * 18 / 23 - 1)


@pytest.mark.parametrize(
    ("right", "seen", "confidence"),
    [(0, 0, 0), (8, 8, 0.8), (6, 6, 0.75), (9, 12, 0.43), (12, 12, 0.857), (11, 11, 0.846), (1, 3, 0), (0, 9, 0)],
)
async def test_the_confidence_is_what_the_record_allows(right: int, seen: int, confidence: float) -> None:
    provider = RulesDecisionProvider(record={"short-request": (right, seen)})
    answer = (await asked(state_of(conversation("Run the tests")), provider)).answers["route"]
    assert isinstance(answer, ChoiceAnswer)
    assert answer.choice == "fast"
    assert answer.confidence == pytest.approx(confidence, abs=0.005)


async def test_no_rule_of_the_shipped_record_claims_to_be_certain() -> None:
    for right, seen in shipped_record().values():
        assert (right + 1) / (seen + 2) < 1


async def test_every_rule_gives_a_valid_answer_with_any_number_of_labels() -> None:
    labels = {"fast": "x", "deep": "y", **{f"more-{n}": "z" for n in range(5)}}
    decision = Decision({"route": Choice("Which?", labels)})
    for right, seen in ((0, 0), (0, 50), (50, 50), (1, 2)):
        provider = RulesDecisionProvider(record={"short-request": (right, seen)})
        answer = (await asked(state_of(conversation("Run the tests")), provider, decision)).answers["route"]
        assert isinstance(answer, ChoiceAnswer)
        assert answer.choice == "fast"


async def test_other_labels_are_named_by_the_caller() -> None:
    decision = Decision({"depth": Choice("Which?", {"small": "x", "large": "y"})})
    provider = RulesDecisionProvider(cheapest="small", fallback="large")
    answer = (await asked(state_of(conversation("Run the tests")), provider, decision)).answers["depth"]
    assert isinstance(answer, ChoiceAnswer)
    assert answer.choice == "small"


@pytest.mark.parametrize(
    "decision",
    [
        Decision({"done": Noul("Done?")}),
        Decision({"risk": Score("How risky?", ["low", "high"])}),
        Decision({"language": Choice("Which language?", {"python": "x", "rust": "y"})}),
        Decision({"route": ROUTE.questions["route"], "done": Noul("Done?")}),
        Decision({"route": ROUTE.questions["route"], "other": ROUTE.questions["route"]}),
    ],
)
async def test_any_other_question_is_unsupported(decision: Decision) -> None:
    with pytest.raises(OutpostError, match="unsupported") as caught:
        await asked("state", None, decision)
    assert caught.value.code == "configuration"


@pytest.mark.parametrize(
    "record",
    [{"other": (1, 1)}, {"hard-words": (2, 1)}, {"hard-words": (-1, 1)}, {"hard-words": (1.0, 1)}, {"hard-words": 1}],
)
def test_a_wrong_record_is_refused(record: Any) -> None:
    with pytest.raises(OutpostError, match="record"):
        RulesDecisionProvider(record=record)


def test_two_labels_are_needed() -> None:
    with pytest.raises(OutpostError, match="cheapest"):
        RulesDecisionProvider("same", "same")


def test_the_shipped_record_is_what_the_labelled_steps_give() -> None:
    assert RECORD.read_text(encoding="utf-8") == record_text(), "run python -m tests.decisions.count_record"


def test_every_rule_of_the_table_has_labelled_steps() -> None:
    assert set(shipped_record()) == {rule.name for rule in (*RULES, NO_RULE)}
    assert all(seen >= 3 for _, seen in shipped_record().values())


def test_names_of_rules_are_distinct_and_the_table_is_in_order() -> None:
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names) == 11
    order = [
        "repair-pending",
        "repeated-failures",
        "repeated-call",
        "more-diagnostics",
        "failed-after-edit",
        "hard-words",
    ]
    assert all(names.index(before) < names.index(after) for before, after in pairwise(order))
