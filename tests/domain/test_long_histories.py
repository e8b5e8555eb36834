"""A long history costs what is new, and its first encoding has pauses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from outpost_lsp.domain.message import History, Message, TextBlock, ToolCallBlock, ToolResultBlock, user
from outpost_lsp.domain.model import ModelRequest, ModelSpec
from outpost_lsp.harness import context
from outpost_lsp.harness.context import CompactionInput, compacted, summarize_history, truncate_tool_results
from outpost_lsp.models.openai import OpenAIModelProvider
from tests.support.model_server import ModelServer


def long(messages: int) -> History:
    history = History()
    for number in range(messages):
        role = "assistant" if number % 2 else "user"
        history.append(Message(role=role, content=(TextBlock(text=f"message {number}"),)))  # type: ignore[arg-type]
    return history


def test_measures_and_places_are_taken_of_each_message_once_and_anew_after_a_replacement() -> None:
    history, measured = long(11), []

    def measure(message: Message) -> int:
        measured.append(message.text)
        return len(message.text)

    def is_even(message: Message) -> bool:
        return message.role == "user"

    assert history.total("size", measure) == sum(len(message.text) for message in history)
    assert list(history.places("even", is_even)) == [0, 2, 4, 6, 8, 10]
    history.append(user("one more"))
    assert history.total("size", measure) == sum(len(message.text) for message in history)
    assert list(history.places("even", is_even)) == [0, 2, 4, 6, 8, 10, 11]
    assert len(measured) == 12
    history.replace([user("short")])
    assert history.total("size", measure) == 5
    assert list(history.places("even", is_even)) == [0]


async def test_the_results_of_a_history_that_grows_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at, shortened = [], context._shortened
    history, strategy = History([user("go")]), truncate_tool_results(keep_recent=1, max_characters=10)

    def counted(message: Message, max_characters: int) -> Message:
        looked_at.append(message)
        return shortened(message, max_characters)

    async def summary(_messages: object) -> str:
        return "s"

    async def after(id: str, content: str) -> Sequence[Message] | None:
        history.append(Message(role="assistant", content=(ToolCallBlock(id=id, name="read", input={}),)))
        history.append(Message(role="user", content=(ToolResultBlock(call_id=id, content=content),)))
        given = CompactionInput(messages=history.snapshot(), step=1, model=ModelSpec("m"), summarize=summary)
        return await compacted(strategy, given)

    monkeypatch.setattr(context, "_shortened", counted)
    for number in range(50):
        assert await after(f"c{number}", "short") is None
    assert len(looked_at) == len(history)
    assert await after("long", "x" * 99) is None
    made = await after("last", "x" * 99)
    assert made is not None
    assert made[-3].results[0].content == "x" * 10 + "\n[cut from 99 characters]"
    assert made[-1] is history[-1]
    assert list(made[:-3]) == list(history)[:-3]


async def test_the_built_in_strategies_see_the_same_with_and_without_what_was_measured() -> None:
    async def summary(_messages: object) -> str:
        return "s"

    history = long(41)
    for strategy in (truncate_tool_results(keep_recent=1), summarize_history(trigger_characters=100)):
        known, plain = [
            await compacted(strategy, CompactionInput(messages=given, step=1, model=ModelSpec("m"), summarize=summary))
            for given in (history.snapshot(), tuple(history))
        ]
        assert known == plain
    # What was taken before the history grew is measured by itself.
    early = history.snapshot()
    history.append(Message(role="assistant", content=(TextBlock(text="x" * 1000),)))
    small = summarize_history(trigger_characters=10_000)
    given = CompactionInput(messages=early, step=1, model=ModelSpec("m"), summarize=summary)
    assert await compacted(small, given) is None


async def test_a_long_history_is_encoded_with_pauses_for_others() -> None:
    history, seen = long(1001), set()

    async def others() -> None:
        while True:
            seen.add(sum(done for done, _ in history._wire.values()))
            await asyncio.sleep(0)

    with ModelServer(["done"]) as server:
        provider = OpenAIModelProvider(server.base_url, False, "chat")
        beside = asyncio.create_task(others())
        await asyncio.sleep(0)
        async for _ in provider.stream(ModelRequest(model="m", messages=history)):
            pass
        beside.cancel()
        await provider.aclose()
        assert len(server.requests[0].json["messages"]) == 1001
    assert len(seen) > 1001 / 32
    assert {0, 32, 64, 1001} <= seen
