"""What goes over the wire: the three forms, field by field (OAR, OAC and ANT rules)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outpost_lsp.domain.message import (
    History,
    Message,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    user,
)
from outpost_lsp.domain.model import ModelRequest, ModelSpec, ToolSpec
from outpost_lsp.errors import OutpostError
from outpost_lsp.models.anthropic import AnthropicModelProvider
from outpost_lsp.models.openai import OpenAIModelProvider
from outpost_lsp.models.service import ServiceProvider
from tests.models.asking import FORMS, KEY, MakeProvider, ask, chat, messages, responses
from tests.support.model_server import Answer, ModelServer

TOOLS = (
    ToolSpec("read_file", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}}),
    ToolSpec("search", "Sucht Wörter.", {"type": "object"}),
)
URL = "http://127.0.0.1:9/v1"


def conversation(provider: ServiceProvider) -> list[Message]:
    thought: dict[str, Any] = {"type": "thinking", "thinking": "hm", "signature": "s"}
    return [
        user("one", "two"),
        Message(
            role="assistant",
            content=(
                ReasoningBlock(provider=provider.identity, model="small", data=thought),
                ReasoningBlock(provider="somebody else", model="small", data={"type": "thinking", "thinking": "no"}),
                ReasoningBlock(provider=provider.identity, model="large", data={"type": "thinking", "thinking": "no"}),
                TextBlock(text="looking"),
                TextBlock(text=""),
                ToolCallBlock(id="c1", name="read_file", input={"path": "é.py"}),
                ToolCallBlock(id="c2", name="search", input="{broken"),
            ),
        ),
        Message(
            role="user",
            content=(
                TextBlock(text="and quickly"),
                ToolResultBlock(call_id="c1", content="text"),
                ToolResultBlock(call_id="c2", content="bad input", is_error=True),
            ),
        ),
        user("still there?"),
    ]


def body(provider: ServiceProvider, **request: Any) -> dict[str, Any]:
    request.setdefault("max_output_tokens", 100)
    decoded = json.loads(provider._wire.body(ModelRequest(model="small", **request)))
    assert decoded.pop("model") == "small"
    assert decoded.pop("stream") is True
    return decoded


def test_OAC_a_conversation_in_the_chat_form() -> None:
    provider = OpenAIModelProvider(URL, False, "chat")
    sent = body(provider, messages=conversation(provider), system="Be brief.", tools=TOOLS, reasoning="low")
    assert sent == {
        "stream_options": {"include_usage": True},
        "max_completion_tokens": 100,
        "reasoning_effort": "low",
        "tools": [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.input_schema)},
            }
            for tool in TOOLS
        ],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
            {
                "role": "assistant",
                "content": "looking",
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "read_file", "arguments": '{"path":"é.py"}'},
                    },
                    {
                        "id": "c2",
                        "type": "function",
                        "function": {"name": "search", "arguments": '{"invalid":"{broken"}'},
                    },
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "text"},
            {"role": "tool", "tool_call_id": "c2", "content": "bad input"},
            {"role": "user", "content": "and quickly"},
            {"role": "user", "content": "still there?"},
        ],
    }


def test_OAR_a_conversation_in_the_responses_form() -> None:
    provider = OpenAIModelProvider(URL, False)
    sent = body(provider, messages=conversation(provider), system="Be brief.", tools=TOOLS, reasoning="high")
    assert sent == {
        "store": False,
        "instructions": "Be brief.",
        "max_output_tokens": 100,
        "reasoning": {"effort": "high"},
        "include": ["reasoning.encrypted_content"],
        "tools": [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.input_schema),
            }
            for tool in TOOLS
        ],
        "input": [
            {"role": "user", "content": "one"},
            {"role": "user", "content": "two"},
            {"role": "assistant", "content": "looking"},
            {"type": "function_call", "call_id": "c1", "name": "read_file", "arguments": '{"path":"é.py"}'},
            {"type": "function_call", "call_id": "c2", "name": "search", "arguments": '{"invalid":"{broken"}'},
            {"type": "function_call_output", "call_id": "c1", "output": "text"},
            {"type": "function_call_output", "call_id": "c2", "output": "bad input"},
            {"role": "user", "content": "and quickly"},
            {"role": "user", "content": "still there?"},
        ],
    }


def test_ANT_a_conversation_in_the_messages_form() -> None:
    provider = AnthropicModelProvider(URL, "key")
    sent = body(
        provider, messages=conversation(provider), system="Be brief.", tools=TOOLS, reasoning="xhigh", cache=True
    )
    assert sent == {
        "max_tokens": 100,
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "xhigh"},
        "cache_control": {"type": "ephemeral"},
        "system": "Be brief.",
        "tools": [
            {"name": tool.name, "description": tool.description, "input_schema": dict(tool.input_schema)}
            for tool in TOOLS
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "text", "text": "looking"},
                    {"type": "tool_use", "id": "c1", "name": "read_file", "input": {"path": "é.py"}},
                    {"type": "tool_use", "id": "c2", "name": "search", "input": {"invalid": "{broken"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "text"},
                    {"type": "tool_result", "tool_use_id": "c2", "content": "bad input", "is_error": True},
                    {"type": "text", "text": "and quickly"},
                ],
            },
            {"role": "user", "content": [{"type": "text", "text": "still there?"}]},
        ],
    }


def test_MODEL_08_reasoning_items_go_back_as_they_came_and_before_their_calls() -> None:
    provider = OpenAIModelProvider(URL, False)
    item = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "abc", "status": None}
    empty = {"id": "rs_2", "type": "reasoning", "summary": []}
    answer = Message(
        role="assistant",
        content=(
            ReasoningBlock(provider=provider.identity, model="small", data=item),
            ReasoningBlock(provider=provider.identity, model="small", data=empty),
            ToolCallBlock(id="c", name="search", input={}),
        ),
    )
    history = History([user("go"), answer])
    history.append(Message(role="user", content=(ToolResultBlock(call_id="c", content="x"),)))
    sent = body(provider, messages=history)["input"]
    assert sent[1] == item
    assert [entry.get("type") for entry in sent] == [None, "reasoning", "function_call", "function_call_output"]


def test_LOOP_03_system_and_tools_are_left_out_when_empty() -> None:
    for make in FORMS:
        sent = body(make(URL), prompt="go", system="")
        assert not {"system", "instructions", "tools", "reasoning", "reasoning_effort"} & set(sent)


def test_a_prompt_is_one_user_message() -> None:
    assert body(chat(URL), prompt="go")["messages"] == [{"role": "user", "content": "go"}]
    assert body(responses(URL), prompt="go")["input"] == "go"
    assert body(messages(URL), prompt="go")["messages"] == [{"role": "user", "content": "go"}]


def test_ANT_cache_system_marks_the_system_text_and_needs_one() -> None:
    provider = AnthropicModelProvider(URL, "key", cache_system=True)
    marked = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    assert body(provider, prompt="go", system="Be brief.")["system"] == marked
    with pytest.raises(OutpostError, match="cache_system"):
        body(provider, prompt="go")


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        (ModelSpec("small"), "max_output_tokens"),
        (ModelSpec("small", reasoning="minimal", max_output_tokens=9), "minimal"),
    ],
)
def test_ANT_validate_refuses_what_the_form_has_no_words_for(spec: ModelSpec, named: str) -> None:
    with pytest.raises(OutpostError, match=named) as caught:
        AnthropicModelProvider(URL, "key").validate(spec)
    assert caught.value.code == "configuration"
    OpenAIModelProvider(URL, False).validate(spec)


async def test_ANT_a_request_without_output_limit_is_refused_before_it_is_sent() -> None:
    with ModelServer() as server:
        with pytest.raises(OutpostError, match="max_output_tokens"):
            await ask(messages(server.base_url), ModelRequest(model="small", prompt="go"))
        assert not server.requests


def test_ANT_reasoning_none_switches_thinking_off() -> None:
    assert body(messages(URL), prompt="go", reasoning="none")["thinking"] == {"type": "disabled"}


def test_a_message_that_has_nothing_to_say_in_a_form_is_left_out() -> None:
    foreign = Message(role="assistant", content=(ReasoningBlock(provider="x", model="y", data={}),))
    for make, place in ((chat, "messages"), (responses, "input"), (messages, "messages")):
        sent = body(make(URL), messages=History([user("a"), foreign, user("b")]))[place]
        assert len(sent) == 2


def test_half_a_surrogate_pair_is_sent_as_something_that_can_be_sent() -> None:
    for make in FORMS:
        sent = make(URL)._wire.body(ModelRequest(model="m", messages=[user("a\ud800b")], max_output_tokens=1))
        assert "a?b" in sent.decode()


def test_a_history_is_encoded_once_and_again_only_after_it_was_replaced() -> None:
    provider = chat(URL)
    history = History([user("first")])
    kept = provider._wire.body(ModelRequest(model="small", messages=history))
    assert provider._wire.body(ModelRequest(model="small", messages=history)) == kept
    history.append(user("second"))
    assert b"second" in provider._wire.body(ModelRequest(model="small", messages=history))
    history.replace([user("third")])
    sent = provider._wire.body(ModelRequest(model="small", messages=history))
    assert b"third" in sent
    assert b"first" not in sent


@pytest.mark.parametrize("make", [responses, messages])
def test_one_history_serves_two_models_each_with_its_own_reasoning(make: MakeProvider) -> None:
    provider = make(URL)
    mine = {"type": "reasoning", "encrypted_content": "mine"}
    answer = Message(
        role="assistant",
        content=(ReasoningBlock(provider=provider.identity, model="small", data=mine), TextBlock(text="hello")),
    )
    history = History([user("go"), answer, user("on")])
    small = provider._wire.body(ModelRequest(model="small", messages=history, max_output_tokens=1))
    large = provider._wire.body(ModelRequest(model="large", messages=history, max_output_tokens=1))
    elsewhere = make(URL + "/x")._wire.body(ModelRequest(model="small", messages=history, max_output_tokens=1))
    assert b"mine" in small
    assert b"mine" not in large
    assert b"mine" not in elsewhere
    assert b"hello" in large


@pytest.mark.parametrize("make", FORMS)
async def test_headers_carry_the_key_where_the_service_looks_for_it(make: MakeProvider) -> None:
    with ModelServer(["done"]) as server:
        await ask(make(server.base_url))
    seen = server.requests[0].headers
    assert seen["content-type"] == "application/json"
    assert seen["accept-encoding"] == "identity"
    if make is messages:
        assert (seen["x-api-key"], seen["anthropic-version"]) == (KEY, "2023-06-01")
        assert "authorization" not in seen
    else:
        assert seen["authorization"] == f"Bearer {KEY}"


async def test_no_key_means_no_authorization_header() -> None:
    for nothing in (False, None):
        with ModelServer(["done"]) as server:
            await ask(chat(server.base_url, api_key=nothing))
        assert "authorization" not in server.requests[0].headers


async def test_HTTP_07_the_key_is_asked_for_at_each_request() -> None:
    keys = iter(["first-key", "second-key"])

    async def later() -> str:
        return next(keys)

    with ModelServer([Answer(status=503), "done"]) as server:
        await ask(chat(server.base_url, api_key=later))
    assert [seen.headers["authorization"] for seen in server.requests] == ["Bearer first-key", "Bearer second-key"]


async def test_what_the_key_function_raises_ends_the_request_unchanged() -> None:
    def missing() -> str:
        raise OutpostError("configuration", "OPENAI_API_KEY is not set")

    with ModelServer(["never"]) as server:
        with pytest.raises(OutpostError, match="OPENAI_API_KEY is not set"):
            await ask(chat(server.base_url, api_key=missing))
        assert not server.requests


def test_MODEL_09_the_identity_tells_name_path_and_place_apart() -> None:
    identities = {
        OpenAIModelProvider(URL, False).identity,
        OpenAIModelProvider(URL, False, "chat").identity,
        OpenAIModelProvider(URL + "/x", False).identity,
        OpenAIModelProvider("http://127.0.0.1:10/v1", False).identity,
        OpenAIModelProvider(URL, False, name="mine").identity,
        AnthropicModelProvider(URL, "key").identity,
    }
    assert len(identities) == 6
    assert OpenAIModelProvider(URL + "//", False).identity == "openai:/responses:http://127.0.0.1:9/v1"
