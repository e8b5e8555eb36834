"""Permission questions in a plain client: one at a time, and no answer is a denial (U-44, SEC-20)."""

from __future__ import annotations

from typing import Any

from tests.lsp.conftest import settings_for
from tests.lsp.server_process import ServerProcess, running_server
from tests.support.model_answers import Answer
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository

_ASKING = {
    "agents": {
        "careful": {
            "tools": ["files", "edit"],
            "permissions": {"default": "allow", "rules": [{"effect": "ask", "tools": ["write_file"]}]},
        }
    }
}


def _writing(*paths: str) -> Answer:
    calls = [{"name": "write_file", "input": {"path": path, "content": f"text of {path}\n"}} for path in paths]
    return Answer(calls=calls)


async def _dispatch(server: ServerProcess, repository: RealRepository, service: ModelServer, **more: Any) -> int:
    await server.initialize(repository.path, options={"settings": settings_for(service, **_ASKING)})
    return server.begin_command("outpost.dispatch", {"agent": "careful", "brief": "Do it.", "wait": True, **more})


async def test_only_a_clear_yes_lets_the_call_run(repository: RealRepository, service: ModelServer) -> None:
    cases: list[tuple[Any, bool]] = [
        ({"title": "Allow once"}, True),
        ({"title": "Allow for this run"}, True),
        ({"title": "Deny"}, False),
        (None, False),
        ({}, False),
        ("Allow once", False),
    ]
    async with running_server() as server:
        await server.initialize(repository.path, options={"settings": settings_for(service, **_ASKING)})
        for number, (answer, is_written) in enumerate(cases, 1):
            service.add(_writing("a.txt"), "Done.")
            server.answers["window/showMessageRequest"] = lambda params, answer=answer: answer
            asked = {"agent": "careful", "brief": "Do it.", "wait": True}
            run = (await server.command("outpost.dispatch", asked))["run"]
            assert run["status"] == "succeeded"
            assert (run["disposition"] == "pending") == is_written, answer
            questions = server.all("window/showMessageRequest")
            assert len(questions) == number
            assert [one["title"] for one in questions[-1]["actions"]] == ["Allow once", "Allow for this run", "Deny"]
            for shown in ("careful", "write_file", "a.txt", "text of a.txt"):
                assert shown in questions[-1]["message"]


async def test_questions_are_asked_one_at_a_time(repository: RealRepository, service: ModelServer) -> None:
    service.add(_writing("a.txt", "b.txt", "c.txt"), "Done.")
    async with running_server() as server:
        server.answers["window/showMessageRequest"] = lambda params: NotImplemented
        asked = await _dispatch(server, repository, service)
        seen = []
        for number in range(1, 4):
            await server.wait_for(lambda _, number=number: len(server.all("window/showMessageRequest")) == number)
            await server.command("outpost.runs")
            questions = [one for one in server.received if one.get("method") == "window/showMessageRequest"]
            assert len(questions) == number
            seen.append(questions[-1]["params"]["message"])
            server.send({"jsonrpc": "2.0", "id": questions[-1]["id"], "result": {"title": "Allow once"}})
        run = (await server.answer_to(asked))["result"]["run"]
        assert run["changes"]["files"] == 3
        assert len(set(seen)) == 3


async def test_a_client_that_does_not_know_the_question_denies(
    repository: RealRepository, service: ModelServer
) -> None:
    service.add(_writing("a.txt"), "Done.")
    async with running_server() as server:
        server.answers["window/showMessageRequest"] = lambda params: NotImplemented
        asked = await _dispatch(server, repository, service)
        question = await server.wait_for(lambda one: one.get("method") == "window/showMessageRequest")
        error = {"code": -32601, "message": "no such method"}
        server.send({"jsonrpc": "2.0", "id": question["id"], "error": error})
        run = (await server.answer_to(asked))["result"]["run"]
        assert run["status"] == "succeeded"
        assert run["disposition"] == "none"


async def test_the_question_of_a_cancelled_run_is_withdrawn(repository: RealRepository, service: ModelServer) -> None:
    service.add(_writing("a.txt"))
    async with running_server() as server:
        server.answers["window/showMessageRequest"] = lambda params: NotImplemented
        asked = await _dispatch(server, repository, service)
        question = await server.wait_for(lambda one: one.get("method") == "window/showMessageRequest")
        server.notify("$/cancelRequest", {"id": asked})
        assert (await server.answer_to(asked))["error"]["code"] == -32800
        await server.notification("$/cancelRequest", lambda params: params["id"] == question["id"])
        server.send({"jsonrpc": "2.0", "id": question["id"], "result": {"title": "Allow once"}})
        await server.notification("$/outpost/run", lambda params: params["run"]["status"] == "cancelled")
        assert await server.shut_down() == 0


async def test_what_a_question_shows_is_harmless(repository: RealRepository, service: ModelServer) -> None:
    call = {"name": "write_file", "input": {"path": "a.txt", "content": "\u202eevil\U000e0041 [x](command:y)"}}
    service.add(Answer(calls=[call]), "Done.")
    async with running_server() as server:
        asked = await _dispatch(server, repository, service)
        await server.answer_to(asked)
        [question] = server.all("window/showMessageRequest")
        assert "\u202e" not in question["message"]
        assert "\U000e0041" not in question["message"]
        assert "](" not in question["message"]


async def test_a_review_of_everything_by_a_priced_model_starts_only_after_a_clear_yes(
    repository: RealRepository, service: ModelServer
) -> None:
    settings = settings_for(service)
    settings["models"]["small"]["price"] = {"input": 3.0, "output": 9.0}
    asked = {"scope": "workspace", "wait": True}
    async with running_server() as server:
        await server.initialize(repository.path, options={"settings": settings})
        for answer in (None, {"title": "Cancel"}, "Review"):
            server.answers["window/showMessageRequest"] = lambda params, answer=answer: answer
            fault = await server.command_fault("outpost.review", asked)
            assert (fault["code"], fault["data"]["code"]) == (-32803, "aborted")
        assert (await server.command("outpost.runs"))["runs"] == []
        assert service.requests == []
        question = server.all("window/showMessageRequest")[-1]
        assert "USD with small" in question["message"]
        assert [one["title"] for one in question["actions"]] == ["Review", "Cancel"]
        service.add("Nothing to report.")
        server.answers["window/showMessageRequest"] = lambda params: {"title": "Review"}
        assert (await server.command("outpost.review", asked))["run"]["status"] == "succeeded"
