"""Run records: saved whole, listed newest first, interrupted when their process died (U-14, REL-01, REL-12)."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
import stat
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp.domain.run import Cost, Run
from outpost_lsp.domain.usage import Usage
from outpost_lsp.errors import OutpostError
from outpost_lsp.storage.identifiers import new_run_id, now_text
from outpost_lsp.storage.runs import RunStore

SPAWN = multiprocessing.get_context("spawn")


def a_run(**changes: Any) -> Run:
    fields: dict[str, Any] = {
        "id": new_run_id(),
        "kind": "review",
        "agent": "reviewer",
        "title": "Review",
        "status": "succeeded",
        "workspace": "/somewhere",
        "started_at": now_text(),
    }
    return Run(**{**fields, **changes})


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "runs")


def test_run_ids_are_unique_and_sort_by_the_time_they_were_made() -> None:
    ids = [new_run_id() for _ in range(5_000)]
    assert ids == sorted(ids)
    assert len({id[:22] for id in ids}) == len(ids)


def test_a_saved_run_comes_back_whole(store: RunStore) -> None:
    run = a_run(usage=Usage(input=5, cached=1, output=2), notes=("a note",), text="done\ud83d")
    store.save(run)
    assert store.load(run.id) == run
    assert RunStore(store.folder).load(run.id) == run
    [file] = store.folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("id", ["missing", "../x", "", ".."])
def test_a_run_that_is_not_there_is_none(store: RunStore, id: str) -> None:
    assert store.load(id) is None


def test_runs_are_listed_newest_first_and_filtered(store: RunStore) -> None:
    assert store.list() == []
    runs = [a_run(status=status) for status in ("succeeded", "failed", "succeeded", "cancelled")]
    for run in runs:
        store.save(run)
    assert store.list() == runs[::-1]
    assert store.list(limit=2) == [runs[3], runs[2]]
    assert store.list(limit=0) == []
    assert store.list(limit=1, status="succeeded") == [runs[2]]


def test_a_change_by_another_store_is_seen(store: RunStore) -> None:
    run = a_run(disposition="pending")
    store.save(run)
    assert store.list() == [run]
    changed = RunStore(store.folder).update(run.id, lambda old: old.model_copy(update={"disposition": "applied"}))
    assert store.list() == [changed]
    assert changed.disposition == "applied"


def test_updating_a_missing_run_names_it(store: RunStore) -> None:
    with pytest.raises(OutpostError, match="no run 'missing'"):
        store.update("missing", lambda run: run)


def test_REL_21_a_mangled_record_is_put_aside_and_reported_once(
    store: RunStore, caplog: pytest.LogCaptureFixture
) -> None:
    kept, torn, foreign = a_run(), a_run(), a_run()
    for run in (kept, torn, foreign):
        store.save(run)
    (store.folder / f"{torn.id}.json").write_bytes(b'{"version":1,"run":{"id":')
    (store.folder / f"{foreign.id}.json").write_bytes(b'{"version":1,"run":{"id":7}}')
    with caplog.at_level(logging.WARNING):
        assert store.list() == [kept]
        assert store.list() == [kept]
    assert caplog.text.count("put aside") == 2
    assert (store.folder / f"{torn.id}.json.mangled").exists()


def test_REL_21_fields_of_a_newer_version_are_passed_over(store: RunStore) -> None:
    run = a_run(usage=Usage(input=1, output=1))
    store.save(run)
    path = store.folder / f"{run.id}.json"
    value = json.loads(path.read_text())
    value["later"] = 1
    value["run"]["later"] = {"x": 1}
    value["run"]["usage"]["later"] = 2
    path.write_text(json.dumps(value))
    assert store.load(run.id) == run


def test_details_are_kept_beside_and_go_with_the_run(store: RunStore) -> None:
    run = a_run()
    store.save(run)
    assert store.details(run.id) == {}
    store.save_details(run.id, {"worktree": "/w", "snapshot": "abc"})
    assert store.details(run.id) == {"worktree": "/w", "snapshot": "abc"}
    assert store.list() == [run]
    assert store.remove(run.id)
    assert not store.remove(run.id)
    assert list(store.folder.iterdir()) == []


def test_spent_adds_up_a_workspaces_runs_but_replays(store: RunStore) -> None:
    def spending(**changes: Any) -> None:
        store.save(
            a_run(usage=Usage(input=10, output=1), cost=Cost(amount=0.5, currency="USD", complete=True), **changes)
        )

    spending(started_at="2026-01-01T23:00:00.000Z")
    spending(started_at="2026-01-02T00:00:00.000Z")
    spending(started_at="2026-01-02T01:00:00.000Z", kind="replay")
    spending(started_at="2026-01-02T02:00:00.000Z", workspace="/elsewhere")
    spending(started_at="2026-01-02T03:00:00.000Z")
    spent = store.spent("2026-01-02", workspace="/somewhere")
    assert (spent.usage.input, spent.usage.output, dict(spent.amounts), spent.has_all_costs) == (
        20,
        2,
        {"USD": 1.0},
        True,
    )
    assert store.spent("2026-01-02").usage.input == 30
    store.save(a_run(started_at="2026-01-03T00:00:00.000Z"))
    assert not store.spent("2026-01-02").has_all_costs


def _start_a_run(folder: Path, answers: Any, status: str) -> None:
    run = a_run(status=status)
    RunStore(folder).save(run)
    answers.put(run.id)
    signal.pause()


@pytest.mark.parametrize("status", ["queued", "preparing", "running", "waiting"])
def test_U_14_a_run_whose_process_was_killed_is_interrupted(store: RunStore, status: str) -> None:
    answers = SPAWN.Queue()
    process = SPAWN.Process(target=_start_a_run, args=(store.folder, answers, status))
    process.start()
    id = answers.get(timeout=60)
    assert store.mark_interrupted() == ()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join(60)
    finished = a_run()
    store.save(finished)
    [marked] = store.mark_interrupted()
    assert (marked.id, marked.status) == (id, "interrupted")
    assert marked.finished_at is not None
    assert store.load(id) == marked
    assert store.load(finished.id) == finished
    assert store.mark_interrupted() == ()


def test_a_run_that_goes_on_elsewhere_is_no_dead_processs_until_somebody_here_takes_it_up(store: RunStore) -> None:
    run = a_run(status="running")
    store.save_elsewhere(run)
    assert RunStore(store.folder).mark_interrupted() == ()
    assert store.load(run.id) == run
    store.save(run)
    value = json.loads((store.folder / f"{run.id}.json").read_text())
    assert value["owner"]["pid"] == os.getpid()


def test_LOCK_05_a_reused_process_id_does_not_keep_a_run_alive(store: RunStore) -> None:
    run = a_run(status="running")
    store.save(run)
    path = store.folder / f"{run.id}.json"
    value = json.loads(path.read_text())
    value["owner"]["started"] = "12@another-boot"
    path.write_text(json.dumps(value))
    assert [marked.id for marked in store.mark_interrupted()] == [run.id]


def _many_runs(folder: Path, count: int) -> None:
    store = RunStore(folder)
    for _ in range(count):
        run = a_run(status="queued")
        for status in ("queued", "running", "succeeded"):
            store.save(run.model_copy(update={"status": status}))


def test_REL_12_eight_processes_with_eight_runs_each_lose_no_record(store: RunStore) -> None:
    processes = [SPAWN.Process(target=_many_runs, args=(store.folder, 8)) for _ in range(8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    runs = store.list()
    assert len(runs) == 64
    assert {run.status for run in runs} == {"succeeded"}
    assert [run.id for run in runs] == sorted((run.id for run in runs), reverse=True)


def _count_up(folder: Path, id: str, count: int) -> None:
    store = RunStore(folder)
    for _ in range(count):
        store.update(id, lambda run: run.model_copy(update={"findings": run.findings + 1}))


def test_two_writers_of_one_record_lose_no_change(store: RunStore) -> None:
    run = a_run()
    store.save(run)
    processes = [SPAWN.Process(target=_count_up, args=(store.folder, run.id, 50)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    loaded = store.load(run.id)
    assert loaded is not None
    assert loaded.findings == 100
