"""What a person says to agents at work and what is brought back, as an editor asks for it: delivered, or told why not."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from outpost_lsp.domain.run import Run
from outpost_lsp.service.cleaning import leftovers, remove
from outpost_lsp.storage.identifiers import now_text
from tests.lsp.conftest import settings_for
from tests.lsp.server_inside import InsideServer, inside_server
from tests.support.model_answers import Answer
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository

PROGRAM = Path(__file__).parents[2] / "tests" / "support" / "acp_agent_program.py"


async def _started(server: InsideServer, brief: str) -> str:
    """The run of the external agent, once it has said something."""
    run = (await server.command("outpost.dispatch", {"agent": "outside", "brief": brief}))["run"]
    await server.notification(
        "$/outpost/event", lambda one: (one["runId"], one["event"]["kind"]) == (run["id"], "text-delta")
    )
    return str(run["id"])


async def _ended(server: InsideServer, run_id: str) -> dict[str, Any]:
    ended = await server.notification(
        "$/outpost/run", lambda one: one["run"]["id"] == run_id and "finishedAt" in one["run"]
    )
    return dict(ended["run"])


async def test_STEER_14_a_text_for_an_external_agent_resumes_its_conversation_and_the_answer_says_so(
    changed: RealRepository, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    agents = {"outside": {"command": [sys.executable, str(PROGRAM), str(notes)]}}
    async with inside_server() as server:
        options = {"settings": {"agents": agents}, "trusted": True, "events": "all"}
        await server.initialize(changed.path, options=options)
        run_id = await _started(server, "do: wait")
        delivered = await server.command("outpost.steer", {"runId": run_id, "text": "rather say this"})
        assert delivered == {"delivery": "resumed"}
        run = await _ended(server, run_id)
        assert run["status"] == "succeeded"
        assert run["text"].endswith("You said rather say this")
        steers = [one["event"] for one in server.all("$/outpost/event") if one["event"]["kind"] == "steer"]
        assert [(one["text"], one["mode"]) for one in steers] == [("rather say this", "resumed")]
        fault = await server.command_fault("outpost.steer", {"runId": run_id, "text": "too late"})
        assert (fault["code"], fault["data"]["code"], fault["data"]["runId"]) == (-32803, "steering", run_id)


async def test_STEER_a_child_that_is_none_of_the_runs_is_named(changed: RealRepository, service: ModelServer) -> None:
    service.add(Answer(text="Thinking.", hang_after=1))
    async with inside_server() as server:
        await server.initialize(changed.path, options={"settings": settings_for(service)})
        run = (await server.command("outpost.dispatch", {"agent": "fixer", "brief": "Begin."}))["run"]
        await service.until(lambda: len(service.requests) == 1)
        argument = {"runId": run["id"], "text": "Mind the gap.", "subagent": "nobody"}
        fault = await server.command_fault("outpost.steer", argument)
        assert fault["code"] == -32602
        assert fault["message"] == f"subagent: run {run['id']} has no child 'nobody'"
        assert await server.command("outpost.cancel", {"runId": run["id"]}) == {"cancelled": True}
        assert (await _ended(server, run["id"]))["status"] == "cancelled"


async def test_a_run_whose_time_is_over_is_not_reopened_and_the_setting_is_named(changed: RealRepository) -> None:
    old = datetime.now(UTC) - timedelta(days=400)
    run_id = f"{old:%Y%m%d-%H%M%S-%f}-abcdef"
    async with inside_server() as server:
        await server.initialize(changed.path)
        assert (await server.command("outpost.runs"))["runs"] == []
        desk = server.server._if_open()
        assert desk is not None
        [workspace] = desk.outpost.workspaces
        record = Run(
            id=run_id,
            kind="dispatch",
            agent="fixer",
            title="Fix",
            status="succeeded",
            workspace=str(workspace.folder),
            started_at=now_text(old),
            finished_at=now_text(old),
            base="",
            disposition="discarded",
        )
        workspace.runs.save(record)
        fault = await server.command_fault("outpost.reopen", {"runId": run_id})
        assert fault["message"] == f"runId: the changes of run {run_id} are not kept any more"
        await remove(workspace, await leftovers(workspace))
        for command in ("outpost.reopen", "outpost.show", "outpost.diff"):
            fault = await server.command_fault(command, {"runId": run_id})
            days = workspace.settings.runs.retention_days
            assert fault["code"] == -32602
            assert fault["message"] == (
                f"runId: there is no run {run_id!r} any more: what ended is kept for {days} days (runs.retention_days)"
            )
        fault = await server.command_fault("outpost.reopen", {"runId": "nothing"})
        assert fault["message"] == "runId: there is no run 'nothing'"
