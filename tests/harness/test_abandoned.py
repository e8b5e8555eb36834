"""A tool that heeds no cancellation neither holds up its run nor the end of the event loop (TOOL-11)."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from outpost_lsp import Agent, Harness, Tool, ToolExecution
from outpost_lsp.harness.abandoned import end_abandoned
from tests.harness.stage import Stage, calls, provider, says

LONG_S = 3_600


async def deaf(_value: Any, _context: Any) -> str:
    while True:
        try:
            await asyncio.sleep(LONG_S)
        except asyncio.CancelledError:
            continue


def test_TOOL_11_a_tool_that_swallows_every_cancellation_is_ended_with_the_turn_and_named(stage: Stage) -> None:
    model = provider(calls(("deaf", {})), says("done"))
    tool = Tool("deaf", "Waits.", {"type": "object"}, deaf)
    subject = Agent("m", Harness(model, tools=[tool], tool_execution=ToolExecution(deadline_s=0.05)))
    results: list[Any] = []
    ended = threading.Thread(target=lambda: results.append(asyncio.run(stage.run(subject))), daemon=True)
    ended.start()
    ended.join(120)
    assert not ended.is_alive(), "the event loop waits for the tool"
    [result] = results
    assert result.text == "done"
    assert "the tool deaf did not stop when it was cancelled, and was ended" in result.notes


async def test_a_call_that_swallows_whatever_it_is_sent_is_forgotten() -> None:
    notes: list[str] = []
    released: list[bool] = []

    async def deaf_to_everything() -> None:
        while not released:
            try:
                await asyncio.sleep(LONG_S)
            except BaseException:  # noqa: BLE001 - that is what is tried
                continue

    task = asyncio.ensure_future(deaf_to_everything())
    await asyncio.sleep(0)
    await end_abandoned([("deaf", task)], notes.append)
    assert notes == ["the tool deaf did not stop when it was cancelled, and was ended"]
    assert task not in asyncio.all_tasks()
    released.append(True)
    task.cancel()
    await asyncio.wait((task,))


async def test_a_call_that_ends_when_it_is_asked_is_not_told_of() -> None:
    notes: list[str] = []
    task = asyncio.ensure_future(asyncio.sleep(LONG_S))
    await end_abandoned([("slow", task)], notes.append)
    assert (notes, task.cancelled()) == ([], True)
