"""Several dispatches under one budget (BUD rules, as the engine keeps them)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from outpost_lsp import (
    Agent,
    FallbackAgent,
    Harness,
    Journal,
    ModelPriceTable,
    OutpostError,
    ReplayAgent,
    Subagent,
    UsageLimits,
    WorkflowBudget,
    WorkflowLimits,
)
from tests.harness.stage import Stage, calls, echo, provider, says, usage


def budget(**limits: Any) -> WorkflowBudget:
    return WorkflowBudget(WorkflowLimits(**limits))


async def test_BUD_02_09_turns_are_attempts_and_every_receipt_counts_once_whatever_observers_do(stage: Stage) -> None:
    def broken(_event: object) -> None:
        raise RuntimeError("observer")

    shared = budget(attempts=9)
    child = Agent("c", Harness(provider(says("child", tokens=usage(3, 0, 1)))))
    model = provider(calls(("review", {"prompt": "x"}), ("echo", {"text": "a"})), says("done"))
    subject = Agent("m", Harness(model, tools=[echo, Subagent("review", "R.", child)]))
    first = await stage.run(subject, budget=shared, observe=broken)
    assert (shared.usage.attempts, shared.usage.tokens) == (1, first.usage)
    second = await stage.run(Agent("m", Harness(provider(says("again")))), budget=shared)
    assert shared.usage.tokens == first.usage + second.usage
    assert shared.usage.attempts == 2


async def test_BUD_02_a_candidate_that_failed_was_an_attempt_and_a_replay_is_none(stage: Stage, tmp_path: Any) -> None:
    shared, path = budget(attempts=9), tmp_path / "journal.jsonl"
    down = Agent("a", Harness(provider(OutpostError("quota", "HTTP 429"))))
    up = Agent("b", Harness(provider(says("done"))))
    await stage.run(FallbackAgent([down, up], ["quota"]), budget=shared, journal=Journal(path=path))
    assert shared.usage.attempts == 2
    before = shared.usage
    await stage.run(ReplayAgent(path), budget=shared)
    assert shared.usage == before


async def test_BUD_03_04_at_the_ceiling_the_turn_ends_and_no_other_begins(stage: Stage) -> None:
    shared = budget(usage=UsageLimits(output=2))
    model = provider(calls(("echo", {"text": "a"}), tokens=usage(1, 0, 2)), says("never"))
    with pytest.raises(OutpostError) as caught:
        await stage.run(Agent("m", Harness(model, tools=[echo])), budget=shared)
    assert (caught.value.code, caught.value.details["limit"]) == ("limit", "budget")
    assert len(model.requests) == 1
    other = provider(says("never"))
    with pytest.raises(OutpostError) as again:
        await stage.run(Agent("m", Harness(other)), budget=shared)
    assert (again.value.details["limit"], other.requests) == ("budget", [])


async def test_BUD_05_running_turns_end_when_another_uses_the_budget_up(stage: Stage) -> None:
    class Silent:
        name = identity = "silent"

        def __init__(self) -> None:
            self.asked, self.stopped = asyncio.Event(), asyncio.Event()

        async def request(self, _request: object) -> Any:
            self.asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.stopped.set()

    shared, silent = budget(usage=UsageLimits(output=2)), Silent()
    running = asyncio.ensure_future(stage.run(Agent("m", Harness(silent)), budget=shared))  # type: ignore[arg-type]
    await silent.asked.wait()
    with pytest.raises(OutpostError):
        await stage.run(Agent("m", Harness(provider(says("much", output=2)))), budget=shared)
    with pytest.raises(OutpostError) as caught:
        await running
    assert (caught.value.code, caught.value.details["limit"]) == ("limit", "budget")
    assert silent.stopped.is_set()


async def test_BUD_05_exhausted_attempts_let_a_running_turn_finish(stage: Stage) -> None:
    shared = budget(attempts=1)
    done = await stage.run(Agent("m", Harness(provider(says("done", output=99)))), budget=shared)
    assert done.text == "done"
    with pytest.raises(OutpostError, match="attempts") as caught:
        await stage.run(Agent("m", Harness(provider(says("never")))), budget=shared)
    assert caught.value.details["dimension"] == "attempts"


async def test_BUD_11_money_is_counted_over_all_of_them(stage: Stage) -> None:
    prices = ModelPriceTable("EUR", {"m": {"input": 1.0, "output": 1.0}})
    shared = budget(prices=prices, cost={"currency": "EUR", "limit": 1.0})
    for _ in range(2):
        await stage.run(
            Agent("m", Harness(provider(says("done", tokens=usage(5, 0, 5))))), budget=shared, prices=prices
        )
    cost = shared.usage.cost
    assert cost is not None
    assert (cost.amount, cost.complete) == (pytest.approx(20 / 1_000_000), True)
