from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from outpost_lsp.errors import OutpostError
from outpost_lsp.worktrees import worktree as worktree_module
from outpost_lsp.worktrees.git import Repository, find_repository
from outpost_lsp.worktrees.hardening import host_environment
from outpost_lsp.worktrees.registration import Owner, owner_of, start_time, this_process
from outpost_lsp.worktrees.snapshot import take_snapshot
from outpost_lsp.worktrees.worktree import open_worktree, reap
from tests.support.repositories import Case, RealRepository, make_repository


def registered(repository: RealRepository) -> list[str]:
    listing = repository.git("worktree", "list", "--porcelain")
    return [line.split(" ", 1)[1] for line in listing.splitlines() if line.startswith("worktree ")][1:]


def dead_owner(run_id: str, base: str) -> str:
    """The lock's words of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return Owner(run_id, base, process.pid, "1").reason


async def leftover(repository: RealRepository, folder: Path, run_id: str) -> Path:
    """A worktree of the product whose process has died."""
    found = await find_repository(repository.path)
    snapshot = await take_snapshot(found)
    worktree = await open_worktree(found, snapshot.commit, folder, run_id=run_id)
    (worktree.repository.git_dir / "locked").write_text(dead_owner(run_id, snapshot.commit))
    return worktree.directory


async def test_SNAP_03_a_worktree_is_detached_locked_in_our_name_and_outside(
    repository: RealRepository, tmp_path: Path
) -> None:
    repository.write("a.txt", "dirty\n")
    repository.write("new.txt", "new\n")
    before = repository.state()
    found = await find_repository(repository.path)
    snapshot = await take_snapshot(found)
    worktree = await open_worktree(found, snapshot.commit, tmp_path / "trees", run_id="run-1")
    assert worktree.directory == tmp_path / "trees" / "run-1"
    assert (worktree.directory / "a.txt").read_text() == "dirty\n"
    assert (worktree.directory / "new.txt").read_text() == "new\n"
    listing = repository.git("worktree", "list", "--porcelain")
    assert "detached" in listing
    assert f"locked outpost run run-1 base {snapshot.commit} pid {os.getpid()}" in listing
    assert RealRepository(worktree.directory).git("status", "--porcelain") == ""
    assert (tmp_path / "trees").stat().st_mode & 0o777 == 0o700
    repository.git("worktree", "prune", "--expire=now")
    assert registered(repository) == [str(worktree.directory)]
    await worktree.close(keep=False)
    assert not worktree.directory.exists()
    assert registered(repository) == []
    assert not (repository.path / ".git" / "worktrees").exists()
    await worktree.close(keep=False)
    assert repository.state() == before
    repository.git("fsck", "--strict")


async def test_a_kept_worktree_stays_registered_and_locked(repository: RealRepository, tmp_path: Path) -> None:
    found = await find_repository(repository.path)
    worktree = await open_worktree(found, repository.head, tmp_path / "trees", run_id="run")
    await worktree.close(keep=True)
    assert worktree.directory.is_dir()
    assert registered(repository) == [str(worktree.directory)]
    assert owner_of(worktree.repository.git_dir) == this_process("run", repository.head)


async def test_CONC_04_eight_worktrees_at_once_open_and_close_without_a_race(
    repository: RealRepository, tmp_path: Path
) -> None:
    before = repository.state()

    async def one(number: int) -> None:
        found = await find_repository(repository.path)
        snapshot = await take_snapshot(found, unsaved={"a.txt": f"run {number}\n"})
        worktree = await open_worktree(found, snapshot.commit, tmp_path / "trees", run_id=f"run-{number}")
        assert (worktree.directory / "a.txt").read_text() == f"run {number}\n"
        await worktree.close(keep=False)

    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(one, number)
    assert registered(repository) == []
    assert repository.state() == before


async def test_REL_12_several_processes_open_worktrees_of_one_repository_at_once(
    repository: RealRepository, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from outpost_lsp.worktrees.git import find_repository\n"
        "from outpost_lsp.worktrees.snapshot import take_snapshot\n"
        "from outpost_lsp.worktrees.worktree import open_worktree\n"
        "async def one(number):\n"
        "    found = await find_repository(Path(sys.argv[1]))\n"
        "    snapshot = await take_snapshot(found)\n"
        "    tree = await open_worktree(found, snapshot.commit, Path(sys.argv[2]), run_id=f'{sys.argv[3]}-{number}')\n"
        "    await tree.close(keep=number == 0)\n"
        "async def main():\n"
        "    await asyncio.gather(*(one(number) for number in range(4)))\n"
        "asyncio.run(main())\n"
    )
    before = repository.state()
    processes = [
        subprocess.Popen([sys.executable, str(program), str(repository.path), str(tmp_path / "trees"), str(number)])
        for number in range(4)
    ]
    assert [process.wait() for process in processes] == [0, 0, 0, 0]
    assert sorted(registered(repository)) == [str(tmp_path / "trees" / f"{number}-0") for number in range(4)]
    assert repository.state() == before
    repository.git("fsck", "--strict")
    found = await find_repository(repository.path)
    gone = await reap(found, tmp_path / "trees")
    assert sorted(each.run_id for each in gone if each.state == "removed") == [f"{number}-0" for number in range(4)]
    assert registered(repository) == []


@pytest.mark.parametrize(
    "words",
    [
        "failed to read /somewhere/.git/worktrees/other/commondir: Success",
        "Invalid path '/somewhere/.git/worktrees/other': No such file or directory",
        "could not create directory of '.git/worktrees/run': No such file or directory",
    ],
)
async def test_REL_12_a_worktree_of_another_process_that_goes_meanwhile_does_not_keep_one_from_being_made(
    repository: RealRepository, tmp_path: Path, words: str
) -> None:
    # Nobody can time this: what git says then is said once by a program in its place.
    told, program, host = tmp_path / "told", tmp_path / "program" / "git", host_environment()
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *"worktree add"*) if [ ! -e {told} ]; then : >{told}; echo "fatal: {words}" >&2; exit 128; fi ;; esac\n'
        f'exec {shutil.which("git")} "$@"\n'
    )
    program.chmod(0o755)
    environment = {**host, "PATH": f"{program.parent}:{host['PATH']}"}
    found = await find_repository(repository.path, environment)
    worktree = await open_worktree(found, repository.head, tmp_path / "trees", run_id="run")
    assert told.exists()
    assert registered(repository) == [str(tmp_path / "trees" / "run")]
    await worktree.close(keep=False)


async def test_REL_13_a_lock_of_somebody_else_is_waited_for_and_left(
    repository: RealRepository, tmp_path: Path
) -> None:
    found = await find_repository(repository.path)
    await (await open_worktree(found, repository.head, tmp_path / "trees", run_id="warm")).close(keep=False)
    blocked = repository.path / ".git" / "worktrees"
    blocked.mkdir()
    lock = repository.path / ".git" / "worktrees" / "run" / "HEAD.lock"
    # Another program is in the middle of making a worktree that git would call by the same name.
    lock.parent.mkdir()
    lock.write_text("")
    worktree = await open_worktree(found, repository.head, tmp_path / "trees", run_id="run")
    assert worktree.repository.git_dir.name == "run1"
    await worktree.close(keep=False)
    assert lock.exists()


async def test_SNAP_08_a_worktree_that_cannot_be_made_fails_with_gits_words_and_leaves_nothing(
    repository: RealRepository, tmp_path: Path
) -> None:
    found = await find_repository(repository.path)
    before = repository.state()
    with pytest.raises(OutpostError, match="git worktree failed: fatal: ") as caught:
        await open_worktree(found, "0" * 40, tmp_path / "trees", run_id="run")
    assert caught.value.code == "workspace"
    blob = repository.git("rev-parse", "HEAD:a.txt")
    (repository.path / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(OutpostError, match="git checkout failed: ") as caught:
        await open_worktree(found, repository.head, tmp_path / "trees", run_id="run")
    assert caught.value.code == "workspace"
    assert registered(repository) == []
    assert [path.name for path in (tmp_path / "trees").iterdir()] == [".trash"]
    assert repository.state() == before


async def test_a_cancelled_opening_leaves_nothing(repository: RealRepository, tmp_path: Path) -> None:
    for number in range(300):
        repository.write(f"many/{number}.txt", f"{number}\n" * 100)
    repository.commit_all()
    found = await find_repository(repository.path)
    for delay in (0.0, 0.002, 0.005, 0.01, 0.02, 0.03):
        with anyio.move_on_after(delay):
            worktree = await open_worktree(found, repository.head, tmp_path / "trees", run_id="run")
            await worktree.close(keep=False)
        assert registered(repository) == []
        assert not (tmp_path / "trees" / "run").exists()


async def test_a_worktree_whose_closing_is_cancelled_is_gone_all_the_same(
    repository: RealRepository, tmp_path: Path
) -> None:
    found = await find_repository(repository.path)
    with anyio.CancelScope() as scope:
        worktree = await open_worktree(found, repository.head, tmp_path / "trees", run_id="run")
        scope.cancel()
        await worktree.close(keep=False)
    assert registered(repository) == []
    assert not (tmp_path / "trees" / "run").exists()


@pytest.mark.parametrize("run_id", ["", "../x", "a/b", ".trash", "-x", "a\nb", "x" * 200])
async def test_a_run_id_that_is_no_plain_name_is_refused(
    repository: RealRepository, tmp_path: Path, run_id: str
) -> None:
    found = await find_repository(repository.path)
    with pytest.raises(OutpostError) as caught:
        await open_worktree(found, repository.head, tmp_path / "trees", run_id=run_id)
    assert caught.value.code == "configuration"


async def test_SEC_10_a_planted_link_in_place_of_the_folder_is_refused(
    repository: RealRepository, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "trees").symlink_to(tmp_path / "elsewhere")
    found = await find_repository(repository.path)
    with pytest.raises(OutpostError, match="is a link or belongs to another user"):
        await open_worktree(found, repository.head, tmp_path / "trees", run_id="run")
    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_a_worktree_of_a_submodule_and_of_a_linked_worktree_opens(
    repository: RealRepository, tmp_path: Path
) -> None:
    outer = make_repository(tmp_path / "outer", {"x": "x"})
    outer.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(repository.path), "inner")
    repository.git("worktree", "add", "-q", "--detach", str(tmp_path / "linked"))
    for number, folder in enumerate((outer.path / "inner", tmp_path / "linked")):
        checkout = RealRepository(folder)
        checkout.write("a.txt", "dirty\n")
        before = checkout.state()
        found = await find_repository(folder)
        snapshot = await take_snapshot(found)
        worktree = await open_worktree(found, snapshot.commit, tmp_path / "trees", run_id=f"run-{number}")
        assert (worktree.directory / "a.txt").read_text() == "dirty\n"
        await worktree.close(keep=False)
        assert checkout.state() == before


async def test_SNAP_07_what_a_dead_process_left_empty_is_cleared_and_work_is_kept(
    repository: RealRepository, tmp_path: Path
) -> None:
    repository.write(".gitignore", "*.log\n")
    folder = tmp_path / "trees"
    empty = await leftover(repository, folder, "empty")
    (empty / "scratch.log").write_text("scratch")
    changed = await leftover(repository, folder, "changed")
    (changed / "new.txt").write_text("work\n")
    committed = await leftover(repository, folder, "committed")
    inside = RealRepository(committed)
    inside.write("x", "x")
    inside.commit_all()
    inside.git("rm", "-q", "x")
    inside.commit_all()
    vanished = await leftover(repository, folder, "vanished")
    shutil.rmtree(vanished)
    found = await find_repository(repository.path)
    alive = await open_worktree(found, repository.head, folder, run_id="alive")
    results = {each.run_id: each for each in await reap(found, folder)}
    assert {run_id: each.state for run_id, each in results.items()} == {
        "empty": "removed",
        "changed": "kept",
        "committed": "kept",
        "vanished": "removed",
    }
    assert results["changed"].reason == "it holds changes"
    assert results["committed"].reason == "it holds commits"
    assert not empty.exists()
    assert (changed / "new.txt").read_text() == "work\n"
    assert sorted(registered(repository)) == sorted(map(str, (alive.directory, changed, committed)))
    assert results["changed"].base


async def test_SNAP_07_a_worktree_that_goes_while_it_is_looked_at_is_nothing_to_tell_of(
    repository: RealRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As when its changes are applied just then, and it is let go of."""
    folder = tmp_path / "trees"
    left = await leftover(repository, folder, "left")
    (left / "new.txt").write_text("work\n")
    look = worktree_module.change_set

    async def look_too_late(*arguments: Any, **more: Any) -> Any:
        shutil.rmtree(left)
        return await look(*arguments, **more)

    monkeypatch.setattr(worktree_module, "change_set", look_too_late)
    [told] = await reap(await find_repository(repository.path), folder)
    assert told.state == "removed"
    assert registered(repository) == []
    assert caplog.messages == []


