"""Typed answers and their repair (RESP rules)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter

from outpost_lsp import (
    Agent,
    Harness,
    JsonResponse,
    OutpostError,
    ResponseError,
    Subagent,
    TextResponse,
    recovery_details,
    review,
)
from outpost_lsp.storage.layout import Layout
from outpost_lsp.tools.files import file_tools
from tests.harness.stage import Stage, calls, echo, provider, says
from tests.support.repositories import RealRepository


class Verdict(BaseModel):
    ok: bool
    risks: list[str]


GOOD = '<response>{"ok": true, "risks": []}</response>'


@pytest.mark.parametrize("tag", ["", "1a", "a b", "a/b", "é"])
def test_RESP_01_tags_and_repairs_are_checked(tag: str) -> None:
    with pytest.raises(OutpostError) as caught:
        TextResponse(tag=tag)
    assert caught.value.code == "configuration"
    with pytest.raises(OutpostError):
        TextResponse(repairs=-1)


def test_RESP_02_the_last_complete_pair_wins_and_is_trimmed() -> None:
    response = TextResponse(tag="note")
    assert response.read("<note>a</note> x <note>\n b \n</note> <note>open") == "b"
    with pytest.raises(ResponseError) as caught:
        response.read("nothing <note>open")
    assert (caught.value.tag, caught.value.raw, caught.value.code) == ("note", None, "response")


@pytest.mark.parametrize("fence", ["```\n{}\n```", "```json\n{}\n```", "```json\r\n{}\r\n```"])
def test_RESP_03_one_code_fence_is_tolerated(fence: str) -> None:
    assert JsonResponse({"type": "object"}).read(f"<response>{fence}</response>") == {}


@pytest.mark.parametrize(
    "schema",
    [
        Verdict,
        TypeAdapter(Verdict),
        {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]},
    ],
)
def test_json_answers_are_validated(schema: Any) -> None:
    value = JsonResponse(schema).read(GOOD)
    assert (value["ok"] if isinstance(value, dict) else value.ok) is True
    for bad in ('{"ok": "maybe not"}', "[]", "{"):
        with pytest.raises(ResponseError) as caught:
            JsonResponse(schema).read(f"<response>{bad}</response>")
        assert caught.value.raw == bad


def test_RESP_06_an_invalid_schema_fails_at_once() -> None:
    for wrong in ({"type": "thing"}, {"minItems": 1, "oops": 2}):
        with pytest.raises(OutpostError):
            JsonResponse(wrong)
    with pytest.raises(OutpostError, match="json_schema"):
        JsonResponse(lambda value: value)


async def test_RESP_04_07_08_a_bad_answer_is_repaired_in_the_same_conversation(stage: Stage) -> None:
    model = provider(says("no block"), says(GOOD))
    reviewer = Subagent("review", "Reviews.", Agent("m", Harness(provider())))
    subject = Agent("m", Harness(model, tools=[echo, file_tools(), reviewer]))
    result = await stage.run(subject, "judge", response=JsonResponse(Verdict, repairs=1))
    assert result.response == Verdict(ok=True, risks=[])
    # RESP-11: reading it is completion enough.
    assert result.completed
    first, repair = model.requests
    assert first.messages[0].text.startswith("judge\n\n")
    assert '"risks"' in first.messages[0].text
    assert [message.role for message in repair.messages] == ["user", "assistant", "user"]
    assert "no complete <response>" in repair.messages[2].text
    assert '"risks"' in repair.messages[2].text
    # LOOP-23: only read-only tools, so no delegation.
    assert [tool.name for tool in repair.tools] == ["read_file", "list_files"]
    # The text is that of all turns; the last one and the value are the answer that holds.
    assert [turn.text for turn in result.turns] == ["no block", GOOD]
    assert result.text == f"no block\n{GOOD}"


async def test_RESP_09_the_last_failure_is_raised_with_what_is_needed_to_go_on(stage: Stage) -> None:
    subject = Agent("m", Harness(provider(says("no"), says("still no"))))
    with pytest.raises(ResponseError) as caught:
        await stage.run(subject, response=JsonResponse(Verdict, repairs=1))
    details = recovery_details(caught.value) or {}
    assert details["turns"] == 2
    assert details["conversation"]
    assert details["directory"]


async def test_RESP_10_CONV_15_repairs_need_conversations(stage: Stage) -> None:
    model = provider(says("x"))
    subject = Agent("m", Harness(model, conversations=None))
    with pytest.raises(OutpostError) as caught:
        await stage.run(subject, response=TextResponse(repairs=1))
    assert caught.value.code == "configuration"
    with pytest.raises(OutpostError):
        await stage.run(subject, continuation="anything")
    assert model.requests == []
    assert list(stage.layout.cache.rglob("*")) == []


async def test_RESP_05_nothing_in_a_schema_is_expanded(stage: Stage, tmp_path: Any) -> None:
    schema = {"type": "object", "description": "!`touch pwned` {{ NAME }}"}
    model = provider(says("<response>{}</response>"))
    await stage.run(Agent("m", Harness(model)), response=JsonResponse(schema))
    assert "{{ NAME }}" in model.requests[0].messages[0].text


async def test_RESP_12_findings_come_through_their_tool_and_a_typed_answer_makes_none(
    repository: RealRepository, tmp_path: Path
) -> None:
    """Each finding is checked by itself; a typed answer that lists some is a summary."""
    repository.write("a.txt", "one\nTWO\nthree\n")
    finding = {"path": "a.txt", "quote": "TWO", "severity": "warning", "code": "case", "title": "Shouts", "detail": "d"}
    model = provider(calls(("report_finding", finding), ("report_finding", {**finding, "quote": "FOUR"})), says("done"))
    got = await review(repository.path, model_provider=model, model="m", layout=Layout(tmp_path / "s", tmp_path / "c"))
    assert [one.title for one in got.findings] == ["Shouts"]
    good, bad = model.requests[1].messages[-1].results
    assert (good.is_error, bad.is_error) == (None, True)
    assert "<response>" not in model.requests[0].messages[0].text
    listed = provider(says(f"<response>{json.dumps([finding])}</response>"))
    typed = await review(
        repository.path,
        model_provider=listed,
        model="m",
        layout=Layout(tmp_path / "s", tmp_path / "c"),
        response=JsonResponse({"type": "array"}),
    )
    assert typed.findings == ()
    assert typed.result is not None
    assert typed.result.response == [finding]


@pytest.mark.parametrize("error", [KeyError("risks"), AssertionError(), RuntimeError("odd"), ZeroDivisionError("by")])
def test_a_callable_says_in_any_way_that_it_cannot_use_a_value(error: Exception) -> None:
    def read(_value: Any) -> Any:
        raise error

    with pytest.raises(ResponseError, match="does not match its schema"):
        JsonResponse(read, json_schema={"type": "object"}).read("<response>{}</response>")


def test_json_that_is_nested_too_deeply_is_a_bad_answer_and_no_crash() -> None:
    with pytest.raises(ResponseError, match="not JSON"):
        JsonResponse({"type": "array"}).read(f"<response>{'[' * 200_000}</response>")
