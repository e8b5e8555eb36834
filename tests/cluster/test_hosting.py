"""One job in a worker's process: it begins once somebody reads, and leaves its place as soon as it may (SO-03, SO-11)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from outpost_lsp.cluster.hosting import HostedJob
from outpost_lsp.domain.job import JobRecord
from outpost_lsp.service.job_folders import job_folder, sweep_job_folders
from outpost_lsp.service.job_worker import JobWorker
from outpost_lsp.storage.presence import Presence
from tests.cluster.conftest import until


@asynccontextmanager
async def hosted(tmp_path: Path, **fields: object) -> AsyncIterator[tuple[HostedJob, Callable[[], bool]]]:
    """A job whose base nobody brings, and whether its process may end."""
    job = JobRecord.model_validate(
        {"id": "one", "kind": "dispatch", "agent": "reviewer", "brief": "Look.", "snapshot": "a" * 40} | fields
    )
    gone = asyncio.Event()
    running = HostedJob(
        JobWorker(tmp_path, {"PATH": os.environ["PATH"]}), job, b"", place="here", gone=gone.set, collected_s=3600
    )
    try:
        yield running, gone.is_set
    finally:
        await running.cancel()
        running.abandon()


async def test_SO_11_what_nobody_reads_never_begins_and_ends_with_its_lease(tmp_path: Path) -> None:
    async with hosted(tmp_path, lease_s=0.2) as (job, is_gone):
        await until(is_gone)
        assert [line[:30] for line in await job.events(0, 1)] == [b'{"seq":1,"kind":"cancelled","d']


async def test_SO_11_what_is_detached_begins_unread_and_outlives_the_lease(tmp_path: Path) -> None:
    async with hosted(tmp_path, lease_s=0.05, detach=True) as (job, is_gone):
        await asyncio.sleep(0.3)
        assert not is_gone()
        assert b"base-needed" in (await job.events(0, 5))[0]


async def test_a_reader_that_waits_keeps_the_job_however_short_its_lease_is(tmp_path: Path) -> None:
    async with hosted(tmp_path, lease_s=0.1) as (job, is_gone):
        assert b"base-needed" in (await job.events(0, 5))[0]
        assert await job.events(1, 0.6) == []
        assert not is_gone()


async def test_SO_03_a_job_that_was_cancelled_gives_its_place_back_at_once(tmp_path: Path) -> None:
    async with hosted(tmp_path) as (job, is_gone):
        await job.events(0, 5)
        await job.cancel()
        assert b'"kind":"cancelled"' in (await job.events(1, 5))[0]
        await until(is_gone)


def test_what_a_killed_job_left_is_swept_and_what_a_running_one_has_is_not(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    presence, gone = Presence(jobs), Presence(jobs)
    mine = job_folder(jobs, "one", presence)
    host, pid, start, _ = mine.parent.name.split("@")
    dead = [f"{host}@{2**22 + 1}@0123", f"{host}@{pid}@another-start", job_folder(jobs, "two", gone).parent.name]
    gone.close()
    # The last one is a container's of the same name, whose process is not seen from here.
    kept = [f"elsewhere@{2**22 + 1}@0123", mine.parent.name, f"{host}@{pid}@{start}"]
    kept.append(f"{host}@{2**22 + 1}@0123@{presence.name}")
    for name in (*dead, *kept):
        (jobs / name / "one").mkdir(parents=True)
    sweep_job_folders(jobs)
    assert sorted(folder.name for folder in jobs.iterdir()) == sorted(kept)
    presence.close()
    sweep_job_folders(jobs)
    assert sorted(folder.name for folder in jobs.iterdir()) == sorted([kept[0], kept[2]])
