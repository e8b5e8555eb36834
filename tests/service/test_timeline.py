"""The timeline of a run, from its journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from outpost_lsp.domain.run import Run
from outpost_lsp.service.timeline import timeline, without_journal
from outpost_lsp.service.timeline_shape import Timeline
from outpost_lsp.storage.journal import JournalRecord


def records(*events: dict[str, Any]) -> list[JournalRecord]:
    return [
        JournalRecord(number, f"2026-01-01T00:00:{number:02d}.000Z", "harness", {}, event)
        for number, event in enumerate(events, 1)
    ]


DELEGATION = records(
    {"kind": "step", "index": 1},
    {
        "kind": "model-route",
        "step": 1,
        "choice": "deep",
        "model": {"name": "large"},
        "reason": "confidence",
        "confidence": 0.5,
    },
    {"kind": "usage", "tokens": {"input": 10, "output": 2}},
    {"kind": "text", "text": "I delegate."},
    {"kind": "tool", "name": "review", "input": {"prompt": "look"}, "callId": "c1"},
    {"kind": "subagent", "id": "s1", "callId": "c1", "name": "reviewer", "status": "started", "conversation": "k"},
    {"kind": "step", "index": 1, "subagentId": "s1"},
    {"kind": "tool", "name": "read_file", "input": {"path": "a.py"}, "callId": "c1", "subagentId": "s1"},
    {
        "kind": "tool-result",
        "callId": "c1",
        "name": "read_file",
        "isError": True,
        "preview": "no such file",
        "characters": 12,
        "subagentId": "s1",
    },
    {"kind": "usage", "tokens": {"input": 5, "output": 1}, "subagentId": "s1"},
    {"kind": "subagent", "id": "s1", "callId": "c1", "name": "reviewer", "status": "finished"},
    {"kind": "tool-result", "callId": "c1", "name": "review", "isError": False, "preview": "{}", "characters": 2},
)


def test_steps_hold_their_tools_texts_and_usage_apart_for_each_agent() -> None:
    told = timeline(DELEGATION)
    main, child = told.steps
    assert (main.subagent_id, child.subagent_id) == (None, "s1")
    assert main.texts == ("I delegate.",)
    assert [(call.name, call.status) for call in main.tools] == [("review", "ok")]
    assert [(call.name, call.status, call.preview) for call in child.tools] == [("read_file", "failed", "no such file")]
    assert (main.usage.input, child.usage.input) == (10, 5)


def test_subagents_keep_their_times_and_the_conversation_that_only_their_start_names() -> None:
    [subagent] = timeline(DELEGATION).subagents
    assert (subagent.status, subagent.conversation, subagent.parent_id) == ("finished", "k", None)
    assert subagent.started_at < (subagent.finished_at or "")


def test_routes_and_the_usage_of_each_agent_are_told() -> None:
    told = timeline(DELEGATION)
    [route] = told.routes
    assert (route.choice, route.model, route.reason, route.confidence) == ("deep", "large", "confidence", 0.5)
    assert [(one.name, one.usage.input) for one in told.usage] == [(None, 10), ("reviewer", 5)]


def test_an_instruction_that_comes_before_the_first_step_of_a_loop_is_told_with_that_step() -> None:
    told = timeline(
        records(
            {"kind": "steer", "text": "mind the brief", "mode": "injected"},
            {"kind": "step", "index": 1},
            {"kind": "steer", "text": "mind the locks", "mode": "injected", "subagentId": "s1"},
            {"kind": "step", "index": 1, "subagentId": "s1"},
            {"kind": "steer", "text": "and the tests", "mode": "injected", "subagentId": "s1"},
            {"kind": "step", "index": 2, "subagentId": "s1"},
        )
    )

    assert [step.notes for step in told.steps] == [
        ("instruction injected: mind the brief",),
        ("instruction injected: mind the locks", "instruction injected: and the tests"),
        (),
    ]


def test_a_denied_call_stays_denied_although_its_result_is_an_error_too() -> None:
    told = timeline(
        records(
            {"kind": "step", "index": 1},
            {"kind": "tool", "name": "write_file", "input": {}, "callId": "c1"},
            {"kind": "tool-denied", "callId": "c1", "name": "write_file", "reason": "rule 1"},
            {
                "kind": "tool-result",
                "callId": "c1",
                "name": "write_file",
                "isError": True,
                "preview": "Denied",
                "characters": 6,
            },
        )
    )
    [call] = told.steps[0].tools
    assert (call.status, call.preview) == ("denied", "rule 1")


def test_records_of_newer_versions_and_mangled_ones_cost_only_themselves() -> None:
    told = timeline(
        records(
            {"kind": "hologram", "text": "?"},
            {"kind": "step", "index": "one"},
            {"kind": "step", "index": 1},
            {"kind": "decision", "status": "started", "provider": "p", "model": "m"},
        )
    )
    assert [step.index for step in told.steps] == [1]


def test_a_finding_that_others_are_merged_into_is_told_once_where_it_was_found_and_as_it_became() -> None:
    def found(severity: str, **more: Any) -> dict[str, Any]:
        span = {"startLine": 1, "startCharacter": 0, "endLine": 1, "endCharacter": 3}
        finding = {"id": "r-1", "runId": "r", "agent": "a", "path": "a.py", "span": span, "code": "c", "title": "T"}
        return {
            "kind": "finding",
            "callId": "c1",
            "finding": finding | {"severity": severity, "quote": "q", "fingerprint": "f"},
        } | more

    told = timeline(
        records(
            {"kind": "step", "index": 1},
            found("warning"),
            found("warning"),
            {"kind": "step", "index": 1, "subagentId": "s1"},
            found("error", subagentId="s1"),
        )
    )
    assert [step.notes for step in told.steps] == [("finding a.py:2: error: T",), ()]


def receipts(told: Timeline) -> list[tuple[int, bool]]:
    return [(step.usage.input, step.usage.is_complete) for step in told.steps]


ANSWERED = {"kind": "usage", "tokens": {"input": 10, "output": 2}, "source": "model", "model": "m"}
DECIDED = {"kind": "usage", "tokens": {"input": 3, "output": 1}, "source": "decision", "model": "d"}


def finished(**usage: Any) -> dict[str, Any]:
    return {"kind": "dispatch-finished", "status": "failed", "completed": False, "usage": usage}


def test_a_step_whose_request_left_no_receipt_when_its_process_died_is_unknown_and_not_zero() -> None:
    told = timeline(
        records(
            {"kind": "step", "index": 1},
            ANSWERED,
            {"kind": "subagent", "id": "s1", "callId": "c1", "name": "reviewer", "status": "started"},
            {"kind": "step", "index": 1, "subagentId": "s1"},
            DECIDED | {"subagentId": "s1"},
        )
    )
    assert receipts(told) == [(10, True), (3, False)], "a decision's receipt is not that of the model"
    assert [(one.name, one.usage.is_complete) for one in told.usage] == [(None, True), ("reviewer", False)]


def test_a_step_without_a_receipt_used_nothing_when_the_run_knew_all_that_it_used() -> None:
    refused = records(
        {"kind": "step", "index": 1}, {"kind": "model-error", "message": "401"}, finished(input=0, output=0)
    )
    assert receipts(timeline(refused)) == [(0, True)]


def test_a_step_that_was_cancelled_while_it_asked_is_unknown() -> None:
    cut = records(
        {"kind": "step", "index": 1},
        ANSWERED,
        {"kind": "step", "index": 2},
        finished(input=10, output=2, complete=False),
    )
    assert receipts(timeline(cut)) == [(10, True), (0, False)]


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ([], "its journal is empty, or holds no record that can be read"),
        (records({"kind": "prompt", "text": "x"}), "its agent has not begun a step"),
        (
            records({"kind": "prompt", "text": "x"}, finished(input=0, output=0)),
            "it ended before its agent's first step",
        ),
        ([JournalRecord(1, "", "agent", {}, {"kind": "text", "text": "x"})], "its agent is a program of its own"),
    ],
)
def test_a_journal_without_steps_says_why_there_are_none(told: list[JournalRecord], why: str) -> None:
    assert (timeline(told).untold or "").startswith(why)
    assert timeline(DELEGATION).untold is None


@pytest.mark.parametrize(
    ("kind", "status", "why"),
    [
        ("dispatch", "succeeded", "there is no journal /state/r.jsonl"),
        ("review", "interrupted", "there is no journal /state/r.jsonl"),
        ("review", "queued", "it is queued and has written no journal so far"),
        ("replay", "succeeded", "a replay keeps no journal"),
    ],
)
def test_a_run_without_a_journal_says_why_and_what_to_do(kind: Any, status: Any, why: str) -> None:
    run = Run(id="r", kind=kind, agent="a", title="t", status=status, workspace="/w", started_at="")
    assert without_journal(run, Path("/state/r.jsonl")).startswith(why)
