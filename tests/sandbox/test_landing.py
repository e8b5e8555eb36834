"""Landing on the user's files is all or nothing, also when the process is killed or somebody else writes meanwhile."""

from __future__ import annotations

import itertools
import os
import resource
import shutil
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp.domain.landing import FileOperation
from outpost_lsp.errors import OutpostError
from outpost_lsp.sandbox import landing
from outpost_lsp.sandbox.landing import land
from outpost_lsp.sandbox.landing_record import settle_landings

OPERATIONS = (
    FileOperation("written.txt", b"before\n", b"after\n"),
    FileOperation("new/deep/made.txt", None, b"made\n"),
    FileOperation("gone.txt", b"gone\n", None),
    FileOperation("new/moved.txt", b"moved\n", b"moved and edited\n", "old name.txt"),
    FileOperation("link", b"written.txt", b"elsewhere.txt", is_link=True),
    FileOperation("script.sh", b"#!/bin/sh\n", b"#!/bin/sh\n", None, True),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    for name, text in (("written", "before"), ("gone", "gone"), ("old name", "moved"), ("other", "other")):
        (folder / f"{name}.txt").write_text(f"{text}\n")
    (folder / "script.sh").write_text("#!/bin/sh\n")
    (folder / "link").symlink_to("written.txt")
    return folder


def standing(folder: Path) -> dict[str, tuple[int, bytes]]:
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            found[path.relative_to(folder).as_posix()] = (0, os.fsencode(path.readlink()))
        elif path.is_file():
            found[path.relative_to(folder).as_posix()] = (path.stat().st_mode & 0o777, path.read_bytes())
        else:
            found[path.relative_to(folder).as_posix()] = (0, b"/")
    return found


def killed_at(number: int, work: Callable[[], None]) -> bool:
    """Do the work in a process that kills itself at its n-th call that changes a file; whether it got so far."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        process = os.fork()
    if process == 0:
        counter = itertools.count()

        def counted(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **named: Any) -> Any:
                if next(counter) == number:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*arguments, **named)

            return call

        for name in ("rename", "link", "unlink", "rmdir", "symlink", "mkdir", "write", "fsync", "fchmod"):
            setattr(os, name, counted(getattr(os, name)))
        try:
            work()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(process, 0)[1])


def test_REL_01_a_kill_at_every_stage_of_a_landing_leaves_all_of_it_or_nothing(folder: Path, tmp_path: Path) -> None:
    records = tmp_path / "state" / "landings"
    before = standing(folder)
    seen = []
    for number in itertools.count():
        if not killed_at(number, lambda: landing._land(folder, OPERATIONS, records)):
            break
        assert settle_landings(records) == ()
        now = standing(folder)
        seen.append(now == before)
        if not seen[-1]:
            break
        assert not list(records.glob("*"))
    after = standing(folder)
    assert after.keys() == {
        "link", "new", "new/deep", "new/deep/made.txt", "new/moved.txt", "other.txt", "script.sh", "written.txt",
    }  # fmt: skip
    assert (after["written.txt"][1], after["link"][1], after["script.sh"][0] & 0o100) == (
        b"after\n",
        b"elsewhere.txt",
        0o100,
    )
    assert len(seen) >= 25
    assert not list(records.glob("*"))


def test_REL_01_a_kill_while_the_old_files_are_removed_leaves_the_new_ones(folder: Path, tmp_path: Path) -> None:
    records = tmp_path / "state" / "landings"
    kills = 0
    for number in itertools.count():
        if not killed_at(number, lambda: landing._land(folder, OPERATIONS, records)):
            break
        kills += 1
        settle_landings(records)
        if (folder / "new").exists():
            assert not list(folder.rglob(".outpost-*"))
            assert not list(records.glob("*"))
            back = (
                FileOperation("written.txt", b"after\n", b"before\n"),
                FileOperation("new/deep/made.txt", b"made\n", None),
            )
            landing._land(folder, back, records)
            (folder / "gone.txt").write_text("gone\n")
            (folder / "new" / "moved.txt").rename(folder / "old name.txt")
            (folder / "old name.txt").write_text("moved\n")
            (folder / "link").unlink()
            (folder / "link").symlink_to("written.txt")
            (folder / "script.sh").chmod(0o644)
            (folder / "new" / "deep").rmdir()
            (folder / "new").rmdir()
    assert kills > 30


def test_what_the_user_wrote_after_the_kill_stays_and_the_earlier_text_is_kept(folder: Path, tmp_path: Path) -> None:
    records = tmp_path / "state" / "landings"
    for number in itertools.count():
        assert killed_at(number, lambda: landing._land(folder, OPERATIONS, records))
        if (folder / "written.txt").exists() and (folder / "written.txt").read_text() == "after\n":
            break
        settle_landings(records)
    (folder / "written.txt").write_text("the user's\n")
    assert settle_landings(records) == ("written.txt",)
    assert (folder / "written.txt").read_text() == "the user's\n"
    (kept,) = (tmp_path / "state" / "recovery").rglob("written.txt")
    assert kept.read_text() == "before\n"
    assert not list(folder.rglob(".outpost-*"))


def test_a_landing_that_goes_on_in_another_process_is_left_alone(folder: Path, tmp_path: Path) -> None:
    records = tmp_path / "state" / "landings"
    told, tell = os.pipe()
    wait, go = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        process = os.fork()
    if process == 0:
        exchange = landing._exchange

        def slow(*arguments: Any) -> None:
            exchange(*arguments)
            os.write(tell, b".")
            os.read(wait, 1)

        landing._exchange = slow  # type: ignore[assignment]
        try:
            landing._land(folder, OPERATIONS[:1], records)
        finally:
            os._exit(0)
    os.read(told, 1)
    assert settle_landings(records) == ()
    assert (folder / "written.txt").read_text() == "after\n"
    os.write(go, b".")
    os.waitpid(process, 0)
    for descriptor in (told, tell, wait, go):
        os.close(descriptor)
    assert not list(records.glob("*"))
    assert not list(folder.rglob(".outpost-*"))


@pytest.mark.parametrize("content", [b"", b'{"root": "/", "st'])
def test_a_record_that_was_cut_short_had_begun_nothing(tmp_path: Path, content: bytes) -> None:
    records = tmp_path / "landings"
    records.mkdir()
    (records / "cut.json").write_bytes(content)
    assert settle_landings(records) == ()
    assert not list(records.glob("*"))


TURNS = (
    FileOperation("to folder", b"a file\n", None),
    FileOperation("to folder/deep/made.txt", None, b"made\n"),
    FileOperation("to folder/link", None, b"deep/made.txt", is_link=True),
    FileOperation("to file/one.txt", b"one\n", None),
    FileOperation("elsewhere.txt", b"two\n", b"two and edited\n", "to file/deep/two.txt"),
    FileOperation("to file/link", b"one.txt", None, is_link=True),
    FileOperation("to file", None, b"a file\n"),
    FileOperation("written.txt", b"before\n", b"after\n"),
)


@pytest.fixture
def turning(folder: Path) -> Path:
    (folder / "to folder").write_text("a file\n")
    (folder / "to folder").chmod(0o640)
    (folder / "to file" / "deep").mkdir(parents=True)
    (folder / "to file" / "one.txt").write_text("one\n")
    (folder / "to file" / "one.txt").chmod(0o600)
    (folder / "to file" / "deep" / "two.txt").write_text("two\n")
    (folder / "to file" / "link").symlink_to("one.txt")
    return folder


def is_turned(folder: Path) -> bool:
    now = standing(folder)
    names = ("to file", "to folder/deep/made.txt", "to folder/link", "elsewhere.txt", "written.txt")
    return [now.get(name, (0, b""))[1] for name in names] == [
        b"a file\n", b"made\n", b"deep/made.txt", b"two and edited\n", b"after\n",
    ]  # fmt: skip


def test_REL_01_a_kill_while_files_become_folders_and_folders_files_leaves_all_of_it_or_nothing(
    turning: Path, tmp_path: Path
) -> None:
    records = tmp_path / "state" / "landings"
    before = standing(turning)
    shutil.copytree(turning, tmp_path / "as it was", symlinks=True)
    taken_back = finished = 0
    for number in itertools.count():
        was_killed = killed_at(number, lambda: landing._land(turning, TURNS, records))
        assert settle_landings(records) == ()
        assert not list(records.glob("*"))
        assert not list(turning.rglob(".outpost-*"))
        now = standing(turning)
        if not was_killed:
            break
        if now == before:
            taken_back += 1
            continue
        assert is_turned(turning)
        finished += 1
        shutil.rmtree(turning)
        shutil.copytree(tmp_path / "as it was", turning, symlinks=True)
    assert is_turned(turning)
    assert taken_back > 20
    assert finished > 3


def test_REL_01_a_kill_while_a_turn_is_taken_back_is_taken_back_at_the_next_start(
    turning: Path, tmp_path: Path
) -> None:
    records = tmp_path / "state" / "landings"
    before = standing(turning)
    # The last file is another one than expected, at the very end: all turns are done by then and have to go back.
    late = [*TURNS[:-1], FileOperation("other.txt", b"other\n", b"edited\n")]
    exchange = landing._exchange

    def failing(root: Path, step: Any) -> None:
        if step.path == "other.txt":
            raise OutpostError("conflict", "other.txt has changed meanwhile")
        exchange(root, step)

    def work() -> None:
        landing._exchange = failing  # type: ignore[assignment]
        try:
            landing._land(turning, late, records)
        except OutpostError:
            return

    kills = 0
    for number in itertools.count():
        was_killed = killed_at(number, work)
        assert settle_landings(records) == ()
        assert standing(turning) == before
        assert not list(records.glob("*"))
        if not was_killed:
            break
        kills += 1
    assert kills > 30


@pytest.mark.parametrize("changed", ["to folder/deep/made.txt", "to file"])
def test_what_the_user_wrote_into_a_turn_after_the_kill_stays_and_what_stood_there_is_kept(
    turning: Path, tmp_path: Path, changed: str
) -> None:
    records = tmp_path / "state" / "landings"
    for number in itertools.count():
        assert killed_at(number, lambda: landing._land(turning, TURNS, records))
        if (turning / "to folder").is_dir() and (turning / "to file").is_file():
            break
        settle_landings(records)
    (turning / changed).write_text("the user's\n")
    assert settle_landings(records) == (changed.split("/", maxsplit=1)[0],)
    assert (turning / changed).read_text() == "the user's\n"
    (kept,) = (tmp_path / "state" / "recovery").iterdir()
    wanted = {"to folder": b"a file\n"} if "/" in changed else {
        "to file/one.txt": b"one\n", "to file/deep/two.txt": b"two\n", "to file/link": b"one.txt",
    }  # fmt: skip
    assert {name: text for name, (_, text) in standing(kept).items() if text != b"/"} == wanted
    assert not list(turning.rglob(".outpost-*"))


@pytest.mark.parametrize(
    "put",
    [
        lambda top: (top / "to file/mine.txt").write_text("the user's\n"),
        lambda top: (top / "to file/deep/mine").mkdir(),
        lambda top: (top / "to file/one.txt").write_text("the user's\n"),
        lambda top: (top / "to folder").write_text("the user's\n"),
    ],
)
async def test_what_somebody_puts_into_a_turn_before_it_is_made_changes_nothing(
    turning: Path, tmp_path: Path, put: Callable[[Path], object]
) -> None:
    put(turning)
    before = standing(turning)
    with pytest.raises(OutpostError) as caught:
        await land(turning, TURNS, records=tmp_path / "landings")
    assert caught.value.code == "conflict"
    assert standing(turning) == before
    assert not list((tmp_path / "landings").glob("*"))


def test_what_somebody_puts_into_a_folder_while_it_is_turned_is_back_in_its_place(
    turning: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = landing._stage

    def meanwhile(*arguments: Any) -> None:
        stage(*arguments)
        (turning / "to file" / "mine.txt").write_text("the user's\n")

    monkeypatch.setattr(landing, "_stage", meanwhile)
    before = standing(turning)
    with pytest.raises(OutpostError, match="has changed meanwhile"):
        landing._land(turning, TURNS, tmp_path / "landings")
    mine = {"to file/mine.txt": (standing(turning)["to file/mine.txt"][0], b"the user's\n")}
    assert standing(turning) == before | mine


async def test_REL_02_a_disk_that_is_full_changes_nothing_and_says_so(folder: Path, tmp_path: Path) -> None:
    before = standing(folder)
    large = FileOperation("large.bin", None, b"x" * 100_000)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limit[1]))
    try:
        with pytest.raises(OutpostError, match=r"large\.bin: the system .* Nothing was changed\.$") as caught:
            await land(folder, [*OPERATIONS, large], records=tmp_path / "landings")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, ignored)
    assert caught.value.code == "workspace"
    assert standing(folder) == before
    assert not list((tmp_path / "landings").glob("*"))
