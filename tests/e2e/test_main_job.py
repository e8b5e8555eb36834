"""The main job through an independent, typed client: pytest-lsp, a real server process, a real model service.

The client checks every message against the types of the language server protocol.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_lsp
from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pytest_lsp import ClientServerConfig, LanguageClient, client_capabilities

from tests.support.model_answers import Answer
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository, make_repository

_PATIENCE_S = 60.0
_NOTIFICATIONS = ("run", "route", "usage", "subagent", "findings", "event")
_BEFORE = "def area(width, height):\n    return width * height\n"
_AFTER = 'def area(width, height):\n    print("\U0001f600\u9762\u7a4d", widht)\n    return width * height\n'
_FINDING = {
    "path": "shape.py",
    "quote": 'print("\U0001f600\u9762\u7a4d", widht)',
    "severity": "error",
    "code": "undefined-name",
    "title": "widht is not defined",
    "detail": "It raises `NameError` when it runs.",
    "replacement": 'print("\U0001f600\u9762\u7a4d", width)',
}


class Editor:
    """What a test needs of the client: its messages by kind, and a way to wait for them."""

    def __init__(self, client: LanguageClient, folder: Path) -> None:
        self.client = client
        self.folder = folder
        self.seen: list[tuple[str, Any]] = []
        for name in _NOTIFICATIONS:
            client.feature(f"$/outpost/{name}")(self._listener(name))

    def _listener(self, name: str) -> Callable[[Any], None]:
        def listen(params: Any) -> None:
            self.seen.append((name, params))

        return listen

    async def command(self, name: str, argument: Any = None, token: str | None = None) -> Any:
        params = types.ExecuteCommandParams(
            command=name, arguments=[] if argument is None else [argument], work_done_token=token
        )
        if token is not None:
            # The client warns of progress for tokens that it was not told of.
            self.client.progress_reports[token] = []
        async with asyncio.timeout(_PATIENCE_S):
            return _objects(await self.client.workspace_execute_command_async(params))

    def all(self, name: str) -> list[Any]:
        return [params for kind, params in self.seen if kind == name]


def _objects(value: Any) -> Any:
    """JSON with its objects' fields as attributes."""
    if isinstance(value, dict):
        return SimpleNamespace(**{name: _objects(part) for name, part in value.items()})
    return [_objects(part) for part in value] if isinstance(value, list) else value


@pytest.fixture
def shapes(tmp_path: Path) -> RealRepository:
    """A repository in which `shape.py` was changed."""
    repository = make_repository(tmp_path / "my project", {"shape.py": _BEFORE})
    repository.write("shape.py", _AFTER)
    return repository


@pytest_lsp.fixture(
    params=["visual-studio-code", "neovim"],
    config=ClientServerConfig(server_command=[sys.executable, "-m", "outpost_lsp", "--stdio"]),
)
async def client(request: pytest.FixtureRequest, lsp_client: LanguageClient) -> AsyncIterator[LanguageClient]:
    """A client with the abilities of a real editor; each test begins the session itself."""
    for method in (types.CLIENT_REGISTER_CAPABILITY, types.WORKSPACE_CODE_LENS_REFRESH):
        lsp_client.feature(method)(lambda params: None)
    lsp_client.abilities = client_capabilities(request.param)  # type: ignore[attr-defined]
    yield lsp_client
    await lsp_client.shutdown_session()


async def _begin(client: LanguageClient, repository: RealRepository, settings: Any = None) -> Editor:
    editor = Editor(client, repository.path)
    folder = types.WorkspaceFolder(uri=repository.path.as_uri(), name="shapes")
    await client.initialize_session(
        types.InitializeParams(
            capabilities=client.abilities,  # type: ignore[attr-defined]
            workspace_folders=[folder],
            initialization_options={"settings": settings} if settings else None,
        )
    )
    return editor


