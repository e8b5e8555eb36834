"""External agents and MCP servers of a trusted folder's settings, as real programs in a run (SEC-15, MCP-13)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp.domain.run import Run
from outpost_lsp.errors import OutpostError
from outpost_lsp.service.workspace import Workspace
from tests.service.conftest import Office, loopback
from tests.support.model_answers import Answer
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository

ROOT = Path(__file__).parents[2]


def toml(**tables: str) -> str:
    return "\n".join(f"[{name.replace('__', '.')}]\n{body}" for name, body in tables.items())


def quoted(words: list[str]) -> str:
    return json.dumps(words)


def external(notes: Path, *able: str) -> str:
    return f"command = {quoted([sys.executable, str(ROOT / 'tests/support/acp_agent_program.py'), str(notes), *able])}"


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder


async def run(office: Office, workspace: Workspace, agent: str, brief: str) -> Run:
    return await (await office.outpost.run_agent(workspace, agent, brief)).wait()


async def test_an_external_agent_of_a_trusted_folder_works_in_the_worktree(
    office: Office, project: RealRepository, notes: Path
) -> None:
    project.write("outpost.toml", toml(agents__outside=external(notes)))
    workspace = await office.workspace(project)
    done = await run(office, workspace, "outside", "do: write made.txt by-it")
    assert (done.status, done.text) == ("succeeded", "ok")
    assert not (project.path / "made.txt").exists()
    assert done.changes is not None
    assert done.disposition == "pending"


async def test_a_conversation_of_an_external_agent_goes_on(
    office: Office, project: RealRepository, notes: Path
) -> None:
    project.write("outpost.toml", toml(agents__outside=external(notes, "load")))
    workspace = await office.workspace(project)
    first = await run(office, workspace, "outside", "remember")
    assert first.conversation is not None
    handle = await office.outpost.continue_conversation(workspace, first.conversation, "more")
    second = await handle.wait()
    assert (second.status, second.text, second.conversation) == ("succeeded", "You said more", first.conversation)
    with pytest.raises(OutpostError, match="no conversation"):
        await office.outpost.continue_conversation(workspace, "absent", "more")


async def test_a_candidate_takes_over_from_an_external_agent(
    office: Office, project: RealRepository, notes: Path
) -> None:
    steady = 'candidates = ["outside", "reviewer"]\non = ["unavailable"]'
    project.write("outpost.toml", toml(agents__outside=external(notes), agents__steady=steady))
    workspace = await office.workspace(project)
    done = await run(office, workspace, "steady", "do: crash")
    assert done.status == "succeeded", done.error
    kinds = [signal.observation.event.kind for signal in office.signals if hasattr(signal, "observation")]
    assert "fallback" in kinds


async def test_a_server_s_tools_and_variables_reach_the_agent_that_names_it(
    office: Office, project: RealRepository, tmp_path: Path, environment: dict[str, str]
) -> None:
    environment |= {"DOCS_HOME": "of-docs", "OPENAI_API_KEY": "canary-key-1"}
    asks = Answer(calls=[{"name": "mcp__docs__environment", "input": {}}])
    with ModelServer([asks, "Done."]) as server:
        docs = {
            "command": sys.executable,
            "arguments": ["-m", "tests.support.mcp_stdio_program", str(tmp_path / "log")],
            "environment": {"PYTHONPATH": str(ROOT)},
            "variables": ["DOCS_HOME"],
        }
        settings: dict[str, Any] = loopback(server.base_url, agents={"helper": {"mcp": ["docs"]}}, mcp={"docs": docs})
        user = tmp_path / "user.toml"
        user.write_text('[sandbox]\nenvironment = ["DOCS_HOME", "OPENAI_API_KEY"]\n')
        environment["OUTPOST_CONFIG"] = str(user)
        workspace = await office.workspace(project, settings)
        done = await run(office, workspace, "helper", "look")
        told = server.requests[1].body.decode()
    assert done.status == "succeeded", done.error
    assert "of-docs" in told
    assert "canary-key-1" not in told
    assert "mcp__docs__add" in server.requests[0].body.decode()


async def test_MCP_13_in_an_untrusted_folder_a_note_says_why_there_are_none(
    office: Office, project: RealRepository, notes: Path
) -> None:
    project.write("outpost.toml", toml(agents__outside=external(notes), mcp__docs='command = "docs-server"'))
    workspace = office.outpost.add_workspace(project.path, trusted=False)
    await workspace.ready()
    assert "outside" not in workspace.settings.agents or workspace.settings.agents["outside"].command is None
    assert not workspace.settings.mcp
    assert not (notes / "asked.jsonl").exists()
