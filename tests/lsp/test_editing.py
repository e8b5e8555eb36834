"""Findings follow edits, publishes are of the present, and the text is the client's (REL-14, -16, -17, -18, U-01 to U-03)."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest

from outpost_lsp.domain.markdown import one_line
from outpost_lsp.protocol.names import ENCODINGS, Encoding
from outpost_lsp.protocol.positions import encoded_units, split_lines, without_line_end
from tests.lsp.conftest import reporting, settings_for
from tests.lsp.server_process import ServerProcess, running_server
from tests.support.model_answers import Answer
from tests.support.model_saying import Received
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository

_LITERALS = {"codeAction": {"codeActionLiteralSupport": {"codeActionKind": {"valueSet": ["quickfix"]}}}}
_ABILITIES = {"textDocument": _LITERALS, "workspace": {"workspaceEdit": {"documentChanges": True}}}


async def _reviewed(
    server: ServerProcess, changed: RealRepository, service: ModelServer, **options: Any
) -> tuple[str, str]:
    """An open document with one finding; its URI and text."""
    file = changed.path / "src/main.py"
    service.add(Answer(calls=[reporting()]), "Done.")
    await server.initialize(
        changed.path, options={"settings": settings_for(service), **options}, capabilities=_ABILITIES
    )
    server.open(file.as_uri(), file.read_text())
    await server.command("outpost.review", {"wait": True})
    return file.as_uri(), file.read_text()


def _published(server: ServerProcess, uri: str) -> list[Mapping[str, Any]]:
    return [one for one in server.all("textDocument/publishDiagnostics") if one["uri"] == uri]


async def test_u_02_lines_inserted_above_move_the_finding_and_carry_the_new_version(
    changed: RealRepository, service: ModelServer
) -> None:
    async with running_server() as server:
        uri, _ = await _reviewed(server, changed, service)
        assert _published(server, uri)[-1]["version"] == 1
        server.change(uri, 2, (0, 0), (0, 0), "#\n#\n#\n")
        moved = await server.notification("textDocument/publishDiagnostics", lambda params: params.get("version") == 2)
        assert moved["diagnostics"][0]["range"]["start"]["line"] == 4
        assert [one["version"] for one in _published(server, uri)] == sorted(
            one["version"] for one in _published(server, uri)
        )


async def test_while_edits_keep_coming_few_publishes_are_sent_and_the_last_always(
    changed: RealRepository, service: ModelServer
) -> None:
    async with running_server() as server:
        uri, _ = await _reviewed(server, changed, service)
        before, start = len(_published(server, uri)), time.monotonic()
        for version in range(2, 602):
            server.change(uri, version, (0, 0), (0, 0), "#\n")
        last = await server.notification("textDocument/publishDiagnostics", lambda params: params.get("version") == 601)
        assert last["diagnostics"][0]["range"]["start"]["line"] == 601
        assert len(_published(server, uri)) - before <= 3 + 10 * (time.monotonic() - start)


async def test_u_01_a_finding_whose_text_is_edited_turns_into_a_hint_and_comes_back_with_undo(
    changed: RealRepository, service: ModelServer
) -> None:
    async with running_server() as server:
        uri, _ = await _reviewed(server, changed, service)
        [finding] = (await server.command("outpost.findings", {"uri": uri}))["findings"]
        end = finding["range"]["end"]["character"]
        server.change(uri, 2, (1, end - 1), (1, end), "23456")
        stale = await server.notification("textDocument/publishDiagnostics", lambda params: params.get("version") == 2)
        [diagnostic] = stale["diagnostics"]
        assert diagnostic["severity"] == 4
        assert diagnostic["data"]["stale"] is True
        [finding] = (await server.command("outpost.findings", {"uri": uri, "status": "stale"}))["findings"]
        assert finding["id"] == diagnostic["data"]["findingId"]
        server.change(uri, 3, (1, end - 1), (1, end + 4), "1")
        back = await server.notification("textDocument/publishDiagnostics", lambda params: params.get("version") == 3)
        assert back["diagnostics"][0]["severity"] == 1
        server.change(uri, 4, (1, 0), (1, 99), "")
        gone = await server.notification("textDocument/publishDiagnostics", lambda params: params.get("version") == 4)
        assert gone["diagnostics"] == []


async def test_u_03_a_review_that_ends_after_edits_publishes_at_the_new_version_and_place(
    changed: RealRepository, service: ModelServer
) -> None:
    file = changed.path / "src/main.py"
    is_asked, are_edited = threading.Event(), threading.Event()

    def after_the_edits(_: Received) -> Answer:
        is_asked.set()
        assert are_edited.wait(60)
        return Answer(calls=[reporting()])

    service.add(Answer(calls=[{"name": "read_file", "input": {"path": "src/main.py"}}]), after_the_edits, "Done.")
    async with running_server() as server:
        await server.initialize(changed.path, options={"settings": settings_for(service)})
        server.open(file.as_uri(), file.read_text(), version=5)
        asked = server.begin_command("outpost.review", {"wait": True})
        assert await asyncio.to_thread(is_asked.wait, 60)
        for version in range(6, 10):
            server.change(file.as_uri(), version, (0, 0), (0, 0), "#\n")
        await server.command("outpost.agents")
        are_edited.set()
        await server.answer_to(asked)
        published = _published(server, file.as_uri())
        assert [one["version"] for one in published] == [9] * len(published)
        assert published[-1]["diagnostics"][0]["range"]["start"]["line"] == 5


async def test_rel_18_a_closed_document_is_published_without_version_and_of_its_file(
    changed: RealRepository, service: ModelServer
) -> None:
    async with running_server() as server:
        uri, text = await _reviewed(server, changed, service)
        server.change(uri, 2, (0, 0), (0, 0), "#\n")
        server.close(uri)
        closed = await server.notification(
            "textDocument/publishDiagnostics", lambda params: params["uri"] == uri and "version" not in params
        )
        assert closed["diagnostics"][0]["range"]["start"]["line"] == 1
        server.open(uri, text, version=1)
        await server.notification(
            "textDocument/publishDiagnostics",
            lambda params: params.get("version") == 1 and params is not _published(server, uri)[0],
        )


@pytest.mark.parametrize("spelling", ["%73rc/main.py", "src/main%2Epy"])
async def test_u_40_diagnostics_are_published_under_the_spelling_of_the_client(
    changed: RealRepository, service: ModelServer, spelling: str
) -> None:
    uri = f"{changed.path.as_uri()}/{spelling}"
    file = changed.path / "src/main.py"
    service.add(Answer(calls=[reporting()]), "Done.")
    async with running_server() as server:
        await server.initialize(changed.path, options={"settings": settings_for(service)})
        server.open(uri, file.read_text())
        await server.command("outpost.review", {"wait": True})
        assert {one["uri"] for one in server.all("textDocument/publishDiagnostics")} == {uri}
        assert {one["uri"] for one in server.all("$/outpost/findings")} == {uri}
        found = (await server.command("outpost.findings", {"uri": file.as_uri()}))["findings"]
        assert [one["uri"] for one in found] == [uri]


async def test_a_suggestion_is_applied_as_a_preferred_fix_of_this_version(
    changed: RealRepository, service: ModelServer
) -> None:
    async with running_server() as server:
        uri, text = await _reviewed(server, changed, service)
        server.change(uri, 2, (0, 0), (0, 0), "# above\n")
        text = "# above\n" + text
        [finding] = (await server.command("outpost.findings", {"uri": uri}))["findings"]
        asked = {"textDocument": {"uri": uri}, "range": finding["range"], "context": {"diagnostics": []}}
        actions = await server.request("textDocument/codeAction", asked)
        [apply] = [one for one in actions if one.get("isPreferred")]
        assert apply["kind"] == "quickfix"
        assert apply["title"] == f"Apply the suggested fix: {one_line(finding['title'], 60)}"
        assert apply["diagnostics"][0]["data"]["findingId"] == finding["id"]
        [change] = apply["edit"]["documentChanges"]
        assert change["textDocument"] == {"uri": uri, "version": 2}
        [edit] = change["edits"]
        assert edit["newText"] == "total = 1"
        assert edit["range"] == finding["range"]
        kinds = [one["kind"] for one in actions]
        assert kinds.count("quickfix") == 3
        assert "source.outpost.review" in kinds
        only = {"diagnostics": [], "only": ["source.outpost.review"]}
        reviews = await server.request("textDocument/codeAction", asked | {"context": only})
        assert {one["kind"] for one in reviews} == {"source.outpost.review"}
        assert [one["command"]["arguments"][0]["scope"] for one in reviews] == ["selection", "file"]
        fix = [one["command"]["command"] for one in actions if "command" in one and one["kind"] == "quickfix"]
        assert fix == ["outpost.fix", "outpost.dismiss"]


async def test_sec_21_a_stale_suggestion_is_not_offered(changed: RealRepository, service: ModelServer) -> None:
    async with running_server() as server:
        uri, _ = await _reviewed(server, changed, service)
        [finding] = (await server.command("outpost.findings", {"uri": uri}))["findings"]
        end = finding["range"]["end"]
        server.change(uri, 2, (1, end["character"] - 1), (1, end["character"]), "x")
        asked = {"textDocument": {"uri": uri}, "range": finding["range"], "context": {"diagnostics": []}}
        actions = await server.request("textDocument/codeAction", asked)
        assert not any(one.get("isPreferred") for one in actions)
        assert "outpost.dismiss" in json.dumps(actions)


async def test_what_can_be_done_about_a_finding_is_offered_on_its_whole_line_to_a_client_that_names_its_diagnostic(
    changed: RealRepository, service: ModelServer
) -> None:
    async with running_server() as server:
        uri, _ = await _reviewed(server, changed, service)
        [diagnostic] = _published(server, uri)[-1]["diagnostics"]
        cursor = {"line": 1, "character": 0}
        asked = {"textDocument": {"uri": uri}, "range": {"start": cursor, "end": cursor}}
        foreign = [diagnostic | {"data": data} for data in (None, 5, [], {}, {"findingId": ["1"]}, {"findingId": "zz"})]
        for diagnostics, count in ([diagnostic, *foreign], 3), (foreign, 0), ([], 0):
            asked["context"] = {"diagnostics": diagnostics}
            actions = await server.request("textDocument/codeAction", asked)
            assert [one["kind"] for one in actions].count("quickfix") == count


async def test_a_client_that_knows_only_commands_gets_only_commands(changed: RealRepository) -> None:
    file = changed.path / "src/main.py"
    async with running_server() as server:
        await server.initialize(changed.path)
        await server.command("outpost.review", {"wait": True})
        [finding] = (await server.command("outpost.findings"))["findings"]
        asked = {"textDocument": {"uri": file.as_uri()}, "range": finding["range"], "context": {"diagnostics": []}}
        actions = await server.request("textDocument/codeAction", asked)
        assert {one["command"] for one in actions} >= {"outpost.dismiss", "outpost.review"}
        assert all(isinstance(one["command"], str) for one in actions)


async def test_the_lens_counts_and_reviews_again(changed: RealRepository) -> None:
    file = changed.path / "src/main.py"
    abilities = {"workspace": {"codeLens": {"refreshSupport": True}}}
    async with running_server() as server:
        await server.initialize(changed.path, capabilities=abilities)
        asked = {"textDocument": {"uri": file.as_uri()}}
        assert await server.request("textDocument/codeLens", asked) == []
        await server.command("outpost.review", {"wait": True})
        await server.wait_for(lambda one: one.get("method") == "workspace/codeLens/refresh")
        count, again = await server.request("textDocument/codeLens", asked)
        assert count["command"]["title"] == "1 finding (1 error)"
        assert again["command"]["command"] == "outpost.review"
        assert again["command"]["arguments"] == [{"scope": "file", "uri": file.as_uri()}]


async def test_a_dismissed_finding_is_gone_also_after_a_restart_and_comes_back_when_restored(
    changed: RealRepository, service: ModelServer
) -> None:
    async with running_server() as server:
        uri, _ = await _reviewed(server, changed, service)
        [finding] = (await server.command("outpost.findings", {"uri": uri}))["findings"]
        dismissed = await server.command("outpost.dismiss", {"findingId": finding["id"], "reason": "as intended"})
        assert dismissed["finding"]["status"] == "dismissed"
        assert dismissed["finding"]["dismissal"]["reason"] == "as intended"
        await server.notification("textDocument/publishDiagnostics", lambda params: params["diagnostics"] == [])
        await server.shut_down()
    async with running_server() as server:
        await server.initialize(changed.path)
        [again] = (await server.command("outpost.findings", {"status": "dismissed"}))["findings"]
        assert again["id"] == finding["id"]
        assert (await server.command("outpost.findings", {"status": "open"}))["findings"] == []
        restored = await server.command("outpost.restore", {"findingId": finding["id"]})
        assert restored["finding"]["status"] == "open"
        await server.notification("textDocument/publishDiagnostics", lambda params: len(params["diagnostics"]) == 1)
        assert await server.command("outpost.clear", {"uri": uri}) == {"cleared": 1}
        fault = await server.command_fault("outpost.dismiss", {"findingId": finding["id"]})
        assert fault["code"] == -32602
        assert "findingId" in fault["message"]


async def test_u_15_what_is_dismissed_and_reported_again_is_in_no_count_of_the_closing_message(
    changed: RealRepository, service: ModelServer
) -> None:
    async with running_server() as server:
        uri, _ = await _reviewed(server, changed, service)
        [finding] = (await server.command("outpost.findings", {"uri": uri}))["findings"]
        await server.command("outpost.dismiss", {"findingId": finding["id"]})
        other = reporting(quote="print(total)", severity="warning", code="unwanted-print", line=3)
        service.add(Answer(calls=[reporting(), other]), "Done.")
        await server.command("outpost.review", {"wait": True})
        assert [one["message"] for one in server.all("window/showMessage")] == [
            "Outpost: Review of the uncommitted changes: 1 finding (1 error)",
            "Outpost: Review of the uncommitted changes: 1 finding (1 warning)",
        ]


async def test_findings_survive_a_restart_and_are_published_again(
    changed: RealRepository, service: ModelServer
) -> None:
    async with running_server() as server:
        uri, text = await _reviewed(server, changed, service)
        await server.shut_down()
    (changed.path / "src/main.py").write_text("# moved\n" + text)
    async with running_server() as server:
        await server.initialize(changed.path)
        published = await server.notification("textDocument/publishDiagnostics")
        assert published["uri"] == uri
        assert published["diagnostics"][0]["range"]["start"]["line"] == 2


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_rel_17_after_a_storm_of_edits_the_server_has_the_text_of_the_client(
    repository: RealRepository, service: ModelServer, encoding: Encoding
) -> None:
    random_source = random.Random(encoding)
    file = repository.path / "src/main.py"
    text = "\U0001f600 one\r\n\u4e2d two\r\nthree\n\U00010000\n" * 5
    file.write_text("nothing\n")
    service.add(Answer(calls=[{"name": "read_file", "input": {"path": "src/main.py"}}]), "Done.")
    abilities = {"general": {"positionEncodings": [encoding]}}
    async with running_server() as server:
        await server.initialize(repository.path, options={"settings": settings_for(service)}, capabilities=abilities)
        server.open(file.as_uri(), text)
        for version in range(2, 3002):
            text, start, end, new = _random_edit(random_source, text, encoding)
            server.change(file.as_uri(), version, start, end, new)
        await server.command("outpost.review", {"scope": "file", "uri": file.as_uri(), "wait": True})
    seen = _read_file_result(service)
    lines = split_lines(text)
    shown = [line.lstrip().partition("\t")[2] for line in seen.split("\n")]
    while shown and not shown[-1]:
        shown.pop()
    expected = [without_line_end(line) for line in lines]
    while not expected[-1]:
        expected.pop()
    assert shown == expected


async def test_rel_16_a_file_of_many_megabytes_is_opened_and_edited(repository: RealRepository) -> None:
    file = repository.path / "large.txt"
    async with running_server() as server:
        await server.initialize(repository.path)
        await server.command("outpost.agents")
        server.open(file.as_uri(), "a line of some length\n" * 1_000_000 + "x" * 5_000_000)
        for version in range(2, 22):
            server.change(file.as_uri(), version, (version * 1000, 3), (version * 1000, 4), "y\n")
        server.change(file.as_uri(), 22, (1_000_020, 4_999_990), (1_000_020, 4_999_999), "\U0001f600")
        hover = {"textDocument": {"uri": file.as_uri()}, "position": {"line": 3, "character": 1}}
        assert await server.request("textDocument/hover", hover) is None
        assert await server.shut_down() == 0


async def test_notebooks_other_schemes_and_unknown_documents_are_passed_over(repository: RealRepository) -> None:
    async with running_server() as server:
        await server.initialize(repository.path)
        await server.command("outpost.agents")
        for uri in ("untitled:Untitled-1", "vscode-notebook-cell:/a.ipynb#x", "file:///outside/of/all.py", "git:/a?b"):
            server.open(uri, "x = 1\n")
            server.change(uri, 2, (0, 0), (0, 1), "y")
            place = {"textDocument": {"uri": uri}, "position": {"line": 0, "character": 0}}
            assert await server.request("textDocument/hover", place) is None
            assert await server.request("textDocument/codeLens", {"textDocument": {"uri": uri}}) == []
            server.close(uri)
        cell = {"notebookDocument": {"uri": "file:///a.ipynb", "notebookType": "j", "version": 1, "cells": []}}
        server.notify("notebookDocument/didOpen", cell | {"cellTextDocuments": []})
        assert await server.shut_down() == 0
        assert b"ERROR" not in server.log


def _random_edit(source: random.Random, text: str, encoding: Encoding) -> tuple[str, Any, Any, str]:
    lines = split_lines(text)

    def somewhere() -> tuple[int, int]:
        number = source.randrange(len(lines))
        return number, source.randint(0, len(without_line_end(lines[number])))

    start, end = sorted((somewhere(), somewhere())) if source.random() < 0.1 else [somewhere()] * 2
    new = "".join(source.choice("ab\u4e2d\U0001f600\n") for _ in range(source.randint(0, 3)))
    offsets = [sum(map(len, lines[:number])) + column for number, column in (start, end)]
    asked = [(number, encoded_units(lines[number], column, encoding)) for number, column in (start, end)]
    return text[: offsets[0]] + new + text[offsets[1] :], asked[0], asked[1], new


def _read_file_result(service: ModelServer) -> str:
    messages = service.requests[-1].json["messages"]
    return str(next(one["content"] for one in messages if one["role"] == "tool"))
