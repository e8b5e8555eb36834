"""Journals: what is written, what is left out, and how a damaged or cut one reads (JRN, REL-02, REL-21)."""

from __future__ import annotations

import json
import logging
import multiprocessing
import resource
import signal
import stat
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp.domain.event import (
    Event,
    ModelRequestEvent,
    ReasoningEvent,
    StepEvent,
    TextDeltaEvent,
    TextEvent,
)
from outpost_lsp.domain.observation import Observation, Scope, WorkspaceCommitsEvent
from outpost_lsp.errors import OutpostError
from outpost_lsp.storage.journal import JournalWriter, read_journal


def seen(seq: int, event: Event) -> Observation:
    return Observation(seq=seq, at="2026-01-01T00:00:00.000Z", source="harness", scope=Scope(pass_=1), event=event)


def test_JRN_01_each_observation_is_one_line_with_its_number_time_source_and_scope(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "run.jsonl"
    writer = JournalWriter(path)
    writer(seen(1, StepEvent(index=1)))
    writer(seen(2, TextEvent(text="two\nlines", subagent_id="s1")))
    # Nothing is held back: the lines are there before the writer is closed.
    assert [json.loads(line) for line in path.read_bytes().splitlines()] == [
        {
            "seq": 1,
            "at": "2026-01-01T00:00:00.000Z",
            "source": "harness",
            "scope": {"pass": 1},
            "event": {"kind": "step", "index": 1},
        },
        {
            "seq": 2,
            "at": "2026-01-01T00:00:00.000Z",
            "source": "harness",
            "scope": {"pass": 1},
            "event": {"kind": "text", "text": "two\nlines", "subagentId": "s1"},
        },
    ]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    writer.close()
    writer.close()
    writer(seen(3, StepEvent(index=2)))
    assert [(record.seq, record.kind) for record in read_journal(path)] == [(1, "step"), (2, "text")]


@pytest.mark.parametrize(
    ("verbose", "kinds"), [(False, ["step"]), (True, ["model-request", "text-delta", "reasoning", "step"])]
)
def test_JRN_02_requests_and_deltas_are_left_out_unless_verbose(
    tmp_path: Path, verbose: bool, kinds: list[str]
) -> None:
    writer = JournalWriter(tmp_path / "j", verbose=verbose)
    events = ModelRequestEvent(request={}), TextDeltaEvent(text="x"), ReasoningEvent(text="y"), StepEvent(index=1)
    for number, event in enumerate(events):
        writer(seen(number, event))
    assert [record.kind for record in read_journal(tmp_path / "j")] == kinds


@pytest.mark.parametrize("replayable", [True, False])
def test_JRN_04_commits_are_for_replays(tmp_path: Path, replayable: bool) -> None:
    writer = JournalWriter(tmp_path / "j", replayable=replayable)
    writer(seen(1, WorkspaceCommitsEvent(unavailable="merges")))
    writer(seen(2, StepEvent(index=1)))
    assert ("workspace-commits" in [record.kind for record in read_journal(tmp_path / "j")]) is replayable


def test_REL_21_a_mangled_line_costs_itself_and_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "j"
    writer = JournalWriter(path)
    for number in range(1, 4):
        writer(seen(number, StepEvent(index=number)))
    good = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([good[0], b"\x00\xff", b'{"seq":"2"}', good[1], b"[1]", b"", good[2], b'{"seq":4,"a']))
    with caplog.at_level(logging.WARNING):
        assert [record.seq for record in read_journal(path)] == [1, 2, 3]
    assert caplog.text.count("a record was left out") == 3
    assert caplog.text.count("torn") == 1
    caplog.clear()
    assert [record.seq for record in read_journal(path)] == [1, 2, 3]
    assert "a record was left out" not in caplog.text


def test_REL_21_fields_and_kinds_of_newer_versions_are_kept(tmp_path: Path) -> None:
    line = {"seq": 1, "at": "t", "source": "moon", "scope": {"new": 1}, "event": {"kind": "novel", "x": [1]}, "more": 2}
    (tmp_path / "j").write_text(json.dumps(line) + "\n")
    [record] = read_journal(tmp_path / "j")
    assert (record.kind, record.source, dict(record.scope), dict(record.event)) == (
        "novel",
        "moon",
        {"new": 1},
        {"kind": "novel", "x": [1]},
    )


def test_a_journal_that_goes_on_after_a_crash_starts_a_new_line(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(b'{"seq":1,"at"')
    JournalWriter(path)(seen(2, StepEvent(index=1)))
    assert [record.seq for record in read_journal(path)] == [2]


def test_a_missing_journal_is_a_session_fault(tmp_path: Path) -> None:
    with pytest.raises(OutpostError, match="no journal") as caught:
        list(read_journal(tmp_path / "nowhere"))
    assert caught.value.code == "session"


def test_JRN_01_an_unusable_folder_is_told_once_and_costs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    notes: list[str] = []
    writer = JournalWriter(tmp_path / "file" / "j", note_cut=notes.append)
    for number in range(5):
        writer(seen(number, StepEvent(index=1)))
    assert len(notes) == 1
    assert str(tmp_path / "file") in notes[0]
    assert writer.is_cut

    quiet = JournalWriter(tmp_path / "file" / "j")
    with pytest.raises(OutpostError):
        quiet(seen(1, StepEvent(index=1)))
    quiet(seen(2, StepEvent(index=1)))


def _write_until_full(path: Path, answers: Any) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, hard))
    notes: list[str] = []
    writer = JournalWriter(path, note_cut=notes.append)
    for number in range(1, 30):
        writer(seen(number, TextEvent(text="x" * 200)))
    while_full = path.read_bytes()
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    writer(seen(30, StepEvent(index=1)))
    answers.put((notes, while_full, writer.is_cut))


def test_REL_02_a_full_disk_cuts_the_journal_cleanly_and_freed_space_goes_on(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    process = context.Process(target=_write_until_full, args=(tmp_path / "j", answers))
    process.start()
    notes, while_full, is_cut = answers.get(timeout=60)
    process.join(60)
    assert is_cut
    assert len(notes) == 1
    assert str(tmp_path) in notes[0]
    assert "free some space" in notes[0]
    assert while_full.endswith(b"\n")
    records = list(read_journal(tmp_path / "j"))
    kept = len(while_full.splitlines())
    assert [record.seq for record in records] == [*range(1, kept + 1), 30, 30]
    assert records[-2].event["message"].startswith(f"{29 - kept} events before this one are missing")


def test_a_mask_applies_to_every_line(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path / "j", mask=lambda line: line.replace(b"secret-value", b"***"))
    writer(seen(1, TextEvent(text="secret-value")))
    assert [record.event["text"] for record in read_journal(tmp_path / "j")] == ["***"]
