"""What dies, freezes or is left alone (SO-04, SO-05, SO-06, SO-11). The last tests leave less of the cluster each."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from outpost_lsp.domain.job import JobRecord
from outpost_lsp.domain.run import ReviewScope
from outpost_lsp.remote.http import RemoteExecutor
from outpost_lsp.service.handle import RunHandle
from outpost_lsp.service.workspace import Workspace
from outpost_lsp.storage.journal import read_journal
from tests.cluster.conftest import Office
from tests.on_ray.conftest import SLOTS, TOKEN, Cluster, eventually, parent, processes, running
from tests.support.model_answers import Answer
from tests.support.repositories import RealRepository

UNREAD = int(os.environ.get("OUTPOST_UNREAD_RUNS", SLOTS + 2))
"""A hundred takes minutes: each has a process for a moment."""
WORDS = " ".join(f"word{number}" for number in range(300))


def kill(*pids: int, number: signal.Signals = signal.SIGKILL) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def shown(workspace: Workspace, handle: RunHandle) -> str:
    """The text of the answer so far, as the journal has it; the journal begins with the first event."""
    if not workspace.journal_path(handle.run.id).exists():
        return ""
    records = read_journal(workspace.journal_path(handle.run.id))
    return "".join(str(record.event["text"]) for record in records if record.kind == "text-delta")


class Wire:
    """A way to the face that can be cut."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: set[asyncio.StreamWriter] = set()
        self.url = ""

    @asynccontextmanager
    async def laid(self) -> AsyncIterator[Wire]:
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            self.cut()
            await server.wait_closed()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers |= {writer, there}
        await asyncio.gather(_pump(reader, there), _pump(there_reader, writer))
        self._writers -= {writer, there}


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(65_536):
            writer.write(piece)
            await writer.drain()
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def test_SO_04_a_killed_process_is_an_interrupted_run_whose_commands_are_gone(
    cluster: Cluster, office: Office, project: RealRepository
) -> None:
    mark = "sleep 2345.6"
    cluster.scripted(Answer(calls=[{"name": "shell", "input": {"command": f"{mark} & {mark}"}}], times=0))
    settings = cluster.settings() | {"agents": {"worker": {"tools": ["shell"]}}, "sandbox": {"shell": "confined"}}
    workspace = await office.workspace(project, settings)
    handle = await office.outpost.run_agent(workspace, "worker", "Sleep.")
    await eventually(lambda: len(running(mark)) == 2)
    kill(*processes("ray::JobActor"))
    run = await handle.wait()
    assert run.status == "interrupted"
    assert run.error is not None
    await eventually(lambda: not processes(mark))
    # Started exactly once.
    assert len(cluster.model.requests) == 1


async def test_SO_05_a_cut_wire_loses_and_doubles_nothing(
    cluster: Cluster, office: Office, project: RealRepository
) -> None:
    cluster.scripted(Answer(text=WORDS, pieces=300, pause_s=0.02))
    async with Wire(cluster.port).laid() as wire:
        runs = cluster.settings(verbose=True)["runs"]
        settings = cluster.settings(verbose=True) | {"runs": runs | {"ray": runs["ray"] | {"url": wire.url}}}
        workspace = await office.workspace(project, settings)
        handle = await office.outpost.run_agent(workspace, "reviewer", "Talk.")
        for count in (20, 100):
            await eventually(lambda count=count: f"word{count} " in shown(workspace, handle))
            wire.cut()
        run = await handle.wait()
        assert run.error is None
        assert shown(workspace, handle) == run.text == WORDS
        assert "waiting" in office.statuses(run.id)


async def test_SO_05_a_face_that_is_killed_and_started_again_loses_and_doubles_nothing(
    cluster: Cluster, office: Office, project: RealRepository
) -> None:
    cluster.scripted(Answer(text=WORDS, pieces=300, pause_s=0.02))
    workspace = await office.workspace(project, cluster.settings(verbose=True))
    handle = await office.outpost.run_agent(workspace, "reviewer", "Talk.")
    await eventually(lambda: "word20 " in shown(workspace, handle))
    kill(cluster.processes["face"].pid, *processes("ray::ServeReplica"), *processes("ray::ProxyActor"))
    cluster.processes["face"].wait()
    cluster.start_face()
    starting = asyncio.ensure_future(asyncio.to_thread(cluster.until_face))
    run = await handle.wait()
    await starting
    assert run.error is None
    assert shown(workspace, handle) == run.text == WORDS
    assert len(cluster.model.requests) == 1
    await eventually(cluster.answers)


async def test_SO_11_runs_that_nobody_reads_never_begin_and_free_their_places(
    cluster: Cluster, project: RealRepository
) -> None:
    cluster.scripted(Answer(text="Done.", times=0))
    await eventually(lambda: cluster.health()["free"] == SLOTS)
    executor = RemoteExecutor(cluster.url, lambda: TOKEN, submit_s=60.0)
    for number in range(UNREAD):
        job = JobRecord(
            id=f"unread-{number}", kind="dispatch", agent="reviewer", brief="Wait.", snapshot=project.head, lease_s=1
        )
        await executor.submit(job, b"", NoBase())
    await executor.aclose()
    await eventually(lambda: cluster.health()["free"] < SLOTS)
    await eventually(lambda: cluster.health()["free"] == SLOTS and not processes("ray::JobActor"))
    assert cluster.model.requests == []