async def test_SNAP_07_what_a_dead_process_left_in_another_folder_is_found_by_its_registration(
    repository: RealRepository, tmp_path: Path
) -> None:
    former, away = tmp_path / "former", tmp_path / "away"
    empty = await leftover(repository, former, "empty")
    changed = await leftover(repository, former, "changed")
    (changed / "new.txt").write_text("work\n")
    vanished = await leftover(repository, former, "vanished")
    shutil.rmtree(vanished)
    relative = await leftover(repository, former, "relative")
    link = os.path.relpath((relative / ".git").read_text().strip().removeprefix("gitdir: "), relative)
    (relative / ".git").write_text(f"gitdir: {link}\n")
    unmounted = await leftover(repository, away, "unmounted")
    away.rename(tmp_path / "elsewhere")
    found = await find_repository(repository.path)
    results = {each.run_id: each.state for each in await reap(found, tmp_path / "today")}
    assert results == {"empty": "removed", "changed": "kept", "vanished": "removed", "relative": "removed"}
    assert not empty.exists()
    assert (changed / "new.txt").read_text() == "work\n"
    assert sorted(registered(repository)) == sorted(map(str, (changed, unmounted)))
    (tmp_path / "elsewhere").rename(away)
    results = {each.run_id: each.state for each in await reap(found, tmp_path / "today")}
    assert results == {"changed": "kept", "unmounted": "removed"}


