"""How long a dispatch holds the event loop over what is large: `python -m tests.benchmarks.loop_slices`.

Three cases, each with hooks in all phases, permissions, a journal, an observer and both context strategies in place:
tool results of 2 MB (from a function, and from a command that prints them), a conversation that goes on after 1,000
messages, and answers of 10,000 stream events in all three wire forms. Printed are the slices of work on the loop, in
processor time of its thread. Goals: none over 50 ms, 1 ms at the 99.9th percentile. `--slow` names what took over 1 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import asyncio.events
import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from outpost_lsp import (
    Agent,
    AnthropicModelProvider,
    Continuation,
    Harness,
    Hook,
    Limits,
    ModelSpec,
    OpenAIModelProvider,
    PermissionRule,
    Permissions,
    Tool,
    WorktreeSandboxProvider,
    dispatch,
    shell_tools,
    summarize_history,
    truncate_tool_results,
)
from outpost_lsp.domain.model import ModelProvider
from outpost_lsp.lsp.front import calm_the_collector
from outpost_lsp.storage.layout import Layout
from tests.benchmarks.contestants.measured_server import label_of
from tests.benchmarks.editor_client import percentile

_LARGE = "".join(f"line {number:06d} of a result that has some words in it\n" for number in range(40_000))[:2_000_000]
_PHASES = ("session-start", "before-model", "after-model", "before-tool", "after-tool", "stop")
_EVENTS = 10_000
_SHOWN = 12
_LABELLED_NS = 1_000_000


class Slices:
    """Counts what each callback of the loop takes, in the thread that made this. `begin` counts anew."""

    def __init__(self) -> None:
        run, own = asyncio.events.Handle._run, threading.get_ident()
        self.taken: list[tuple[int, str]] = []

        def measured(handle: Any) -> None:
            if threading.get_ident() != own:
                run(handle)
                return
            began = time.thread_time_ns()
            run(handle)
            took = time.thread_time_ns() - began
            self.taken.append((took, label_of(handle) if took > _LABELLED_NS else ""))

        asyncio.events.Handle._run = measured  # type: ignore[method-assign]

    async def begin(self) -> None:
        gc.collect()
        calm_the_collector()  # As the server has it.
        await asyncio.sleep(0)
        self.taken.clear()

    def told(self, title: str, *, slow: bool) -> None:
        took = [ns / 1e6 for ns, _ in self.taken]
        print(
            f"{title}: {len(took):,} slices, p50 {percentile(took, 0.5):.3f}, p99 {percentile(took, 0.99):.2f}, p99.9 "
            f"{percentile(took, 0.999):.2f}, longest {max(took):.1f} ms; over 1 ms: {sum(one > 1 for one in took)}, "
            f"over 50 ms: {sum(one > 50 for one in took)}; load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
        for ns, what in sorted(self.taken, reverse=True)[: _SHOWN if slow else 0]:
            print(f"  {ns / 1e6:.2f} ms  {what[:200]}")


class Bench:
    """A repository, and dispatches into it with everything in place."""

    def __init__(self, folder: Path) -> None:
        self.repository = folder / "repository"
        self.repository.mkdir()
        (self.repository / "a.txt").write_text("a\n")
        identity = ["-c", "user.name=b", "-c", "user.email=b@localhost", "-c", "commit.gpgsign=false"]
        for arguments in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-q", "-m", "first"]):
            subprocess.run(["git", *arguments], cwd=self.repository, check=True)
        self.sandboxes = WorktreeSandboxProvider(
            layout=Layout(folder / "state", folder / "cache"), environment={"PATH": os.environ["PATH"]}
        )

    async def run(self, provider: ModelProvider, continuation: Continuation | None = None) -> Any:
        large = Tool("large", "Gives 2 MB.", {"type": "object"}, lambda _value, _context: _LARGE, read_only=True)
        small = Tool("small", "Gives a word.", {"type": "object"}, lambda _value, _context: "word", read_only=True)
        harness = Harness(
            provider,
            tools=[large, small, shell_tools()],
            limits=Limits(max_steps=2_000),
            context=[truncate_tool_results(), summarize_history(trigger_characters=10**9)],
            hooks=[Hook(phase, lambda _given: None) for phase in _PHASES],
            permissions=Permissions([PermissionRule("deny", commands=["rm *"]), PermissionRule("allow")], "deny"),
        )
        agent = Agent(ModelSpec("m", max_output_tokens=1_000), harness)
        return await dispatch(
            self.repository,
            agent,
            "go",
            sandbox_provider=self.sandboxes,
            observe=lambda _event: None,
            continuation=continuation,
        )


@asynccontextmanager
async def scripted(answers: Sequence[Any]) -> AsyncIterator[str]:
    """A scripted service in a process of its own; its base URL."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as script:
        json.dump(answers, script)
        script.flush()
        arguments = ["-m", "tests.support.model_server", "--port", "0", "--script", script.name]
        service = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)
        try:
            assert service.stdout is not None
            yield service.stdout.readline().split()[-1]
        finally:
            service.terminate()
            service.wait()


