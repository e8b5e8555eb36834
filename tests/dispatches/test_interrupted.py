"""Going on after an agent was stopped in the middle of its calls (REL-11)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from outpost_lsp import Agent, Continuation, Harness, Tool
from outpost_lsp.dispatches.sandboxing import conversations_of
from outpost_lsp.worktrees.git import find_repository
from tests.harness.stage import Stage, calls, echo, provider, says

ANY: dict[str, Any] = {"type": "object"}

_KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from outpost_lsp import Agent, Harness, Layout, ModelResult, ScriptedModelProvider, Tool, WorktreeSandboxProvider, dispatch
from outpost_lsp.domain.message import ToolCallBlock

def die(value, context):
    os.kill(os.getpid(), signal.SIGKILL)

calls = tuple(ToolCallBlock(id=f"call-{number}", name=name, input={}) for number, name in ((1, "look"), (2, "die")))
tools = [Tool("look", "L.", {"type": "object"}, lambda value, context: "seen"), Tool("die", "D.", {"type": "object"}, die)]
model = ScriptedModelProvider([ModelResult(content=calls, stop_reason="tool-calls")])
place = WorktreeSandboxProvider(layout=Layout(Path(sys.argv[2]), Path(sys.argv[3])))
asyncio.run(dispatch(sys.argv[1], Agent("m", Harness(model, tools=tools)), "go", sandbox_provider=place))
"""


async def _conversation(stage: Stage) -> str:
    repository = await find_repository(stage.repository)
    [(one, _)] = conversations_of(stage.layout.for_repository(repository.common_dir)).ids()
    return one


@pytest.mark.parametrize("end", ["cancelled", "killed"])
async def test_REL_11_every_call_has_exactly_one_result_when_the_conversation_goes_on(stage: Stage, end: str) -> None:
    if end == "killed":
        arguments = [str(stage.repository), str(stage.layout.state), str(stage.layout.cache)]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _KILLED, *arguments, stdin=subprocess.DEVNULL
        )
        assert await process.wait() == -9
    else:
        waiting = asyncio.Event()

        async def wait(_value: Any, _context: Any) -> str:
            waiting.set()
            await asyncio.Event().wait()
            return ""

        model = provider(calls(("echo", {"text": "x"}), ("die", {})))
        task = asyncio.ensure_future(stage.run(Agent("m", Harness(model, tools=[echo, Tool("die", "D.", ANY, wait)]))))
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    conversation = await _conversation(stage)
    model = provider(says("once more"), says("and more"))
    for brief in ("go on", "again"):
        await stage.run(Agent("m", Harness(model)), brief, continuation=Continuation(conversation))
    for request in model.requests:
        blocks = [block for message in request.messages for block in message.content]
        results = [block for block in blocks if block.type == "tool-result"]
        asked = Counter(block.id for block in blocks if block.type == "tool-call")
        assert Counter(result.call_id for result in results) == asked == Counter({"call-1": 1, "call-2": 1})
        assert results[-1].content.startswith("Interrupted")
        assert results[-1].is_error
