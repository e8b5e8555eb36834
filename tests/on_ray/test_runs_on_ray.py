"""Runs on a real cluster are as those of this machine (SO-01, SO-02, SO-03, SO-07, SO-08)."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from outpost_lsp.domain.run import ReviewScope
from outpost_lsp.service.detached import detached_run, start_detached
from outpost_lsp.service.results import diff
from outpost_lsp.service.signals import Question, Signal
from outpost_lsp.storage.journal import read_journal
from tests.cluster.conftest import Office
from tests.on_ray.conftest import SHELLS, SLOTS, WORKERS, Cluster, eventually, processes, running
from tests.support.model_answers import Answer
from tests.support.repositories import RealRepository


async def test_SO_01_a_review_on_ray_is_as_one_here(cluster: Cluster, office: Office, project: RealRepository) -> None:
    settings = cluster.settings() | {"defaultModel": "offline"}
    here = await office.workspace(project, settings | {"runs": {}})
    local = await (await office.outpost.review(here, ReviewScope())).wait()
    kinds = [record.kind for record in read_journal(here.journal_path(local.id))]
    findings = [finding.model_dump(exclude={"id", "run_id"}) for finding in here.board.listing()]
    assert findings
    await office.outpost.remove_workspace(project.path)
    there = await office.workspace(project, settings)
    remote = await (await office.outpost.review(there, ReviewScope())).wait()
    assert remote.error is None
    assert (remote.status, remote.text, remote.findings) == (local.status, local.text, local.findings)
    assert [record.kind for record in read_journal(there.journal_path(remote.id))] == kinds
    assert [finding.model_dump(exclude={"id", "run_id"}) for finding in there.board.listing()] == findings
    assert [note for note in remote.notes if note not in local.notes] == [
        note for note in remote.notes if note.startswith("Carried out by")
    ]
    statuses = office.statuses(remote.id)
    assert statuses[-3:] == ["queued", "running", "succeeded"]


async def test_a_run_takes_a_process_that_was_ready_and_another_one_is_made_ready(
    cluster: Cluster, office: Office, project: RealRepository
) -> None:
    cluster.scripted(Answer(silent=True))
    workspace = await office.workspace(project, cluster.settings())
    await eventually(lambda: cluster.health()["free"] == SLOTS and len(_nodes_with_spares(cluster)) == len(WORKERS))
    asked_at = time.clock_gettime(time.CLOCK_BOOTTIME)
    handle = await office.outpost.run_agent(workspace, "reviewer", "Wait.")
    await cluster.model.until(lambda: bool(cluster.model.requests))
    [job] = processes("ray::JobActor")
    assert _began_at(job) < asked_at
    await eventually(lambda: cluster.node_of(job) in _nodes_with_spares(cluster))
    handle.cancel()
    assert (await handle.wait()).status == "cancelled"


def _nodes_with_spares(cluster: Cluster) -> set[str]:
    """Workers that have a process which carried nothing out yet."""
    return {name for name in map(cluster.node_of, processes("ray::IDLE")) if name in WORKERS}


def _began_at(pid: int) -> float:
    """By the clock that counts from the machine's start."""
    ticks = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    return ticks / os.sysconf("SC_CLK_TCK")


async def test_SO_02_eight_runs_at_once_lose_and_double_nothing(
    cluster: Cluster, office: Office, project: RealRepository
) -> None:
    text = " ".join(f"word{number}" for number in range(200))
    cluster.scripted(Answer(text=text, pieces=200, pause_s=0.005, times=0))
    workspace = await office.workspace(project, cluster.settings(verbose=True))
    handles = [await office.outpost.run_agent(workspace, "reviewer", f"Number {number}.") for number in range(8)]
    for handle in handles:
        run = await handle.wait()
        assert run.error is None
        assert run.text == text
        records = list(read_journal(workspace.journal_path(run.id)))
        shown = "".join(str(record.event["text"]) for record in records if record.kind == "text-delta")
        assert shown == text
        assert [record.seq for record in records] == list(range(records[0].seq, records[0].seq + len(records)))
    assert len(cluster.model.requests) == 8


async def test_SO_03_cancelling_ends_commands_and_a_queued_run_never_starts(
    cluster: Cluster, office: Office, project: RealRepository
) -> None:
    mark = "sleep 1234.5"
    call = {"name": "shell", "input": {"command": f"{mark} & {mark}"}}
    cluster.scripted(Answer(calls=[call], times=0))
    settings = cluster.settings() | {
        "agents": {"worker": {"tools": ["files", "shell"]}},
        "sandbox": {"shell": "confined"},
    }
    workspace = await office.workspace(project, settings)
    await eventually(lambda: cluster.health()["free"] == SLOTS)
    handles = [await office.outpost.run_agent(workspace, "worker", "Sleep.") for _ in range(SHELLS + 1)]
    await eventually(lambda: len(running(mark)) == 2 * SHELLS)
    await eventually(lambda: [handle.run.status for handle in handles].count("running") == SHELLS)
    [queued] = [handle for handle in handles if handle.run.status != "running"]
    # There are free slots, but none where commands may be run.
    assert queued.run.status == "queued"
    assert cluster.health()["free"] == SLOTS - SHELLS
    queued.cancel()
    assert (await queued.wait()).status == "cancelled"
    for handle in handles:
        handle.cancel()
    for handle in handles:
        assert (await handle.wait()).status == "cancelled"
    await eventually(lambda: not processes(mark))
    assert len(cluster.model.requests) == SHELLS
    await eventually(lambda: cluster.health()["free"] == SLOTS)


