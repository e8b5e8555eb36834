"""The product, its dispatch path whole: snapshot, worktree, transcript, journal, events, budgets.

With `ROUTED=1` a routing chooses the model of each step, by the rules; with `ROUTED=http` by asking a service. With
`NO_JOURNAL=1` there is no journal. With `EVERYTHING=1` there are hooks in all six phases,
permissions on paths, both context strategies, a watchdog, a hub with a sink, and masked keys.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import timing


async def make(base_url: str) -> timing.Run:
    from outpost_lsp import (
        Agent,
        Choice,
        Decision,
        Harness,
        Hook,
        Limits,
        ModelRouting,
        ObservationHub,
        OpenAIModelProvider,
        PermissionRule,
        Permissions,
        RulesDecisionProvider,
        Subagent,
        SystemOneDecisionProvider,
        Tool,
        Watchdog,
        dispatch,
        summarize_history,
        truncate_tool_results,
    )
    from outpost_lsp.dispatches.sandboxing import WorktreeSandboxProvider
    from outpost_lsp.storage.layout import Layout

    folder = Path(tempfile.mkdtemp(prefix="outpost-benchmark-"))
    repository = folder / "repository"
    repository.mkdir()
    (repository / "a.txt").write_text("a\n")
    commit = ["-c", "user.name=b", "-c", "user.email=b@localhost", "commit", "-q", "-m", "first"]
    for arguments in (["init", "-q"], ["add", "-A"], commit):
        subprocess.run(["git", *arguments], cwd=repository, check=True)
    layout = Layout(folder / "state", folder / "cache")
    provider = OpenAIModelProvider(f"{base_url}/v1", "key", api="chat")

    async def read_file(_value: Any, _context: Any) -> str:
        return timing.FILE_TEXT

    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    tool = Tool(
        "read_file",
        "Read a file.",
        schema,
        read_file,
        read_only=True,
        resources=lambda value: {"paths": [value["path"]]},
    )
    everything = bool(os.environ.get("EVERYTHING"))
    phases = ("session-start", "before-model", "after-model", "before-tool", "after-tool", "stop")
    rules = [
        PermissionRule("deny", tools=["write_*", "edit_*"]),
        PermissionRule("deny", paths=["**/.env", "secrets/**"], reason="secret"),
        PermissionRule("ask", commands=["rm *"]),
        PermissionRule("allow", tools=["delegate"]),
        PermissionRule("allow", paths=["**"]),
    ]
    strategies = [truncate_tool_results(keep_recent=1000), summarize_history(trigger_characters=10**9)]

    by_service = os.environ.get("ROUTED") == "http"
    decider = SystemOneDecisionProvider(f"{base_url}/v1", False) if by_service else RulesDecisionProvider()

    def agent(model: str, *more: Tool) -> Agent:
        routing = None
        if os.environ.get("ROUTED"):
            routing = ModelRouting(
                provider=decider,
                model="auto",
                decision=Decision({"route": Choice("Which?", {"fast": "routine", "deep": "hard"})}),
                question="route",
                models={"fast": model, "deep": model},
                fallback="deep",
                min_confidence=0,
            )
        harness = Harness(
            provider,
            instructions="You are a benchmark.",
            tools=[tool, *more],
            limits=Limits(max_steps=1000),
            context=strategies if everything else strategies[:1],
            hooks=[Hook(phase, lambda _given: None) for phase in phases] if everything else (),
            permissions=Permissions(rules, default="deny") if everything else None,
            routing=routing,
        )
        return Agent(model, harness)

    async def run(model: str) -> str:
        subject = agent(model)
        if model.startswith("delegate"):
            subject = agent(model, Subagent("delegate", "Hand a task on.", agent("steps-1")))
        more: dict[str, Any] = {"journal": not os.environ.get("NO_JOURNAL")}
        if everything:
            more |= {
                "observation": ObservationHub([lambda _observation: None]),
                "watchdog": Watchdog(window=10, max_repeats=10, on_stuck="warn"),
                "redact": [f"key-that-is-masked-{number}" for number in range(9)],
            }
        provider_ = WorktreeSandboxProvider(layout=layout)
        result = await dispatch(repository, subject, "go", sandbox_provider=provider_, **more)
        return result.text

    return run


if __name__ == "__main__":
    timing.main(make)