async def test_SEC_07_a_registration_that_names_a_folder_of_others_removes_nothing(
    repository: RealRepository, tmp_path: Path
) -> None:
    planted = await leftover(repository, tmp_path / "former", "planted")
    found = await find_repository(repository.path)
    entry = found.linked(planted).git_dir
    for number, place in enumerate((tmp_path / "mine" / "planted", tmp_path / "mine" / "other")):
        place.mkdir(parents=True)
        (place / "kept.txt").write_text("mine\n")
        (place / ".git").write_text("gitdir: /somewhere/else\n" if number else "gitdir: \n")
        (entry / "gitdir").write_text(f"{place}/.git\n")
        (entry / "index").unlink(missing_ok=True)
        assert await reap(found, tmp_path / "today") == []
        assert (place / "kept.txt").read_text() == "mine\n"


async def test_U_23_a_worktree_with_a_living_process_in_it_is_kept(repository: RealRepository, tmp_path: Path) -> None:
    place = await leftover(repository, tmp_path / "trees", "busy")
    process = subprocess.Popen(["sleep", "1000"], cwd=place)
    found = await find_repository(repository.path)
    try:
        assert [(each.state, each.reason) for each in await reap(found, tmp_path / "trees")] == [
            ("kept", "a process works in it")
        ]
    finally:
        process.kill()
        process.wait()
    assert [each.state for each in await reap(found, tmp_path / "trees")] == ["removed"]