async def test_SO_07_a_person_steers_and_answers_and_what_was_changed_is_applied_here(
    cluster: Cluster, office: Office, project: RealRepository
) -> None:
    call = {"name": "write_file", "input": {"path": "new/b.txt", "content": "new\n"}}
    cluster.scripted(Answer(calls=[{"name": "list_files", "input": {}}], hold="go"), Answer(calls=[call]), "Done.")

    def allow(signal: Signal) -> None:
        if isinstance(signal, Question):
            signal.take()
            signal.answer("allow")

    office.outpost.subscribe(allow)
    permissions = {"default": "allow", "rules": [{"effect": "ask", "tools": ["write_file"]}]}
    settings = cluster.settings() | {"agents": {"fixer": {"permissions": permissions}}}
    workspace = await office.workspace(project, settings)
    handle = await office.outpost.run_agent(workspace, "fixer", "Write.")
    await cluster.model.until(lambda: bool(cluster.model.requests))
    sending = asyncio.ensure_future(office.outpost.steer(handle.run.id, "Into new/, please."))
    await asyncio.sleep(0)
    cluster.model.release("go")
    assert (await sending).mode == "injected"
    run = await handle.wait()
    assert run.error is None
    assert any("Into new/, please." in str(request.json["messages"]) for request in cluster.model.requests[1:])
    assert [each.file.path for each in (await diff(workspace, run)).files] == ["new/b.txt"]


async def test_SO_08_a_base_goes_once_to_each_node_a_delta_after_it_and_runs_go_where_it_is(
    cluster: Cluster, office: Office, project: RealRepository
) -> None:
    project.write(".gitignore", "*.secret\n")
    project.write("key.secret", "canary\n")
    cluster.scripted(
        Answer(
            calls=[{"name": "read_file", "input": {"path": "b.py"}}, {"name": "list_files", "input": {}}],
            when={"results": 0},
            times=0,
        ),
        Answer(text="Done.", when={"results": 2}, times=3),
        Answer(silent=True, when={"results": 2}, times=0),
    )
    workspace = await office.workspace(project, cluster.settings())
    known = set(_stores(cluster))
    for number in range(3):
        await eventually(lambda: cluster.health()["free"] == SLOTS)
        unsaved = {"b.py": f"x = 'unsaved {number}'\n"}
        handle = await office.outpost.run_agent(workspace, "reviewer", f"Number {number}.", unsaved=unsaved)
        assert (await handle.wait()).error is None
        assert f"unsaved {number}" in str(cluster.model.requests[-1].json["messages"])
    # The next one goes where the base is, as long as there is a place.
    assert len(set(_stores(cluster)) - known) == 1
    await eventually(lambda: cluster.health()["free"] == SLOTS)
    many = SLOTS // len(WORKERS) + 1
    handles = [await office.outpost.run_agent(workspace, "reviewer", f"Also {number}.") for number in range(many)]
    await eventually(lambda: len(cluster.model.requests) == 2 * (3 + many))
    for handle in handles:
        handle.cancel()
    for handle in handles:
        assert (await handle.wait()).status == "cancelled"
    stores = set(_stores(cluster)) - known
    assert len(stores) == len(WORKERS)
    for store in stores:
        assert len([pack for pack in store.glob("*.pack") if _holds(pack, project.head)]) == 1
    # Packs are compressed, so the worker's agent is asked instead.
    assert not any(b"key.secret" in request.body for request in cluster.model.requests)


def _stores(cluster: Cluster) -> list[Path]:
    return [store for name in WORKERS for store in (cluster.folder / name / "bases").glob("*/git/objects/pack")]


def _holds(pack: Path, commit: str) -> bool:
    return bytes.fromhex(commit) in pack.with_suffix(".idx").read_bytes()


async def test_a_review_that_was_left_is_fetched_when_its_process_is_gone(
    cluster: Cluster, office: Office, project: RealRepository
) -> None:
    cluster.scripted("Nothing found.")
    workspace = await office.workspace(project, cluster.settings())
    planned = await office.outpost.plan_review(workspace, ReviewScope())
    left = await start_detached(office.outpost, planned, ReviewScope()).wait()
    assert (left.status, left.error) == ("running", None)
    await eventually(lambda: bool(cluster.model.requests) and not processes("ray::JobActor"))
    detached = detached_run(office.outpost, workspace, left)
    assert await detached.ended()
    run = await detached.fetch().wait()
    assert (run.status, run.error, run.text) == ("succeeded", None, "Nothing found.")
    await eventually(lambda: not list((cluster.folder / "kept").rglob("*.job")))
