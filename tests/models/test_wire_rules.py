"""The three wire forms rule by rule: how answers are read and usage is counted (OAC, OAR and ANT rules)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outpost_lsp.domain.message import History, Message, TextBlock, ToolCallBlock, ToolResultBlock, user
from outpost_lsp.domain.model import ModelRequest, ModelResult
from outpost_lsp.domain.usage import Usage
from outpost_lsp.errors import OutpostError
from tests.models.asking import FORMS, MakeProvider, chat, messages, responses
from tests.models.stream_cases import outcome, reader_for

URL = "http://127.0.0.1:9/v1"
Got = ModelResult | OutpostError


def read(dialect: str, *events: dict[str, Any], tail: bytes = b"") -> Got:
    data = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    return outcome(reader_for(dialect), [data + tail])


def result(got: Got) -> ModelResult:
    assert isinstance(got, ModelResult), got
    return got


def is_malformed(got: Got) -> bool:
    return isinstance(got, OutpostError) and got.code == "response"


def sent(make: MakeProvider, *conversation: Message, **request: Any) -> dict[str, Any]:
    asked = ModelRequest(model="small", messages=History(conversation), max_output_tokens=9, **request)
    body: dict[str, Any] = json.loads(make(URL)._wire.body(asked))
    return body


# Chat Completions


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def test_OAC_01_an_answer_is_one_choice_of_the_assistant_s_text_or_null() -> None:
    text = read("openai-chat", chunk({"role": "assistant", "content": "hi"}), chunk({"content": None}, "stop"))
    assert result(text).text == "hi"
    twice = {"choices": [*chunk({"content": "a"})["choices"], *chunk({"content": "b"})["choices"]]}
    assert is_malformed(read("openai-chat", twice, chunk({}, "stop")))
    assert is_malformed(read("openai-chat", chunk({"role": "tool", "content": "x"}), chunk({}, "stop")))
    assert is_malformed(read("openai-chat", chunk({"content": ["x"]}), chunk({}, "stop")))
    old = {"function_call": {"name": "f", "arguments": "{}"}}
    assert is_malformed(read("openai-chat", chunk(old), chunk({}, "function_call")))


@pytest.mark.parametrize(
    ("delta", "finish", "reason"),
    [
        ({"content": "x"}, "stop", "end"),
        ({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f"}}]}, "tool_calls", "tool-calls"),
        ({"content": "x"}, "length", "max-tokens"),
        ({"content": "x"}, "content_filter", "refusal"),
        ({"refusal": "I will not."}, "stop", "refusal"),
        ({"content": "x"}, "bored", None),
        ({"content": "x"}, "function_call", None),
    ],
)
def test_OAC_02_each_finish_reason_has_its_meaning(delta: dict[str, Any], finish: str, reason: str | None) -> None:
    got = read("openai-chat", chunk(delta), chunk({}, finish))
    if reason is None:
        assert is_malformed(got)
    else:
        assert result(got).reason == reason


def test_OAC_03_usage_is_that_of_prompt_and_completion_with_what_was_cached() -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 60}}
    got = read(
        "openai-chat", chunk({"content": "x"}, "stop"), {"choices": [], "usage": usage}, tail=b"data: [DONE]\n\n"
    )
    assert result(got).usage == Usage(input=100, cached=60, output=7)
    plain = read("openai-chat", chunk({"content": "x"}, "stop", usage={"prompt_tokens": 3, "completion_tokens": 1}))
    assert result(plain).usage == Usage(input=3, output=1)
    assert result(read("openai-chat", chunk({"content": "x"}, "stop"))).usage is None


# Responses


def final(**fields: Any) -> dict[str, Any]:
    text = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]}
    response = {"status": "completed", "error": None, "output": [text], **fields}
    return {"type": "response.completed", "response": response}


def test_OAR_01_an_answer_has_no_error_a_list_and_one_of_two_ends() -> None:
    assert result(read("openai-responses", final())).text == "hi"
    cut = final(status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    assert result(read("openai-responses", cut)).reason == "max-tokens"
    for wrong in (
        {"error": {"code": "x", "message": "y"}},
        {"output": None},
        {"output": {}},
        {"status": "in_progress"},
        {"status": None},
    ):
        assert is_malformed(read("openai-responses", final(**wrong))), wrong


def test_OAR_04_usage_is_absent_or_adds_up() -> None:
    assert result(read("openai-responses", final())).usage is None
    counts = {"input_tokens": 100, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 60}}
    assert result(read("openai-responses", final(usage=counts))).usage == Usage(input=100, cached=60, output=7)
    assert is_malformed(read("openai-responses", final(usage={**counts, "input_tokens": 59})))


def test_OAR_05_deltas_are_shown_and_the_final_object_is_the_answer() -> None:
    reader = reader_for("openai-responses")
    reader.read(json.dumps({"type": "response.output_text.delta", "delta": "h"}).encode())
    reader.read(json.dumps({"type": "response.output_text.delta", "delta": "i"}).encode())
    assert "".join(piece.text for piece in reader.take()) == "hi"
    assert not reader.done
    reader.read(json.dumps(final()).encode())
    assert reader.done
    assert reader.result().text == "hi"
    # The end that says incomplete is one as well; the other two are faults by their kind.
    cut = final(status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    assert result(read("openai-responses", {**cut, "type": "response.incomplete"})).reason == "max-tokens"
    error = {"code": "server_error", "message": "x"}
    failed = read("openai-responses", {"type": "response.failed", "response": {"status": "failed", "error": error}})
    assert isinstance(failed, OutpostError)
    assert (failed.code, "unavailable" in failed.details) == ("provider", True)
    plain = read("openai-responses", {"type": "error", "code": "rate_limit_exceeded", "message": "x"})
    assert isinstance(plain, OutpostError)
    assert plain.code == "quota"


def test_OAR_06_encrypted_reasoning_is_asked_for_where_the_model_reasons() -> None:
    reasoning = sent(responses, user("go"), reasoning="low")
    assert (reasoning["include"], reasoning["store"]) == (["reasoning.encrypted_content"], False)
    assert "include" not in sent(responses, user("go"))


# Messages


def test_ANT_01_nothing_empty_is_sent_and_results_come_first() -> None:
    conversation = (
        user("go"),
        Message(role="assistant", content=(TextBlock(text=""), ToolCallBlock(id="c", name="f", input={}))),
        Message(role="user", content=(TextBlock(text="and"), ToolResultBlock(call_id="c", content="x"))),
        Message(role="assistant", content=(TextBlock(text=""),)),
        Message(role="user", content=(TextBlock(text=""), TextBlock(text="on"))),
    )
    body = sent(messages, *conversation)
    assert [[block["type"] for block in message["content"]] for message in body["messages"]] == [
        ["text"],
        ["tool_use"],
        ["tool_result", "text"],
        ["text"],
    ]
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user", "user"]


def test_ANT_05_blocks_are_built_by_their_index() -> None:
    def start(index: int, **block: Any) -> dict[str, Any]:
        return {"type": "content_block_start", "index": index, "content_block": block}

    def delta(index: int, **piece: Any) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": index, "delta": piece}

    def stop(index: int) -> dict[str, Any]:
        return {"type": "content_block_stop", "index": index}

    counts = {"input_tokens": 30, "cache_read_input_tokens": 20, "output_tokens": 1}
    got = read(
        "anthropic-messages",
        {"type": "message_start", "message": {"model": "small-1", "usage": counts}},
        start(1, type="text", text="a"),
        start(0, type="thinking", thinking="", signature=""),
        delta(1, type="text_delta", text="b"),
        delta(0, type="thinking_delta", thinking="hm"),
        delta(0, type="signature_delta", signature="si"),
        delta(0, type="signature_delta", signature="gn"),
        stop(0),
        stop(1),
        *(start(index, type="tool_use", id=f"t{index}", name="f", input={}) for index in (2, 3, 4)),
        delta(3, type="input_json_delta", partial_json='{"x":'),
        delta(4, type="input_json_delta", partial_json='{"broken'),
        delta(3, type="input_json_delta", partial_json="1}"),
        *(stop(index) for index in (2, 3, 4)),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 40}},
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 48}},
        {"type": "message_stop"},
    )
    thinking, text, *calls = result(got).blocks
    assert thinking.to_json()["data"] == {"type": "thinking", "thinking": "hm", "signature": "sign"}
    assert text == TextBlock(text="ab")
    # Nothing is an empty object, and what is broken stays a text.
    assert [call.input for call in calls if isinstance(call, ToolCallBlock)] == [{}, {"x": 1}, '{"broken']
    # Running totals of the input and of the output, each as it was said last.
    assert result(got).usage == Usage(input=50, cached=20, output=48)


@pytest.mark.parametrize("make", FORMS)
def test_ANT_06_caching_is_asked_of_the_one_form_that_has_a_word_for_it(make: MakeProvider) -> None:
    with_cache, without = sent(make, user("go"), cache=True), sent(make, user("go"), cache=False)
    assert (with_cache != without) == (make is messages)
    assert ("cache_control" in with_cache) == (make is messages)
    assert "cache_control" not in without


@pytest.mark.parametrize("make", [chat, responses, messages])
def test_a_field_that_no_form_knows_never_leaves(make: MakeProvider) -> None:
    """MODEL-03: unknown request fields are refused where the request is made."""
    with pytest.raises(OutpostError, match="temperature") as caught:
        sent(make, user("go"), temperature=0.5)
    assert caught.value.code == "configuration"
