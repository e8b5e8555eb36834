"""What clients send that they should not, and what they leave unanswered: a clear refusal each time, and the server goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from outpost_lsp.protocol import names
from outpost_lsp.protocol.commands import COMMANDS
from tests.lsp.conftest import reporting, settings_for
from tests.lsp.server_process import running_server
from tests.support.model_answers import Answer
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository

_REQUIRED = {
    name for name, shape in COMMANDS.items() if any(field.is_required() for field in shape.params.model_fields.values())
}
_STARTING = {"outpost.review"}
"""Commands that need nothing and start a run: they are asked to, elsewhere."""


async def test_every_command_refuses_what_is_no_argument_and_takes_none_for_an_empty_one(
    repository: RealRepository,
) -> None:
    async with running_server() as server:
        await server.initialize(repository.path)
        for name in names.COMMANDS:
            odd: list[Any] = [[{}, {}], [[]], [3], ["text"], [True], [{"noSuchField": 1}], {}, "text", 3]
            for arguments in odd:
                fault = await server.fault("workspace/executeCommand", {"command": name, "arguments": arguments})
                assert fault["code"] == -32602, (name, arguments, fault)
                assert fault["message"], (name, arguments)
            for arguments in ([], [None], None):
                message = await server.answer_to(
                    server.begin("workspace/executeCommand", {"command": name, "arguments": arguments})
                )
                if name in _REQUIRED:
                    assert message["error"]["code"] == -32602, (name, message)
                elif name in _STARTING:
                    assert message["result"]["run"]["status"] == "queued"
                else:
                    COMMANDS[name].result.model_validate(message["result"])
        assert b"Traceback" not in server.log
        assert await server.shut_down() == 0


async def test_places_past_the_end_are_cut_to_the_text(changed: RealRepository) -> None:
    uri = (changed.path / "src/main.py").as_uri()
    far = {"start": {"line": 0, "character": 0}, "end": {"line": 2_000_000_000, "character": 2_000_000_000}}
    async with running_server() as server:
        await server.initialize(changed.path)
        server.open(uri, (changed.path / "src/main.py").read_text())
        asked = {"scope": "selection", "uri": uri, "range": far, "wait": True}
        run = (await server.command("outpost.review", asked))["run"]
        assert run["status"] == "succeeded"
        assert run["findings"] == 1
        place = {"textDocument": {"uri": uri}, "position": far["end"]}
        assert await server.request("textDocument/hover", place) is None
        actions = {"textDocument": {"uri": uri}, "range": far, "context": {"diagnostics": []}}
        assert await server.request("textDocument/codeAction", actions)
        backwards = {"start": far["end"], "end": far["start"]}
        run = (await server.command("outpost.review", asked | {"range": backwards}))["run"]
        assert run["status"] == "succeeded"
        for ill in ({"line": -1, "character": 0}, {"line": 1.5, "character": 0}, {"line": "1", "character": 0}, {}):
            fault = await server.command_fault("outpost.review", asked | {"range": {"start": ill, "end": ill}})
            assert fault["code"] == -32602
            assert "range" in fault["message"]


async def test_documents_that_are_nowhere_are_refused_by_name_and_shown_nothing(
    changed: RealRepository, tmp_path: Path
) -> None:
    outside = tmp_path / "outside.py"
    outside.write_text("x = 1\n")
    uris = (
        outside.as_uri(),
        "untitled:Untitled-1",
        "git:/a.py?b",
        "http://example.invalid/a.py",
        "",
        "no uri",
        "file:",
    )
    async with running_server() as server:
        await server.initialize(changed.path)
        for uri in uris:
            for name, more in (
                ("outpost.review", {"scope": "file"}),
                ("outpost.findings", {}),
                ("outpost.clear", {}),
                ("outpost.coordinate", {"brief": "b"}),
                ("outpost.trust", {"trusted": True}),
            ):
                fault = await server.command_fault(name, {"uri": uri, **more})
                assert fault["code"] == -32602, (name, uri)
                assert "uri" in fault["message"], (name, uri, fault)
                assert uri or fault["message"].startswith("uri: is blank; the URI of a document or folder")
        gone = changed.path / "src/gone.py"
        fault = await server.command_fault("outpost.review", {"scope": "file", "uri": gone.as_uri()})
        assert fault["code"] == -32602
        assert "gone.py" in fault["message"]
        assert (await server.command("outpost.runs"))["runs"] == []


async def test_a_file_that_is_deleted_under_an_open_document_and_its_findings(changed: RealRepository) -> None:
    file = changed.path / "src/main.py"
    uri = file.as_uri()
    async with running_server() as server:
        await server.initialize(changed.path)
        await server.command("outpost.review", {"wait": True})
        [finding] = (await server.command("outpost.findings"))["findings"]
        text = file.read_text()
        file.unlink()
        server.notify("workspace/didChangeWatchedFiles", {"changes": [{"uri": uri, "type": 3}]})
        await server.notification("textDocument/publishDiagnostics", lambda params: params["diagnostics"] == [])
        assert (await server.command("outpost.findings", {"uri": uri}))["findings"][0]["status"] == "stale"
        place = {"textDocument": {"uri": uri}, "position": finding["range"]["start"]}
        assert await server.request("textDocument/hover", place) is None
        server.open(uri, text)
        await server.notification("textDocument/publishDiagnostics", lambda params: params.get("version") == 1)
        assert "undefined" in str(await server.request("textDocument/hover", place)).lower()


async def test_answers_that_never_come_or_come_late_keep_nobody_waiting(
    changed: RealRepository, service: ModelServer
) -> None:
    abilities = {
        "window": {"workDoneProgress": True, "showDocument": {"support": True}},
        "workspace": {
            "configuration": True,
            "codeLens": {"refreshSupport": True},
            "didChangeWatchedFiles": {"dynamicRegistration": True},
        },
    }
    late: dict[str, Any] = {}

    def never(_params: Any) -> Any:
        return NotImplemented

    service.add(Answer(calls=[reporting()]), "Done.")
    async with running_server() as server:
        for method in (
            "window/workDoneProgress/create",
            "workspace/configuration",
            "workspace/codeLens/refresh",
            "client/registerCapability",
        ):
            server.answers[method] = never
        await server.initialize(changed.path, options={"settings": settings_for(service)}, capabilities=abilities)
        run = (await server.command("outpost.review", {"wait": True}))["run"]
        assert (run["status"], run["findings"]) == ("succeeded", 1)
        for message in list(server.received):
            if "id" in message and "method" in message:
                late[message["method"]] = message["id"]
                server.send({"jsonrpc": "2.0", "id": message["id"], "result": None})
                server.send({"jsonrpc": "2.0", "id": message["id"], "error": {"code": 1, "message": "late"}})
        assert "workspace/configuration" in late
        assert (await server.command("outpost.runs"))["runs"][0]["id"] == run["id"]
        outcomes = [one for one in server.all("window/showMessage") if "1 finding" in one["message"]]
        assert len(outcomes) == 1
        assert await server.shut_down() == 0
        assert b"Traceback" not in server.log


async def test_rel_12_two_clients_on_one_repository_see_each_others_findings(
    changed: RealRepository, service: ModelServer
) -> None:
    uri = (changed.path / "src/main.py").as_uri()
    service.add(Answer(calls=[reporting()]), "Done.")
    options = {"settings": settings_for(service)}
    async with running_server() as first, running_server() as second:
        await asyncio.gather(
            first.initialize(changed.path, options=options), second.initialize(changed.path, options=options)
        )
        await second.command("outpost.agents")
        await first.command("outpost.review", {"wait": True})
        seen = await second.notification("textDocument/publishDiagnostics", lambda params: params["uri"] == uri)
        assert len(seen["diagnostics"]) == 1
        [finding] = (await second.command("outpost.findings"))["findings"]
        await second.command("outpost.dismiss", {"findingId": finding["id"], "reason": "meant"})
        await first.notification("textDocument/publishDiagnostics", lambda params: params["diagnostics"] == [])
        assert [one["status"] for one in (await first.command("outpost.findings"))["findings"]] == ["dismissed"]
        assert len((await second.command("outpost.runs"))["runs"]) == 1