def _settings(service: ModelServer, api: str) -> dict[str, Any]:
    return {
        "providers": {"local": {"kind": "openai", "api": api, "baseUrl": service.base_url, "apiKeyEnv": ""}},
        "models": {
            "small": {"provider": "local", "name": "small", "price": {"input": 1.0, "output": 2.0, "currency": "USD"}},
            "large": {"provider": "local", "name": "large", "price": {"input": 3.0, "output": 9.0, "currency": "USD"}},
        },
        "routing": {
            "depth": {
                "decider": "rules",
                "model": "outpost-rules/1",
                "question": "route",
                "instructions": "Choose the model depth for the next step.",
                "criteria": {"fast": "Routine tools", "deep": "Reasoning or repairs"},
                "models": {"fast": "small", "deep": "large"},
                "minConfidence": 0,
                "fallback": "deep",
            }
        },
        "agents": {"reviewer": {"model": "small", "routing": "depth", "tools": ["files", "search", "git", "findings"]}},
        "defaultModel": "small",
    }


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_a_person_asks_for_a_review_and_sees_findings_routes_and_usage(
    client: LanguageClient, shapes: RealRepository, api: str
) -> None:
    read = {"name": "read_file", "input": {"path": "shape.py"}}
    answers = [
        Answer(text="Reading.", calls=[read]),
        Answer(calls=[{"name": "report_finding", "input": _FINDING}]),
        "One fault.",
    ]
    with ModelServer(answers) as service:
        editor = await _begin(client, shapes, _settings(service, api))
        file = shapes.path / "shape.py"
        client.text_document_did_open(
            types.DidOpenTextDocumentParams(
                text_document=types.TextDocumentItem(
                    uri=file.as_uri(), language_id="python", version=3, text=file.read_text()
                )
            )
        )
        run = (await editor.command("outpost.review", {"wait": True}, token="review-1")).run
        assert run.status == "succeeded"
        assert run.text == "One fault."
        assert run.findings == 1
        assert run.cost.complete
        assert run.cost.amount > 0
        assert set(run.models) <= {"small", "large"}
        [diagnostic] = client.diagnostics[file.as_uri()]
        assert diagnostic.severity == types.DiagnosticSeverity.Error
        assert diagnostic.message == "widht is not defined"
        assert diagnostic.range.start == types.Position(line=1, character=4)
        assert client.progress_reports["review-1"][0].kind == "begin"
        assert client.progress_reports["review-1"][-1].kind == "end"
        assert len(editor.all("route")) == 3
        assert {one.reason for one in editor.all("route")} == {"selected"}
        models = [one for one in editor.all("usage") if one.source == "model"]
        assert len(models) == 3
        assert models[-1].total.output == 15
        assert len(client.messages) == 1
        actions = await client.text_document_code_action_async(
            types.CodeActionParams(
                text_document=types.TextDocumentIdentifier(uri=file.as_uri()),
                range=diagnostic.range,
                context=types.CodeActionContext(diagnostics=[diagnostic]),
            )
        )
        [fix] = [one for one in actions or [] if isinstance(one, types.CodeAction) and one.is_preferred]
        assert fix.edit is not None
        edits = (fix.edit.changes or {}).get(file.as_uri()) or fix.edit.document_changes[0].edits
        assert edits[0].new_text == _FINDING["replacement"]
        hover = await client.text_document_hover_async(
            types.HoverParams(
                text_document=types.TextDocumentIdentifier(uri=file.as_uri()), position=diagnostic.range.start
            )
        )
        assert hover is not None
        assert "NameError" in str(hover.contents)
        listed = (await editor.command("outpost.runs")).runs
        assert [one.id for one in listed] == [run.id]
        shown = await editor.command("outpost.show", {"runId": run.id})
        assert len(shown.steps) == 3
        assert len(shown.routes) == 3
        transcript = await editor.command("outpost.transcript", {"conversation": run.conversation})
        assert transcript.messages


async def test_a_coordinator_delegates_and_everything_is_told(client: LanguageClient, shapes: RealRepository) -> None:
    delegate = {"name": "reviewer", "input": {"prompt": "Look at shape.py."}}
    report = {"name": "report_finding", "input": _FINDING}
    answers = [
        Answer(calls=[delegate], when={"contains": "coordinate this"}),
        Answer(calls=[report]),
        "The child is done.",
        "All is done.",
    ]
    with ModelServer(answers) as service:
        settings = _settings(service, "chat")
        del settings["agents"]["reviewer"]["routing"]
        editor = await _begin(client, shapes, settings)
        run = (await editor.command("outpost.coordinate", {"brief": "coordinate this", "wait": True})).run
        assert run.status == "succeeded"
        assert run.text == "All is done."
        started, finished = editor.all("subagent")
        assert (started.name, started.status, finished.status) == ("reviewer", "started", "finished")
        assert started.id == finished.id
        children = {getattr(one, "subagentId", None) for one in editor.all("usage")}
        assert children == {None, started.id}
        assert run.usage.output == 20
        assert len((await editor.command("outpost.findings")).findings) == 1


async def test_a_review_without_any_setting_works_offline(client: LanguageClient, shapes: RealRepository) -> None:
    editor = await _begin(client, shapes)
    run = (await editor.command("outpost.review", {"wait": True})).run
    assert run.status == "succeeded"
    assert run.models == ["offline"]
    [diagnostic] = client.diagnostics[(shapes.path / "shape.py").as_uri()]
    assert diagnostic.code == "undefined-name"


async def test_errors_are_those_of_the_protocol(client: LanguageClient, shapes: RealRepository) -> None:
    editor = await _begin(client, shapes)
    with pytest.raises(JsonRpcException, match="colour") as refused:
        await editor.command("outpost.review", {"colour": "red"})
    assert refused.value.code == -32602