async def test_REL_20_a_worktree_that_cannot_be_read_counts_as_changed(
    repository: RealRepository, tmp_path: Path
) -> None:
    place = await leftover(repository, tmp_path / "trees", "unclear")
    found = await find_repository(repository.path)
    (found.linked(place).git_dir / "HEAD").write_text("ref: refs/heads/no-such\n")
    results = await reap(found, tmp_path / "trees")
    assert [each.state for each in results] == ["kept"]
    assert place.is_dir()


async def test_r06_worktrees_and_locks_of_others_are_left_alone(case: Callable[[str], Case], tmp_path: Path) -> None:
    left = case("r06")
    before = left.state()
    base = left.path.parent
    found = await find_repository(left.path)
    await leftover(left, tmp_path / "trees", "ours")
    assert [each.run_id for each in await reap(found, tmp_path / "trees")] == ["ours"]
    assert await reap(found, base) == []
    assert (
        sorted(path.name for path in (left.path / ".git" / "worktrees").iterdir()) == left.facts["registered"].split()
    )
    assert (base / "wt-live" / "work.txt").read_text() == "not committed\n"
    assert RealRepository(base / "wt-loose").head == left.facts["loose_commit"]
    assert left.state() == before


async def test_a_kill_at_any_moment_leaves_what_the_next_start_clears(
    repository: RealRepository, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from outpost_lsp.worktrees.git import find_repository\n"
        "from outpost_lsp.worktrees.snapshot import take_snapshot\n"
        "from outpost_lsp.worktrees.worktree import open_worktree\n"
        "async def main():\n"
        "    found = await find_repository(Path(sys.argv[1]))\n"
        "    print('ready', flush=True)\n"
        "    number = 0\n"
        "    while True:\n"
        "        number += 1\n"
        "        snapshot = await take_snapshot(found)\n"
        "        tree = await open_worktree(found, snapshot.commit, Path(sys.argv[2]), run_id=f'{sys.argv[3]}-{number}')\n"
        "        await tree.close(keep=False)\n"
        "asyncio.run(main())\n"
    )
    for number in range(50):
        repository.write(f"many/{number}.txt", f"{number}\n" * 50)
    repository.commit_all()
    repository.write("a.txt", "dirty\n")
    before = repository.state()
    found = await find_repository(repository.path)
    folder = tmp_path / "trees"
    for number in range(12):
        arguments = [sys.executable, str(program), str(repository.path), str(folder), str(number)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            await anyio.sleep(0.007 * number)
            os.kill(process.pid, signal.SIGKILL)
        with anyio.fail_after(120):
            # A git that was under way when its parent was killed goes on for a moment.
            await _until_no_git_works_in(repository.path, folder)
            while (repository.path / ".git" / "worktrees").exists():
                # What a git process of the killed one still works in is kept until that has ended.
                left = await reap(found, folder)
                assert {each.reason for each in left if each.state == "kept"} <= {"a process works in it"}, left
                await anyio.sleep(0.02)
        assert not (repository.path / ".git" / "worktrees").exists()
        assert repository.state() == before
        assert [path.name for path in folder.glob("*")] in ([], [".trash"])
    repository.git("fsck", "--strict")


def test_LOCK_05_a_reused_process_id_is_not_taken_for_the_owner() -> None:
    own = this_process("run", "a" * 40)
    assert own.is_alive
    assert own.start == start_time(os.getpid())
    assert not Owner("run", "a" * 40, os.getpid(), "1").is_alive
    assert Owner("run", "a" * 40, os.getpid(), "unknown").is_alive


async def _until_no_git_works_in(*folders: Path) -> None:
    """Git itself goes on for a moment when its parent is killed."""
    with anyio.fail_after(60):
        while any(_is_git_of(folder) for folder in folders):
            await anyio.sleep(0.01)


def _is_git_of(folder: Path) -> bool:
    """Whether a git works there, or is about to: until its program is loaded it goes by the words of who started it."""
    here = os.fsencode(folder)
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if here in words or (words[0] == b"git" and (entry / "cwd").readlink().is_relative_to(folder)):
                return True
        except OSError:
            continue
    return False


def test_a_repository_sees_its_worktree_by_the_registration_only(repository: RealRepository, tmp_path: Path) -> None:
    seen = Repository(repository.path, repository.path / ".git", repository.path / ".git")
    with pytest.raises(OutpostError, match="not a registered worktree"):
        seen.linked(tmp_path)
