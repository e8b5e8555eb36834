"""Places for runs at work (DISP-18)."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from outpost_lsp.service.slots import Slots


async def hold(slots: Slots, ceiling: int, began: list[str], name: str, until: asyncio.Event) -> None:
    async with slots.place(lambda: ceiling):
        began.append(name)
        await until.wait()


async def until_true(condition: object) -> None:
    with anyio.fail_after(20):
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0)


async def test_DISP_18_no_more_runs_work_at_once_than_the_ceiling_and_the_rest_begin_in_order() -> None:
    slots, began, until = Slots(), [], [asyncio.Event() for _ in range(5)]
    tasks = [asyncio.ensure_future(hold(slots, 2, began, str(index), until[index])) for index in range(5)]
    await until_true(lambda: len(began) == 2)
    for _ in range(20):
        await asyncio.sleep(0)
    assert began == ["0", "1"]
    until[1].set()
    await until_true(lambda: len(began) == 3)
    assert began == ["0", "1", "2"]
    for event in until:
        event.set()
    await asyncio.gather(*tasks)
    assert began == ["0", "1", "2", "3", "4"]
    assert slots.busy == 0


async def test_DISP_18_a_waiting_run_that_is_cancelled_leaves_the_line_and_blocks_nobody() -> None:
    slots, began, until = Slots(), [], [asyncio.Event() for _ in range(3)]
    tasks = [asyncio.ensure_future(hold(slots, 1, began, str(index), until[index])) for index in range(3)]
    await until_true(lambda: began == ["0"])
    tasks[1].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[1]
    until[0].set()
    await until_true(lambda: began == ["0", "2"])
    until[2].set()
    await asyncio.gather(tasks[0], tasks[2])
    assert slots.is_free(1)


async def test_a_place_given_in_the_moment_of_the_cancellation_is_handed_on() -> None:
    slots, began, until = Slots(), [], [asyncio.Event() for _ in range(3)]
    tasks = [asyncio.ensure_future(hold(slots, 1, began, str(index), until[index])) for index in range(3)]
    await until_true(lambda: began == ["0"])
    until[0].set()
    await until_true(tasks[0].done)
    tasks[1].cancel()
    await until_true(lambda: "2" in began or "1" in began)
    until[1].set()
    until[2].set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert "2" in began
    assert slots.busy == 0


async def test_a_ceiling_that_is_raised_lets_those_who_wait_begin_and_a_lowered_one_holds_them() -> None:
    slots, began, ceiling, until = Slots(), [], [1], asyncio.Event()

    async def run(name: str) -> None:
        async with slots.place(lambda: ceiling[0]):
            began.append(name)
            await until.wait()

    tasks = [asyncio.ensure_future(run(str(index))) for index in range(4)]
    await until_true(lambda: began == ["0"])
    ceiling[0] = 3
    slots.advance()
    await until_true(lambda: began == ["0", "1", "2"])
    ceiling[0] = 1
    slots.advance()
    for _ in range(20):
        await asyncio.sleep(0)
    assert began == ["0", "1", "2"]
    until.set()
    await asyncio.gather(*tasks)
    assert (began[3], slots.busy) == ("3", 0)


async def test_each_run_waits_for_its_own_workspaces_ceiling() -> None:
    slots, began, until = Slots(), [], [asyncio.Event() for _ in range(3)]
    tasks = [
        asyncio.ensure_future(hold(slots, ceiling, began, str(index), until[index]))
        for index, ceiling in enumerate((3, 3, 3))
    ]
    await until_true(lambda: len(began) == 3)
    assert not slots.is_free(3)
    assert slots.is_free(4)
    for event in until:
        event.set()
    await asyncio.gather(*tasks)
