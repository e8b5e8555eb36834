"""Sentences of the protocol that no other test has: what is told, marked, chosen and refused (sections 1 to 5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from outpost_lsp.protocol.commands import COMMANDS
from tests.lsp.conftest import reporting, settings_for
from tests.lsp.server_inside import InsideServer, inside_server
from tests.support.model_answers import Answer
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository, make_repository

_LITERALS = {"codeActionLiteralSupport": {"codeActionKind": {"valueSet": ["quickfix"]}}}


def _write(path: str, content: str) -> dict[str, Any]:
    return {"name": "write_file", "input": {"path": path, "content": content}}


async def _dispatch(server: InsideServer, **more: Any) -> Any:
    argument = {"agent": "fixer", "brief": "Do it.", "wait": True, **more}
    return (await server.command("outpost.dispatch", argument))["run"]


async def _agents_of(server: InsideServer) -> set[str]:
    return {one["name"] for one in (await server.command("outpost.agents"))["agents"]}


# Section 1


async def test_trust_may_be_the_list_of_the_folders_that_are_trusted(tmp_path: Path) -> None:
    program = '[agents.{name}]\ncommand = ["some-agent", "--acp"]\n'
    first = make_repository(tmp_path / "first", {"outpost.toml": program.format(name="outside1")})
    second = make_repository(tmp_path / "second", {"outpost.toml": program.format(name="outside2")})
    folders = [{"uri": one.path.as_uri(), "name": one.path.name} for one in (first, second)]
    async with inside_server() as server:
        await server.request(
            "initialize",
            {
                "processId": None,
                "capabilities": {},
                "workspaceFolders": folders,
                "initializationOptions": {"trusted": [second.path.as_uri()]},
            },
        )
        server.notify("initialized", {})
        listed = await _agents_of(server)
        assert "outside2" in listed
        assert "outside1" not in listed
        told = await server.notification("window/showMessage", lambda params: "outside1" in params["message"])
        assert told["type"] == 2


@pytest.mark.parametrize(
    ("option", "setting", "sent"), [("off", "all", "off"), (None, "off", "off"), (None, "all", "all")]
)
async def test_the_events_that_the_client_asks_for_win_over_those_of_the_settings(
    changed: RealRepository, service: ModelServer, option: str | None, setting: str, sent: str
) -> None:
    service.add(Answer(text="Nothing to say.", reasoning="Hm."))
    options: dict[str, Any] = {"settings": settings_for(service, runs={"events": setting})}
    if option is not None:
        options["events"] = option
    async with inside_server() as server:
        await server.initialize(changed.path, options=options)
        await server.command("outpost.review", {"wait": True})
        kinds = {one["event"]["kind"] for one in server.all("$/outpost/event")}
        assert ("text-delta" in kinds) == (sent == "all")
        assert bool(kinds) == (sent != "off")


# Section 2


async def test_the_range_of_a_finding_covers_its_quote_without_the_space_around_it(
    repository: RealRepository, service: ModelServer
) -> None:
    repository.write("src/main.py", "def first():\n    total = count + 1  \n    return total\n")
    service.add(Answer(calls=[reporting(quote="    total = count + 1  ", replacement=None)]), "Done.")
    async with inside_server() as server:
        await server.initialize(repository.path, options={"settings": settings_for(service)})
        await server.command("outpost.review", {"wait": True})
        [finding] = (await server.command("outpost.findings"))["findings"]
        assert finding["range"] == {"start": {"line": 1, "character": 4}, "end": {"line": 1, "character": 21}}
        assert "suggestion" not in finding
        assert finding["inDiff"] is True


async def test_a_finding_whose_quote_or_path_is_not_there_is_refused_and_counted(
    changed: RealRepository, service: ModelServer
) -> None:
    wrong = [reporting(quote="no such text"), reporting(path="src/none.py"), reporting()]
    service.add(Answer(calls=wrong), "Done.")
    async with inside_server() as server:
        await server.initialize(changed.path, options={"settings": settings_for(service)})
        run = (await server.command("outpost.review", {"wait": True}))["run"]
        assert (run["findings"], run["rejected"]) == (1, 2)
        assert len((await server.command("outpost.findings"))["findings"]) == 1


# Section 3


async def test_a_run_that_met_its_limit_goes_on_under_a_higher_one(
    repository: RealRepository, service: ModelServer
) -> None:
    service.add(Answer(calls=[{"name": "read_file", "input": {"path": "a.txt"}}]), "Read.")
    settings = settings_for(service, agents={"short": {"tools": ["files"], "limits": {"maxSteps": 1}}})
    async with inside_server() as server:
        await server.initialize(repository.path, options={"settings": settings})
        met = await _dispatch(server, agent="short")
        assert (met["status"], met["error"]["code"]) == ("failed", "limit")
        argument = {"conversation": met["conversation"], "brief": "Go on.", "limits": {"maxSteps": 5}, "wait": True}
        run = (await server.command("outpost.continue", argument))["run"]
        assert (run["kind"], run["agent"], run["status"], run["text"]) == ("continue", "short", "succeeded", "Read.")


async def test_findings_are_listed_by_file_and_status_and_cleared_by_file(
    repository: RealRepository, service: ModelServer
) -> None:
    repository.write("src/main.py", "total = count + 1\n")
    repository.write("other.py", "total = count + 1\n")
    service.add(Answer(calls=[reporting(), reporting(path="other.py")]), "Done.")
    main, other = ((repository.path / name).as_uri() for name in ("src/main.py", "other.py"))
    async with inside_server() as server:
        await server.initialize(repository.path, options={"settings": settings_for(service)})
        await server.command("outpost.review", {"wait": True})
        [of_main] = (await server.command("outpost.findings", {"uri": main}))["findings"]
        assert of_main["uri"] == main
        argument = {"findingId": of_main["id"], "reason": "known", "until": "2999-01-01"}
        dismissed = (await server.command("outpost.dismiss", argument))["finding"]
        assert dismissed["status"] == "dismissed"
        assert {key: dismissed["dismissal"][key] for key in ("reason", "until")} == {
            "reason": "known",
            "until": "2999-01-01",
        }
        for status, uri in (("dismissed", main), ("open", other)):
            [found] = (await server.command("outpost.findings", {"status": status}))["findings"]
            assert found["uri"] == uri
        assert await server.command("outpost.clear", {"uri": other}) == {"cleared": 1}
        assert await server.command("outpost.clear", {"uri": other}) == {"cleared": 0}
        [left] = (await server.command("outpost.findings"))["findings"]
        assert left["id"] == of_main["id"]
        restored = (await server.command("outpost.restore", {"findingId": of_main["id"]}))["finding"]
        assert (restored["status"], "dismissal" in restored) == ("open", False)


async def test_what_is_applied_can_be_reopened_and_what_is_over_says_so(
    repository: RealRepository, service: ModelServer
) -> None:
    service.add(Answer(calls=[_write("a.txt", "new\n")]), "Done.", "Nothing.")
    async with inside_server() as server:
        await server.initialize(repository.path, options={"settings": settings_for(service)})
        run = await _dispatch(server)
        assert (await server.command("outpost.apply", {"runId": run["id"]}))["applied"] is True
        await server.notification(
            "$/outpost/run",
            lambda params: params["run"]["disposition"] == "applied" and params["run"]["id"] == run["id"],
        )
        assert await server.command("outpost.discard", {"runId": run["id"]}) == {"discarded": False}
        again = (await server.command("outpost.reopen", {"runId": run["id"]}))["run"]
        assert again["disposition"] == "pending"
        nothing = await _dispatch(server)
        assert nothing["disposition"] == "none"
        assert await server.command("outpost.diff", {"runId": nothing["id"]}) == {"files": [], "patch": ""}
        fault = await server.command_fault("outpost.reopen", {"runId": nothing["id"]})
        assert (fault["code"], fault["message"].partition(":")[0]) == (-32602, "runId")


async def test_the_diff_names_what_became_of_each_file_and_leaves_the_texts_of_binary_ones_out(
    repository: RealRepository, service: ModelServer
) -> None:
    repository.write("data.bin", "\0one\n")
    repository.write("gone.txt", "gone\n")
    repository.commit_all()
    edits = [
        _write("data.bin", "\0two\n"),
        _write("a.txt", "one\ntwo\nfour\n"),
        _write("new file.txt", "new\n"),
        {"name": "delete_file", "input": {"path": "gone.txt"}},
    ]
    service.add(Answer(calls=edits), "Done.")
    async with inside_server() as server:
        await server.initialize(repository.path, options={"settings": settings_for(service)})
        run = await _dispatch(server)
        shown = await server.command("outpost.diff", {"runId": run["id"]})
        COMMANDS["outpost.diff"].result.model_validate(shown)
        files = {one["path"]: one for one in shown["files"]}
        assert {path: one["status"] for path, one in files.items()} == {
            "a.txt": "modified",
            "data.bin": "modified",
            "gone.txt": "deleted",
            "new file.txt": "added",
        }
        assert not {"before", "after"} & files["data.bin"].keys()
        assert (files["a.txt"]["before"], files["a.txt"]["after"]) == ("one\ntwo\nthree\n", "one\ntwo\nfour\n")
        assert "before" not in files["new file.txt"]
        assert "after" not in files["gone.txt"]
        assert files["new file.txt"]["uri"] == (repository.path / "new file.txt").as_uri()
        for pattern in ("*.txt", "."):
            fault = await server.command_fault("outpost.apply", {"runId": run["id"], "paths": [pattern]})
            assert (fault["code"], fault["message"].partition(":")[0]) == (-32602, "paths")


async def test_worktrees_and_checks_are_listed_in_the_shapes_of_the_protocol(repository: RealRepository) -> None:
    async with inside_server() as server:
        await server.initialize(repository.path)
        for name in ("outpost.worktrees", "outpost.doctor", "outpost.runs", "outpost.agents"):
            COMMANDS[name].result.model_validate(await server.command(name))


# Section 4


async def test_a_route_by_the_rules_names_its_rule(changed: RealRepository, service: ModelServer) -> None:
    service.add(Answer(calls=[reporting()]), "Done.")
    settings = settings_for(service, agents={"reviewer": {"routing": "rules"}})
    settings["models"] |= {one: {"provider": "local", "name": f"{one}-1"} for one in ("fast", "deep")}
    async with inside_server() as server:
        await server.initialize(changed.path, options={"settings": settings})
        run = (await server.command("outpost.review", {"wait": True}))["run"]
        assert run["status"] == "succeeded", run
        routes = server.all("$/outpost/route")
        assert len(routes) == 2
        for route, request in zip(routes, service.requests, strict=True):
            assert route["rule"]
            assert route["reason"] in ("selected", "confidence")
            assert route["model"] == request.json["model"]
        shown = await server.command("outpost.show", {"runId": run["id"]})
        assert [one["choice"] for one in shown["routes"]] == [one["choice"] for one in routes]
        [finding] = (await server.command("outpost.findings"))["findings"]
        place = {"textDocument": {"uri": finding["uri"]}, "position": finding["range"]["start"]}
        hover = (await server.request("textDocument/hover", place))["contents"]["value"]
        assert f"model {routes[0]['model']} (route {routes[0]['choice']})" in hover.replace("\\", "")


# Section 5


async def test_actions_on_a_finding_are_marked_as_written_by_a_model_where_the_client_knows_the_mark(
    changed: RealRepository, service: ModelServer
) -> None:
    for knows in (True, False):
        service.add(Answer(calls=[reporting(confidence=0.75)]), "Done.")
        abilities: dict[str, Any] = dict(_LITERALS)
        if knows:
            abilities["tagSupport"] = {"valueSet": [1]}
        async with inside_server() as server:
            await server.initialize(
                changed.path,
                options={"settings": settings_for(service)},
                capabilities={"textDocument": {"codeAction": abilities, "hover": {"contentFormat": ["plaintext"]}}},
            )
            await server.command("outpost.review", {"wait": True})
            [finding] = (await server.command("outpost.findings"))["findings"]
            actions = await server.request(
                "textDocument/codeAction",
                {
                    "textDocument": {"uri": finding["uri"]},
                    "range": finding["range"],
                    "context": {"diagnostics": []},
                },
            )
            of_finding = [one for one in actions if one["kind"] == "quickfix"]
            assert len(of_finding) == 3
            assert [one.get("tags") for one in of_finding] == [[1] if knows else None] * 3
            assert [one.get("isPreferred") for one in of_finding] == [True, None, None]
            of_place = [one for one in actions if one["kind"] == "source.outpost.review"]
            assert [one["command"]["arguments"][0]["scope"] for one in of_place] == ["selection", "file"]
            assert not any("tags" in one for one in of_place)
            place = {"textDocument": {"uri": finding["uri"]}, "position": finding["range"]["start"]}
            hover = (await server.request("textDocument/hover", place))["contents"]
            assert hover["kind"] == "plaintext"
            assert "It raises" in hover["value"]
            assert "found by reviewer · model small · confidence 0.75" in hover["value"]
