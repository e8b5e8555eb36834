"""What it costs to carry runs out on a cluster, all of it on this machine: a head, one worker, then two, a face.

    tests/on_ray/run.sh PYTHON tests/benchmarks/runs_elsewhere.py [--job-s 20] [--jobs 16]

`PYTHON` has the extras `dev` and `ray`. Prints, with the goal of each: overhead of a job whose base is warm, latency from
the worker to the editor, 16 jobs on two workers against one, how many runs can begin in a second, what the configured
executor adds to an import, and bytes sent to bytes edited.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from outpost_lsp.dispatches.remote_turns import RemoteTurns
from outpost_lsp.domain.job import BasePack, JobRecord
from outpost_lsp.remote.http import RemoteExecutor
from outpost_lsp.remote.jobs import RemoteJob
from outpost_lsp.service.outpost import Outpost
from outpost_lsp.service.workspace import Workspace
from outpost_lsp.storage.layout import Layout
from tests.on_ray.conftest import SLOTS, TOKEN, Cluster, processes
from tests.support.model_answers import Answer
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository, make_repository

WINDOW_MS = 50.0


@contextlib.contextmanager
def cluster_with_one_worker() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        cluster = Cluster(Path(folder))
        with ModelServer([]) as model:
            cluster.model = model
            cluster.write_operator()
            try:
                cluster.start_head()
                add_worker(cluster, "w1")
                cluster.start_face()
                cluster.until_face()
                cluster.until_free(SLOTS // 2)
                yield cluster
            finally:
                cluster.stop()


def add_worker(cluster: Cluster, name: str) -> None:
    cluster.start_worker(name)
    cluster.until_log(name, "Ray runtime started")


@contextlib.asynccontextmanager
async def opened(
    folder: Path, project: RealRepository, settings: Mapping[str, Any]
) -> AsyncIterator[tuple[Outpost, Workspace]]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "OUTPOST_CONFIG": os.devnull}
    environment |= {"OUTPOST_RAY_TOKEN": TOKEN, "CANARY_KEY": "none"}
    async with Outpost(Layout(state=folder / "state", cache=folder / "cache"), environment) as outpost:
        workspace = outpost.add_workspace(project.path, client_settings=settings, trusted=True)
        await workspace.ready()
        yield outpost, workspace


async def one_job(outpost: Outpost, workspace: Workspace) -> float:
    began = time.perf_counter()
    run = await (await outpost.run_agent(workspace, "reviewer", "Look.")).wait()
    if run.error is not None:
        raise SystemExit(run.error.message)
    return time.perf_counter() - began


async def overhead_s(cluster: Cluster, folder: Path, project: RealRepository) -> tuple[float, float]:
    """Medians of one job there and here."""
    cluster.scripted(Answer(text="Done.", times=0))
    found = []
    here = cluster.settings()
    here["runs"] = {}
    here["providers"]["loopback"]["baseUrl"] = cluster.model.base_url
    for settings in (cluster.settings(), here):
        async with opened(folder, project, settings) as (outpost, workspace):
            await one_job(outpost, workspace)
            found.append(statistics.median([await one_job(outpost, workspace) for _ in range(7)]))
    return found[0], found[1]


async def latencies_ms(cluster: Cluster, folder: Path, project: RealRepository) -> list[float]:
    """From the making of each event on a worker to its arrival here: 8 jobs, 200 events a second each."""
    pieces = 1_000
    text = " ".join(f"word{number}" for number in range(pieces))
    cluster.scripted(Answer(text=text, pieces=pieces, pause_s=0.005, times=0))
    found: list[float] = []
    observed = RemoteTurns._observed

    def timed(turns: RemoteTurns, line: Mapping[str, Any], runtime: Any) -> None:
        made = datetime.fromisoformat(str(line["at"])).timestamp()
        found.append(1000 * (time.time() - made))
        observed(turns, line, runtime)

    RemoteTurns._observed = timed  # type: ignore[method-assign]
    try:
        async with opened(folder, project, cluster.settings()) as (outpost, workspace):
            await asyncio.gather(*(one_job(outpost, workspace) for _ in range(8)))
    finally:
        RemoteTurns._observed = observed  # type: ignore[method-assign]
    return found


async def all_jobs_s(cluster: Cluster, folder: Path, project: RealRepository, jobs: int, job_s: float) -> float:
    cluster.scripted(Answer(text="Done.", delay_s=job_s, times=0))
    async with opened(folder, project, cluster.settings()) as (outpost, workspace):
        began = time.perf_counter()
        await asyncio.gather(*(one_job(outpost, workspace) for _ in range(jobs)))
        return time.perf_counter() - began


async def start_rates(cluster: Cluster, folder: Path, project: RealRepository, jobs: int = 24) -> tuple[float, float]:
    """Starts a second: of these cores, which carry everything; and of the head's store alone, by what it computes."""
    cluster.scripted(Answer(text="Done.", times=0))
    [store] = processes("gcs/gcs_server")
    async with opened(folder, project, cluster.settings()) as (outpost, workspace):
        before, began = computed_s(store), time.perf_counter()
        await asyncio.gather(*(one_job(outpost, workspace) for _ in range(jobs)))
        return jobs / (time.perf_counter() - began), jobs / (computed_s(store) - before)


