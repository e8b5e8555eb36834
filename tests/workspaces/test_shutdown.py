"""Ending a program that holds sandboxes (SHUT-01, SHUT-02), as a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.workspaces.conftest import Bench

PROGRAM = """
import asyncio, sys
from pathlib import Path
from outpost_lsp import BranchPolicy, Command, HostSandboxProvider, Layout, open_sandbox, open_workspace, run

state, cache, repository, how = sys.argv[1:]
layout = Layout(Path(state), Path(cache))

class Telling(HostSandboxProvider):
    async def acquire(self, context, /):
        lease = await super().acquire(context)
        release, name = lease.release, context.directory.name

        async def told():
            await release()
            print("released", name, flush=True)
            if how == "faulty":
                raise RuntimeError("no")

        lease.release = told
        return lease

async def hold(names):
    if not names:
        print("ready", flush=True)
        if how == "exit":
            sys.exit(5)
        await asyncio.Event().wait()
    async with open_sandbox(
        repository, branch=BranchPolicy("named", names[0]), label=names[0], layout=layout, sandbox_provider=Telling()
    ) as sandbox:
        if how == "closed" and names[0] == "second":
            await sandbox.close()
        await hold(names[1:])

run(hold(["first", "second"]))
"""


@contextmanager
def program(bench: Bench, how: str, *, until_ready: bool = True) -> Iterator[subprocess.Popen[str]]:
    arguments = [str(path) for path in (bench.layout.state, bench.layout.cache, bench.repository.path)]
    command = [sys.executable, "-c", PROGRAM, *arguments, how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            while until_ready and process.stdout.readline() not in {"ready\n", ""}:
                pass
            yield process
        finally:
            process.kill()


def released(output: str) -> list[str]:
    return [line.split()[1].partition("-")[0] for line in output.splitlines() if line.startswith("released")]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("how", ["orderly", "faulty"])
def test_SHUT_01_a_signal_closes_sandboxes_newest_first_and_keeps_their_worktrees(
    bench: Bench, number: signal.Signals, status: int, how: str
) -> None:
    with program(bench, how) as process:
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == status
        assert released(output) == ["second", "first"]
    assert len(bench.worktrees()) == 3
    assert bench.held_locks() == []


def test_SHUT_01_a_plain_exit_closes_them_too_and_keeps_its_status(bench: Bench) -> None:
    with program(bench, "exit", until_ready=False) as process:
        output, _ = process.communicate(timeout=60)
        assert (process.returncode, released(output)) == (5, ["second", "first"])
    assert bench.held_locks() == []


def test_SHUT_02_what_was_closed_already_is_not_closed_again(bench: Bench) -> None:
    """It said so before the program was ready, and never again."""
    with program(bench, "closed") as process:
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
        assert (process.returncode, released(output)) == (143, ["first"])


SAVING = """
import asyncio, json, sys
from pathlib import Path
from outpost_lsp import (Agent, BranchPolicy, Harness, HostSandboxProvider, Layout, ModelResult, ScriptedModelProvider, Tool,
    dispatch, run)
from outpost_lsp.domain.message import ToolCallBlock

state, cache, repository = sys.argv[1:]
layout = Layout(Path(state), Path(cache))

class Telling(HostSandboxProvider):
    async def acquire(self, context, /):
        lease = await super().acquire(context)
        release = lease.release

        async def told():
            locks = [path.read_text() for path in layout_locks.glob("*.json")]
            print(json.dumps(any("harness-conversation" in text for text in locks)), flush=True)
            await release()

        layout_locks = next((Path(state) / "repositories").iterdir()) / "locks"
        lease.release = told
        return lease

async def wait(_value, _context):
    print("ready", flush=True)
    await asyncio.Event().wait()

call = ModelResult(text="", content=(ToolCallBlock(id="1", name="wait", input={}),), stop_reason="tool-calls")
agent = Agent("m", Harness(ScriptedModelProvider([call]), tools=[Tool("wait", "Waits.", {"type": "object"}, wait)]))
run(dispatch(repository, agent, "go", branch=BranchPolicy("named", "work"), layout=layout, sandbox_provider=Telling()))
"""


def test_SHUT_02_a_conversation_is_saved_and_free_before_the_sandbox_under_it_goes(bench: Bench) -> None:
    arguments = [str(path) for path in (bench.layout.state, bench.layout.cache, bench.repository.path)]
    with subprocess.Popen(
        [sys.executable, "-c", SAVING, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 143, errors
    assert json.loads(output) is False
    (transcript,) = Path(bench.own.conversations).glob("*.jsonl")
    kinds = [json.loads(line)["type"] for line in transcript.read_text().splitlines()]
    assert kinds[0] == "session"
