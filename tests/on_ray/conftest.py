"""A Ray cluster on loopback: a head that carries the face, two workers, started by the product's own commands.

Collected by `run.sh` only, which gives it a network of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from outpost_lsp.service.outpost import Outpost
from outpost_lsp.storage.layout import Layout
from tests.cluster.conftest import Office
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository, make_repository

TOKEN = "token-of-the-ray-tests-1"
OTHER_TOKEN = "token-of-the-ray-tests-2"
CANARY = "canary-of-the-worker-4711"
WORKERS = ("w1", "w2")
SLOTS = 8
SHELLS = 4
"""Places for runs with commands: on the first worker only."""
PATIENCE_S = 180.0
PROGRAMS = Path(sys.executable).parent

collect_ignore_glob = [] if os.environ.get("OUTPOST_RAY_TESTS") == "1" else ["*"]


@dataclass
class Cluster:
    """Processes of a running cluster, and where its face answers."""

    folder: Path
    port: int = 8443
    operator: Path = field(init=False)
    model: ModelServer = field(init=False)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.operator = self.folder / "operator.toml"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def write_operator(self) -> None:
        """The configuration of the workers' operator."""
        self.operator.write_text(
            'default_model = "main"\n[sandbox]\nshell = "confined"\n'
            f'[providers.loopback]\nkind = "openai"\nbase_url = "{self.model.base_url}"\napi = "chat"\n'
            'api_key_env = "CANARY_KEY"\nmax_retries = 0\n[models.main]\nprovider = "loopback"\nname = "small"\n'
        )

    def start(self, name: str, *arguments: str, **environment: str) -> None:
        (self.folder / f"{name}.log").write_bytes(b"")
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [str(PROGRAMS / arguments[0]), *arguments[1:]],
                stdout=log,
                stderr=log,
                env={**os.environ, **environment},
                start_new_session=True,
            )

    def start_head(self) -> None:
        self.start(
            "head", "ray", "start", "--head", "--node-ip-address=127.0.0.1", "--port=6379", "--num-cpus=1",
            "--resources", json.dumps({"outpost_face": 1}), "--include-dashboard=false", "--disable-usage-stats",
            f"--temp-dir={self.folder / 'ray'}", "--block",
            # So that a machine that falls silent is missed sooner than in a minute (docs/cluster.md).
            RAY_health_check_period_ms="1000", RAY_health_check_timeout_ms="2000",
            RAY_health_check_failure_threshold="3",
        )  # fmt: skip
        self.until_log("head", "Ray runtime started")

    def start_worker(self, name: str) -> None:
        self.start(
            name, "outpost-lsp", "worker", "--ray", "127.0.0.1:6379", "--slots", "4",
            *(("--shell",) if name == WORKERS[0] else ()),
            "--node-ip-address", "127.0.0.1", "--directory", str(self.folder / name),
            OUTPOST_CONFIG=str(self.operator), CANARY_KEY=CANARY,
        )  # fmt: skip

    def start_face(self) -> None:
        tokens = self.folder / "tokens"
        tokens.write_text(f"{TOKEN}\n{OTHER_TOKEN}\n")
        self.start(
            "face", "outpost-lsp", "face", "--ray", "127.0.0.1:6379", "--listen", f"127.0.0.1:{self.port}",
            "--token-file", str(tokens), "--directory", str(self.folder / "kept"),
        )  # fmt: skip

    def until_face(self) -> None:
        self.until_log("face", "the face answers")

    def until_log(self, name: str, text: str) -> None:
        log = self.folder / f"{name}.log"
        ends_at = time.monotonic() + PATIENCE_S
        while text not in log.read_text("utf-8", "replace"):
            process = self.processes[name]
            if process.poll() is not None or time.monotonic() > ends_at:
                raise AssertionError(f"{name} did not start: {log.read_text('utf-8', 'replace')[-4000:]}")
            time.sleep(0.1)

    def health(self) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {TOKEN}", "Outpost-Protocol": "1"}
        with urllib.request.urlopen(urllib.request.Request(f"{self.url}/v1/health", headers=headers)) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def answers(self) -> bool:
        """Whether the face does."""
        try:
            return bool(self.health())
        except OSError:
            return False

    def node_of(self, pid: int) -> str:
        """The name of the node that a process of Ray's belongs to; empty for one that is gone."""
        try:
            # The node's own program is between the two.
            started = parent(parent(pid))
        except OSError:
            return ""
        return next((name for name, process in self.processes.items() if process.pid == started), "")

    def until_free(self, slots: int) -> None:
        ends_at = time.monotonic() + PATIENCE_S
        while self.health()["free"] != slots:
            assert time.monotonic() < ends_at, self.health()
            time.sleep(0.2)

    def scripted(self, *answers: Any) -> None:
        """What the model says from now on; what was asked before is forgotten."""
        self.model.requests.clear()
        self.model._answers[:] = list(answers)
        self.model._used.clear()

    def stop(self) -> None:
        """End what was started here; what else belongs to the cluster ends with the namespace of its processes."""
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def settings(self, *, verbose: bool = False, **more: Any) -> dict[str, Any]:
        ray = {"url": self.url, "tokenEnv": "OUTPOST_RAY_TOKEN", **more}
        return {
            "runs": {"executor": "ray", "ray": ray, "verbose": verbose},
            "defaultModel": "main",
            "providers": {"loopback": {"kind": "openai", "baseUrl": "http://127.0.0.1:9/v1", "apiKeyEnv": ""}},
            "models": {"main": {"provider": "loopback", "name": "small"}},
        }


def processes(mark: str) -> list[int]:
    """The living processes whose command line holds a text."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"):
                found.append(int(folder.name))
    return [pid for pid in found if pid != os.getpid()]


def running(command: str) -> list[int]:
    """The living processes that are this very command, not those that are about to start it."""
    return [pid for pid in processes(command) if _command(pid) == command]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return ""


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])


async def eventually(condition: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
    """Wait for a condition that other processes bring about."""
    with anyio.fail_after(within_s):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.02)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # The sockets of Ray need a short path.
    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    running = Cluster(folder)
    with ModelServer([]) as model:
        running.model = model
        running.write_operator()
        try:
            running.start_head()
            running.start_face()
            # Until then there is but one node that it can take for its own.
            running.until_log("face", "Connected to Ray cluster")
            for name in WORKERS:
                # One after the other: two that start at once, at one address, take each other for themselves.
                running.start_worker(name)
                running.until_log(name, "Ray runtime started")
            running.until_face()
            running.until_free(SLOTS)
            yield running
        finally:
            running.stop()
            subprocess.run(["rm", "-rf", str(folder)], check=False)


@pytest.fixture
async def office(tmp_path: Path, private_home: Path) -> AsyncIterator[Office]:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(private_home),
        "OUTPOST_CONFIG": os.devnull,
        "OUTPOST_RAY_TOKEN": TOKEN,
    }
    async with Outpost(Layout(state=tmp_path / "state", cache=tmp_path / "cache"), environment) as outpost:
        yield Office(outpost, environment)


@pytest.fixture
def project(tmp_path: Path) -> RealRepository:
    repository = make_repository(tmp_path / "project", {"a.py": "import math\n\nprint(math.pi)\n", "b.py": "x = 1\n"})
    repository.write("a.py", "\nprint(math.pi)\n")
    return repository
