"""Runs on a real cluster (SO-01 to SO-11)."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from outpost_lsp.domain.job import JobRecord
from outpost_lsp.domain.run import ReviewScope
from outpost_lsp.remote.http import RemoteExecutor
from outpost_lsp.service.results import diff
from outpost_lsp.storage.journal import read_journal
from tests.cluster.conftest import Office, until
from tests.on_ray.conftest import TOKEN, Cluster
from tests.support.model_answers import Answer
from tests.support.repositories import RealRepository

SLOTS = 8


def scripted(cluster: Cluster, *answers: Any) -> None:
    """What the model says from now on."""
    cluster.model.requests.clear()
    cluster.model._answers[:] = list(answers)
    cluster.model._used.clear()


def processes(mark: str) -> list[int]:
    """Processes whose command line or environment holds a text."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "cmdline").read_bytes().decode("utf-8", "replace") and int(folder.name) != os.getpid():
                found.append(int(folder.name))
        except (OSError, ValueError):
            continue
    return found


async def test_SO_01_a_review_on_ray_is_as_one_here(cluster: Cluster, office: Office, project: RealRepository) -> None:
    here = await office.workspace(project)
    local = await (await office.outpost.review(here, ReviewScope())).wait()
    kinds = [record.kind for record in read_journal(here.journal_path(local.id))]
    await office.outpost.remove_workspace(project.path)
    settings = cluster.settings() | {"defaultModel": "offline"}
    there = await office.workspace(project, settings)
    remote = await (await office.outpost.review(there, ReviewScope())).wait()
    assert remote.error is None
    assert (remote.status, remote.text, remote.findings) == (local.status, local.text, local.findings)
    assert [record.kind for record in read_journal(there.journal_path(remote.id))] == kinds
    assert any(note.startswith("Carried out by") for note in remote.notes)


async def test_SO_02_eight_runs_at_once_lose_and_double_nothing(
    cluster: Cluster, office: Office, project: RealRepository
) -> None:
    text = " ".join(f"word{number}" for number in range(200))
    scripted(cluster, Answer(text=text, pieces=200, pause_s=0.005, times=0))
    workspace = await office.workspace(
        project, cluster.settings() | {"runs": cluster.settings()["runs"] | {"verbose": True}}
    )
    handles = [await office.outpost.run_agent(workspace, "reviewer", f"Number {number}.") for number in range(8)]
    for handle in handles:
        run = await handle.wait()
        assert run.error is None
        assert run.text == text
        records = list(read_journal(workspace.journal_path(run.id)))
        shown = "".join(str(record.event["text"]) for record in records if record.kind == "text-delta")
        assert shown == text
        assert [record.seq for record in records] == sorted({record.seq for record in records})


async def test_what_an_agent_changed_on_ray_is_applied_here(
    cluster: Cluster, office: Office, project: RealRepository
) -> None:
    call = {"name": "write_file", "input": {"path": "new/b.txt", "content": "new\n"}}
    scripted(cluster, Answer(calls=[call]), "Done.")
    workspace = await office.workspace(project, cluster.settings())
    run = await (await office.outpost.run_agent(workspace, "fixer", "Write.")).wait()
    assert run.error is None
    assert [each.file.path for each in (await diff(workspace, run)).files] == ["new/b.txt"]


async def test_SO_03_cancelling_ends_commands_and_a_queued_run_never_starts(
    cluster: Cluster, office: Office, project: RealRepository
) -> None:
    mark = "sleep 1234.5"
    call = {"name": "shell", "input": {"command": f"{mark} & {mark}"}}
    scripted(cluster, Answer(calls=[call], times=0))
    settings = cluster.settings() | {
        "agents": {"worker": {"tools": ["files", "shell"]}},
        "sandbox": {"shell": "confined"},
    }
    workspace = await office.workspace(project, settings)
    cluster.until_free(SLOTS)
    handles = [await office.outpost.run_agent(workspace, "worker", "Sleep.") for _ in range(SLOTS + 1)]
    await until(lambda: len(cluster.model.requests) >= SLOTS)
    await until(lambda: len(processes(mark)) >= SLOTS)
    queued = [handle for handle in handles if handle.run.status != "running"]
    assert len(queued) == 1
    queued[0].cancel()
    assert (await queued[0].wait()).status == "cancelled"
    for handle in handles:
        handle.cancel()
    for handle in handles:
        assert (await handle.wait()).status == "cancelled"
    await until(lambda: not processes(mark))
    assert len(cluster.model.requests) == SLOTS


async def test_SO_04_a_killed_process_is_an_interrupted_run_whose_commands_are_gone(
    cluster: Cluster, office: Office, project: RealRepository
) -> None:
    mark = "sleep 2345.6"
    scripted(cluster, Answer(calls=[{"name": "shell", "input": {"command": f"{mark} & {mark}"}}], times=0))
    settings = cluster.settings() | {"agents": {"worker": {"tools": ["shell"]}}, "sandbox": {"shell": "confined"}}
    workspace = await office.workspace(project, settings)
    handle = await office.outpost.run_agent(workspace, "worker", "Sleep.")
    await until(lambda: bool(processes(mark)))
    for pid in processes("ray::JobActor"):
        os.kill(pid, signal.SIGKILL)
    run = await handle.wait()
    assert run.status == "interrupted"
    await until(lambda: not processes(mark))
    assert len(cluster.model.requests) == 1


async def test_SO_08_a_base_goes_once_to_each_node_and_a_delta_after_it(
    cluster: Cluster, office: Office, project: RealRepository
) -> None:
    scripted(cluster, Answer(text="Done.", times=0))
    workspace = await office.workspace(project, cluster.settings())
    for number in range(6):
        run = await (await office.outpost.run_agent(workspace, "reviewer", f"Number {number}.")).wait()
        assert run.error is None
    bases = [base for name in ("w1", "w2") for base in (cluster.folder / name / "bases").glob("*")]
    assert bases
    for base in bases:
        packs = list((base / "git" / "objects" / "pack").glob("*.pack"))
        assert packs


async def test_SO_11_runs_that_nobody_reads_free_their_places(cluster: Cluster, project: RealRepository) -> None:
    snapshot = project.head
    executor = RemoteExecutor(cluster.url, lambda: TOKEN)
    cluster.until_free(SLOTS)
    for number in range(20):
        job = JobRecord(
            id=f"unread-{number}", kind="dispatch", agent="reviewer", brief="Wait.", snapshot=snapshot, lease_s=2
        )
        await executor.submit(job, b"", NoBase())
    await executor.aclose()
    await until(lambda: cluster.health()["free"] == SLOTS)


class NoBase:
    """Nobody brings the base of these runs."""

    async def file(self) -> Path:
        raise AssertionError
