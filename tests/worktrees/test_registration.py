"""Whether the owner of a worktree lives, also where its process cannot be seen (SNAP-03, SNAP-07, LOCK-05)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from outpost_lsp.worktrees.git import find_repository
from outpost_lsp.worktrees.plain_folder import open_plain_folder
from outpost_lsp.worktrees.registration import Hold, Owner, owner_of, this_process, this_world
from outpost_lsp.worktrees.snapshot import take_snapshot
from outpost_lsp.worktrees.worktree import Worktree, open_worktree, reap
from tests.support.repositories import RealRepository

ELSEWHERE = "4026539999@00000000-0000-0000-0000-000000000000"


async def opened(repository: RealRepository, folder: Path) -> Worktree:
    found = await find_repository(repository.path)
    snapshot = await take_snapshot(found)
    return await open_worktree(found, snapshot.commit, folder, run_id="run")


def as_if_made_elsewhere(worktree: Worktree, *, world: str = ELSEWHERE, age_s: float = 3_600) -> Owner:
    """The owner by the lock, rewritten in its place as a process of another container would have written it."""
    lock = worktree.repository.git_dir / "locked"
    with lock.open("r+", encoding="utf-8") as file:
        file.truncate()
        file.write(Owner("run", worktree.commit, 2**22 + 1, "1", world).reason)
    long_ago = lock.stat().st_mtime - age_s
    os.utime(lock, (long_ago, long_ago))
    owner = owner_of(worktree.repository.git_dir)
    assert owner is not None
    return owner


async def test_SNAP_07_a_process_that_cannot_be_seen_is_alive_while_it_holds_its_worktree(
    repository: RealRepository, tmp_path: Path
) -> None:
    worktree = await opened(repository, tmp_path / "trees")
    owner = as_if_made_elsewhere(worktree)
    assert owner.world == ELSEWHERE
    assert owner.is_alive
    assert await reap(worktree.origin, (tmp_path / "trees").resolve()) == []
    await worktree.close(keep=True)  # As the kernel does when a process ends.
    assert not owner.is_alive
    assert [each.state for each in await reap(worktree.origin, (tmp_path / "trees").resolve())] == ["removed"]


async def test_SNAP_07_a_lock_that_was_only_just_written_elsewhere_is_not_taken_for_a_dead_ones(
    repository: RealRepository, tmp_path: Path
) -> None:
    worktree = await opened(repository, tmp_path / "trees")
    await worktree.close(keep=True)
    assert as_if_made_elsewhere(worktree, age_s=-3_600).is_alive
    assert not as_if_made_elsewhere(worktree, age_s=24 * 3_600).is_alive


async def test_LOCK_05_a_lock_that_names_no_world_is_read_as_before(repository: RealRepository, tmp_path: Path) -> None:
    worktree = await opened(repository, tmp_path / "trees")
    assert not as_if_made_elsewhere(worktree, world="").is_alive
    assert Owner("run", worktree.commit, os.getpid(), this_process("run", "").start).is_alive
    await worktree.close(keep=False)


async def test_SNAP_09_the_copy_of_a_plain_folder_is_held_as_a_worktree_is(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    (folder / "a.txt").write_text("a\n")
    worktree, _ = await open_plain_folder(folder, tmp_path / "trees", run_id="run")
    owner = as_if_made_elsewhere(worktree)
    assert owner.is_alive
    await worktree.close(keep=True)
    assert not owner.is_alive


def test_the_world_is_told_apart_by_the_machines_start_and_its_process_namespace() -> None:
    assert this_world() == this_process("run", "").world
    namespace, _, boot = this_world().partition("@")
    assert int(namespace) == Path("/proc/self/ns/pid").stat().st_ino
    assert boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_a_hold_of_what_is_gone_holds_nothing_and_can_be_closed_twice(tmp_path: Path) -> None:
    hold = Hold(tmp_path / "gone")
    hold.close()
    hold.close()


@pytest.mark.parametrize("text", ["", "outpost run", "a person's reason"])
def test_a_lock_of_somebody_else_has_no_owner(tmp_path: Path, text: str) -> None:
    (tmp_path / "locked").write_text(text)
    assert owner_of(tmp_path) is None


async def test_REL_01_a_worktree_that_died_while_git_registered_it_holds_nothing(
    repository: RealRepository, tmp_path: Path
) -> None:
    worktree = await opened(repository, tmp_path / "trees")
    as_if_made_elsewhere(worktree, world="")
    for name in ("HEAD", "index"):
        (worktree.repository.git_dir / name).unlink()
    for place in worktree.directory.iterdir():
        if place.name != ".git":
            shutil.rmtree(place) if place.is_dir() else place.unlink()
    assert [each.state for each in await reap(worktree.origin, (tmp_path / "trees").resolve())] == ["removed"]
    assert not (repository.path / ".git" / "worktrees").exists()


async def test_REL_01_an_empty_folder_of_registrations_that_a_killed_process_left_goes(
    repository: RealRepository, tmp_path: Path
) -> None:
    (repository.path / ".git" / "worktrees").mkdir()
    await reap(await find_repository(repository.path), tmp_path / "trees")
    assert not (repository.path / ".git" / "worktrees").exists()


async def test_SNAP_07_files_without_a_head_are_kept(repository: RealRepository, tmp_path: Path) -> None:
    worktree = await opened(repository, tmp_path / "trees")
    as_if_made_elsewhere(worktree, world="")
    for name in ("HEAD", "index"):
        (worktree.repository.git_dir / name).unlink()
    assert [each.state for each in await reap(worktree.origin, (tmp_path / "trees").resolve())] == ["kept"]
