"""What a step costs beside the plain loop and a peer: `python -m tests.benchmarks.agent_loop [--peers PYTHON] [--rounds N]`.

CPU milliseconds per model request, streamed, against a scripted service on loopback. Contestants are fresh processes,
their order is rotated, and ratios are taken within a round; the median over rounds is printed. Where the system allows
it they have one core and the service another: what wandering between cores costs is up to the machine. `--peers` names a Python
with pydantic-ai and openai-agents (`pip install 'pydantic-ai-slim[openai]' openai-agents`). Figures of a busy machine are ratios at best.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
CASES = ("steps-1", "steps-10", "steps-50", "steps-200", "steps-50x8", "delegate-8")
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def contestants(peers: str | None) -> dict[str, tuple[str, str, dict[str, str]]]:
    found = {
        "plain httpx": (sys.executable, "plain_httpx.py", {}),
        "plain httpx + route": (sys.executable, "plain_httpx.py", {"ROUTED": "1"}),
        "outpost": (sys.executable, "outpost.py", {}),
        "outpost, no journal": (sys.executable, "outpost.py", {"NO_JOURNAL": "1"}),
        "outpost + routing": (sys.executable, "outpost.py", {"ROUTED": "1"}),
        "outpost + System One": (sys.executable, "outpost.py", {"ROUTED": "http"}),
        "outpost + everything": (sys.executable, "outpost.py", {"ROUTED": "1", "EVERYTHING": "1"}),
    }
    if peers is not None:
        found["pydantic-ai"] = (peers, "peer_pydantic_ai.py", {})
        found["openai-agents"] = (peers, "peer_openai_agents.py", {})
    return found


def keep_to(number: int) -> None:
    """Let what is started from now on run on one of the cores that this process was given."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {CORES[number]})


def measure(base_url: str, contestant: tuple[str, str, dict[str, str]]) -> dict[str, dict[str, float]]:
    python, script, environment = contestant
    done = subprocess.run(
        [python, str(HERE / "contestants" / script), base_url, *CASES],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{script} failed:\n{done.stderr[-3000:]}")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {row["case"]: row for row in rows}


def table(rounds: list[dict[str, dict[str, dict[str, float]]]]) -> str:
    names = list(rounds[0])
    base = "pydantic-ai" if "pydantic-ai" in names else "plain httpx"
    lines = [f"CPU ms per request (ratio to {base})", "", "| contestant | " + " | ".join(CASES) + " | peak MiB |"]
    lines.append("|" + "---|" * (len(CASES) + 2))
    for name in names:
        cells = []
        for case in CASES:
            cost = statistics.median(one[name][case]["cpu_ms"] for one in rounds)
            ratio = statistics.median(one[name][case]["cpu_ms"] / one[base][case]["cpu_ms"] for one in rounds)
            cells.append(f"{cost:.2f} ({ratio:.2f})")
        peak = max(row["peak_mib"] for one in rounds for row in one[name].values())
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {peak:.0f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peers", help="a Python that has pydantic-ai")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    keep_to(-1)
    service = subprocess.Popen([sys.executable, str(HERE / "scripted_service.py")], stdout=subprocess.PIPE, text=True)
    keep_to(0)
    try:
        assert service.stdout is not None
        base_url = service.stdout.readline().strip()
        everyone = contestants(asked.peers)
        rounds = []
        for number in range(asked.rounds):
            order = list(everyone)
            order = order[number % len(order) :] + order[: number % len(order)]
            results = {name: measure(base_url, everyone[name]) for name in order}
            rounds.append({name: results[name] for name in everyone})
        print(table(rounds))
    finally:
        service.terminate()


if __name__ == "__main__":
    main()
