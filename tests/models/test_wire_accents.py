"""Where the three forms are spoken with an accent, and where they are not spoken at all (OAC-04, OAR-02, ANT-03)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outpost_lsp.domain.message import ToolCallBlock
from outpost_lsp.domain.model import ModelResult
from outpost_lsp.domain.usage import Usage
from outpost_lsp.errors import OutpostError
from tests.models.stream_cases import outcome, reader_for


class TestChatAccents:
    """How local services speak the chat form."""

    def result(self, *deltas: dict[str, Any], finish: str | None = "tool_calls", tail: bytes = b"") -> ModelResult:
        chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
        if finish is not None:
            chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        data = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)
        got = outcome(reader_for("openai-chat"), [data + tail])
        if isinstance(got, OutpostError):
            raise got
        return got

    def calls(self, *parts: dict[str, Any]) -> list[tuple[str, Any]]:
        got = self.result(*({"tool_calls": [part]} for part in parts))
        return [(block.name, block.input) for block in got.blocks if isinstance(block, ToolCallBlock)]

    def test_arguments_may_be_an_object(self) -> None:
        assert self.calls({"index": 0, "id": "a", "function": {"name": "f", "arguments": {"x": 1}}}) == [
            ("f", {"x": 1})
        ]

    def test_a_name_that_each_part_repeats_is_one_call(self) -> None:
        parts = [{"index": 0, "id": "a", "function": {"name": "f", "arguments": text}} for text in ('{"x"', ":1", "}")]
        assert self.calls(*parts) == [("f", {"x": 1})]

    def test_one_tool_twice_under_one_index_without_ids_is_two_calls(self) -> None:
        parts = [{"index": 0, "function": {"name": "f", "arguments": text}} for text in ('{"x":1}', '{"x":2}')]
        assert self.calls(*parts) == [("f", {"x": 1}), ("f", {"x": 2})]

    def test_a_new_id_under_a_used_index_is_another_call_of_the_same_tool(self) -> None:
        parts = [
            {"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}},
            {"index": 0, "id": "b", "function": {"name": "f", "arguments": '{"x":2}'}},
        ]
        assert self.calls(*parts) == [("f", {}), ("f", {"x": 2})]

    def test_calls_without_index_begin_with_an_id_or_a_name(self) -> None:
        parts = [
            {"id": "a", "function": {"name": "f", "arguments": "{"}},
            {"function": {"arguments": "}"}},
            {"id": "b", "function": {"name": "g", "arguments": "{}"}},
        ]
        assert self.calls(*parts) == [("f", {}), ("g", {})]

    def test_interleaved_calls_stay_apart(self) -> None:
        parts = [
            {"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x":'}},
            {"index": 1, "id": "b", "function": {"name": "g", "arguments": '{"y":'}},
            {"index": 0, "function": {"arguments": "1}"}},
            {"index": 1, "function": {"arguments": "2}"}},
        ]
        assert self.calls(*parts) == [("f", {"x": 1}), ("g", {"y": 2})]

    def test_the_end_mark_alone_ends_an_answer(self) -> None:
        got = self.result({"content": "hello"}, finish=None, tail=b"data: [DONE]\n\n")
        assert (got.text, got.reason) == ("hello", "end")

    def test_a_last_event_without_blank_line_counts(self) -> None:
        got = self.result({"content": "hello"}, finish=None, tail=b"data: [DONE]\n")
        assert got.text == "hello"

    def test_neither_finish_reason_nor_end_mark_is_a_cut(self) -> None:
        with pytest.raises(OutpostError) as caught:
            self.result({"content": "hello"}, finish=None)
        assert (caught.value.code, "unavailable" in caught.value.details) == ("provider", True)

    def test_no_chunk_at_all_is_malformed(self) -> None:
        with pytest.raises(OutpostError) as caught:
            self.result(finish=None)
        assert caught.value.code == "response"

    def test_an_emoji_that_was_cut_in_two_is_whole_again(self) -> None:
        got = self.result({"content": "\ud83c"}, {"content": "\udf0d!"}, finish="stop")
        assert got.text == "🌍!"
        assert self.result({"content": "a\ud83c"}, finish="stop").text == "a\ufffd"

    @pytest.mark.parametrize(
        "delta",
        [
            {"content": 5},
            {"content": ["x"]},
            {"role": "user", "content": "x"},
            {"function_call": {"name": "f", "arguments": "{}"}},
            {"tool_calls": "x"},
            {"tool_calls": [5]},
            {"tool_calls": [{"index": "0", "function": {"name": "f"}}]},
            {"tool_calls": [{"index": 0, "function": {"name": 5}}]},
            {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": 5}}]},
            {"tool_calls": [{"index": 0, "id": "a", "function": {"arguments": "{}"}}]},
        ],
    )
    def test_what_is_no_chat_is_refused(self, delta: dict[str, Any]) -> None:
        with pytest.raises(OutpostError) as caught:
            self.result(delta)
        assert caught.value.code == "response"

    def test_MODEL_06_a_tool_call_without_calls_is_malformed(self) -> None:
        with pytest.raises(OutpostError) as caught:
            self.result({"content": "x"}, finish="tool_calls")
        assert caught.value.code == "response"


class TestResponsesItems:
    """The items of the final object."""

    def result(self, **final: Any) -> ModelResult | OutpostError:
        response = {"status": "completed", "error": None, "output": [], **final}
        event = {"type": "response.completed", "response": response}
        return outcome(reader_for("openai-responses"), [b"data: " + json.dumps(event).encode() + b"\n\n"])

    @pytest.mark.parametrize(
        "final",
        [
            {"output": [{"type": "web_search_call"}]},
            {"output": [{"type": "message", "role": "user", "content": []}]},
            {"output": [{"type": "message", "role": "assistant", "content": [{"type": "audio"}]}]},
            {"output": None},
            {"output": [5]},
            {"status": "queued"},
            {"error": {"code": "x"}, "output": [{"type": "message", "role": "assistant", "content": []}]},
            {"status": "incomplete", "incomplete_details": {"reason": "bored"}},
            {"output": []},
        ],
    )
    def test_what_is_no_answer_is_refused(self, final: dict[str, Any]) -> None:
        got = self.result(**final)
        assert isinstance(got, OutpostError)
        assert got.code == "response"

    def test_OAR_03_a_content_filter_is_a_refusal(self) -> None:
        got = self.result(status="incomplete", incomplete_details={"reason": "content_filter"})
        assert isinstance(got, ModelResult)
        assert got.reason == "refusal"

    def test_a_call_that_was_left_open_is_not_usable(self) -> None:
        call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "status": "in_progress"}
        got = self.result(output=[call])
        assert isinstance(got, ModelResult)
        assert [block.input for block in got.blocks if isinstance(block, ToolCallBlock)] == ["{}"]


class TestMessagesBlocks:
    """The blocks of the messages form."""

    def outcome(self, *events: dict[str, Any]) -> ModelResult | OutpostError:
        data = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
        return outcome(reader_for("anthropic-messages"), [data])

    def block(self, kind: str, index: int = 0, **fields: Any) -> list[dict[str, Any]]:
        start = {"type": "content_block_start", "index": index, "content_block": {"type": kind, **fields}}
        return [start, {"type": "content_block_stop", "index": index}]

    def end(self, stop: str | None = "end_turn") -> list[dict[str, Any]]:
        return [{"type": "message_delta", "delta": {"stop_reason": stop}}, {"type": "message_stop"}]

    def test_ANT_02_each_stop_reason_has_its_meaning(self) -> None:
        text = self.block("text", text="x")
        for stop, meaning in {
            "end_turn": "end",
            "stop_sequence": "end",
            "max_tokens": "max-tokens",
            "model_context_window_exceeded": "max-tokens",
            "refusal": "refusal",
        }.items():
            got = self.outcome(*text, *self.end(stop))
            assert isinstance(got, ModelResult)
            assert got.reason == meaning
        for stop in ("pause_turn", "", None):
            got = self.outcome(*text, *self.end(stop))
            assert isinstance(got, OutpostError)
            assert got.code == "response"

    def test_redacted_thinking_is_kept_as_it_came(self) -> None:
        got = self.outcome(*self.block("redacted_thinking", data="abc"), *self.block("text", 1, text="x"), *self.end())
        assert isinstance(got, ModelResult)
        assert got.blocks[0].to_json()["data"] == {"type": "redacted_thinking", "data": "abc"}

    def test_an_end_without_the_stop_of_the_message_is_a_cut(self) -> None:
        got = self.outcome(*self.block("text", text="x"), self.end()[0])
        assert isinstance(got, OutpostError)
        assert "unavailable" in got.details

    def test_an_open_block_at_the_end_is_malformed(self) -> None:
        got = self.outcome(self.block("tool_use", id="a", name="f", input={})[0], *self.end("tool_use"))
        assert isinstance(got, OutpostError)
        assert got.code == "response"

    @pytest.mark.parametrize(
        "odd",
        [
            {"type": "content_block_delta", "index": 7, "delta": {"type": "text_delta", "text": "x"}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x"}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}},
            {"type": "content_block_stop"},
            {"type": "message_delta", "delta": {"stop_reason": 5}},
            {"type": "message_delta", "delta": {}, "usage": {"output_tokens": -1}},
            {"type": "message_delta", "delta": {}, "usage": [1]},
        ],
    )
    def test_what_does_not_fit_is_malformed(self, odd: dict[str, Any]) -> None:
        got = self.outcome(*self.block("text", text="x"), odd, *self.end())
        assert isinstance(got, OutpostError)
        assert got.code == "response"

    def test_an_unknown_kind_of_block_is_malformed(self) -> None:
        got = self.outcome(*self.block("server_tool_use"), *self.block("text", 1, text="x"), *self.end())
        assert isinstance(got, OutpostError)
        assert got.code == "response"

    def test_unknown_pieces_are_passed_over(self) -> None:
        start, stop = self.block("text", text="x")
        odd = {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": {}}}
        got = self.outcome(start, odd, stop, *self.end())
        assert isinstance(got, ModelResult)
        assert got.text == "x"

    def test_ANT_04_what_was_read_from_and_written_to_the_cache_is_input_too(self) -> None:
        usage = {"input_tokens": 10, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 30}
        start = {"type": "message_start", "message": {"usage": {**usage, "output_tokens": 1}}}
        end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}}
        got = self.outcome(start, *self.block("text", text="x"), end, {"type": "message_stop"})
        assert isinstance(got, ModelResult)
        assert got.usage == Usage(input=100, cached=60, cache_created=30, output=7)

    def test_MODEL_06_a_tool_call_without_calls_is_malformed(self) -> None:
        got = self.outcome(*self.block("text", text="x"), *self.end("tool_use"))
        assert isinstance(got, OutpostError)
        assert got.code == "response"