class NoBase:
    """Nobody brings the base of these runs."""

    async def file(self) -> Path:
        raise AssertionError


async def test_SO_11_when_the_program_here_is_killed_its_run_ends_there_and_is_interrupted_here(
    cluster: Cluster, project: RealRepository, tmp_path: Path, private_home: Path
) -> None:
    cluster.scripted(Answer(silent=True, times=0))
    settings = tmp_path / "outpost.toml"
    settings.write_text(
        f'default_model = "main"\n[runs]\nexecutor = "ray"\n[runs.ray]\nurl = "{cluster.url}"\nlease_s = 1\n'
        '[providers.loopback]\nkind = "openai"\nbase_url = "http://127.0.0.1:9/v1"\napi_key_env = ""\n'
        '[models.main]\nprovider = "loopback"\nname = "small"\n'
    )
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(private_home),
        "OUTPOST_CONFIG": str(settings),
        "OUTPOST_RAY_TOKEN": TOKEN,
        "OUTPOST_STATE_DIR": str(tmp_path / "state"),
        "OUTPOST_CACHE_DIR": str(tmp_path / "cache"),
    }
    program = (sys.executable, "-m", "outpost_lsp")
    reviewing = subprocess.Popen([*program, "review", "-C", str(project.path)], env=environment)
    await eventually(lambda: bool(cluster.model.requests) or reviewing.poll() is not None)
    reviewing.kill()
    assert reviewing.wait() == -signal.SIGKILL
    await eventually(lambda: not processes("ray::JobActor") and cluster.health()["free"] == SLOTS)
    assert len(cluster.model.requests) == 1
    told = await asyncio.to_thread(
        subprocess.check_output, [*program, "runs", "-C", str(project.path), "--json"], env=environment
    )
    assert [run["status"] for run in json.loads(told)] == ["interrupted"]


async def test_SO_04_a_run_on_a_machine_that_is_killed_is_interrupted_and_its_commands_are_gone(
    cluster: Cluster, office: Office, project: RealRepository
) -> None:
    mark = "sleep 3456.7"
    cluster.scripted(Answer(calls=[{"name": "shell", "input": {"command": f"{mark} & {mark}"}}], times=0))
    settings = cluster.settings() | {"agents": {"worker": {"tools": ["shell"]}}, "sandbox": {"shell": "confined"}}
    workspace = await office.workspace(project, settings)
    handle = await office.outpost.run_agent(workspace, "worker", "Sleep.")
    await eventually(lambda: len(running(mark)) == 2)
    [job] = processes("ray::JobActor")
    name, node = cluster.node_of(job), parent(job)
    kill(cluster.processes[name].pid, node, *(pid for pid in processes("ray::") if cluster.node_of(pid) == name))
    cluster.processes[name].wait()
    run = await handle.wait()
    assert run.status == "interrupted"
    await eventually(lambda: not processes(mark))
    assert len(cluster.model.requests) == 1
    # The machine comes back.
    cluster.start_worker(name)
    await asyncio.to_thread(cluster.until_log, name, "Ray runtime started")
    await eventually(lambda: cluster.health()["free"] == SLOTS)


async def test_SO_04_a_run_on_a_machine_that_freezes_is_interrupted_in_time(
    cluster: Cluster, office: Office, project: RealRepository
) -> None:
    cluster.scripted(Answer(silent=True))
    workspace = await office.workspace(project, cluster.settings())
    handle = await office.outpost.run_agent(workspace, "reviewer", "Wait.")
    await cluster.model.until(lambda: bool(cluster.model.requests))
    [job] = processes("ray::JobActor")
    node = parent(job)
    frozen = [node, *(pid for pid in processes("ray::") if parent(pid) == node)]
    kill(*frozen, number=signal.SIGSTOP)
    try:
        began = time.monotonic()
        run = await handle.wait()
        noticed_s = time.monotonic() - began
        print(f"noticed after {noticed_s:.1f} s")
        assert noticed_s < 30
        assert run.status == "interrupted"
        assert len(cluster.model.requests) == 1
    finally:
        kill(*frozen)


async def test_SO_06_when_the_head_dies_runs_are_interrupted_and_new_ones_answered_at_once(
    cluster: Cluster, office: Office, project: RealRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It is a minute otherwise.
    monkeypatch.setitem(RemoteExecutor.__init__.__kwdefaults__, "reconnect_s", 5.0)
    cluster.scripted(Answer(silent=True))
    workspace = await office.workspace(project, cluster.settings())
    handle = await office.outpost.run_agent(workspace, "reviewer", "Wait.")
    await cluster.model.until(lambda: bool(cluster.model.requests))
    kill(*processes("gcs_server"), *processes("--head"), *processes("ray::Serve"), *processes("ray::Proxy"))
    began = time.monotonic()
    failed = await (await office.outpost.review(workspace, ReviewScope())).wait()
    assert failed.status == "failed"
    assert failed.error is not None
    assert f"127.0.0.1:{cluster.port}" in failed.error.message
    assert time.monotonic() - began < 30
    assert (await handle.wait()).status == "interrupted"
    await office.outpost.remove_workspace(project.path)
    settings = cluster.settings(whenAway="local") | {"defaultModel": "offline"}
    again = await office.workspace(project, settings)
    here = await (await office.outpost.review(again, ReviewScope())).wait()
    assert here.status == "succeeded"
    assert any(note.startswith("Carried out here") for note in here.notes)
