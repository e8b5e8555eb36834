"""Every way to stop a run, and the end of the server while runs go on (REL-04, U-12, U-37, U-38)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from tests.lsp.conftest import settings_for
from tests.lsp.server_process import ServerProcess, running_server
from tests.support.model_answers import Answer
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository

_PROGRESS = {"window": {"workDoneProgress": True}}


def _is(status: str) -> Any:
    return lambda params: params["run"]["status"] == status


async def _begin_hanging(server: ServerProcess, service: ModelServer, **more: Any) -> int:
    """A waiting review that hangs in its model request; the id of the request."""
    service.add(Answer(text="on and on", hang_after=2))
    asked = server.begin_command("outpost.review", {"wait": True}, **more)
    await service.until(lambda: service.open_connections == 1 and len(service.requests) == 1)
    return asked


async def test_cancelling_the_request_stops_the_run_and_answers_so(
    changed: RealRepository, service: ModelServer
) -> None:
    async with running_server() as server:
        await server.initialize(changed.path, options={"settings": settings_for(service)})
        asked = await _begin_hanging(server, service)
        server.notify("$/cancelRequest", {"id": asked})
        answer = await server.answer_to(asked)
        assert answer["error"]["code"] == -32800
        ended = await server.notification("$/outpost/run", _is("cancelled"))
        assert ended["run"]["finishedAt"]
        await service.until(lambda: service.left_early == 1)
        assert len(service.requests) == 1
        [run] = (await server.command("outpost.runs"))["runs"]
        assert run["status"] == "cancelled"
        assert len(server.all("window/showMessage")) == 1


@pytest.mark.parametrize("token", ["given", None])
async def test_cancelling_the_progress_stops_the_run_and_its_answer_says_so(
    changed: RealRepository, service: ModelServer, token: str | None
) -> None:
    async with running_server() as server:
        await server.initialize(
            changed.path, options={"settings": settings_for(service)}, capabilities={} if token else _PROGRESS
        )
        asked = await _begin_hanging(server, service, **({"workDoneToken": token} if token else {}))
        began = await server.notification("$/progress", lambda params: params["value"]["kind"] == "begin")
        assert began["value"]["cancellable"] is True
        assert token is None or began["token"] == token
        server.notify("window/workDoneProgress/cancel", {"token": began["token"]})
        answer = await server.answer_to(asked)
        assert answer["result"]["run"]["status"] == "cancelled"
        ends = [one for one in server.all("$/progress") if one["value"]["kind"] == "end"]
        assert [one["token"] for one in ends] == [began["token"]]


async def test_the_command_cancel_stops_the_run_and_its_answer_says_so(
    changed: RealRepository, service: ModelServer
) -> None:
    async with running_server() as server:
        await server.initialize(changed.path, options={"settings": settings_for(service)})
        asked = await _begin_hanging(server, service)
        run_id = (await server.notification("$/outpost/run"))["run"]["id"]
        assert await server.command("outpost.cancel", {"runId": run_id}) == {"cancelled": True}
        assert (await server.answer_to(asked))["result"]["run"]["status"] == "cancelled"
        fault = await server.command_fault("outpost.cancel", {"runId": "nothing"})
        assert fault["code"] == -32602
        assert "runId" in fault["message"]


async def test_cancelling_while_the_client_is_asked_for_progress_raises_nothing(
    changed: RealRepository, service: ModelServer
) -> None:
    async with running_server() as server:
        server.answers["window/workDoneProgress/create"] = lambda params: NotImplemented
        await server.initialize(changed.path, options={"settings": settings_for(service)}, capabilities=_PROGRESS)
        asked = await _begin_hanging(server, service)
        created = await server.wait_for(lambda one: one.get("method") == "window/workDoneProgress/create")
        server.notify("$/cancelRequest", {"id": asked})
        assert (await server.answer_to(asked))["error"]["code"] == -32800
        await server.notification("$/cancelRequest", lambda params: params["id"] == created["id"])
        server.send({"jsonrpc": "2.0", "id": created["id"], "result": None})
        assert (await server.command("outpost.agents"))["agents"]
        assert server.all("$/progress") == []
        assert b"ERROR" not in server.log
        assert await server.shut_down() == 0


async def test_cancelling_before_the_service_is_loaded_starts_nothing(changed: RealRepository) -> None:
    async with running_server() as server:
        asked = server.begin("initialize", {"processId": None, "capabilities": {}, "rootUri": changed.path.as_uri()})
        await server.answer_to(asked)
        review = server.begin_command("outpost.review", {"wait": True})
        server.notify("$/cancelRequest", {"id": review})
        assert (await server.answer_to(review))["error"]["code"] == -32800
        assert (await server.command("outpost.runs"))["runs"] == []


async def test_cancelling_in_the_same_breath_as_asking_leaves_nothing_over(changed: RealRepository) -> None:
    async with running_server(environment={"PYTHONWARNINGS": "always"}) as server:
        asked = server.begin("initialize", {"processId": None, "capabilities": {}, "rootUri": changed.path.as_uri()})
        await server.answer_to(asked)
        for command in ("outpost.agents", "outpost.doctor", "outpost.review"):
            asked = server.begin_command(command)
            server.notify("$/cancelRequest", {"id": asked})
            assert (await server.answer_to(asked))["error"]["code"] == -32800
            await server.command("outpost.runs")
        assert await server.shut_down() == 0
        assert b"never awaited" not in server.log


async def test_rel_04_shutdown_is_answered_while_a_run_goes_on_and_the_run_is_kept(
    changed: RealRepository, service: ModelServer
) -> None:
    async with running_server() as server:
        await server.initialize(changed.path, options={"settings": settings_for(service)})
        asked = await _begin_hanging(server, service)
        start = time.monotonic()
        assert await server.request("shutdown") is None
        assert time.monotonic() - start < 20
        assert (await server.answer_to(asked))["result"]["run"]["status"] == "cancelled"
        server.notify("exit")
        assert await server.ended() == 0
        await service.until(lambda: service.open_connections == 0)
    async with running_server() as server:
        await server.initialize(changed.path)
        [run] = (await server.command("outpost.runs"))["runs"]
        assert run["status"] == "cancelled"


@pytest.mark.parametrize("end", ["input", "exit", "signal", "client"])
async def test_SHUT_03_however_the_server_ends_the_run_is_cancelled_and_the_connection_gone(
    changed: RealRepository, service: ModelServer, end: str
) -> None:
    client = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    async with running_server() as server:
        await server.initialize(
            changed.path,
            options={"settings": settings_for(service)},
            process_id=client.pid if end == "client" else None,
        )
        await _begin_hanging(server, service)
        client.communicate(b"\n")
        if end == "input":
            assert server.process.stdin is not None
            server.process.stdin.close()
        elif end == "exit":
            server.notify("exit")
        elif end == "signal":
            os.kill(server.process.pid, signal.SIGTERM)
        assert await server.ended() == 1
        await service.until(lambda: service.open_connections == 0)
    assert changed.git("worktree", "list").count("\n") == 0
    async with running_server() as server:
        await server.initialize(changed.path)
        [run] = (await server.command("outpost.runs"))["runs"]
        assert run["status"] == "cancelled"


async def test_a_killed_server_leaves_an_interrupted_run(changed: RealRepository, service: ModelServer) -> None:
    async with running_server() as server:
        await server.initialize(changed.path, options={"settings": settings_for(service)})
        await _begin_hanging(server, service)
        server.process.kill()
        await server.process.wait()
    async with running_server() as server:
        await server.initialize(changed.path)
        [run] = (await server.command("outpost.runs", {"status": "interrupted"}))["runs"]
        assert run["finishedAt"]


async def test_U_14_what_a_killed_run_changed_is_shown_from_the_first_moment(
    repository: RealRepository, service: ModelServer
) -> None:
    service.add(Answer(calls=[{"name": "write_file", "input": {"path": "new.txt", "content": "new\n"}}]))
    service.add(Answer(text="on and on", hang_after=2))
    async with running_server() as server:
        await server.initialize(repository.path, options={"settings": settings_for(service)})
        begun = await server.command("outpost.dispatch", {"agent": "fixer", "brief": "Do it."})
        await service.until(lambda: service.open_connections == 1 and len(service.requests) == 2)
        server.process.kill()
        await server.process.wait()
    async with running_server() as server:
        await server.initialize(repository.path)
        shown = (await server.command("outpost.show", {"runId": begun["run"]["id"]}))["run"]
        assert (shown["status"], shown["disposition"], shown["changes"]["files"]) == ("interrupted", "pending", 1)
