"""Findings and dismissals: batches, other processes, what a dismissal covers (REL-12, REL-14, U-09, U-10)."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp.domain.finding import Finding, Span, fingerprint
from outpost_lsp.storage.dismissals import DismissalStore
from outpost_lsp.storage.findings import FindingStore
from outpost_lsp.storage.identifiers import new_run_id

SPAWN = multiprocessing.get_context("spawn")


def a_finding(number: int = 1, *, ordinal: int = 0, **changes: Any) -> Finding:
    fields: dict[str, Any] = {
        "id": f"run-{number}",
        "run_id": "run",
        "agent": "reviewer",
        "path": f"src/file{number % 50}.py",
        "span": Span(start_line=number, start_character=0, end_line=number, end_character=9),
        "severity": "warning",
        "code": "unchecked-input",
        "title": "A title",
        "detail": "Some detail, as people write it. " * 5,
        "quote": f"value = {number}",
    }
    fields.update(changes)
    fields.setdefault("fingerprint", fingerprint(fields["path"], fields["code"], fields["quote"], ordinal))
    return Finding(**fields)


def test_findings_are_found_by_id_path_and_run_after_a_restart(tmp_path: Path) -> None:
    store = FindingStore(tmp_path)
    store.put([a_finding(1), a_finding(51), a_finding(2, run_id="other")])
    assert not store.is_saved
    store.save()
    for known in (store, FindingStore(tmp_path)):
        assert known.is_saved
        assert len(known) == 3
        assert known.get("run-1") == a_finding(1)
        assert [finding.id for finding in known.at("src/file1.py")] == ["run-1", "run-51"]
        assert [finding.id for finding in known.of_run("other")] == ["run-2"]
        assert known.paths() == ["src/file1.py", "src/file2.py"]


def test_changes_and_removals_are_kept(tmp_path: Path) -> None:
    store = FindingStore(tmp_path)
    store.put([a_finding(1), a_finding(2), a_finding(3)])
    store.save()
    moved = a_finding(1).model_copy(update={"path": "new.py", "status": "stale"})
    store.put([moved])
    assert store.remove(["run-2", "nobody"]) == 1
    store.save()
    again = FindingStore(tmp_path)
    assert sorted(finding.id for finding in again) == ["run-1", "run-3"]
    assert again.at("new.py") == [moved]
    assert again.at("src/file1.py") == []
    assert sorted(again.paths()) == ["new.py", "src/file3.py"]


def test_REL_12_one_agent_has_a_fingerprint_once_and_the_newer_run_stands(tmp_path: Path) -> None:
    store = FindingStore(tmp_path)
    older, newer = new_run_id(), new_run_id()
    store.put([a_finding(1, id="new", run_id=newer)])
    store.put([a_finding(1, id="old", run_id=older)])
    assert [finding.id for finding in store] == ["new"]
    store.put([a_finding(1, id="other-agent", run_id=older, agent="second")])
    store.put([a_finding(1, id="newest", run_id=new_run_id())])
    store.save()
    for known in (store, FindingStore(tmp_path)):
        assert sorted(finding.id for finding in known) == ["newest", "other-agent"]


def test_another_stores_changes_are_taken_over_and_own_unsaved_ones_stay(tmp_path: Path) -> None:
    first, second = FindingStore(tmp_path), FindingStore(tmp_path)
    first.put([a_finding(1), a_finding(2)])
    first.save()
    assert second.refresh()
    assert len(second) == 2
    assert not second.refresh()
    second.put([a_finding(1, title="mine")])
    second.remove(["run-2"])
    first.put([a_finding(1, title="theirs"), a_finding(3)])
    first.save()
    second.refresh()
    mine = second.get("run-1")
    assert mine is not None
    assert mine.title == "mine"
    assert second.get("run-2") is None
    assert second.get("run-3") is not None
    second.save()
    first.refresh()
    assert {finding.id for finding in first} == {finding.id for finding in FindingStore(tmp_path)} == {"run-1", "run-3"}
    theirs = first.get("run-1")
    assert theirs is not None
    assert theirs.title == "mine"


def test_a_log_of_many_changes_is_written_anew_and_others_follow(tmp_path: Path) -> None:
    store, follower = FindingStore(tmp_path), FindingStore(tmp_path)
    store.put(a_finding(number) for number in range(100))
    store.save()
    for step in range(20):
        store.put(finding.model_copy(update={"title": f"title {step}"}) for finding in list(store))
        store.save()
        follower.refresh()
    assert len((tmp_path / "findings.jsonl").read_bytes().splitlines()) <= 400
    assert {finding.title for finding in follower} == {"title 19"}
    assert sorted(finding.id for finding in follower) == sorted(finding.id for finding in store)


def test_REL_21_a_mangled_line_costs_itself_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = FindingStore(tmp_path)
    store.put([a_finding(1), a_finding(2)])
    store.save()
    log = tmp_path / "findings.jsonl"
    lines = log.read_bytes().splitlines()
    newer = json.loads(lines[2])
    newer["put"]["later"] = 1
    newer["put"]["span"]["later"] = 1
    log.write_bytes(b"\n".join([*lines[:2], b"{{{", b'{"put":{}}', json.dumps(newer).encode(), b'{"put":{"id"']))
    with caplog.at_level(logging.WARNING):
        again = FindingStore(tmp_path)
    assert sorted(finding.id for finding in again) == ["run-1", "run-2"]
    assert caplog.text.count("a record was left out") == 2
    again.put([a_finding(3)])
    again.save()
    assert sorted(finding.id for finding in FindingStore(tmp_path)) == ["run-1", "run-2", "run-3"]


def test_REL_14_twenty_thousand_findings_are_saved_and_loaded_quickly(tmp_path: Path) -> None:
    store = FindingStore(tmp_path)
    findings = [a_finding(number) for number in range(20_000)]
    began = time.monotonic()
    store.put(findings)
    store.save()
    saved = time.monotonic()
    assert len(FindingStore(tmp_path)) == 20_000
    loaded = time.monotonic()
    print(f"put and save {saved - began:.2f} s, load {loaded - saved:.2f} s")
    assert loaded - began < 30


def _report(folder: Path, process: int) -> None:
    store = FindingStore(folder)
    for run in range(8):
        run_id = new_run_id()
        store.put(a_finding(number, id=f"{run_id}-{number}", run_id=run_id) for number in range(20))
        store.put([a_finding(1_000 + process * 8 + run, id=f"{run_id}-own", run_id=run_id)])
        store.save()


def test_REL_12_eight_processes_with_eight_runs_each_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    processes = [SPAWN.Process(target=_report, args=(tmp_path, number)) for number in range(8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    store = FindingStore(tmp_path)
    assert len(store) == 20 + 64
    assert len({finding.fingerprint for finding in store}) == 84


def _report_until_killed(folder: Path, answers: Any) -> None:
    store = FindingStore(folder)
    for number in range(1_000_000):
        store.put([a_finding(number, detail="x" * 5_000)])
        store.save()
        answers.send(number)


def test_REL_01_kill_at_any_moment_keeps_every_acknowledged_finding(tmp_path: Path) -> None:
    for round in range(5):
        receiving, sending = SPAWN.Pipe(duplex=False)
        folder = tmp_path / str(round)
        process = SPAWN.Process(target=_report_until_killed, args=(folder, sending))
        process.start()
        sending.close()
        acknowledged = -1
        while acknowledged < 10 + round * 7:
            assert receiving.poll(60)
            acknowledged = receiving.recv()
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join(60)
        try:
            while True:
                acknowledged = receiving.recv()
        except EOFError:
            pass
        store = FindingStore(folder)
        assert {f"run-{number}" for number in range(acknowledged + 1)} <= {finding.id for finding in store}
        store.put([a_finding(5_000_000)])
        store.save()
        assert FindingStore(folder).get("run-5000000") is not None


def test_U_09_a_dismissal_survives_restarts_and_covers_the_same_fingerprint(tmp_path: Path) -> None:
    store = FindingStore(tmp_path)
    finding = a_finding(1)
    made = store.dismissals.dismiss(finding, reason="by design")
    again = DismissalStore(tmp_path).findings
    assert again.covering(a_finding(1, id="later", title="said otherwise", severity="error")) == made
    assert made.reason == "by design"
    assert again.covering(a_finding(2)) is None


@pytest.mark.parametrize(
    ("changes", "covered"),
    [
        ({"code": "other"}, True),
        ({"code": "other", "quote": "  value   = 1 \n"}, True),
        ({"code": "other", "severity": "hint"}, True),
        ({"code": "other", "severity": "error"}, False),
        ({"code": "other", "quote": "value = 2"}, False),
        ({"code": "other", "path": "elsewhere.py"}, False),
        ({"code": "other", "ordinal": 1}, False),
    ],
)
def test_a_dismissal_covers_the_same_quote_with_no_higher_severity(
    tmp_path: Path, changes: dict[str, Any], covered: bool
) -> None:
    store = DismissalStore(tmp_path)
    store.dismiss(a_finding(1))
    assert (store.findings.covering(a_finding(1, id="x", **changes)) is not None) is covered


@pytest.mark.parametrize(
    ("until", "is_over"),
    [
        (None, False),
        ("2026-01-01", True),
        ("2026-01-02T12:00:00Z", True),
        ("2026-01-02T12:00:01Z", False),
        ("2026-01-02T13:30:00+02:00", True),
        ("2027-01-01", False),
        ("someday", False),
    ],
)
def test_U_10_a_dismissal_ends_with_its_date(tmp_path: Path, until: str | None, is_over: bool) -> None:
    store = DismissalStore(tmp_path)
    store.dismiss(a_finding(1), until=until)
    now = datetime(2026, 1, 2, 12, tzinfo=UTC)
    assert (store.findings.covering(a_finding(1), now) is None) is is_over
    assert [record.fingerprint for record in store.findings.over(now)] == [a_finding(1).fingerprint] * is_over


def test_restoring_takes_back_whatever_covers_a_finding(tmp_path: Path) -> None:
    store, other = DismissalStore(tmp_path), DismissalStore(tmp_path)
    store.dismiss(a_finding(1))
    other.dismiss(a_finding(1, code="other"))
    assert store.restore(a_finding(1, code="third"))
    assert not store.restore(a_finding(1))
    for known in (store, DismissalStore(tmp_path)):
        assert len(known.findings) == 0


def _dismiss_many(folder: Path, process: int) -> None:
    store = DismissalStore(folder)
    for number in range(20):
        store.dismiss(a_finding(process * 100 + number), reason=str(process))


def test_REL_12_dismissals_of_several_processes_are_all_kept(tmp_path: Path) -> None:
    processes = [SPAWN.Process(target=_dismiss_many, args=(tmp_path, number)) for number in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert len(DismissalStore(tmp_path).findings) == 80