async def _large_results(bench: Bench, slices: Slices, told: Callable[[str], None]) -> None:
    command = {"command": f"yes 'a line of what a command prints' | head -c {len(_LARGE)}"}
    calls = [{"name": "large", "input": {}}, {"name": "shell", "input": command}]
    small = {"calls": [{"name": "small", "input": {}}]}
    answers = [*[small] * 49, *({"calls": [call]} for call in calls), *[small] * 49, "done"]
    async with scripted(answers) as url:
        await slices.begin()
        provider = OpenAIModelProvider(url, None, "chat")
        await bench.run(provider)
        told("2 tool results of 2 MB in 100 steps")
        await provider.aclose()


async def _long_history(bench: Bench, slices: Slices, told: Callable[[str], None]) -> None:
    step = {"calls": [{"name": "small", "input": {}}]}
    async with scripted([*[step] * 500, "done", *[step] * 100, "done"]) as url:
        provider = OpenAIModelProvider(url, None, "chat")
        await slices.begin()
        first = await bench.run(provider)
        told("500 steps, up to 1,000 messages")
        await slices.begin()
        await bench.run(provider, Continuation(first.conversation))
        told("100 steps after 1,000 messages")
        await provider.aclose()


async def _many_events(bench: Bench, slices: Slices, told: Callable[[str], None]) -> None:
    arguments = ["--serve", "--events", str(_EVENTS)]
    service = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.stream_events", *arguments], stdout=subprocess.PIPE, text=True
    )
    try:
        assert service.stdout is not None
        url = f"http://127.0.0.1:{int(service.stdout.readline())}/v1"
        providers = {
            "chat": OpenAIModelProvider(url, None, "chat"),
            "responses": OpenAIModelProvider(url, None, "responses"),
            "messages": AnthropicModelProvider(url, lambda: "key"),
        }
        for name, provider in providers.items():
            await slices.begin()
            await bench.run(provider)
            told(f"{_EVENTS:,} events, {name}")
            await provider.aclose()
    finally:
        service.terminate()
        service.wait()


async def _measure(*, slow: bool) -> None:
    slices = Slices()
    with tempfile.TemporaryDirectory(prefix="outpost-benchmark-") as folder:
        bench = Bench(Path(folder))
        async with scripted(["done"]) as url:  # What is imported at the first use is imported now.
            provider = OpenAIModelProvider(url, None, "chat")
            await bench.run(provider)
            await provider.aclose()
        for case in (_large_results, _long_history, _many_events):
            await case(bench, slices, lambda title: slices.told(title, slow=slow))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--slow", action="store_true", help="name the longest slices of each case")
    slow = parser.parse_args().slow
    if slow:
        # A task of the interpreter's own does not tell which one it is.
        asyncio.Task = asyncio.tasks.Task = asyncio.tasks._PyTask  # type: ignore[attr-defined,misc]
    asyncio.run(_measure(slow=slow))


if __name__ == "__main__":
    main()
