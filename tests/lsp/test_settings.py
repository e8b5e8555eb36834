"""Settings, trust, keys and questions between the client and the server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.lsp.conftest import reporting, settings_for
from tests.lsp.server_inside import inside_server
from tests.lsp.server_process import KEY, ServerProcess, running_server
from tests.support.model_answers import Answer
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository

_PULLS = {"workspace": {"configuration": True, "didChangeConfiguration": {"dynamicRegistration": True}}}


async def _agents(server: ServerProcess) -> dict[str, Any]:
    return {one["name"]: one for one in (await server.command("outpost.agents"))["agents"]}


async def test_the_agents_are_listed_with_what_they_can_do(repository: RealRepository) -> None:
    agents = {
        "mine": {
            "description": "Mine",
            "tools": ["files"],
            "subagents": ["reviewer"],
            "routing": "rules",
            "limits": {"maxSteps": 3, "usage": {"cacheCreated": 5}},
        }
    }
    async with running_server() as server:
        await server.initialize(repository.path, options={"settings": {"agents": agents}})
        listed = await _agents(server)
        assert {"reviewer", "coordinator", "fixer", "mine"} <= set(listed)
        assert listed["mine"] == {
            "name": "mine",
            "description": "Mine",
            "model": "offline",
            "tools": ["files"],
            "subagents": ["reviewer"],
            "limits": {"maxSteps": 3, "usage": {"cacheCreated": 5}},
            "routing": "rules",
        }


@pytest.mark.parametrize("wrapped", [True, False])
async def test_settings_change_while_the_server_runs(repository: RealRepository, wrapped: bool) -> None:
    settings = {"agents": {"late": {"tools": ["files"]}}}
    async with running_server() as server:
        await server.initialize(repository.path)
        assert "late" not in await _agents(server)
        pushed = {"outpost": settings} if wrapped else settings
        server.notify("workspace/didChangeConfiguration", {"settings": pushed})
        assert "late" in await _agents(server)
        server.notify("workspace/didChangeConfiguration", {"settings": {"outpost": {}}})
        fault = await server.command_fault("outpost.dispatch", {"agent": "late", "brief": "b"})
        assert "late" in fault["message"]


async def test_settings_are_pulled_where_the_client_answers(repository: RealRepository) -> None:
    settings: dict[str, Any] = {"agents": {"pulled": {"tools": ["files"]}}}
    async with running_server() as server:
        server.answers["workspace/configuration"] = lambda params: [settings for _ in params["items"]]
        await server.initialize(repository.path, capabilities=_PULLS)
        assert "pulled" in await _agents(server)
        asked = await server.notification("workspace/configuration")
        assert asked["items"] == [{"scopeUri": repository.path.as_uri(), "section": "outpost"}]
        registered = await server.notification("client/registerCapability")
        assert registered["registrations"][0]["method"] == "workspace/didChangeConfiguration"
        settings["agents"] = {"other": {"tools": ["files"]}}
        server.notify("workspace/didChangeConfiguration", {"settings": None})
        await _until_agent(server, "other")
        assert "pulled" not in await _agents(server)


async def test_odd_answers_to_the_pull_stop_nothing(repository: RealRepository) -> None:
    odd: list[Any] = [None, [None], [3], ["text"], {}, [[]], []]
    async with running_server() as server:
        server.answers["workspace/configuration"] = lambda params: odd[0]
        await server.initialize(repository.path, capabilities=_PULLS)
        while len(odd) > 1:
            del odd[0]
            asked = len(server.all("workspace/configuration"))
            server.notify("workspace/didChangeConfiguration", {"settings": None})
            await server.wait_for(lambda _, asked=asked: len(server.all("workspace/configuration")) > asked)
            assert "reviewer" in await _agents(server)
        assert await server.shut_down() == 0


async def test_a_client_that_never_answers_the_pull_is_not_waited_for(repository: RealRepository) -> None:
    async with running_server() as server:
        server.answers["workspace/configuration"] = lambda params: NotImplemented
        await server.initialize(repository.path, capabilities=_PULLS)
        assert "reviewer" in await _agents(server)


async def test_a_fault_in_settings_is_told_by_key_once_and_the_server_goes_on(repository: RealRepository) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"runs": {"concurrency": "many"}}, "runs.concurrency"),
        ({"agents": {"reviewer": {"tools": ["magic"]}}}, "tools"),
        ({"colour": "red"}, "colour"),
        ({"models": []}, "models"),
        ({"defaultModel": "nothing"}, "default_model"),
    ]
    async with running_server() as server:
        await server.initialize(repository.path, options={"settings": wrong[0][0]})
        for settings, key in wrong:
            server.notify("workspace/didChangeConfiguration", {"settings": {"outpost": settings}})
            await server.notification("window/showMessage", lambda params, key=key: key in params["message"])
            assert "reviewer" in await _agents(server)
        server.notify("workspace/didChangeConfiguration", {"settings": 3})
        await server.notification("window/showMessage", lambda params: "settings: an object" in params["message"])
        assert len([one for one in server.all("window/showMessage") if "runs.concurrency" in one["message"]]) == 1


async def test_every_fault_of_a_settings_file_is_told_at_the_start_and_when_it_changes(
    repository: RealRepository,
) -> None:
    def told(server: ServerProcess) -> set[str]:
        return {one["message"].partition("outpost.toml:")[2].rpartition(": ")[0] for one in shown(server)}

    def shown(server: ServerProcess) -> list[Any]:
        return [one for one in server.all("window/showMessage") if "outpost.toml" in one["message"]]

    file = repository.path / "outpost.toml"
    file.write_text('[runs]\nconcurrency = "x"\n[review]\nagent = "nobody"\n')
    async with inside_server() as server:
        await server.initialize(repository.path)
        await server.command("outpost.agents")
        assert told(server) == {"2: runs.concurrency", "4: review.agent"}
        file.write_text('[runs]\nevents = 3\ncolour = 1\n[review]\nagent = "no"\n')
        server.notify("workspace/didChangeWatchedFiles", {"changes": [{"uri": file.as_uri(), "type": 2}]})
        await server.command("outpost.agents")
        assert told(server) >= {"2: runs.events", "3: runs.colour", "5: review.agent"}
        assert len(shown(server)) == 5


async def test_a_settings_file_that_is_saved_is_read_again(repository: RealRepository) -> None:
    file = repository.path / "outpost.toml"
    async with running_server() as server:
        await server.initialize(repository.path)
        assert "from_file" not in await _agents(server)
        file.write_text('[agents.from_file]\ntools = ["files"]\n')
        server.open(file.as_uri(), file.read_text())
        server.notify("textDocument/didSave", {"textDocument": {"uri": file.as_uri()}})
        await _until_agent(server, "from_file")
        file.write_text('[agents.other_file]\ntools = ["files"]\n')
        server.notify("workspace/didChangeWatchedFiles", {"changes": [{"uri": file.as_uri(), "type": 2}]})
        await _until_agent(server, "other_file")


async def test_an_untrusted_folder_is_told_what_it_may_not_and_trust_lifts_it(
    changed: RealRepository, service: ModelServer
) -> None:
    changed.write(
        "outpost.toml",
        f'default_model = "theirs"\n[providers.theirs]\nkind = "openai"\napi = "chat"\nbase_url = "{service.base_url}"\n'
        '[models.theirs]\nprovider = "theirs"\nname = "theirs"\n',
    )
    async with running_server() as server:
        await server.initialize(changed.path)
        await server.notification("window/showMessage", lambda params: "providers.theirs" in params["message"])
        await server.notification(
            "window/showMessage", lambda params: "do so with `outpost-lsp trust`" in params["message"]
        )
        assert (await _agents(server))["reviewer"]["model"] == "offline"
        assert await server.command("outpost.trust", {"trusted": True}) == {"trusted": True}
        assert (await _agents(server))["reviewer"]["model"] == "theirs"
        uri = changed.path.as_uri()
        assert await server.command("outpost.trust", {"uri": uri, "trusted": False}) == {"trusted": False}
        assert (await _agents(server))["reviewer"]["model"] == "offline"


@pytest.mark.parametrize(
    ("trusted", "model"), [(True, "fast"), (False, "offline"), ("uri", "fast"), ("else", "offline")]
)
async def test_trust_comes_with_initialize(repository: RealRepository, trusted: Any, model: str) -> None:
    repository.write(
        "outpost.toml", '[providers.p]\nkind = "offline"\n[agents.reviewer]\nmodel = "fast"\ntools = ["shell"]\n'
    )
    given = {"uri": [repository.path.as_uri()], "else": ["file:///somewhere/else"]}.get(str(trusted), trusted)
    async with running_server() as server:
        await server.initialize(repository.path, options={"trusted": given})
        tools = (await _agents(server))["reviewer"]["tools"]
        assert ("shell" in tools) == (model == "fast")


async def test_a_key_is_asked_of_the_client_and_used(changed: RealRepository, service: ModelServer) -> None:
    service.add("Nothing to say.")
    settings = settings_for(service)
    settings["providers"]["local"]["apiKeyEnv"] = "NOT_SET_ANYWHERE"
    async with running_server() as server:
        server.answers["outpost/secret"] = lambda params: {"value": "from-the-client-" + params["provider"]}
        await server.initialize(changed.path, options={"settings": settings, "secrets": True})
        run = (await server.command("outpost.review", {"wait": True}))["run"]
        assert run["status"] == "succeeded"
        assert service.requests[0].headers["authorization"] == "Bearer from-the-client-local"
        assert all(
            "from-the-client" not in str(one) for one in server.received if one.get("method") != "outpost/secret"
        )
        assert b"from-the-client" not in server.log


async def test_a_client_without_the_key_makes_a_run_that_says_so(changed: RealRepository, service: ModelServer) -> None:
    settings = settings_for(service)
    settings["providers"]["local"]["apiKeyEnv"] = "NOT_SET_ANYWHERE"
    async with running_server() as server:
        answers: list[Any] = [None, {}, {"value": None}, {"value": 3}, []]
        server.answers["outpost/secret"] = lambda params: answers.pop()
        await server.initialize(changed.path, options={"settings": settings, "secrets": True})
        while answers:
            run = (await server.command("outpost.review", {"wait": True}))["run"]
            assert run["status"] == "failed"
            assert "NOT_SET_ANYWHERE" in run["error"]["message"]
        assert service.requests == []


async def test_the_key_is_sent_to_the_service_and_nowhere_else(changed: RealRepository, service: ModelServer) -> None:
    service.add(Answer(calls=[reporting()]), "Done.")
    async with running_server() as server:
        await server.initialize(changed.path, options={"settings": settings_for(service), "events": "all"})
        await server.command("outpost.review", {"wait": True})
    assert service.requests[0].headers["authorization"] == f"Bearer {KEY}"
    # That nothing else carries it is checked for every server when it ends.


async def test_folders_come_and_go(repository: RealRepository, tmp_path: Any) -> None:
    from tests.support.repositories import make_repository

    other = make_repository(tmp_path / "other", {"b.py": "x = 1\n"})
    other.write("b.py", "print(undefined_here)\n")
    async with running_server() as server:
        await server.initialize(repository.path)
        assert (await server.command_fault("outpost.findings", {"uri": (other.path / "b.py").as_uri()}))[
            "code"
        ] == -32602
        folder = {"uri": other.path.as_uri(), "name": "other"}
        server.notify("workspace/didChangeWorkspaceFolders", {"event": {"added": [folder], "removed": []}})
        run = (await server.command("outpost.review", {"uri": (other.path / "b.py").as_uri(), "wait": True}))["run"]
        assert run["workspace"] == other.path.as_uri()
        assert run["findings"] == 1
        server.notify("workspace/didChangeWorkspaceFolders", {"event": {"added": [], "removed": [folder]}})
        await server.notification("textDocument/publishDiagnostics", lambda params: params["diagnostics"] == [])
        fault = await server.command_fault("outpost.review", {"uri": (other.path / "b.py").as_uri()})
        assert fault["code"] == -32602


async def test_without_a_folder_commands_say_so(tmp_path: Any) -> None:
    async with running_server() as server:
        await server.initialize(None)
        fault = await server.command_fault("outpost.review")
        assert fault["code"] == -32602
        assert "folder" in fault["message"]
        assert await server.command("outpost.runs") == {"runs": []}
        assert await server.command("outpost.findings") == {"findings": []}


async def _until_agent(server: ServerProcess, name: str) -> None:
    """Settings are read beside the requests: ask until the agent is there."""
    async with asyncio.timeout(60):
        while name not in await _agents(server):
            await asyncio.sleep(0.01)
