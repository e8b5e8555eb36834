"""A run's handle: saved before it is told, ended once, also where the disk refuses."""

from __future__ import annotations

import asyncio

import pytest

from outpost_lsp.domain.run import Run
from outpost_lsp.domain.usage import Usage
from outpost_lsp.errors import OutpostError
from outpost_lsp.service.handle import RunHandle, run_error


class Shelf:
    """Run records in memory; `is_full` refuses them as a full disk does."""

    def __init__(self) -> None:
        self.saved: list[Run] = []
        self.is_full = False

    def save(self, run: Run) -> None:
        if self.is_full:
            raise OutpostError("workspace", "cannot use /state: No space left on device; free some space there")
        self.saved.append(run)

    def save_elsewhere(self, run: Run) -> None:
        self.save(run)


def handle(shelf: Shelf, told: list[Run]) -> RunHandle:
    run = Run(
        id="1",
        kind="review",
        agent="reviewer",
        title="t",
        status="queued",
        workspace="/w",
        started_at="2026-01-01T00:00:00Z",
    )
    return RunHandle(run, shelf, told.append)


def test_DISP_19_a_record_is_saved_before_anybody_is_told() -> None:
    shelf, told = Shelf(), []
    one = handle(shelf, told)
    one.update(status="running")
    assert shelf.saved == told
    shelf.is_full = True
    with pytest.raises(OutpostError):
        one.update(status="waiting")
    assert [run.status for run in told] == ["running"]


async def test_REL_02_a_full_disk_keeps_nobody_waiting_for_the_end_of_a_run() -> None:
    shelf, told = Shelf(), []
    one = handle(shelf, told)
    waiting = asyncio.ensure_future(one.wait())
    shelf.is_full = True
    one.finish("failed", OutpostError("provider", "no answer"))
    assert (await waiting).status == "failed"
    assert told[-1].finished_at is not None
    assert told[-1].error is not None


def test_each_note_is_put_on_a_run_once() -> None:
    shelf, told = Shelf(), []
    one = handle(shelf, told)
    one.note("a", "b", "a")
    one.note("b")
    assert one.run.notes == ("a", "b")
    assert len(told) == 1


async def test_cancelling_before_the_work_began_stops_it_at_its_first_wait_and_twice_does_no_harm() -> None:
    one = handle(Shelf(), [])
    assert one.cancel()
    assert one.cancel()
    went_on = False
    with one.cancellation():
        await asyncio.sleep(0)
        went_on = True
    assert not went_on
    one.finish("cancelled")
    assert not one.cancel()


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (OutpostError("limit", "too much", {"ceiling": 5}), "limit", "too much"),
        (OSError(28, "No space left on device", "/state/x"), "process", "/state/x: No space left on device"),
        (ValueError("odd"), "process", "ValueError: odd"),
    ],
)
def test_every_failure_has_a_code_and_words(error: BaseException, code: str, words: str) -> None:
    told = run_error(error)
    assert (told.code, told.message) == (code, words)


async def test_what_many_receipts_count_is_saved_within_a_second_and_at_the_end_at_the_latest() -> None:
    shelf, told = Shelf(), []
    one = handle(shelf, told)
    one.update(status="running")
    for number in range(1, 101):
        one.count(usage=Usage(input=number, cached=0, output=0))
    assert one.run.usage.input == 100
    assert len(shelf.saved) == 1
    while len(shelf.saved) < 2:
        await asyncio.sleep(0.02)
    assert shelf.saved[-1].usage.input == 100
    one.count(usage=Usage(input=101, cached=0, output=0))
    one.finish("succeeded")
    assert [run.usage.input for run in shelf.saved] == [0, 100, 101]
