"""The bases that a worker keeps: each owner's own, dropped when there are too many, never one in use."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from outpost_lsp.domain.job import JobNeeds, JobRecord
from outpost_lsp.service.job_bases import JobBases
from outpost_lsp.worktrees.git import find_repository, run_git
from outpost_lsp.worktrees.portable import pack_base, pack_delta
from outpost_lsp.worktrees.worktree import forget_gone, open_worktree
from tests.support.repositories import RealRepository, make_repository

KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from outpost_lsp.worktrees.git import find_repository
from outpost_lsp.worktrees.worktree import open_worktree
async def main():
    repository = await find_repository(Path(sys.argv[1]))
    await open_worktree(repository, sys.argv[2], Path(sys.argv[3]), run_id="one")
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


@pytest.fixture
def project(tmp_path: Path) -> RealRepository:
    return make_repository(tmp_path / "project", {"a.py": "x = 1\n" * 100})


def job(project: RealRepository, repository: str = "r", **fields: object) -> JobRecord:
    return JobRecord(
        id="one",
        kind="review",
        agent="reviewer",
        brief="Look.",
        snapshot=project.head,
        needs=JobNeeds(repository=repository),
    ).model_copy(update=fields)


async def packed(project: RealRepository, folder: Path) -> Path:
    file = folder / "base.pack"
    if not file.exists():
        await pack_base(await find_repository(project.path), project.head, file)
    return file


async def bring(bases: JobBases, owner: str, one: JobRecord, pack: Path) -> Path:
    async with bases.used(owner, one) as base:
        assert await base.lacks()
        await base.take(pack)
        assert not await base.lacks()
        return base.folder


async def test_an_owner_does_not_see_what_another_one_brought(project: RealRepository, tmp_path: Path) -> None:
    bases = JobBases(tmp_path / "bases")
    await bring(bases, "a", job(project), await packed(project, tmp_path))
    async with bases.used("b", job(project)) as other:
        assert await other.lacks()
    async with bases.used("a", job(project)) as again:
        assert not await again.lacks()


async def test_the_base_that_was_not_used_for_longest_is_dropped_first(project: RealRepository, tmp_path: Path) -> None:
    pack = await packed(project, tmp_path)
    bases = JobBases(tmp_path / "bases")
    folders = [await bring(bases, "a", job(project, name), pack) for name in ("one", "two", "three")]
    for age, folder in zip((30, 10, 20), folders, strict=True):
        os.utime(folder, (1_000_000_000 - age,) * 2)
    size = sum(each.lstat().st_size for each in folders[0].rglob("*"))
    JobBases(tmp_path / "bases", most_bytes=int(2.5 * size)).drop_unused()
    assert [folder.exists() for folder in folders] == [False, True, True]
    # Used again, it is brought again.
    assert await bring(bases, "a", job(project, "one"), pack) == folders[0]


async def test_a_base_in_use_is_not_dropped_however_little_room_there_is(
    project: RealRepository, tmp_path: Path
) -> None:
    pack = await packed(project, tmp_path)
    bases = JobBases(tmp_path / "bases", most_bytes=1)
    async with bases.used("a", job(project, "one")) as held:
        await held.take(pack)
        other = await bring(bases, "a", job(project, "two"), pack)
        assert not await held.lacks()
        # The other was in use, too, when it was brought.
        assert other.exists()
        bases.drop_unused()
        assert not other.exists()
        assert not await held.lacks()
    bases.drop_unused()
    assert not held.folder.exists()


async def test_a_base_of_too_many_packs_is_brought_anew(project: RealRepository, tmp_path: Path) -> None:
    pack = await packed(project, tmp_path)
    bases = JobBases(tmp_path / "bases", most_packs=1)
    await bring(bases, "a", job(project), pack)
    base = project.head
    project.write("a.py", "x = 2\n")
    commit = project.commit_all()
    delta = await pack_delta(await find_repository(project.path), base, [commit])
    changed = job(project, base=base, snapshot=commit, commits=(commit,))
    async with bases.used("a", changed) as used:
        assert not await used.lacks()
        await used.take_delta(delta)
    async with bases.used("a", changed) as used:
        assert await used.lacks()


async def test_the_registration_of_a_killed_jobs_worktree_goes_and_a_living_ones_stays(
    project: RealRepository, tmp_path: Path
) -> None:
    places = tmp_path / "dead", tmp_path / "living"
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(project.path), project.head, str(places[0])], check=False, timeout=60
    )
    assert ended.returncode == -signal.SIGKILL
    repository = await find_repository(project.path)
    living = await open_worktree(repository, project.head, places[1], run_id="two")
    await forget_gone(repository)
    listed = (await run_git(repository, ["worktree", "list", "--porcelain"])).stdout.decode()
    # Its folder is there yet, so it may hold something.
    assert str(places[0] / "one") in listed
    subprocess.run(["rm", "-rf", str(places[0])], check=True)
    await forget_gone(repository)
    listed = (await run_git(repository, ["worktree", "list", "--porcelain"])).stdout.decode()
    assert str(places[0]) not in listed
    assert str(places[1]) in listed
    await living.close(keep=False)
