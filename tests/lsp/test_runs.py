"""Runs after and while they go on: told from the journal, steered, continued, replayed, and kept free of keys."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from outpost_lsp.protocol.commands import COMMANDS
from tests.lsp.conftest import reporting, settings_for
from tests.lsp.server_process import KEY, running_server
from tests.support.model_answers import Answer
from tests.support.model_saying import Received
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository, make_repository


async def test_a_run_is_told_from_its_journal_and_its_conversation_can_be_read(
    changed: RealRepository, service: ModelServer
) -> None:
    service.add(Answer(text="Looking.", calls=[reporting()]), "Done.")
    async with running_server() as server:
        await server.initialize(changed.path, options={"settings": settings_for(service)})
        run = (await server.command("outpost.review", {"wait": True}))["run"]
        shown = await server.command("outpost.show", {"runId": run["id"]})
        COMMANDS["outpost.show"].result.model_validate(shown)
        assert shown["run"]["id"] == run["id"]
        assert [step["index"] for step in shown["steps"]] == [1, 2]
        assert shown["steps"][0]["tools"][0]["name"] == "report_finding"
        assert shown["steps"][0]["usage"]["complete"] is True
        transcript = await server.command("outpost.transcript", {"conversation": run["conversation"]})
        assert "Done." in str(transcript["messages"])
        listed = await server.command("outpost.runs", {"limit": 1, "status": "succeeded"})
        COMMANDS["outpost.runs"].result.model_validate(listed)
        assert [one["id"] for one in listed["runs"]] == [run["id"]]
        for command, argument in (
            ("outpost.transcript", {"conversation": "nothing"}),
            ("outpost.continue", {"conversation": "../../etc/passwd", "brief": "x"}),
            ("outpost.continue", {"conversation": "0" * 32, "brief": "x"}),
        ):
            fault = await server.command_fault(command, argument)
            assert fault["code"] == -32602
            assert "conversation" in fault["message"]


async def test_a_conversation_goes_on_and_can_be_forked(repository: RealRepository, service: ModelServer) -> None:
    service.add("First.", "Second.", "Third.")
    async with running_server() as server:
        await server.initialize(repository.path, options={"settings": settings_for(service)})
        first = (await server.command("outpost.dispatch", {"agent": "fixer", "brief": "Begin.", "wait": True}))["run"]
        argument = {"conversation": first["conversation"], "brief": "Go on.", "wait": True}
        second = (await server.command("outpost.continue", argument))["run"]
        assert (second["kind"], second["agent"], second["text"]) == ("continue", "fixer", "Second.")
        assert second["conversation"] == first["conversation"]
        assert "Begin." in str(service.requests[1].json)
        third = (await server.command("outpost.continue", argument | {"fork": True, "limits": {"maxSteps": 3}}))["run"]
        assert third["text"] == "Third."
        assert third["conversation"] != first["conversation"]
        fault = await server.command_fault("outpost.continue", argument | {"agent": "nobody"})
        assert fault["code"] == -32602
        assert "agent" in fault["message"]


async def test_a_running_agent_is_steered_and_an_ended_one_is_not(
    repository: RealRepository, service: ModelServer
) -> None:
    is_asked, may_answer = threading.Event(), threading.Event()

    def after_the_word(_: Received) -> Answer:
        is_asked.set()
        assert may_answer.wait(60)
        return Answer(calls=[{"name": "read_file", "input": {"path": "a.txt"}}])

    service.add(after_the_word, "Done.")
    async with running_server() as server:
        await server.initialize(repository.path, options={"settings": settings_for(service)})
        task = {"agent": "fixer", "brief": "Begin.", "wait": True}
        asked = server.begin_command("outpost.dispatch", task, workDoneToken=7)
        assert await asyncio.to_thread(is_asked.wait, 60)
        assert (await server.notification("$/progress"))["value"]["title"] == "Outpost: fixer: Begin"
        run_id = (await server.notification("$/outpost/run"))["run"]["id"]
        steering = server.begin_command("outpost.steer", {"runId": run_id, "text": "Mind the gap.", "subagent": None})
        await server.command("outpost.agents")
        may_answer.set()
        delivered = await server.answer_to(steering)
        assert delivered.get("result") == {"delivery": "injected"}, delivered
        assert (await server.answer_to(asked))["result"]["run"]["status"] == "succeeded"
        assert "Mind the gap." in str(service.requests[-1].json)
        fault = await server.command_fault("outpost.steer", {"runId": run_id, "text": "Too late."})
        assert fault["code"] == -32803
        assert fault["data"]["code"] == "steering"
        assert fault["data"]["runId"] == run_id


async def test_a_replay_asks_no_service(changed: RealRepository, service: ModelServer) -> None:
    service.add(Answer(calls=[reporting()]), "Done.")
    async with running_server() as server:
        await server.initialize(changed.path, options={"settings": settings_for(service)})
        run = (await server.command("outpost.review", {"wait": True}))["run"]
        asked = len(service.requests)
        replayed = (await server.command("outpost.replay", {"runId": run["id"], "wait": True}))["run"]
        assert (replayed["kind"], replayed["status"]) == ("replay", "succeeded")
        fault = await server.command_fault("outpost.replay", {"runId": replayed["id"], "wait": True})
        assert "is itself a replay" in fault["message"]
        assert len(service.requests) == asked


async def test_a_finding_is_fixed_by_an_agent(changed: RealRepository, service: ModelServer) -> None:
    edit = {"name": "edit_file", "input": {"path": "src/main.py", "old_text": "count + 1", "new_text": "1"}}
    service.add(Answer(calls=[reporting()]), "Found.", Answer(calls=[edit]), "Fixed.")
    async with running_server() as server:
        await server.initialize(changed.path, options={"settings": settings_for(service)})
        await server.command("outpost.review", {"wait": True})
        [finding] = (await server.command("outpost.findings"))["findings"]
        run = (await server.command("outpost.fix", {"findingId": finding["id"], "wait": True}))["run"]
        assert (run["kind"], run["status"], run["disposition"]) == ("fix", "succeeded", "pending")
        assert (await server.command("outpost.findings"))["findings"][0]["status"] == "open"
        assert (await server.command("outpost.apply", {"runId": run["id"]}))["applied"] is True
        await server.notification("textDocument/publishDiagnostics", lambda params: params["diagnostics"] == [])
        [fixed] = (await server.command("outpost.findings", {"status": "fixed"}))["findings"]
        assert fixed["id"] == finding["id"]
        assert "suggestion" not in fixed
        fault = await server.command_fault("outpost.fix", {"findingId": "nothing"})
        assert fault["code"] == -32602
        assert "findingId" in fault["message"]


async def test_sec_16_a_service_that_echoes_the_key_does_not_bring_it_to_the_client(
    changed: RealRepository, service: ModelServer
) -> None:
    service.add(Answer(status=400, json={"error": {"message": f"your key is {KEY}, isn't it"}}))
    async with running_server() as server:
        await server.initialize(changed.path, options={"settings": settings_for(service)})
        run = (await server.command("outpost.review", {"wait": True}))["run"]
        assert run["status"] == "failed"
        assert "HTTP 400" in run["error"]["message"]
        # That the key is in nothing that was sent or logged is checked for every server when it ends.


async def test_the_folder_of_the_latest_document_is_meant_and_named_in_the_progress(
    repository: RealRepository, tmp_path: Path
) -> None:
    other = make_repository(tmp_path / "other", {"b.py": "x = 1\n"})
    other.write("b.py", "x = 2\n")
    folders = [{"uri": one.path.as_uri(), "name": one.path.name} for one in (repository, other)]
    async with running_server() as server:
        params = {"processId": None, "capabilities": {}, "workspaceFolders": folders}
        await server.request("initialize", params)
        server.notify("initialized", {})
        await server.command("outpost.runs")
        server.open((other.path / "b.py").as_uri(), "x = 2\n")
        answer = await server.answer_to(server.begin_command("outpost.review", {"wait": True}, workDoneToken=7))
        assert answer["result"]["run"]["workspace"] == other.path.as_uri()
        began = await server.notification("$/progress")
        assert began["token"] == 7
        assert "(other)" in began["value"]["title"]


async def test_without_a_document_the_person_says_which_folder_is_meant(
    repository: RealRepository, tmp_path: Path
) -> None:
    other = make_repository(tmp_path / "other", {"b.py": "x = 1\n"})
    folders = [{"uri": one.path.as_uri(), "name": one.path.name} for one in (repository, other)]
    async with running_server() as server:
        params = {"processId": None, "capabilities": {}, "workspaceFolders": folders}
        await server.request("initialize", params)
        server.notify("initialized", {})
        server.answers["window/showMessageRequest"] = lambda _params: {"title": "other"}
        answer = await server.answer_to(server.begin_command("outpost.review", {"wait": True}))
        assert answer["result"]["run"]["workspace"] == other.path.as_uri()
        [question] = server.all("window/showMessageRequest")
        assert [action["title"] for action in question["actions"]] == [repository.path.name, "other"]
        server.answers["window/showMessageRequest"] = lambda _params: None
        refused = await server.answer_to(server.begin_command("outpost.review", {"wait": True}))
        assert refused["error"]["code"] == -32602
        assert "2 folders are open" in refused["error"]["message"]


async def test_files_with_findings_are_watched_and_followed_when_they_change_outside(
    changed: RealRepository, service: ModelServer
) -> None:
    abilities = {"workspace": {"didChangeWatchedFiles": {"dynamicRegistration": True}}}
    file = changed.path / "src/main.py"
    service.add(Answer(calls=[reporting()]), "Done.")
    async with running_server() as server:
        await server.initialize(changed.path, options={"settings": settings_for(service)}, capabilities=abilities)
        await server.command("outpost.review", {"wait": True})

        def watches(name: str) -> bool:
            return any(name in str(one) for one in server.all("client/registerCapability"))

        await server.wait_for(lambda _: watches("outpost.toml") and watches(file.as_posix()))
        file.write_text("# one\n# two\n" + file.read_text())
        server.notify("workspace/didChangeWatchedFiles", {"changes": [{"uri": file.as_uri(), "type": 2}]})
        await server.notification(
            "textDocument/publishDiagnostics",
            lambda params: [one["range"]["start"]["line"] for one in params["diagnostics"]] == [3],
        )
        file.unlink()
        server.notify("workspace/didChangeWatchedFiles", {"changes": [{"uri": file.as_uri(), "type": 3}]})
        await server.notification("textDocument/publishDiagnostics", lambda params: params["diagnostics"] == [])
        assert await server.command("outpost.clear") == {"cleared": 1}
        await server.wait_for(lambda one: one.get("method") == "client/unregisterCapability")


async def test_warnings_reach_the_log_of_the_client(repository: RealRepository) -> None:
    async with running_server() as server:
        await server.initialize(repository.path)
        await server.command("outpost.runs")
        server.change("file:///never/opened.py", 2, (0, 0), (0, 0), "x")
        logged = await server.notification("window/logMessage")
        assert logged["type"] == 2
        assert "never/opened.py" in logged["message"]
