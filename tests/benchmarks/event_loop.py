"""How long the server holds its event loop, and what an editor feels: `python -m tests.benchmarks.event_loop`.

Two jobs: eight streaming runs of 150 steps at once, with hovers and commands meanwhile; and an offline review of a
workspace of `--files` files. Printed are the slices of work on the loop (processor time of its thread, the collector's
pauses included), the most memory that the server held, and the waits of the requests. Goals: 1 ms at the 99.9th percentile, none over 50 ms; requests with a
median of 10 ms and 40 ms at the 99th percentile. `--slow` names where slices over 1 ms ended.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.benchmarks.editor_client import EditorClient, percentile

HERE = Path(__file__).parent
RUNS, STEPS = 8, 150
_PAUSE_S = 0.005
_SHOWN_PLACES = 20


def repository(folder: Path, files: int) -> Path:
    """A repository with files of the standard library, one of them changed."""
    top = folder / "repository"
    top.mkdir(parents=True)
    library = Path(sysconfig.get_paths()["stdlib"])
    found = [
        path for path in sorted(library.rglob("*.py")) if "site-packages" not in path.parts and "test" not in str(path)
    ]
    for path in [path for path in found if path.stat().st_size < 60_000][:files]:
        target = top / path.relative_to(library)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    for number in range(16):
        (top / f"f{number}.txt").write_text(f"file {number}\n" * 60)
    identity = ["-c", "user.name=b", "-c", "user.email=b@localhost", "-c", "commit.gpgsign=false"]
    for arguments in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", *arguments], cwd=top, check=True)
    return top


class Watched:
    """The measured server, with one repository open."""

    def __init__(self, folder: Path, files: int, settings: dict[str, Any]) -> None:
        self.slices = folder / "slices.json"
        top = repository(folder, files)
        state = {name: str(folder / name) for name in ("state", "cache")}
        self.client = EditorClient(
            [sys.executable, str(HERE / "contestants" / "measured_server.py"), "serve"],
            {
                "SLICES": str(self.slices),
                "OUTPOST_STATE_DIR": state["state"],
                "OUTPOST_CACHE_DIR": state["cache"],
                "OUTPOST_CONFIG": os.devnull,
            },
        )
        self.client.initialize(top, settings)
        self.document = {"uri": (top / "f0.txt").as_uri()}
        text = {**self.document, "languageId": "text", "version": 1, "text": "file\n"}
        self.client.send("textDocument/didOpen", {"textDocument": text})
        self.client.command("outpost.agents")
        self.waits: dict[str, list[float]] = {"hover": [], "no-op command": []}

    def begin(self) -> None:
        self.client.process.send_signal(signal.SIGUSR1)
        self.began = time.perf_counter()

    def ask(self) -> None:
        """One hover and one command that does nothing."""
        place = {"textDocument": self.document, "position": {"line": 0, "character": 0}}
        self._timed("hover", lambda: self.client.request("textDocument/hover", place))
        self._timed("no-op command", lambda: self.client.command("outpost.cancel", {"runId": "none"}))

    def _timed(self, name: str, ask: Callable[[], Any]) -> None:
        began = time.perf_counter()
        ask()
        self.waits[name].append(1000 * (time.perf_counter() - began))

    def follow(self, run_ids: list[str]) -> dict[str, str]:
        """Ask now and then until the runs have ended; their ends."""
        while True:
            for _ in range(20):
                self.ask()
                time.sleep(_PAUSE_S)
            listed = self.client.command("outpost.runs", {"limit": 50})["runs"]
            ended = {run["id"]: run["status"] for run in listed if run["id"] in run_ids and run.get("finishedAt")}
            if len(ended) == len(run_ids):
                return ended

    def told(self, title: str, *, slow: bool) -> None:
        took = time.perf_counter() - self.began
        status = Path(f"/proc/{self.client.process.pid}/status").read_text()
        memory_mib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024
        self.client.close()
        measured = json.loads(self.slices.read_text())
        cpu = [ns / 1e6 for ns in measured["cpu"]]
        pauses = [ns / 1e6 for ns in measured["collections"]] or [0.0]
        print(f"{title}: {took:.1f} s, load {os.getloadavg()[0]:.1f}")
        print(
            f"  slices: {len(cpu):,}, p50 {percentile(cpu, 0.5):.3f}, p99 {percentile(cpu, 0.99):.2f}, "
            f"p99.9 {percentile(cpu, 0.999):.2f}, longest {max(cpu):.1f} ms; over 50 ms: {sum(one > 50 for one in cpu)}"
        )
        print(
            f"  collector: {len(pauses)} times, {sum(one > 0.5 for one in pauses)} over 0.5 ms, "
            f"longest {max(pauses):.1f} ms; most memory of the server {memory_mib:.0f} MiB"
        )
        for name, waits in self.waits.items():
            print(
                f"  {name}: {len(waits)}, p50 {percentile(waits, 0.5):.1f}, p99 {percentile(waits, 0.99):.1f}, "
                f"longest {max(waits):.0f} ms"
            )
        if slow:
            by_place: dict[str, list[float]] = {}
            for ms, label in measured["slow"]:
                by_place.setdefault(label, []).append(ms)
            for label, found in sorted(by_place.items(), key=lambda one: -len(one[1]))[:_SHOWN_PLACES]:
                print(f"    {len(found)} over 1 ms, longest {max(found):.1f}: {label}")


def eight_runs(folder: Path, *, slow: bool) -> None:
    service = subprocess.Popen([sys.executable, str(HERE / "scripted_service.py")], stdout=subprocess.PIPE, text=True)
    try:
        assert service.stdout is not None
        base_url = service.stdout.readline().strip()
        settings = {
            "providers": {"scripted": {"kind": "openai", "api": "chat", "baseUrl": f"{base_url}/v1", "apiKeyEnv": ""}},
            "models": {"m": {"provider": "scripted", "name": f"steps-{STEPS}"}},
            "agents": {"worker": {"model": "m", "tools": ["files"], "limits": {"max_steps": STEPS + 10}}},
            "runs": {"concurrency": RUNS},
        }
        watched = Watched(folder, 20, settings)
        watched.begin()
        started = [watched.client.command("outpost.dispatch", {"agent": "worker", "brief": "go"}) for _ in range(RUNS)]
        ended = watched.follow([one["run"]["id"] for one in started])
        assert set(ended.values()) == {"succeeded"}, ended
        watched.told(f"{RUNS} runs of {STEPS} steps", slow=slow)
    finally:
        service.terminate()
        service.wait()


def offline_review(folder: Path, files: int, *, slow: bool) -> None:
    watched = Watched(folder, files, {})
    watched.begin()
    started = watched.client.command("outpost.review", {"scope": "workspace"})
    ended = watched.follow([started["run"]["id"]])
    assert set(ended.values()) == {"succeeded"}, ended
    watched.told(f"offline review of {files} files", slow=slow)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--files", type=int, default=400)
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--only", choices=("runs", "review"))
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="outpost-benchmark-") as folder:
        if asked.only != "review":
            eight_runs(Path(folder) / "runs", slow=asked.slow)
        if asked.only != "runs":
            offline_review(Path(folder) / "review", asked.files, slow=asked.slow)


if __name__ == "__main__":
    main()
