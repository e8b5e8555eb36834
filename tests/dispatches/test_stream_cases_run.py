"""Each stream case, byte by byte through a whole dispatch: what runs, what is counted, what is asked again (REL-05, REL-07)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outpost_lsp import Agent, DispatchResult, Harness, ModelSpec, OutpostError, Tool
from tests.harness.stage import Stage
from tests.models.stream_cases import CASES, FOLDER, StreamCase
from tests.support.model_server import Answer, ModelServer

ENDS = {"complete": None, "length": "limit", "error": "provider"}


def test_the_folder_holds_every_case_whole() -> None:
    names = {path.name.partition(".")[0] for path in FOLDER.iterdir()}
    assert sorted(name[:3] for name in names) == [f"s0{number}" for number in range(1, 8)]
    for name in names:
        assert {path.suffix for path in FOLDER.glob(f"{name}.*")} == {".body", ".http", ".json"}


async def played(stage: Stage, case: StreamCase, *then: Answer | str) -> tuple[Any, list[tuple[str, Any]], ModelServer]:
    """A dispatch whose model says the case first: its result or fault, and the calls that ran."""
    ran: list[tuple[str, Any]] = []

    def recorder(name: str) -> Tool:
        def execute(value: Any, _context: Any) -> str:
            ran.append((name, value))
            return "ok"

        return Tool(name, "Records its calls.", {"type": "object"}, execute)

    tools = [recorder(name) for name in ("read_file", "search", "list_files", "write_file")]
    with ModelServer([Answer(raw=case.http, byte_by_byte=True), *then]) as server:
        provider = case.provider(server.base_url)
        provider._draw = lambda low, _high: low
        end: DispatchResult | OutpostError
        try:
            end = await stage.run(
                Agent(ModelSpec("case-model", max_output_tokens=1000), Harness(provider, tools=tools))
            )
        except OutpostError as fault:
            end = fault
        finally:
            await provider.aclose()
    assert server.problems == []
    return end, ran, server


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_case_runs_exactly_the_calls_that_it_may(stage: Stage, case: StreamCase) -> None:
    expected = case.expected
    retried = bool(expected["error"] and expected["error"]["retry"])
    end, ran, server = await played(stage, case, "Whole at last.")
    assert ran == [(call["name"], call["arguments"]) for call in expected["tool_calls"] if call["run"]]
    code = None if retried else ENDS[expected["outcome"]]
    if code is None:
        assert isinstance(end, DispatchResult), end
        assert end.text == ("Whole at last." if expected["tool_calls"] or retried else expected["text"])
        assert len(server.requests) == (2 if expected["tool_calls"] or retried else 1)
    else:
        assert isinstance(end, OutpostError), end
        assert end.code == code
        # The same request is never sent again as it was.
        assert len(server.requests) == 1
    receipts = [receipt.delta for receipt in stage.receipts if receipt.delta.input != 10]
    known = expected["usage"]
    if known is None:
        told = [receipt.complete for receipt in receipts]
        assert told == ([] if code == "provider" else [False])
    else:
        (receipt,) = receipts
        assert (receipt.input, receipt.output) == (known["input"], known["output"])
        assert receipt.is_complete == known.get("complete", True)


async def test_s05_what_was_shown_of_the_cut_answer_is_withdrawn(stage: Stage) -> None:
    case = next(case for case in CASES if case.name == "s05-error-midway")
    end, _, _ = await played(stage, case, "Whole at last.")
    kinds = [event.kind for event in stage.events if event.kind in ("text-delta", "model-retry", "text")]
    assert kinds[0] == "text-delta"
    assert kinds.index("model-retry") < len(kinds) - 1
    assert [event.text for event in stage.of("text")] == ["Whole at last."]
    assert "Overloaded" in stage.of("model-retry")[0].message
    assert "Looking" not in (end.transcript.read_text() if end.transcript else "Looking")


async def test_s03_ids_that_were_made_up_pair_with_their_results(stage: Stage) -> None:
    case = next(case for case in CASES if case.name == "s03-one-index")
    _, _, server = await played(stage, case, "done")
    messages = server.requests[1].json["messages"]
    asked = [call["id"] for call in messages[-4]["tool_calls"]]
    assert [message["tool_call_id"] for message in messages[-3:]] == asked
    assert len(set(asked)) == 3
    assert all(asked)


async def test_s06_going_on_tells_that_the_call_was_cut_off(stage: Stage) -> None:
    case = next(case for case in CASES if case.name == "s06-incomplete")
    await played(stage, case)
    conversation = stage.of("conversation")[0].id
    with ModelServer(["In small pieces, then."]) as server:
        provider = case.provider(server.base_url)
        await stage.run(Agent("case-model", Harness(provider)), "go on", continuation=conversation)
        await provider.aclose()
    sent = server.requests[0].json["input"]
    cut = next(item for item in sent if item.get("type") == "function_call_output")
    assert "Cut off" in cut["output"]
    assert json.loads(next(item for item in sent if item.get("type") == "function_call")["arguments"])["invalid"]


async def test_s07_a_full_context_is_compacted_once_and_asked_at_most_once_more(stage: Stage) -> None:
    case = next(case for case in CASES if case.name == "s07-error-as-200")
    long = Tool("read_file", "Reads.", {"type": "object"}, lambda _v, _c: "x" * 9_000)
    calls = [Answer(calls=[{"name": "read_file", "input": {"path": "a"}}]) for _ in range(3)]
    with ModelServer([*calls, *(Answer(raw=case.http) for _ in range(3)), "never"]) as server:
        provider = case.provider(server.base_url)
        with pytest.raises(OutpostError, match="maximum context length"):
            await stage.run(Agent("case-model", Harness(provider, tools=[long])))
        await provider.aclose()
    bodies = [request.body for request in server.requests]
    assert len(bodies) == len(set(bodies))
    # Three steps, the refused one, and after shortening results one summary or one more request of the step.
    assert len(bodies) <= 6
