"""How long a long run takes to replay, and in how much memory: `python -m tests.benchmarks.replay_speed [STEPS]`.

A routed run is recorded by a scripted model and replayed from its journal, first a tenth of it and then all. The CPU
time of the whole and the peak of the memory that Python allocated while replaying, over what reading the journal holds, are printed.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Any

from outpost_lsp import (
    Agent,
    Choice,
    Decision,
    Harness,
    Journal,
    Limits,
    ModelRouting,
    ReplayAgent,
    RulesDecisionProvider,
    ScriptedModelProvider,
    dispatch,
    read_journal,
    tool,
)
from outpost_lsp.dispatches.sandboxing import WorktreeSandboxProvider
from outpost_lsp.storage.layout import Layout
from tests.harness.stage import calls, make_repository, says


@tool(read_only=True)
def look(number: int) -> str:
    """Look."""
    return f"{number}: " + "a line that says something\n" * 40


async def record(folder: Path, layout: Layout, steps: int) -> Path:
    replies: list[Any] = [calls(("look", {"number": number})) for number in range(steps - 1)]
    routing = ModelRouting(
        provider=RulesDecisionProvider(),
        model="rules",
        decision=Decision({"route": Choice("Which?", {"fast": "routine", "deep": "hard"})}),
        question="route",
        models={"fast": "scripted", "deep": "scripted"},
        fallback="deep",
        min_confidence=0,
    )
    harness = Harness(
        ScriptedModelProvider([*replies, says("done")]),
        tools=[look],
        limits=Limits(max_steps=steps + 1),
        routing=routing,
    )
    journal = folder.parent / f"{steps}.jsonl"
    provider = WorktreeSandboxProvider(layout=layout)
    await dispatch(folder, Agent("scripted", harness), "go", sandbox_provider=provider, journal=Journal(path=journal))
    return journal


async def replay(folder: Path, layout: Layout, journal: Path) -> tuple[float, int, float]:
    """CPU seconds, events, and the peak in bytes for each event above what was held when the replay began."""
    records = list(read_journal(journal))
    seen = 0

    def count(_event: Any) -> None:
        nonlocal seen
        seen += 1

    async def once() -> None:
        agent = ReplayAgent(records)
        provider = WorktreeSandboxProvider(layout=layout)
        await dispatch(folder, agent, "go", sandbox_provider=provider, journal=False, observe=count)

    began = time.process_time()
    await once()
    took, events = time.process_time() - began, seen
    tracemalloc.start()
    await once()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return took, events, peak / events


async def main(steps: int) -> None:
    with tempfile.TemporaryDirectory(prefix="outpost-replay-") as scratch:
        root = Path(scratch)
        folder, layout = make_repository(root / "repository"), Layout(root / "state", root / "cache")
        for size in (steps // 10, steps):
            journal = await record(folder, layout, size)
            began = time.process_time()
            read = sum(1 for _ in read_journal(journal))
            reading = time.process_time() - began
            took, events, peak = await replay(folder, layout, journal)
            print(
                f"{size} steps: {read} records read in {reading:.2f} s, {events} events replayed in {took:.2f} s of CPU, "
                f"peak {peak:.0f} bytes an event"
            )


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000))
