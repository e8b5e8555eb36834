"""Owner-only folders and files, links, foreign owners, full disks (SEC-10, REL-02)."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import resource
import signal
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp.domain.message import user
from outpost_lsp.errors import OutpostError
from outpost_lsp.storage import presence, private_files
from outpost_lsp.storage.conversations import ConversationStore
from outpost_lsp.storage.findings import FindingStore
from outpost_lsp.storage.layout import Layout, folder_name
from outpost_lsp.storage.private_files import (
    open_private,
    private_folder,
    read_private,
    replace_private,
    sweep_unfinished,
    written_aside,
)
from outpost_lsp.storage.runs import RunStore
from tests.storage.test_findings import a_finding
from tests.storage.test_runs import a_run

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(path.lstat().st_mode) for path in folder.rglob("*")}


@pytest.mark.usefixtures("no_umask")
def test_SEC_10_with_umask_000_everything_is_the_owners_alone(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "a" / "state", tmp_path / "b" / "cache").for_repository(tmp_path)
    runs = RunStore(layout.runs)
    runs.save(a_run())
    runs.save_details("some", {})
    runs.update(runs.list()[0].id, lambda run: run)
    with ConversationStore(layout.conversations, layout.locks).create(model="m", version=1) as transcript:
        transcript.append(user("hi"))
        store = FindingStore(layout.findings_of(tmp_path))
        store.put([a_finding()])
        store.save()
        assert modes(tmp_path) == {0o700, 0o600}


def test_SEC_10_a_folder_that_is_too_open_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "file").write_text("x")
    (folder / "file").chmod(0o666)
    private_folder(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert read_private(folder / "file") == b"x"
    assert stat.S_IMODE((folder / "file").stat().st_mode) == 0o600


def test_SEC_10_links_are_refused_by_name(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "file").write_text("theirs")
    (tmp_path / "folder").symlink_to(target)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").symlink_to(target / "file")
    for name in ("folder", "dangling"):
        with pytest.raises(OutpostError, match=f"{name} is a link") as caught:
            private_folder(tmp_path / name)
        assert caught.value.code == "workspace"
    with pytest.raises(OutpostError, match="file is a link"):
        open_private(tmp_path / "file", os.O_WRONLY | os.O_APPEND)
    with pytest.raises(OutpostError, match="file is a link"):
        read_private(tmp_path / "file")
    (tmp_path / "state").symlink_to(target)
    with pytest.raises(OutpostError, match="state is a link"):
        Layout(tmp_path / "state", tmp_path / "cache").for_repository(tmp_path)
    assert (target / "file").read_text() == "theirs"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_SEC_10_what_belongs_to_somebody_else_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "file").write_text("x")
    os.chown(folder / "file", 4242, 4242)
    with pytest.raises(OutpostError, match="another user"):
        read_private(folder / "file")
    os.chown(folder, 4242, 4242)
    with pytest.raises(OutpostError, match="theirs belongs to another user"):
        private_folder(folder)


def test_a_planted_pipe_does_not_hang_anything(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for flags in (os.O_RDONLY, os.O_RDWR):
        with pytest.raises(OutpostError, match="no regular file"):
            open_private(tmp_path / "pipe", flags)


def test_a_file_where_a_folder_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OutpostError, match="cannot use"):
            private_folder(path)


def test_reading_is_bounded(tmp_path: Path) -> None:
    replace_private(tmp_path / "f", b"12345")
    assert read_private(tmp_path / "f", limit=5) == b"12345"
    with pytest.raises(OutpostError, match="larger than 4 bytes"):
        read_private(tmp_path / "f", limit=4)


def test_a_sweep_removes_what_dead_processes_left_half_written(tmp_path: Path) -> None:
    (tmp_path / f".a.json.{2**22 + 1}-0123.unfinished").write_text("")
    # The id of a process that died may be another's by now.
    (tmp_path / f".a.json.{os.getpid()}-4567.unfinished").write_text("")
    (tmp_path / "c.json").write_text("")
    with written_aside(tmp_path / "b.json", b"{}") as aside:
        # As it looks to a container or machine that shares the folder and has no such process.
        elsewhere = aside.rename(tmp_path / f".b.json.{2**22 + 1}-0123.unfinished")
        assert sweep_unfinished(tmp_path) == 2
        assert sorted(path.name for path in tmp_path.iterdir()) == [elsewhere.name, "c.json"]
    assert sweep_unfinished(tmp_path) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["c.json"]


def test_a_file_that_a_sweep_has_just_opened_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[Path] = []

    def hold(path: Path, descriptor: int) -> bool:
        if held:
            return presence.hold(path, descriptor)
        held.append(path)
        seen = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(seen, fcntl.LOCK_EX | fcntl.LOCK_NB)  # What a sweep does before it removes the file.
            path.unlink()
            return presence.hold(path, descriptor)
        finally:
            os.close(seen)

    monkeypatch.setattr(private_files, "hold", hold)
    replace_private(tmp_path / "a.json", b"{}")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert len(held) == 1


def test_WS_03_linked_worktrees_share_a_repositorys_folder_but_not_their_findings(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "state", tmp_path / "cache")
    common = tmp_path / "repository" / ".git"
    common.mkdir(parents=True)
    (tmp_path / "alias").symlink_to(common)
    first, second = layout.for_repository(common), layout.for_repository(tmp_path / "alias")
    assert first == second
    assert first.state.name == folder_name(common)
    assert len(first.state.name) == 20
    assert first.findings_of(tmp_path / "one") != first.findings_of(tmp_path / "two")
    assert list(layout.repositories()) == [common]
    elsewhere = layout.for_repository(common, worktrees=tmp_path / "fast-disk")
    assert elsewhere.worktrees == tmp_path / "fast-disk" / first.state.name


def _fill(folder: Path, answers: Any) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    runs = RunStore(folder / "runs")
    run = a_run()
    runs.save(run)
    findings = FindingStore(folder / "findings")
    transcript = ConversationStore(folder / "conversations", folder / "locks").create(model="m", version=1)
    transcript.append(user("first"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, hard))
    faults = []

    def attempt(action: Any) -> None:
        try:
            action()
        except OutpostError as fault:
            faults.append((fault.code, fault.details["folder"], str(fault)))

    attempt(lambda: runs.save(run.model_copy(update={"text": "x" * 10_000})))
    attempt(lambda: transcript.append(user("y" * 10_000)))
    findings.put(a_finding(number) for number in range(50))
    attempt(findings.save)
    in_memory = len(transcript.history)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    findings.save()
    transcript.append(user("last"))
    transcript.close()
    answers.put((faults, in_memory, run.id, transcript.id))


def test_REL_02_a_full_disk_is_one_fault_that_names_the_folder_and_harms_nothing_earlier(tmp_path: Path) -> None:
    answers = SPAWN.Queue()
    process = SPAWN.Process(target=_fill, args=(tmp_path, answers))
    process.start()
    faults, in_memory, run_id, conversation = answers.get(timeout=60)
    process.join(60)
    assert [(code, Path(folder).name) for code, folder, _ in faults] == [
        ("workspace", "runs"),
        ("workspace", "conversations"),
        ("workspace", "findings"),
    ]
    assert all("free some space" in message for _, _, message in faults)
    assert in_memory == 1
    run = RunStore(tmp_path / "runs").load(run_id)
    assert run is not None
    assert run.text is None
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [f"{run_id}.json"]
    assert len(FindingStore(tmp_path / "findings")) == 50
    with ConversationStore(tmp_path / "conversations", tmp_path / "locks").open(conversation, version=1) as transcript:
        assert [message.text for message in transcript.history] == ["first", "last"]


def test_a_start_sweeps_what_a_dead_process_left_in_every_folder(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "state", tmp_path / "cache").for_repository(tmp_path)
    for folder in (layout.runs, layout.conversations, layout.locks, layout.findings):
        (folder / f".x.{2**22 + 1}-0a.unfinished").write_text("")
    assert layout.sweep() == 4
    assert layout.sweep() == 0
