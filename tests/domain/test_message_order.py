"""What a request may hold, and what may follow what in a conversation (MODEL-03, MODEL-04)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from outpost_lsp.domain.message import (
    Block,
    History,
    Message,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    user,
)
from outpost_lsp.domain.model import ModelRequest
from outpost_lsp.errors import OutpostError


def says(*blocks: Block) -> Message:
    return Message(role="assistant", content=blocks or (TextBlock(text="yes"),))


def told(*blocks: Block) -> Message:
    return Message(role="user", content=blocks)


def call(id: str = "c") -> ToolCallBlock:
    return ToolCallBlock(id=id, name="f", input={})


def answer(id: str = "c") -> ToolResultBlock:
    return ToolResultBlock(call_id=id, content="x")


THOUGHT = ReasoningBlock(provider="p", model="m", data={})

GOOD: list[list[Message]] = [
    [user("go")],
    [user("go"), user("and")],
    [user("go"), says(), user("on")],
    [user("go"), says(THOUGHT, call()), told(answer())],
    [user("go"), says(call("a"), call("b")), told(answer("b"), answer("a"), TextBlock(text="and"))],
    # A service may repeat an id within one answer; each call still has a result of its own (TOOL-16).
    [user("go"), says(call(), call()), told(answer(), answer())],
]
BAD: list[list[Message]] = [
    [],
    [says()],
    [says(), user("go")],
    [user("go"), says()],
    [user("go"), says(call())],
    [user("go"), says(), says(), user("on")],
    [user("go"), Message(role="assistant", content=()), user("on")],
    [told()],
    [told(call())],
    [told(THOUGHT)],
    [user("go"), says(answer()), user("on")],
    [told(answer())],
    [user("go"), says(call()), user("on")],
    [user("go"), says(call()), user("on"), told(answer())],
    [user("go"), says(call("a"), call("b")), told(answer("a"))],
    [user("go"), says(call("a")), told(answer("a"), answer("b"))],
    [user("go"), says(call("a")), told(answer("a"), answer("a"))],
    [user("go"), says(call("a")), told(answer("a")), told(answer("a"))],
]


@pytest.mark.parametrize("messages", GOOD)
def test_MODEL_04_what_may_be_sent(messages: list[Message]) -> None:
    assert ModelRequest(model="m", messages=messages).messages == messages
    assert len(History(messages)) == len(messages)


@pytest.mark.parametrize("messages", BAD)
def test_MODEL_04_what_may_not_be_sent(messages: list[Message]) -> None:
    with pytest.raises(OutpostError, match="message") as caught:
        ModelRequest(model="m", messages=messages)
    assert caught.value.code == "configuration"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"model": "m"}, "exactly one"),
        ({"model": "m", "prompt": "go", "messages": [user("go")]}, "exactly one"),
        ({"model": "m", "prompt": " \n"}, "blank"),
        ({"model": "m", "prompt": "go", "temperature": 1}, "temperature"),
        ({"model": "m", "prompt": "go", "maxOutputTokens": 1}, "maxOutputTokens"),
    ],
)
def test_MODEL_03_a_request_of_another_form_is_refused_by_field(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(OutpostError, match=named) as caught:
        ModelRequest(**fields)
    assert caught.value.code == "configuration"


def test_a_request_can_be_changed_into_another() -> None:
    request = ModelRequest(model="small", prompt="go")
    assert replace(request, model="large") == ModelRequest(model="large", prompt="go")
    with pytest.raises(TypeError):
        ModelRequest(prompt="go")  # type: ignore[call-arg]
