"""The scripted provider plays its list through the contract of a provider."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp.domain.message import History, TextBlock, ToolCallBlock, user
from outpost_lsp.domain.model import (
    Completed,
    ModelProvider,
    ModelRequest,
    ModelResult,
    ModelSpec,
    ReasoningDelta,
    Retry,
    StreamEvent,
    TextDelta,
)
from outpost_lsp.domain.usage import Usage
from outpost_lsp.errors import OutpostError
from outpost_lsp.models.scripted import ScriptedModelProvider

ASK = ModelRequest(model="small", prompt="go")


async def events_of(provider: ModelProvider, request: ModelRequest = ASK) -> list[StreamEvent]:
    return [event async for event in provider.stream(request)]


async def test_a_text_is_an_answer_that_ends() -> None:
    delta, completed = await events_of(ScriptedModelProvider(["hello"]))
    assert delta == TextDelta("hello")
    assert isinstance(completed, Completed)
    assert (completed.result.text, completed.result.reason) == ("hello", "end")


async def test_results_exceptions_functions_and_events_are_replies() -> None:
    call = ModelResult(content=(TextBlock(text="so"), ToolCallBlock(id="c", name="f", input={})))
    stream = [ReasoningDelta("hm"), TextDelta("ha"), Retry(1), TextDelta("x"), Completed(ModelResult(text="x"))]

    async def later(request: ModelRequest) -> ModelResult:
        return ModelResult(text=request.model)

    provider = ScriptedModelProvider([call, OutpostError("quota", "no"), lambda _: "made", later, stream])
    assert await events_of(provider) == [TextDelta("so"), Completed(call)]
    with pytest.raises(OutpostError, match="no"):
        await events_of(provider)
    assert (await events_of(provider))[0] == TextDelta("made")
    assert (await events_of(provider))[0] == TextDelta("small")
    assert await events_of(provider) == stream
    assert provider.left == 0


async def test_requests_are_recorded_with_the_messages_of_their_time() -> None:
    provider = ScriptedModelProvider(["a", "b"])
    history = History([user("one")])
    await events_of(provider, ModelRequest(model="small", messages=history))
    history.append(user("two"))
    await events_of(provider, ModelRequest(model="small", messages=history))
    assert [len(request.messages or ()) for request in provider.requests] == [1, 2]


async def test_a_request_beyond_the_last_reply_says_so() -> None:
    provider = ScriptedModelProvider(["only"])
    await events_of(provider)
    with pytest.raises(OutpostError, match=r"no reply left for request 2 \(small\)"):
        await events_of(provider)


async def test_replies_by_model_keep_their_own_order() -> None:
    provider = ScriptedModelProvider({"small": ["s1", "s2"], "large": ["l1"]})
    for model, text in (("large", "l1"), ("small", "s1"), ("small", "s2")):
        assert (await events_of(provider, ModelRequest(model=model, prompt="go")))[0] == TextDelta(text)
    with pytest.raises(OutpostError, match="no replies for medium"):
        provider.validate(ModelSpec("medium"))
    with pytest.raises(OutpostError, match="no reply left"):
        await events_of(provider)


async def test_what_is_no_reply_is_named() -> None:
    with pytest.raises(OutpostError, match="int is no reply"):
        await events_of(ScriptedModelProvider([lambda _: 5]))


async def test_replies_can_stand_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    entry = {"text": "look", "calls": [{"name": "f", "input": {"x": 1}}], "usage": {"input": 3, "output": 2}}
    path.write_text(json.dumps(["hello", entry, {"text": "cut", "stopReason": "max-tokens", "model": "other"}]))
    provider = ScriptedModelProvider.from_file(path)
    assert (await events_of(provider))[0] == TextDelta("hello")
    completed = (await events_of(provider))[-1]
    assert isinstance(completed, Completed)
    assert completed.result.usage == Usage(input=3, output=2)
    assert completed.result.reason == "tool-calls"
    call = completed.result.blocks[1]
    assert isinstance(call, ToolCallBlock)
    assert (call.name, call.input) == ("f", {"x": 1})
    last = (await events_of(provider))[-1]
    assert isinstance(last, Completed)
    assert (last.result.reason, last.result.model) == ("max-tokens", "other")
    path.write_text(json.dumps({"small": ["by model"]}))
    assert (await events_of(ScriptedModelProvider.from_file(path)))[0] == TextDelta("by model")


@pytest.mark.parametrize(
    "script", ["{", "5", [5], [{"txt": "x"}], [{"calls": [{}]}], [{"usage": {"input": -1}}], {"m": 5}]
)
def test_a_file_that_is_no_script_is_named(tmp_path: Path, script: Any) -> None:
    path = tmp_path / "script.json"
    path.write_text(script if isinstance(script, str) else json.dumps(script))
    with pytest.raises(OutpostError, match=r"script\.json") as caught:
        ScriptedModelProvider.from_file(path)
    assert caught.value.code == "configuration"


async def test_the_names_it_was_given_are_kept() -> None:
    provider = ScriptedModelProvider(["x"], name="double", identity="double:1")
    assert (provider.name, provider.identity) == ("double", "double:1")
    provider.validate(ModelSpec("any"))
