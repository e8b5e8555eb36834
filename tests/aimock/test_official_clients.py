"""The mock itself, checked with the clients that the makers of the services publish: what it says is what they take."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic import Anthropic
from openai import APIStatusError, OpenAI

TOOL: dict[str, Any] = {
    "name": "list_files",
    "description": "List files",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}
ASKED: list[Any] = [{"role": "user", "content": "list the files"}]
GREETING = "Hello from a mock that others made"


def test_the_official_client_takes_chat_completions_streamed_and_with_a_tool(aimock: str) -> None:
    with OpenAI(base_url=f"{aimock}/v1", api_key="mock") as client:
        with client.chat.completions.create(
            model="gpt-4o",
            stream=True,
            stream_options={"include_usage": True},
            messages=[{"role": "user", "content": "say hello"}],
        ) as stream:
            chunks = list(stream)
        assert "".join(one.choices[0].delta.content or "" for one in chunks if one.choices).startswith(GREETING)
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.total_tokens > 0
        tools: list[Any] = [{"type": "function", "function": TOOL}]
        first = client.chat.completions.create(model="gpt-4o", messages=ASKED, tools=tools).choices[0]
        assert first.finish_reason == "tool_calls"
        [call] = first.message.tool_calls or []
        history = [
            *ASKED,
            first.message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.id, "content": "orders.py README.md"},
        ]
        second = client.chat.completions.create(model="gpt-4o", messages=history, tools=tools).choices[0]
        assert "orders.py" in (second.message.content or "")


def test_the_official_client_takes_responses_streamed_and_with_a_tool(aimock: str) -> None:
    with OpenAI(base_url=f"{aimock}/v1", api_key="mock") as client:
        with client.responses.stream(model="gpt-4o", input="say hello") as stream:
            kinds = [event.type for event in stream]
            assert stream.get_final_response().output_text.startswith(GREETING)
        assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
        assert "response.output_text.delta" in kinds
        tools: list[Any] = [{"type": "function", **TOOL}]
        first = client.responses.create(model="gpt-4o", input=ASKED, tools=tools)
        [call] = [one for one in first.output if one.type == "function_call"]
        result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "orders.py README.md"}
        history = [*ASKED, call.model_dump(exclude_none=True), result]
        second = client.responses.create(model="gpt-4o", input=history, tools=tools)
        assert "orders.py" in second.output_text


def test_the_official_client_takes_messages_streamed_and_with_a_tool(aimock: str) -> None:
    with Anthropic(base_url=aimock, api_key="mock") as client:
        messages: list[Any] = [{"role": "user", "content": "say hello"}]
        with client.messages.stream(model="mock", max_tokens=64, messages=messages) as stream:
            assert "".join(stream.text_stream).startswith(GREETING)
            assert stream.get_final_message().usage.output_tokens > 0
        tools: list[Any] = [{"name": "list_files", "description": "List files", "input_schema": TOOL["parameters"]}]
        answer = client.messages.create(model="mock", max_tokens=64, messages=ASKED, tools=tools)
        assert answer.stop_reason == "tool_use"
        assert [one.input for one in answer.content if one.type == "tool_use"] == [{"path": "."}]


def test_what_no_fixture_fits_is_an_error_and_no_invented_answer(aimock: str) -> None:
    client = OpenAI(base_url=f"{aimock}/v1", api_key="mock", max_retries=0)
    with client, pytest.raises(APIStatusError) as refused:
        client.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": "something else"}])
    assert refused.value.status_code in (404, 500, 503), refused.value
