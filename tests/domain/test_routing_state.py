"""The default state of a router: what it shows, what it leaves out, and that old messages cost nothing again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outpost_lsp.domain.message import Message, ReasoningBlock, TextBlock, ToolCallBlock, ToolResultBlock, user
from outpost_lsp.domain.model import ToolSpec
from outpost_lsp.domain.routing_state import RoutingState
from outpost_lsp.errors import OutpostError

TOOL = ToolSpec("read_file", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}})
THOUGHT = ReasoningBlock(provider="p", model="m", data={"opaque": True}, text="hm")
MESSAGES = (
    user("Fix it"),
    Message(
        role="assistant", content=(THOUGHT, ToolCallBlock(id="1", name="read_file", input={"path": "ä", "n": None}))
    ),
    Message(
        role="user", content=(ToolResultBlock(call_id="1", content="gone", is_error=True), TextBlock(text="Try b"))
    ),
    Message(role="assistant", content=(THOUGHT,)),
)


def state_of(*messages: Message, system: str | None = "S", tools: tuple[ToolSpec, ...] = (TOOL,)) -> RoutingState:
    return RoutingState(system=system, messages=messages, tools=tools, step=3, model="small")


def test_ROUTE_20_the_state_shows_instructions_messages_tools_step_and_model() -> None:
    state = state_of(*MESSAGES).value()
    assert state == {
        "system": "S",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Fix it"}]},
            {
                "role": "assistant",
                "content": [{"type": "tool-call", "id": "1", "name": "read_file", "input": {"path": "ä", "n": None}}],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool-result", "callId": "1", "content": "gone", "isError": True},
                    {"type": "text", "text": "Try b"},
                ],
            },
            {"role": "assistant", "content": []},
        ],
        "tools": [{"name": "read_file", "description": "Reads a file.", "inputSchema": dict(TOOL.input_schema)}],
        "step": 3,
        "model": "small",
    }


def test_ROUTE_20_the_bytes_are_the_same_state() -> None:
    for state in (state_of(*MESSAGES), state_of(), state_of(user("a"), system=None, tools=())):
        assert json.loads(state.encoded()) == state.value()


def test_ROUTE_21_opaque_reasoning_is_left_out_and_an_emptied_message_keeps_its_place() -> None:
    state = state_of(*MESSAGES)
    assert b"opaque" not in state.encoded()
    assert state.value()["messages"][3] == {"role": "assistant", "content": []}
    assert len(state) == 4
    assert state.message(-1) == state.value()["messages"][3]


def test_ROUTE_24_a_long_state_is_never_cut() -> None:
    text = "x" * 3_000_000
    assert state_of(user(text)).value()["messages"][0]["content"][0]["text"] == text
    assert text.encode() in state_of(user(text)).encoded()


@pytest.mark.parametrize("given", [{"a": float("nan")}, {"a": -0.0}, {"a": 2**53}, {"a": (1,)}, {1: 2}])
def test_ROUTE_25_an_input_that_is_no_lossless_json_is_a_configuration_fault(given: Any) -> None:
    message = Message(role="assistant", content=(ToolCallBlock(id="1", name="t", input=given),))
    with pytest.raises(OutpostError, match=r"state\.messages") as caught:
        state_of(message)
    assert caught.value.code == "configuration"


def test_an_input_with_half_of_a_surrogate_pair_does_not_end_the_run() -> None:
    message = Message(role="assistant", content=(ToolCallBlock(id="1", name="t", input={"a": "x\ud800y"}),))
    assert json.loads(state_of(message).encoded())["messages"][0]["content"][0]["input"] == {"a": "x\ufffdy"}


def test_a_deeply_nested_input_is_shown_or_refused_but_never_a_crash() -> None:
    for depth in (400, 100_000):
        nested: Any = []
        for _ in range(depth):
            nested = [nested]
        state = state_of(Message(role="assistant", content=(ToolCallBlock(id="1", name="t", input=nested),)))
        if depth == 400:
            assert b"[" * 400 in state.encoded()
        else:
            with pytest.raises(OutpostError, match="nested"):
                state.encoded()
        while nested:
            nested = nested[0]


def test_old_messages_and_tools_are_encoded_once() -> None:
    state_of(*MESSAGES).encoded()
    first = [message.kept("routing-state-bytes", _never) for message in MESSAGES]
    state_of(*MESSAGES).encoded()
    assert all(
        message.kept("routing-state-bytes", _never) is kept for message, kept in zip(MESSAGES, first, strict=True)
    )
    assert TOOL.encoded("routing-state-bytes", _never)


def _never(_thing: object) -> bytes:
    raise AssertionError("encoded again")
