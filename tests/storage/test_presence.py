"""Whether an owner lives whose process cannot be seen: containers and machines share a state folder (LOCK-03, LOCK-05)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp.domain.run import Run
from outpost_lsp.errors import OutpostError
from outpost_lsp.storage.identifiers import new_run_id
from outpost_lsp.storage.locks import LockFolder
from outpost_lsp.storage.owners import Owner, this_process, this_world
from outpost_lsp.storage.presence import Presence, is_present, sweep
from outpost_lsp.storage.runs import RunStore

ELSEWHERE = "4026539999@00000000-0000-0000-0000-000000000000"


def begun(store: RunStore) -> Run:
    run = Run(
        id=new_run_id(), kind="review", agent="a", title="t", status="running", workspace="/w",
        started_at="2026-01-01T00:00:00Z",
    )  # fmt: skip
    store.save(run)
    return run


def as_if_made_elsewhere(path: Path, **other: Any) -> None:
    """A run's record or a lock as a process that cannot be seen from here would have written it."""
    record = json.loads(path.read_text())
    owner = record.get("owner", record)
    owner |= {"pid": 2**22 + 1, "started": "1@another", "world": ELSEWHERE} | other
    path.write_text(json.dumps(record) + "\n")


def test_LOCK_05_a_run_of_a_process_that_cannot_be_seen_goes_on_while_that_is_present(tmp_path: Path) -> None:
    theirs, mine = RunStore(tmp_path / "runs"), RunStore(tmp_path / "runs")
    run = begun(theirs)
    as_if_made_elsewhere(tmp_path / "runs" / f"{run.id}.json")
    assert mine.mark_interrupted() == ()
    assert [one.status for one in mine.list()] == ["running"]
    del theirs  # As the kernel does when a process ends.
    assert [one.id for one in mine.mark_interrupted()] == [run.id]
    assert list((tmp_path / ".runs-present").iterdir()) == []


def test_LOCK_05_an_owner_that_names_no_world_is_judged_by_its_process_as_before(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    run = begun(store)
    as_if_made_elsewhere(tmp_path / "runs" / f"{run.id}.json", world=None)
    assert [one.id for one in RunStore(tmp_path / "runs").mark_interrupted()] == [run.id]


@pytest.mark.parametrize("name", ["../runs", "", 7, None, "a/b"])
def test_a_presence_that_is_no_name_opens_nothing_and_is_none(tmp_path: Path, name: object) -> None:
    store = RunStore(tmp_path / "runs")
    run = begun(store)
    as_if_made_elsewhere(tmp_path / "runs" / f"{run.id}.json", present=name)
    assert [one.id for one in RunStore(tmp_path / "runs").mark_interrupted()] == [run.id]


def test_LOCK_05_a_lock_of_a_process_that_cannot_be_seen_is_held_while_that_is_present(tmp_path: Path) -> None:
    locks = LockFolder(tmp_path / "locks")
    lock = locks.take("key")
    as_if_made_elsewhere(lock.path)
    assert locks.owner("key") is not None
    assert locks.stale() == {}
    assert locks.sweep() == []
    with pytest.raises(OutpostError, match="in use by process"):
        locks.take("key")
    del lock
    assert list(locks.stale().values()) == ["key"]
    with locks.take("key"):
        assert locks.owner("key") == this_process()
    assert list((tmp_path / ".locks-present").iterdir()) != [], "that of the dead owner waits for the sweep"
    locks.sweep()
    assert list((tmp_path / ".locks-present").iterdir()) == []


def test_a_presence_ends_with_its_process_and_not_before(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir(mode=0o700)
    program = (
        "import sys; from pathlib import Path; from outpost_lsp.storage.presence import Presence;"
        "held = Presence(Path(sys.argv[1])); print(held.name, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "runs")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        owner = Owner(2**22 + 1, "1", ELSEWHERE, (tmp_path / "runs", name))
        sweep(tmp_path / "runs")
        assert owner.is_alive
        process.kill()
        process.wait()
    assert not owner.is_alive
    sweep(tmp_path / "runs")
    assert not owner.is_alive


def test_where_no_presence_can_be_had_an_owner_is_known_by_its_process_alone(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    (tmp_path / ".runs-present").write_text("no folder")
    run = begun(store)
    record = json.loads((tmp_path / "runs" / f"{run.id}.json").read_text())
    assert record["owner"].keys() == {"pid", "started"}
    assert RunStore(tmp_path / "runs").mark_interrupted() == ()
    presence = Presence(tmp_path / "runs")
    assert presence.name == ""
    presence.close()
    assert is_present(tmp_path / "runs", "a1b2"), "not to know counts as present"


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare to make a process namespace")
def test_LOCK_05_a_process_of_another_namespace_does_not_take_a_run_of_this_one_for_dead(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    run = begun(store)
    program = (
        "import sys; from pathlib import Path; from outpost_lsp.storage.owners import this_world;"
        "from outpost_lsp.storage.runs import RunStore;"
        "print(this_world(), [one.id for one in RunStore(Path(sys.argv[1])).mark_interrupted()])"
    )
    command = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", sys.executable, "-c", program]
    done = subprocess.run([*command, str(tmp_path / "runs")], capture_output=True, text=True, check=False)
    if done.returncode != 0 and "unshare" in done.stderr:
        pytest.skip(f"no process namespace can be made here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    world, _, marked = done.stdout.strip().partition(" ")
    assert world != this_world()
    assert marked == "[]"
    del store
    done = subprocess.run([*command, str(tmp_path / "runs")], capture_output=True, text=True, check=True)
    assert run.id in done.stdout
