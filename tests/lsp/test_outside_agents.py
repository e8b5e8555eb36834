"""Agents and tools of other programs, as an editor has them: an external agent, and a server of tools (SEC-15, MCP-13).

One test for all of it: every program here takes a second to start.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.lsp.conftest import settings_for
from tests.lsp.server_process import running_server
from tests.support.model_answers import Answer
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository

ROOT = Path(__file__).parents[2]


def _settings(service: ModelServer, notes: Path) -> dict[str, Any]:
    docs = {
        "command": sys.executable,
        "arguments": ["-m", "tests.support.mcp_stdio_program", str(notes / "log")],
        "environment": {"PYTHONPATH": str(ROOT)},
        "startupTimeoutS": 120,
    }
    program = ROOT / "tests" / "support" / "acp_agent_program.py"
    agents = {
        "outside": {"command": [sys.executable, str(program), str(notes)]},
        "steady": {"candidates": ["outside", "helper"], "on": ["unavailable"]},
        "helper": {"tools": ["files"], "mcp": ["docs"]},
    }
    return settings_for(service, agents=agents, mcp={"docs": docs})


async def test_an_external_agent_asks_in_the_editor_is_cancelled_and_is_followed_by_another(
    changed: RealRepository, service: ModelServer, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    service.add(Answer(calls=[{"name": "mcp__docs__add", "input": {"a": 2, "b": 3}}]), "Five.")
    async with running_server() as server:
        options = {"settings": _settings(service, notes), "trusted": True, "events": "all"}
        await server.initialize(changed.path, options=options)
        server.answers["window/showMessageRequest"] = lambda _params: {"title": "Allow once"}
        asked = {"agent": "outside", "brief": "do: permission execute make all", "wait": True}
        run = (await server.command("outpost.dispatch", asked))["run"]
        assert (run["status"], run["text"]) == ("succeeded", "once")
        [question] = server.all("window/showMessageRequest")
        assert "make all" in question["message"]

        waiting = (await server.command("outpost.dispatch", {"agent": "outside", "brief": "do: wait"}))["run"]
        await server.notification(
            "$/outpost/run", lambda one: (one["run"]["id"], one["run"]["status"]) == (waiting["id"], "running")
        )
        assert await server.command("outpost.cancel", {"runId": waiting["id"]}) == {"cancelled": True}
        await server.notification(
            "$/outpost/run", lambda one: (one["run"]["id"], one["run"]["status"]) == (waiting["id"], "cancelled")
        )

        steady = {"agent": "steady", "brief": "do: crash", "wait": True}
        run = (await server.command("outpost.dispatch", steady))["run"]
        assert (run["status"], run["text"]) == ("succeeded", "Five.")
        assert any(note.startswith("outside failed (unavailable") for note in run["notes"])
        kinds = [one["event"]["kind"] for one in server.all("$/outpost/event") if one["runId"] == run["id"]]
        assert {"fallback", "tool-result"} <= set(kinds)

        checks = (await server.command("outpost.doctor"))["checks"]
        found = {check["name"]: check for check in checks}
        assert found["position encoding"]["detail"].endswith("utf-16")
        assert found[f"sandbox: program {sys.executable}"]["status"] == "ok"
        assert await server.shut_down() == 0
