"""Locks between processes: never two owners, dead ones are taken over, nothing waits for long (LOCK, REL-12)."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp.errors import OutpostError
from outpost_lsp.storage.locks import LockFolder, exclusive
from outpost_lsp.storage.owners import Owner, process_runs, process_start, this_process

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def locks(tmp_path: Path) -> LockFolder:
    return LockFolder(tmp_path / "locks")


def test_LOCK_01_the_file_is_named_by_the_keys_hash_and_is_the_owners_alone(locks: LockFolder) -> None:
    lock = locks.take("merge:main")
    assert lock.path.name == hashlib.sha256(b"merge:main").hexdigest()[:20] + ".json"
    content = json.loads(lock.path.read_text())
    assert content["pid"] == os.getpid()
    assert len(content["nonce"]) == 32
    assert stat.S_IMODE(lock.path.stat().st_mode) == 0o600
    assert [path.name for path in locks.folder.iterdir()] == [lock.path.name]
    lock.release()
    assert list(locks.folder.iterdir()) == []


def test_LOCK_03_a_held_lock_is_a_conflict_at_once_with_its_path_and_pid(locks: LockFolder) -> None:
    with locks.take("key") as lock:
        with pytest.raises(OutpostError) as caught:
            locks.take("key")
        assert caught.value.code == "conflict"
        assert caught.value.details == {"lock": str(lock.path), "pid": os.getpid()}
        assert locks.owner("key") == this_process()
        locks.take("another").release()
    assert locks.owner("key") is None
    locks.take("key").release()


def _hold(folder: Path, answers: Any) -> None:
    LockFolder(folder).take("key")
    answers.put("held")
    signal.pause()


def test_LOCK_04_a_killed_owners_lock_is_taken_over(locks: LockFolder) -> None:
    answers = SPAWN.Queue()
    process = SPAWN.Process(target=_hold, args=(locks.folder, answers))
    process.start()
    assert answers.get(timeout=60) == "held"
    with pytest.raises(OutpostError) as caught:
        locks.take("key")
    assert caught.value.details["pid"] == process.pid
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join(60)
    assert locks.owner("key") is None
    locks.take("key").release()


def test_LOCK_05_a_reused_pid_is_dead_and_an_unreadable_lock_only_when_it_is_old(locks: LockFolder) -> None:
    with locks.take("key") as lock:
        path = lock.path
    path.write_text(json.dumps({"pid": os.getpid(), "started": "1@another-boot", "nonce": "x"}))
    locks.take("key").release()

    path.write_bytes(b"{")
    with pytest.raises(OutpostError, match="unknown"):
        locks.take("key")
    long_ago = time.time() - 11
    os.utime(path, (long_ago, long_ago))
    locks.take("key").release()


def test_LOCK_06_releasing_twice_or_after_a_takeover_harms_nobody(locks: LockFolder) -> None:
    first = locks.take("key")
    first.release()
    second = locks.take("key")
    first.release()
    assert second.path.exists()
    second.release()
    second.release()


def _race(folder: Path, log: Path, rounds: int) -> None:
    locks = LockFolder(folder)
    got = 0
    while got < rounds:
        try:
            lock = locks.take("key")
        except OutpostError:
            continue
        # Whoever holds the lock writes two halves; another holder in between would show.
        with log.open("a") as file:
            file.write(f"<{os.getpid()}")
            file.flush()
            file.write(f":{os.getpid()}>\n")
        got += 1
        if got % 3 == 0:
            # Leave it as a dead process would.
            content = json.loads(lock.path.read_text())
            aside = lock.path.with_name(f"{os.getpid()}.dead")
            aside.write_text(json.dumps({**content, "pid": 2**22 + os.getpid()}))
            aside.rename(lock.path)
        else:
            lock.release()


def test_LOCK_04_of_many_takers_only_one_has_the_lock_at_a_time(locks: LockFolder, tmp_path: Path) -> None:
    log = tmp_path / "log"
    processes = [SPAWN.Process(target=_race, args=(locks.folder, log, 30)) for _ in range(8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    lines = log.read_text().splitlines()
    assert len(lines) == 240
    for line in lines:
        first, _, second = line.strip("<>").partition(":")
        assert first == second


def test_a_sweep_removes_dead_owners_locks_only(locks: LockFolder) -> None:
    held = locks.take("held")
    dead = locks.take("dead")
    content = json.loads(dead.path.read_text())
    dead.path.write_text(json.dumps({**content, "started": "1@another-boot"}))
    assert locks.sweep() == ["dead"]
    assert held.path.exists()
    assert not dead.path.exists()


def _hold_kernel_lock(path: Path, answers: Any) -> None:
    with exclusive(path):
        answers.put("held")
        signal.pause()


def test_REL_12_an_exclusive_section_gives_up_in_time_and_is_free_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    answers = SPAWN.Queue()
    process = SPAWN.Process(target=_hold_kernel_lock, args=(path, answers))
    process.start()
    assert answers.get(timeout=60) == "held"
    with pytest.raises(OutpostError, match="stayed locked") as caught, exclusive(path, wait_s=0.05):
        pass
    assert caught.value.code == "conflict"
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join(60)
    with exclusive(path):
        pass


def test_owners_are_told_apart() -> None:
    assert this_process().is_alive
    assert Owner(os.getpid()).is_alive
    assert not Owner(os.getpid(), "1@another-boot").is_alive
    assert not Owner(2**22 + 1).is_alive
    assert not Owner(0).is_alive
    assert not Owner(-1).is_alive
    assert not Owner(2**40).is_alive
    assert process_start(os.getpid()) == this_process().started
    assert process_start(2**22 + 1) == ""
    assert process_runs(1)


def test_a_zombie_does_not_run() -> None:
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    try:
        assert not process_runs(pid)
    finally:
        os.waitpid(pid, 0)
