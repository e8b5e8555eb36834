"""Parameters that are not what a method takes: the field is named as the client spells it, and nobody hears of Python."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types
from pygls.protocol import default_converter

from outpost_lsp.lsp.incoming import converter_faults, faults_of
from outpost_lsp.lsp.server import OutpostServer
from tests.lsp.server_inside import InsideServer, inside_server

_PYTHON = re.compile(r"Error|None|argument of|object at|\bstr\b|\bint\b|Sequence|Union|Optional|params\.|_[a-z]")
"""What only a programmer of the server would say."""

_DOCUMENT = {"uri": "file:///a.py", "version": 1}
_RANGE = {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 1}}

BAD: list[Any] = [
    None,
    [],
    ["text"],
    "text",
    3,
    1.5,
    True,
    {},
    {"textDocument": None},
    {"textDocument": {"uri": 3}, "position": {"line": "x"}},
    {"textDocument": _DOCUMENT, "contentChanges": "abc"},
    {"textDocument": _DOCUMENT, "contentChanges": [1]},
    {"textDocument": _DOCUMENT, "contentChanges": [{"range": 3, "text": ""}]},
    {"textDocument": _DOCUMENT, "position": None, "range": [], "context": {}},
    {"textDocument": _DOCUMENT, "range": _RANGE, "context": {"diagnostics": [{"range": _RANGE}], "only": "x"}},
    {"command": None},
    {"command": "outpost.runs", "arguments": {"a": 1}},
    {"command": "outpost.runs", "arguments": [{}], "workDoneToken": {}},
    {"uri": None},
    {"changes": [{"uri": "file:///a.py", "type": "x"}]},
    {"changes": [{"uri": "file:///a.py", "type": 99}]},
    {"event": {"added": [{"uri": 3}], "removed": []}},
    {"event": {"added": [{"uri": "file:///a"}], "removed": []}},
    {"token": []},
    {"value": "loud"},
]


def _methods(server: OutpostServer) -> list[str]:
    # What is said of the life of the server has no parameters, or is read leniently.
    life = {types.INITIALIZE, types.INITIALIZED, types.SHUTDOWN, types.EXIT}
    return sorted(set(server.protocol.fm.features) - life)


async def _answer(server: InsideServer, method: str, params: Any) -> dict[str, Any]:
    """The answer, as if it were a request whatever it is."""
    return await server.answer_to(server.begin(method, params))


async def test_no_method_answers_bad_parameters_with_anything_but_a_sentence_about_the_field(tmp_path: Path) -> None:
    async with inside_server() as server:
        await server.initialize(tmp_path)
        for method in _methods(server.server):
            for params in BAD:
                answer = await _answer(server, method, params)
                if "error" not in answer:
                    continue
                assert answer["error"]["code"] == -32602, (method, params, answer)
                told = answer["error"]["message"].removeprefix(f"{method}: ")
                assert told, (method, params)
                assert not _PYTHON.search(told), (method, params, told)
        for params in BAD[:7]:
            fault = await server.fault("workspace/executeCommand", params)
            assert fault["message"].startswith("workspace/executeCommand: params: an object with command is expected")
        assert (await server.command("outpost.runs"))["runs"] == []


async def test_notifications_with_bad_parameters_change_nothing(tmp_path: Path) -> None:
    async with inside_server() as server:
        await server.initialize(tmp_path)
        for method in _methods(server.server):
            for params in BAD[:7]:
                server.notify(method, params)
        server.open("file:///a.py", "x = 1\n")
        server.notify("textDocument/didChange", {"textDocument": _DOCUMENT, "contentChanges": [{"text": 3}]})
        assert (await server.command("outpost.runs"))["runs"] == []
        document = server.server.documents.get("file:///a.py")
        assert document is not None
        assert document.text == "x = 1\n"


@pytest.mark.parametrize(
    ("method", "params", "told"),
    [
        ("workspace/executeCommand", None, "params: an object with command is expected, and nothing came"),
        ("workspace/executeCommand", ["x"], "params: an object with command is expected, and a list came"),
        ("workspace/executeCommand", {"command": 3}, "command: a string is expected, and a number came"),
        (
            "workspace/executeCommand",
            {"command": "c", "arguments": {}},
            "arguments: a list with one object is expected, and an object came",
        ),
        (
            "textDocument/codeAction",
            True,
            "params: an object with textDocument, range and context is expected, and a boolean came",
        ),
        ("textDocument/hover", {}, "textDocument: is missing; position: is missing"),
        (
            "textDocument/hover",
            {"textDocument": {"uri": None}, "position": {"line": 1.5, "character": True}},
            (
                "textDocument.uri: a string is expected, and null came; "
                "position.line: a whole number is expected, and a number came; "
                "position.character: a whole number is expected, and a boolean came"
            ),
        ),
        (
            "textDocument/didChange",
            {"textDocument": _DOCUMENT, "contentChanges": [{"text": "a"}, {"text": None}]},
            "contentChanges[1].text: a string is expected, and null came",
        ),
        ("workspace/didChangeConfiguration", {"settings": None}, ""),
        ("textDocument/hover", {"textDocument": _DOCUMENT, "position": {"line": 1.0, "character": 0}}, ""),
        ("textDocument/didSave", {"textDocument": _DOCUMENT, "text": None}, ""),
        ("no/such", 3, ""),
    ],
)
def test_every_fault_is_told_with_its_field(method: str, params: Any, told: str) -> None:
    assert faults_of(method, params) == told


def test_what_the_converter_alone_sees_is_told_without_its_words() -> None:
    converter = default_converter()
    with pytest.raises(Exception, match="structuring") as found:
        converter.structure({"contentChanges": [{}], "textDocument": {}}, types.DidChangeTextDocumentParams)
    assert converter_faults(found.value) == (
        "textDocument.version: is missing; textDocument.uri: is missing; "
        "contentChanges[0]: is not as the protocol has it"
    )
