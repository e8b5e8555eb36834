"""Several dispatches in one sandbox (SBX and DISP-15 rules)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from outpost_lsp import Agent, Harness, OutpostError, Tool, open_sandbox
from outpost_lsp.dispatches.sandboxing import WorktreeSandboxProvider
from outpost_lsp.domain.sandbox import Command
from tests.harness.stage import Stage, calls, provider, says


async def test_SBX_06_07_DISP_10_agents_take_turns_in_one_sandbox_and_see_each_others_work(stage: Stage) -> None:
    async def write(_value: Any, context: Any) -> str:
        await context.sandbox.files.write("a.txt", b"first")
        return "written"

    writer = Agent("m", Harness(provider(calls(("write", {})), says("one")), tools=[Tool("write", "W.", {"type": "object"}, write)]))  # fmt: skip
    async with open_sandbox(
        stage.repository, agent=writer, sandbox_provider=WorktreeSandboxProvider(layout=stage.layout)
    ) as sandbox:
        first = await sandbox.dispatch("write it")
        result = await sandbox.command(Command(executable="cat", arguments=["a.txt"]))
        assert (result.status, result.stdout) == (0, "first")
        other = Agent("m", Harness(provider(says("two"), says("three"))))
        second = await sandbox.dispatch("look", agent=other)
        third = await sandbox.resume(second.conversation or "", "more", agent=other)
        assert (first.text, second.text, third.text) == ("one", "two", "three")
        assert third.conversation == second.conversation
    async with open_sandbox(stage.repository, sandbox_provider=WorktreeSandboxProvider(layout=stage.layout)) as bare:
        with pytest.raises(OutpostError, match="agent"):
            await bare.dispatch("go")


async def test_SBX_02_a_busy_sandbox_refuses_at_once_and_the_running_dispatch_is_not_disturbed(stage: Stage) -> None:
    started, release = asyncio.Event(), asyncio.Event()

    async def wait(_value: Any, _context: Any) -> str:
        started.set()
        await release.wait()
        return "waited"

    subject = Agent("m", Harness(provider(calls(("wait", {})), says("done")), tools=[Tool("wait", "W.", {"type": "object"}, wait)]))  # fmt: skip
    async with open_sandbox(
        stage.repository, agent=subject, sandbox_provider=WorktreeSandboxProvider(layout=stage.layout)
    ) as sandbox:
        running = asyncio.ensure_future(sandbox.dispatch("go"))
        await started.wait()
        for attempt in (sandbox.dispatch("again"), sandbox.command(Command(executable="true"))):
            with pytest.raises(OutpostError) as caught:
                await attempt
            assert caught.value.code == "configuration"
        release.set()
        assert (await running).text == "done"


async def test_DISP_15_a_cancelled_dispatch_leaves_the_sandbox_usable(stage: Stage) -> None:
    started = asyncio.Event()

    async def wait(_value: Any, _context: Any) -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    model = provider(calls(("wait", {})), says("done"))
    subject = Agent("m", Harness(model, tools=[Tool("wait", "W.", {"type": "object"}, wait)]))
    async with open_sandbox(
        stage.repository, agent=subject, sandbox_provider=WorktreeSandboxProvider(layout=stage.layout)
    ) as sandbox:
        running = asyncio.ensure_future(sandbox.dispatch("go"))
        await started.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert (await sandbox.dispatch("again")).text == "done"
