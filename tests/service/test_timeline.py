"""The timeline of a run, from its journal."""

from __future__ import annotations

from typing import Any

from outpost_lsp.service.timeline import timeline
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
