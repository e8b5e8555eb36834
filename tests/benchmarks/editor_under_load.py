"""Hovers and no-op commands while runs stream: `python -m tests.benchmarks.editor_under_load [--runs 8] [--pace-ms 20]`.

The product carries eight runs of 200 streamed steps against a scripted service on loopback; beside it stands pygls as
it comes, with eight tasks that work 5 ms and sleep as long. Both are asked in turn, so that the machine is equally busy
for both. `--pace-ms 0` is a service that needs no time at all, which no service does.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.editor_client import EditorClient, percentile

HERE = Path(__file__).parent
STEPS = 200


def settings(base_url: str, runs: int) -> dict[str, object]:
    return {
        "providers": {
            "local": {"kind": "openai", "api": "chat", "baseUrl": f"{base_url}/v1", "apiKeyEnv": "BENCH_KEY"}
        },
        "models": {"small": {"provider": "local", "name": f"steps-{STEPS}"}},
        "defaultModel": "small",
        "agents": {"walker": {"tools": ["files"], "limits": {"maxSteps": STEPS + 2}}},
        "runs": {"concurrency": runs},
    }


def repository(folder: Path) -> Path:
    top = folder / "repository"
    top.mkdir()
    for number in range(16):
        (top / f"f{number}.txt").write_text("a line of a file\n" * 60)
    who = ["-c", "user.name=b", "-c", "user.email=b@localhost"]
    for arguments in (["init", "-q"], ["add", "-A"], [*who, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", *arguments], cwd=top, check=True)
    return top


def asked(client: EditorClient, hover: dict[str, object], command: tuple[str, object]) -> tuple[float, float]:
    began = time.perf_counter()
    client.request("textDocument/hover", hover)
    between = time.perf_counter()
    client.command(*command)
    return 1000 * (between - began), 1000 * (time.perf_counter() - between)


def measure(folder: Path, base_url: str, runs: int, samples: int) -> None:
    top = repository(folder)
    state = {"OUTPOST_STATE_DIR": str(folder / "state"), "OUTPOST_CACHE_DIR": str(folder / "cache"), "BENCH_KEY": "key"}
    ours = EditorClient([sys.executable, "-m", "outpost_lsp", "serve"], state)
    ours.initialize(top, settings(base_url, runs))
    theirs = EditorClient([sys.executable, str(HERE / "contestants" / "loaded_pygls.py"), "8", "5"])
    theirs.initialize(top)
    hover = {"textDocument": {"uri": (top / "f0.txt").as_uri()}, "position": {"line": 0, "character": 0}}
    for _ in range(runs):
        ours.command("outpost.dispatch", {"agent": "walker", "brief": "walk"})
    while len(live(ours)) < runs or any(run["status"] == "preparing" for run in live(ours)):
        time.sleep(0.1)
    product: list[tuple[float, float]] = []
    bare: list[tuple[float, float]] = []
    while len(product) < samples and len(live(ours)) == runs:
        for _ in range(10):
            product.append(asked(ours, hover, ("outpost.runs", {"limit": 1})))
            time.sleep(0.02)
        bare += [asked(theirs, hover, ("nothing", None)) for _ in range(3)]
    print(f"{runs} runs of {STEPS} steps, {len(product)} and {len(bare)} samples, load {os.getloadavg()[0]:.1f}")
    for name, mine, other in (
        ("hover", [one[0] for one in product], [one[0] for one in bare]),
        ("no-op command", [one[1] for one in product], [one[1] for one in bare]),
    ):
        ratio = percentile(mine, 0.5) / percentile(other, 0.5)
        print(
            f"{name}: p50 {percentile(mine, 0.5):.1f} ms, p99 {percentile(mine, 0.99):.1f} ms, longest {max(mine):.0f} ms; "
            f"pygls p50 {percentile(other, 0.5):.1f} ms, p99 {percentile(other, 0.99):.1f} ms; ratio {ratio:.2f}"
        )
    for client in (ours, theirs):
        client.process.kill()
        client.process.wait()


def live(client: EditorClient) -> list[dict[str, str]]:
    runs = client.command("outpost.runs", {})["runs"]
    return [run for run in runs if run["status"] in ("preparing", "running", "waiting")]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--samples", type=int, default=400)
    parser.add_argument("--pace-ms", type=float, default=20.0, help="what the service waits before each answer")
    options = parser.parse_args()
    command = [sys.executable, str(HERE / "scripted_service.py"), str(options.pace_ms)]
    service = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert service.stdout is not None
        with tempfile.TemporaryDirectory(prefix="outpost-benchmark-") as folder:
            measure(Path(folder), service.stdout.readline().strip(), options.runs, options.samples)
    finally:
        service.terminate()


if __name__ == "__main__":
    main()
