"""A review from the command to the squiggle, by a real server against a real model service."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest

from outpost_lsp.protocol.commands import COMMANDS
from outpost_lsp.protocol.notifications import NOTIFICATIONS
from tests.lsp.conftest import reporting, settings_for
from tests.lsp.server_process import running_server
from tests.support.model_answers import Answer
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository

_EDITS = {"workspace": {"workspaceEdit": {"documentChanges": True}}}
_LITERALS = {"codeActionLiteralSupport": {"codeActionKind": {"valueSet": ["quickfix"]}}}


def _text_in(text: str, place: Mapping[str, Any], encoding: str) -> str:
    """What a client of this encoding shows as highlighted."""
    line = text.splitlines()[place["start"]["line"]]
    width = {"utf-8": 1, "utf-16": 2, "utf-32": 4}[encoding]
    data = line.encode(f"{encoding}-le" if width > 1 else encoding)
    return data[place["start"]["character"] * width : place["end"]["character"] * width].decode(
        f"{encoding}-le" if width > 1 else encoding
    )


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
async def test_a_review_publishes_its_findings_and_tells_of_routes_usage_and_events(
    changed: RealRepository, service: ModelServer, api: str
) -> None:
    service.add(Answer(text="Looking.", calls=[reporting()]), "One thing is wrong.")
    async with running_server() as server:
        await server.initialize(changed.path, options={"settings": settings_for(service, api)})
        result = await server.command("outpost.review", {"wait": True})
        COMMANDS["outpost.review"].result.model_validate(result)
        run = result["run"]
        assert run["status"] == "succeeded"
        assert run["text"] == "One thing is wrong."
        assert run["findings"] == 1
        assert run["models"] == ["small"]
        assert run["usage"] == {"input": 20, "cached": 0, "output": 10, "complete": True} | (
            {"cacheCreated": 0} if api == "messages" else {}
        )
        assert run["base"] == changed.head
        assert run["scope"] == {"scope": "uncommitted"}
        published = server.all("textDocument/publishDiagnostics")[-1]
        [diagnostic] = published["diagnostics"]
        text = (changed.path / "src/main.py").read_text()
        assert published["uri"] == (changed.path / "src/main.py").as_uri()
        assert _text_in(text, diagnostic["range"], "utf-16") == "total = count + 1"
        assert diagnostic["severity"] == 1
        assert diagnostic["code"] == "undefined-name"
        assert diagnostic["source"] == "outpost"
        assert diagnostic["message"] == "count is not defined"
        assert diagnostic["data"]["runId"] == run["id"]
        usages = server.all("$/outpost/usage")
        assert [one["total"]["output"] for one in usages] == [5, 10]
        kinds = [one["event"]["kind"] for one in server.all("$/outpost/event")]
        assert "text-delta" not in kinds
        assert {"step", "text", "tool", "tool-result", "finding", "usage", "finished"} <= set(kinds)
        for message in server.received:
            shape = NOTIFICATIONS.get(message.get("method", ""))
            if shape is not None:
                shape.params.model_validate(message["params"])


async def test_every_notification_of_a_run_comes_before_the_one_that_ends_it_and_the_answer_last(
    changed: RealRepository, service: ModelServer
) -> None:
    service.add(Answer(calls=[reporting()]), "Done.")
    async with running_server() as server:
        await server.initialize(
            changed.path, options={"settings": settings_for(service), "events": "all"}, capabilities={}
        )
        asked = server.begin_command("outpost.review", {"wait": True}, workDoneToken="mine")
        answer = await server.answer_to(asked)
        run_id = answer["result"]["run"]["id"]
        ours = [one for one in server.received if run_id in str(one) or "mine" in str(one) or "showMessage" in str(one)]
        assert ours[-1] is answer
        assert ours[-2]["method"] == "$/outpost/run"
        assert ours[-2]["params"]["run"]["status"] == "succeeded"
        statuses = [one["run"]["status"] for one in server.all("$/outpost/run")]
        assert statuses[0] == "queued"
        assert statuses.count("succeeded") == 1
        progress = [one["value"]["kind"] for one in server.all("$/progress") if one["token"] == "mine"]
        assert progress[0] == "begin"
        assert progress[-1] == "end"
        assert progress.count("end") == 1
        messages = server.all("window/showMessage")
        assert len(messages) == 1
        assert "1 finding (1 error)" in messages[0]["message"]
        deltas = [one for one in server.all("$/outpost/event") if one["event"]["kind"] == "text-delta"]
        assert "".join(one["event"]["text"] for one in deltas) == "Done."


@pytest.mark.parametrize("level", ["off", "summary", "all"])
async def test_events_are_sent_as_subscribed(changed: RealRepository, service: ModelServer, level: str) -> None:
    service.add(Answer(text="word " * 200, pieces=200))
    async with running_server() as server:
        await server.initialize(changed.path, options={"settings": settings_for(service), "events": level})
        start = time.monotonic()
        await server.command("outpost.review", {"wait": True})
        most = 2 + 20 * (time.monotonic() - start)
        kinds = [one["event"]["kind"] for one in server.all("$/outpost/event")]
        assert bool(kinds) == (level != "off")
        assert ("text-delta" in kinds) == (level == "all")
        assert kinds.count("text-delta") <= most


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
async def test_a_finding_after_an_emoji_highlights_the_same_text_in_every_encoding(
    changed: RealRepository, service: ModelServer, encoding: str
) -> None:
    service.add(Answer(calls=[reporting()]), "Done.")
    text = (changed.path / "src/main.py").read_text()
    async with running_server() as server:
        await server.initialize(
            changed.path,
            options={"settings": settings_for(service)},
            capabilities={
                "general": {"positionEncodings": [encoding]},
                "textDocument": {"codeAction": _LITERALS},
                **_EDITS,
            },
        )
        await server.command("outpost.review", {"wait": True})
        [finding] = (await server.command("outpost.findings"))["findings"]
        assert _text_in(text, finding["range"], encoding) == "total = count + 1"
        [edit] = finding["suggestion"]["edits"]
        assert _text_in(text, edit["range"], encoding) == "total = count + 1"
        place = {"textDocument": {"uri": finding["uri"]}, "position": finding["range"]["start"]}
        hover = await server.request("textDocument/hover", place)
        assert "count is not defined" in hover["contents"]["value"]
        assert "NameError" in hover["contents"]["value"]
        assert hover["range"] == finding["range"]
        before = {**place["position"], "character": place["position"]["character"] - 1}
        assert await server.request("textDocument/hover", place | {"position": before}) is None


@pytest.mark.parametrize("buffer", ["closed", "without the mark", "with the mark"])
async def test_a_byte_order_mark_shifts_no_finding(
    repository: RealRepository, service: ModelServer, buffer: str
) -> None:
    text = "total = count + 1  # \u4e2d\n"
    file = repository.write("src/main.py", f"\ufeff{text}")
    service.add(Answer(calls=[reporting(line=1)]), "Done.")
    async with running_server() as server:
        await server.initialize(repository.path, options={"settings": settings_for(service)}, capabilities=_EDITS)
        seen = f"\ufeff{text}" if buffer == "with the mark" else text
        if buffer != "closed":
            server.open(file.as_uri(), seen)
        await server.command("outpost.review", {"wait": True})
        [diagnostic] = server.all("textDocument/publishDiagnostics")[-1]["diagnostics"]
        assert _text_in(seen, diagnostic["range"], "utf-16") == "total = count + 1"
        if buffer != "closed":
            server.change(file.as_uri(), 2, (0, 0 if seen == text else 1), (0, 0 if seen == text else 1), "x = 1; ")
            params = await server.notification("textDocument/publishDiagnostics", lambda one: one.get("version") == 2)
            seen = seen.replace("total", "x = 1; total")
            assert _text_in(seen, params["diagnostics"][0]["range"], "utf-16") == "total = count + 1"


async def test_an_offline_review_needs_no_service_and_no_settings(changed: RealRepository) -> None:
    async with running_server() as server:
        await server.initialize(changed.path)
        run = (await server.command("outpost.review", {"wait": True}))["run"]
        assert run["status"] == "succeeded"
        assert run["models"] == ["offline"]
        assert run["usage"] == {"input": 0, "cached": 0, "output": 0, "complete": True}
        codes = [one["code"] for one in server.all("textDocument/publishDiagnostics")[-1]["diagnostics"]]
        assert codes == ["undefined-name"]


async def test_a_review_without_changes_succeeds_at_once_and_says_so(
    repository: RealRepository, service: ModelServer
) -> None:
    async with running_server() as server:
        await server.initialize(repository.path, options={"settings": settings_for(service)})
        run = (await server.command("outpost.review", {"wait": True}))["run"]
        assert run["status"] == "succeeded"
        assert run["notes"]
        assert service.requests == []
        assert len(server.all("window/showMessage")) == 1


async def test_a_review_is_answered_at_once_unless_it_waits(changed: RealRepository, service: ModelServer) -> None:
    service.add(Answer(silent=True))
    async with running_server() as server:
        await server.initialize(changed.path, options={"settings": settings_for(service)})
        run = (await server.command("outpost.review"))["run"]
        assert run["status"] in ("queued", "preparing")
        await server.notification("$/outpost/run", lambda params: params["run"]["status"] == "running")
        assert (await server.command("outpost.cancel", {"runId": run["id"]})) == {"cancelled": True}
        await server.notification("$/outpost/run", lambda params: params["run"]["status"] == "cancelled")
        assert (await server.command("outpost.cancel", {"runId": run["id"]})) == {"cancelled": False}


async def test_unsaved_text_is_what_is_reviewed_and_the_file_stays(
    changed: RealRepository, service: ModelServer
) -> None:
    service.add(Answer(calls=[{"name": "read_file", "input": {"path": "src/main.py"}}]), "Done.")
    file = changed.path / "src/main.py"
    before = file.read_bytes()
    async with running_server() as server:
        await server.initialize(changed.path, options={"settings": settings_for(service)})
        server.open(file.as_uri(), file.read_text())
        server.change(file.as_uri(), 2, (0, 0), (0, 0), "unsaved = True\n")
        await server.command("outpost.review", {"wait": True})
    assert b"unsaved = True" in service.requests[-1].body
    assert file.read_bytes() == before


async def test_what_names_nothing_is_refused_by_field_and_starts_nothing(changed: RealRepository) -> None:
    refused: list[tuple[Any, str]] = [
        ({"scope": "branch", "base": "--output=x"}, "base"),
        ({"scope": "branch", "base": "nothing-like-it"}, "base"),
        ({"scope": "commit", "revision": "-foo"}, "revision"),
        ({"scope": "commit", "revision": "0" * 40}, "revision"),
        ({"agent": "nobody"}, "agent"),
        ({"scope": "file", "uri": "file:///nowhere/at/all.py"}, "uri"),
        ({"scope": "file", "uri": f"{changed.path.as_uri()}/gone.py"}, "uri"),
        ({"scope": "file", "uri": "untitled:Untitled-1"}, "uri"),
        ({"scope": "all"}, "scope"),
        ({"colour": "red"}, "colour"),
        ([], "arguments"),
        ("review", "arguments"),
    ]
    async with running_server() as server:
        await server.initialize(changed.path)
        for argument, field in refused:
            fault = await server.command_fault("outpost.review", argument)
            assert fault["code"] == -32602, argument
            assert field in fault["message"], argument
        assert (await server.command("outpost.runs"))["runs"] == []
        assert not (changed.path / "x").exists()


async def test_a_command_that_does_not_exist_and_a_second_argument_are_refused(repository: RealRepository) -> None:
    async with running_server() as server:
        await server.initialize(repository.path)
        assert (await server.command_fault("outpost.nothing"))["code"] == -32602
        call = {"command": "outpost.runs", "arguments": [{}, {}]}
        assert (await server.fault("workspace/executeCommand", call))["code"] == -32602
        for arguments in (None, [], [None], [{}]):
            call = {"command": "outpost.runs", "arguments": arguments}
            assert await server.request("workspace/executeCommand", call) == {"runs": []}


async def test_a_folder_without_a_repository_gets_one_clear_sentence(tmp_path: Any) -> None:
    async with running_server() as server:
        await server.initialize(tmp_path)
        fault = await server.command_fault("outpost.review")
        assert fault["code"] in (-32602, -32803)
        assert "repository" in fault["message"]
        assert "Traceback" not in fault["message"]
        assert (await server.command("outpost.agents"))["agents"]


async def test_a_failing_service_ends_the_run_with_its_reason_and_one_message(
    changed: RealRepository, service: ModelServer
) -> None:
    service.add(Answer(status=401, json={"error": {"message": "who are you"}}))
    async with running_server() as server:
        await server.initialize(changed.path, options={"settings": settings_for(service)})
        run = (await server.command("outpost.review", {"wait": True}))["run"]
        assert run["status"] == "failed"
        assert run["error"]["code"] == "provider"
        messages = server.all("window/showMessage")
        assert [one["type"] for one in messages] == [1]
        assert "failed" in messages[0]["message"]
