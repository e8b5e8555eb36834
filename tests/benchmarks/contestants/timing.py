"""What the contestants of the agent benchmark share. Each is a program: `python NAME.py BASE_URL CASE...`.

A case is `steps-N`, `delegate-N`, or either followed by `xC` for C runs at once. For each one line of JSON comes out:
the CPU milliseconds per model request of this process, median of the repetitions, and the peak memory in MiB.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

Run = Callable[[str], Awaitable[str]]
FILE_TEXT = "".join(f"line {number:03d} of a file that has some words\n" for number in range(24))
"""What reading any file gives: about a kilobyte."""


def requests_of(model: str) -> int:
    kind, count = model.split("-")
    # A child makes two requests: one with a tool, one to answer.
    return int(count) + 1 if kind == "steps" else 2 + 2 * int(count)


async def _measure(run: Run, model: str, at_once: int) -> float:
    gc.collect()
    before = time.process_time()
    answers = await asyncio.gather(*(run(model) for _ in range(at_once)))
    spent = time.process_time() - before
    if set(answers) != {"done"}:
        raise SystemExit(f"wrong answer: {answers[0]!r}")
    return 1000 * spent / (requests_of(model) * at_once)


async def _main(make: Callable[[str], Awaitable[Run]]) -> None:
    run = await make(sys.argv[1])
    await _measure(run, "steps-3", 1)
    for case in sys.argv[2:]:
        model, _, at_once = case.partition("x")
        repetitions = 5 if requests_of(model) < 60 else 3
        costs = [await _measure(run, model, int(at_once or 1)) for _ in range(repetitions)]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"case": case, "cpu_ms": statistics.median(costs), "peak_mib": peak}), flush=True)


def main(make: Callable[[str], Awaitable[Run]]) -> None:
    asyncio.run(_main(make))