def computed_s(pid: int) -> float:
    """Processor time of a process so far."""
    user, system = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


async def bytes_sent(cluster: Cluster, folder: Path, project: RealRepository) -> tuple[int, int]:
    """Of a delta, and of the files that were edited: twenty changed ones and three new ones."""
    cluster.scripted(Answer(text="Done.", times=0))
    sent: list[int] = []
    submit = RemoteExecutor.submit

    async def counted(executor: RemoteExecutor, job: JobRecord, delta: bytes, base: BasePack) -> RemoteJob:
        sent.append(len(delta))
        return await submit(executor, job, delta, base)

    edited = 0
    for number in range(23):
        content = "".join(f"line {line} of {number}: {line * number}\n" for line in range(60)) + "edited\n"
        project.write(f"part{number}.py", content)
        edited += len(content)
    RemoteExecutor.submit = counted  # type: ignore[method-assign]
    try:
        async with opened(folder, project, cluster.settings()) as (outpost, workspace):
            await one_job(outpost, workspace)
    finally:
        RemoteExecutor.submit = submit  # type: ignore[method-assign]
    return sent[0], edited


def import_ratio(folder: Path, samples: int = 60) -> tuple[float, float]:
    """Of `import outpost_lsp` and opening the service's module, with the executor configured and without; and how much
    the same ratio strays between two halves of the same.

    Processor time, because the machine has other work; in turn, because it has more of it at times.
    """
    remote, local, same = folder / "remote.toml", folder / "local.toml", folder / "same.toml"
    remote.write_text('[runs]\nexecutor = "ray"\n[runs.ray]\nurl = "http://127.0.0.1:9"\n')
    local.write_text("")
    same.write_text("")
    found: dict[Path, list[float]] = {remote: [], local: [], same: []}
    script = "import outpost_lsp, outpost_lsp.service.outpost, os\nfrom outpost_lsp.config.environment import user_settings\nuser_settings(os.environ)"
    for _ in range(samples):
        for file, times in found.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-c", script], env={**os.environ, "OUTPOST_CONFIG": str(file)}, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    middle = {file: statistics.median(times) for file, times in found.items()}
    return middle[remote] / middle[local], middle[same] / middle[local]


def told(text: str) -> None:
    """A figure, and how busy the machine was in the last minute."""
    print(f"{text} [load {os.getloadavg()[0]:.1f}]")


async def measure(folder: Path, jobs: int, job_s: float) -> None:
    project = make_repository(
        folder / "project",
        {
            f"part{number}.py": "".join(f"line {line} of {number}: {line * number}\n" for line in range(60))
            for number in range(20)
        },
    )
    with cluster_with_one_worker() as cluster:
        one = await all_jobs_s(cluster, folder, project, jobs, job_s)
        await asyncio.to_thread(add_worker, cluster, "w2")
        await asyncio.to_thread(cluster.until_free, SLOTS)
        # Both workers have the base before anything is measured.
        await all_jobs_s(cluster, folder, project, SLOTS, 1.0)
        two = await all_jobs_s(cluster, folder, project, jobs, job_s)
        told(f"{jobs} jobs of {job_s:g} s: {one:.1f} s on one worker, {two:.1f} s on two: {one / two:.2f} (goal 1.8)")
        there, here = await overhead_s(cluster, folder, project)
        told(f"one job: {there:.2f} s there, {here:.2f} s here: {there - here:.2f} s more (goal 1.0)")
        found = sorted(await latencies_ms(cluster, folder, project))
        p50, p99 = found[len(found) // 2], found[len(found) * 99 // 100]
        told(
            f"latency of {len(found)} events: p50 {p50:.0f} ms, p99 {p99:.0f} ms: {p99 / WINDOW_MS:.1f} windows (goal 3)"
        )
        here_rate, head_rate = await start_rates(cluster, folder, project)
        told(f"starts a second: {here_rate:.1f} on this machine; a head alone would carry {head_rate:.0f}")
        sent, edited = await bytes_sent(cluster, folder, project)
        told(f"delta {sent} bytes for {edited} edited: {sent / edited:.2f} (goal 1)")
    print_import_ratio(folder)


def print_import_ratio(folder: Path) -> None:
    ratio, astray = import_ratio(folder)
    told(f"import, executor ray to local: {ratio:.3f} (goal 1.02), local to local: {astray:.3f}")


def main() -> None:
    # What was measured is told at once, whatever becomes of the rest.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    arguments = argparse.ArgumentParser(description="the cost of runs on a cluster")
    arguments.add_argument("--jobs", type=int, default=16)
    arguments.add_argument("--job-s", type=float, default=20.0)
    arguments.add_argument("--import-only", action="store_true", help="what needs no cluster")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.import_only:
            print_import_ratio(Path(folder))
            return
        asyncio.run(measure(Path(folder), given.jobs, given.job_s))


if __name__ == "__main__":
    main()
