"""What is told of a run whose process died, from its journal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp.domain.price import ModelPriceTable
from outpost_lsp.domain.run import Cost, Run
from outpost_lsp.domain.usage import ZERO, Usage
from outpost_lsp.service.interrupted import as_its_journal_tells
from outpost_lsp.storage.runs import RunStore

PROMPT = {"kind": "prompt", "text": "x"}
ANSWERED = {"kind": "usage", "tokens": {"input": 10, "output": 2}, "source": "model", "model": "small"}
DECIDED = {"kind": "usage", "tokens": {"input": 3, "output": 1}, "source": "decision", "model": "router"}
CHILDS = ANSWERED | {"subagentId": "s1", "model": "large"}
PRICES = ModelPriceTable("USD", {"small": {"input": 100_000.0, "output": 0.0}})


def over(**usage: Any) -> dict[str, Any]:
    return {"kind": "dispatch-finished", "status": "done", "completed": False, "usage": usage}


def run(**changes: Any) -> Run:
    fields = {"id": "r", "kind": "dispatch", "agent": "a", "title": "t", "status": "running", "workspace": "/w"}
    return Run.model_validate(fields | {"started_at": "2026-01-01T00:00:00.000Z"} | changes)


def told(folder: Path, *events: dict[str, Any], prices: ModelPriceTable | None = None, **changes: Any) -> Run:
    journal = folder / "r.jsonl"
    lines = [
        json.dumps({"seq": number, "at": "2026-01-01T00:00:00.000Z", "source": "harness", "scope": {}, "event": event})
        for number, event in enumerate(events, 1)
    ]
    journal.write_text("".join(f"{line}\n" for line in lines))
    journal.chmod(0o600)
    return as_its_journal_tells(run(**changes), journal, prices)


def counts(told: Run) -> tuple[int, int, bool]:
    return told.usage.input, told.usage.output, told.usage.is_complete


def test_PRICE_04_receipts_of_all_agents_count_and_what_was_asked_last_is_unknown(tmp_path: Path) -> None:
    known = told(tmp_path, PROMPT, DECIDED, ANSWERED, CHILDS)
    assert counts(known) == (23, 5, False)
    assert known.models == ("small", "large"), "a router takes no step"
    assert known.cost is None


@pytest.mark.parametrize("status", ["running", "waiting", "preparing"])
def test_a_run_that_was_killed_before_its_first_receipt_used_something_unknown(tmp_path: Path, status: str) -> None:
    assert counts(told(tmp_path, PROMPT, status=status)) == (0, 0, False)


@pytest.mark.parametrize("status", ["running", "waiting"])
def test_a_run_that_had_begun_and_has_no_journal_used_something_unknown(tmp_path: Path, status: str) -> None:
    known = as_its_journal_tells(run(status=status), tmp_path / "none.jsonl", None)
    assert counts(known) == (0, 0, False)


@pytest.mark.parametrize("status", ["queued", "preparing"])
def test_a_run_that_asked_for_nothing_used_nothing(tmp_path: Path, status: str) -> None:
    before = run(status=status)
    assert as_its_journal_tells(before, tmp_path / "none.jsonl", PRICES) == before
    assert told(tmp_path, status=status) == before


def test_a_dispatch_that_had_ended_knew_all_that_it_used(tmp_path: Path) -> None:
    assert counts(told(tmp_path, PROMPT, ANSWERED, over(input=10, output=2))) == (10, 2, True)
    assert counts(told(tmp_path, PROMPT, ANSWERED, over(input=10, output=2, complete=False))) == (10, 2, False)
    assert counts(told(tmp_path, PROMPT, ANSWERED, over(input=10, output=2), PROMPT)) == (10, 2, False)


def test_a_journal_that_holds_less_than_the_record_takes_nothing_from_it(tmp_path: Path) -> None:
    known = told(tmp_path, PROMPT, ANSWERED, usage=Usage(input=50, output=9), models=("other",))
    assert counts(known) == (50, 9, False)
    assert known.models == ("other", "small")


def test_a_receipt_that_is_mangled_leaves_a_lower_bound(tmp_path: Path) -> None:
    known = told(tmp_path, PROMPT, ANSWERED, ANSWERED | {"tokens": "many"}, over(input=10, output=2))
    assert counts(known) == (10, 2, False)


@pytest.mark.parametrize(
    ("recorded", "prices", "cost"),
    [
        (None, None, None),
        (None, PRICES, Cost(amount=1.0, currency="USD", complete=False)),
        (Cost(amount=0.5, currency="USD", complete=True), None, Cost(amount=0.5, currency="USD", complete=False)),
        (
            Cost(amount=0.5, currency="USD", complete=True),
            PRICES,
            Cost(amount=1.0, currency="USD", complete=False),
        ),
        (
            Cost(amount=2.0, currency="USD", complete=True),
            PRICES,
            Cost(amount=2.0, currency="USD", complete=False),
        ),
        (Cost(amount=0.1, currency="EUR", complete=True), PRICES, Cost(amount=0.1, currency="EUR", complete=False)),
    ],
)
def test_PRICE_04_the_cost_of_an_interrupted_run_is_a_lower_bound(
    tmp_path: Path, recorded: Cost | None, prices: ModelPriceTable | None, cost: Cost | None
) -> None:
    assert told(tmp_path, PROMPT, ANSWERED, prices=prices, cost=recorded).cost == cost


def test_a_replay_used_nothing_whatever_ended_it(tmp_path: Path) -> None:
    assert told(tmp_path, PROMPT, ANSWERED, kind="replay").usage == ZERO


def test_a_record_is_completed_when_its_run_is_marked(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    unfinished = run(id="20260101-000000-000000-abcdef")
    store.save(unfinished)
    path = store.folder / f"{unfinished.id}.json"
    value = json.loads(path.read_text())
    path.write_text(json.dumps(value | {"owner": {"pid": value["owner"]["pid"], "started": "12@another-boot"}}))
    [marked] = store.mark_interrupted(lambda run: run.model_copy(update={"models": ("small",)}))
    assert (marked.status, marked.models) == ("interrupted", ("small",))
    assert store.load(unfinished.id) == marked
