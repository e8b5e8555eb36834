"""What runs changed, on its way through the editor into the user's files (SEC-09, SEC-23, U-26, U-27, U-41)."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from outpost_lsp.protocol.commands import COMMANDS
from tests.lsp.conftest import settings_for
from tests.lsp.server_process import ServerProcess, running_server
from tests.support.model_answers import Answer
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository

_EDITOR = {
    "workspace": {
        "applyEdit": True,
        "workspaceEdit": {"documentChanges": True, "resourceOperations": ["create", "rename", "delete"]},
    }
}


class Editor:
    """The client's files and buffers, changed as an editor would by `workspace/applyEdit`."""

    def __init__(self, server: ServerProcess) -> None:
        self.buffers: dict[str, list[Any]] = {}
        self.edits: list[Any] = []
        self.declines = False
        self.steps = 1_000
        """How many steps of an edit succeed; the next one fails, and those before it stay."""
        self._server = server
        server.answers["workspace/applyEdit"] = self.apply

    def open(self, path: Path) -> None:
        text = path.read_bytes().decode("utf-8")
        self.buffers[path.as_uri()] = [1, text]
        self._server.open(path.as_uri(), text)

    def apply(self, params: Any) -> Any:
        self.edits.append(params["edit"])
        if self.declines:
            return {"applied": False, "failureReason": "the person said no"}
        edit = params["edit"]
        for uri, edits in edit.get("changes", {}).items():
            self._edit(uri, edits)
        for number, step in enumerate(edit.get("documentChanges", ())):
            if number == self.steps:
                return {"applied": False, "failedChange": number}
            kind = step.get("kind")
            if kind == "create":
                _path(step["uri"]).parent.mkdir(parents=True, exist_ok=True)
                _path(step["uri"]).write_bytes(b"")
            elif kind == "delete":
                _path(step["uri"]).unlink()
            elif kind == "rename":
                _path(step["oldUri"]).rename(_path(step["newUri"]))
            else:
                known = self.buffers.get(step["textDocument"]["uri"])
                assert step["textDocument"]["version"] == (known[0] if known else None)
                self._edit(step["textDocument"]["uri"], step["edits"])
        return {"applied": True}

    def _edit(self, uri: str, edits: Any) -> None:
        buffer = self.buffers.get(uri)
        text = buffer[1] if buffer else _path(uri).read_bytes().decode("utf-8").removeprefix("\ufeff")
        for edit in reversed(edits):
            start, end = (_offset(text, edit["range"][side]) for side in ("start", "end"))
            text = text[:start] + edit["newText"] + text[end:]
        if buffer:
            buffer[:] = [buffer[0] + 1, text]
        else:
            _path(uri).write_bytes(text.encode("utf-8"))


def _path(uri: str) -> Path:
    return Path(unquote(urlsplit(uri).path))


def _offset(text: str, position: Any) -> int:
    lines = text.split("\n")
    return sum(len(line) + 1 for line in lines[: position["line"]]) + position["character"]


def _writing(*files: tuple[str, str]) -> Answer:
    return Answer(calls=[{"name": "write_file", "input": {"path": path, "content": text}} for path, text in files])


async def _dispatched(server: ServerProcess) -> dict[str, Any]:
    run = (await server.command("outpost.dispatch", {"agent": "fixer", "brief": "Do it.", "wait": True}))["run"]
    assert run["status"] == "succeeded"
    assert run["disposition"] == "pending"
    return run


async def test_changes_are_shown_and_applied_as_one_edit_that_touches_only_what_differs(
    repository: RealRepository, service: ModelServer
) -> None:
    file = repository.path / "a.txt"
    service.add(_writing(("a.txt", "one\nTWO\nthree\n"), ("new/b.txt", "fresh\n")), "Done.")
    async with running_server() as server:
        editor = Editor(server)
        await server.initialize(repository.path, options={"settings": settings_for(service)}, capabilities=_EDITOR)
        editor.open(file)
        run = await _dispatched(server)
        assert run["changes"] == {"files": 2, "insertions": 2, "deletions": 1}
        shown = await server.command("outpost.diff", {"runId": run["id"]})
        COMMANDS["outpost.diff"].result.model_validate(shown)
        by_path = {one["path"]: one for one in shown["files"]}
        assert by_path["a.txt"]["status"] == "modified"
        assert by_path["a.txt"]["before"] == "one\ntwo\nthree\n"
        assert by_path["a.txt"]["after"] == "one\nTWO\nthree\n"
        assert by_path["new/b.txt"]["status"] == "added"
        assert by_path["new/b.txt"]["uri"] == (repository.path / "new/b.txt").as_uri()
        assert "+TWO" in shown["patch"]
        assert file.read_text() == "one\ntwo\nthree\n"
        applied = await server.command("outpost.apply", {"runId": run["id"]}, workDoneToken="applying")
        COMMANDS["outpost.apply"].result.model_validate(applied)
        told = [one["value"] for one in server.all("$/progress") if one["token"] == "applying"]
        assert [one["kind"] for one in told] == ["begin", "end"]
        assert [one["message"] for one in told] == ["applying its changes", "done"]
        assert applied == {"applied": True, "files": ["a.txt", "new/b.txt"], "conflicts": [], "needsOwnAccept": []}
        assert editor.buffers[file.as_uri()][1] == "one\nTWO\nthree\n"
        assert (repository.path / "new/b.txt").read_text() == "fresh\n"
        [edit] = editor.edits
        ours = [step for step in edit["documentChanges"] if step.get("textDocument", {}).get("uri") == file.as_uri()]
        assert [one["newText"] for one in ours[0]["edits"]] == ["TWO\n"]
        await server.notification("$/outpost/run", lambda params: params["run"]["disposition"] == "applied")
        assert (await server.command("outpost.discard", {"runId": run["id"]})) == {"discarded": False}


@pytest.mark.parametrize("counted", [True, False])
async def test_u_41_a_byte_order_mark_stays_whether_the_editor_counts_it_or_not(
    repository: RealRepository, service: ModelServer, counted: bool
) -> None:
    file = repository.write("bom.txt", "\ufeffone\ntwo\n")
    repository.commit_all()
    service.add(_writing(("bom.txt", "\ufeffONE\ntwo\n")), "Done.")
    async with running_server() as server:
        editor = Editor(server)
        await server.initialize(repository.path, options={"settings": settings_for(service)}, capabilities=_EDITOR)
        mark = "\ufeff" if counted else ""
        editor.buffers[file.as_uri()] = [1, f"{mark}one\ntwo\n"]
        server.open(file.as_uri(), f"{mark}one\ntwo\n")
        run = await _dispatched(server)
        assert (await server.command("outpost.apply", {"runId": run["id"]}))["applied"] is True
        assert editor.buffers[file.as_uri()][1] == f"{mark}ONE\ntwo\n"


async def test_unsaved_typing_is_merged_with_the_changes(repository: RealRepository, service: ModelServer) -> None:
    file = repository.path / "a.txt"
    service.add(_writing(("a.txt", "one\ntwo\nTHREE\n")), "Done.")
    async with running_server() as server:
        editor = Editor(server)
        await server.initialize(repository.path, options={"settings": settings_for(service)}, capabilities=_EDITOR)
        editor.open(file)
        run = await _dispatched(server)
        server.change(file.as_uri(), 2, (0, 0), (0, 0), "zero\n")
        editor.buffers[file.as_uri()] = [2, "zero\none\ntwo\nthree\n"]
        assert (await server.command("outpost.apply", {"runId": run["id"]}))["applied"]
        assert editor.buffers[file.as_uri()][1] == "zero\none\ntwo\nTHREE\n"
        assert file.read_text() == "one\ntwo\nthree\n"


async def test_one_conflict_leaves_everything_as_it_is(repository: RealRepository, service: ModelServer) -> None:
    service.add(_writing(("a.txt", "one\nTWO\nthree\n"), ("src/main.py", "print('bye')\n")), "Done.")
    async with running_server() as server:
        editor = Editor(server)
        await server.initialize(repository.path, options={"settings": settings_for(service)}, capabilities=_EDITOR)
        run = await _dispatched(server)
        repository.write("a.txt", "one\nzwei\nthree\n")
        outcome = await server.command("outpost.apply", {"runId": run["id"]}, workDoneToken="applying")
        told = [one["value"] for one in server.all("$/progress") if one["token"] == "applying"]
        assert told[-1] == {"kind": "end", "message": "nothing was applied"}
        assert outcome["applied"] is False
        assert [one["path"] for one in outcome["conflicts"]] == ["a.txt"]
        assert editor.edits == []
        assert (repository.path / "src/main.py").read_text() == "print('hello')\n"
        [known] = (await server.command("outpost.runs"))["runs"]
        assert known["disposition"] == "pending"


async def test_an_editor_that_declines_leaves_everything_as_it_is(
    repository: RealRepository, service: ModelServer
) -> None:
    service.add(_writing(("a.txt", "one\nTWO\nthree\n")), "Done.")
    async with running_server() as server:
        editor = Editor(server)
        editor.declines = True
        await server.initialize(repository.path, options={"settings": settings_for(service)}, capabilities=_EDITOR)
        run = await _dispatched(server)
        outcome = await server.command("outpost.apply", {"runId": run["id"]})
        assert outcome["applied"] is False
        assert outcome["files"] == []
        assert "the person said no" in outcome["conflicts"][0]["reason"]
        assert (repository.path / "a.txt").read_text() == "one\ntwo\nthree\n"
        editor.declines = False
        assert (await server.command("outpost.apply", {"runId": run["id"]}))["applied"] is True


@pytest.mark.parametrize("unsaved", [True, False], ids=["with unsaved text", "saved"])
async def test_a_file_that_becomes_a_folder_is_applied_in_one(
    repository: RealRepository, service: ModelServer, unsaved: bool
) -> None:
    calls = [
        {"name": "delete_file", "input": {"path": "a.txt"}},
        {"name": "write_file", "input": {"path": "a.txt/deep/inside.txt", "content": "in\n"}},
        {"name": "write_file", "input": {"path": "new.txt", "content": "new\n"}},
    ]
    for call in calls:
        service.add(Answer(calls=[call]))
    service.add("Done.")
    async with running_server() as server:
        editor = Editor(server)
        await server.initialize(repository.path, options={"settings": settings_for(service)}, capabilities=_EDITOR)
        (repository.path / "a.txt").chmod(0o640)
        editor.open(repository.path / "a.txt")
        if unsaved:
            server.notify(
                "textDocument/didChange",
                {
                    "textDocument": {"uri": (repository.path / "a.txt").as_uri(), "version": 2},
                    "contentChanges": [{"text": "what the person types\n"}],
                },
            )
        run = await _dispatched(server)
        if unsaved:
            fault = await server.command_fault("outpost.apply", {"runId": run["id"]})
            assert "a.txt has unsaved changes" in fault["message"]
            assert (repository.path / "a.txt").read_text() == "one\ntwo\nthree\n"
            assert editor.edits == []
            return
        editor.declines = True
        assert (await server.command("outpost.apply", {"runId": run["id"]}))["applied"] is False
        assert (repository.path / "a.txt").read_text() == "one\ntwo\nthree\n"
        assert (repository.path / "a.txt").stat().st_mode & 0o7777 == 0o640
        editor.declines = False
        outcome = await server.command("outpost.apply", {"runId": run["id"]})
        assert outcome["applied"] is True
        assert (repository.path / "a.txt/deep/inside.txt").read_text() == "in\n"
        assert (repository.path / "new.txt").read_text() == "new\n"
        told = await server.notification("window/showMessage", lambda params: "a folder now" in params["message"])
        assert told == {"type": 2, "message": "a.txt is a folder now and still open as a file: close it unsaved."}
        assert not list(repository.path.rglob(".outpost-*"))


async def test_SEC_23_a_link_that_becomes_a_file_is_not_written_through_nor_taken_for_a_file_when_declined(
    repository: RealRepository, service: ModelServer
) -> None:
    link = repository.path / "link"
    link.symlink_to("a.txt")
    repository.commit_all()
    service.add(Answer(calls=[{"name": "delete_file", "input": {"path": "link"}}]))
    service.add(_writing(("link", "a file\n"), ("b.txt", "new\n")), "Done.")
    async with running_server() as server:
        editor = Editor(server)
        await server.initialize(repository.path, options={"settings": settings_for(service)}, capabilities=_EDITOR)
        run = await _dispatched(server)
        editor.declines = True
        assert (await server.command("outpost.apply", {"runId": run["id"]}))["applied"] is False
        assert link.readlink() == Path("a.txt")
        editor.declines = False
        outcome = await server.command("outpost.apply", {"runId": run["id"]})
        assert outcome["applied"] is True, outcome
        assert (link.is_symlink(), link.read_text()) == (False, "a file\n")
        assert (repository.path / "a.txt").read_text() == "one\ntwo\nthree\n"


async def test_an_editor_that_gives_up_half_way_is_told_of_truly_and_the_rest_can_be_applied(
    repository: RealRepository, service: ModelServer
) -> None:
    service.add(_writing(("a.txt", "one\nTWO\nthree\n"), ("src/main.py", "print('bye')\n")), "Done.")
    async with running_server() as server:
        editor = Editor(server)
        editor.steps = 1
        await server.initialize(repository.path, options={"settings": settings_for(service)}, capabilities=_EDITOR)
        run = await _dispatched(server)
        outcome = await server.command("outpost.apply", {"runId": run["id"]})
        COMMANDS["outpost.apply"].result.model_validate(outcome)
        assert (outcome["applied"], outcome["files"]) == (False, [])
        assert [one["path"] for one in outcome["conflicts"]] == ["", "a.txt"]
        assert "not all was applied" in outcome["conflicts"][0]["reason"]
        [known] = (await server.command("outpost.runs"))["runs"]
        assert known["disposition"] == "pending"
        editor.steps = 1_000
        outcome = await server.command("outpost.apply", {"runId": run["id"]})
        assert (outcome["applied"], outcome["files"]) == (True, ["a.txt", "src/main.py"])
        assert (repository.path / "a.txt").read_text() == "one\nTWO\nthree\n"
        assert (repository.path / "src/main.py").read_text() == "print('bye')\n"


async def test_a_client_that_cannot_apply_edits_gets_the_changes_on_disk(
    repository: RealRepository, service: ModelServer
) -> None:
    service.add(_writing(("a.txt", "one\nTWO\nthree\n"), ("new.txt", "x\n")), "Done.")
    async with running_server() as server:
        await server.initialize(repository.path, options={"settings": settings_for(service)})
        run = await _dispatched(server)
        assert (await server.command("outpost.apply", {"runId": run["id"]}))["applied"] is True
        assert (repository.path / "a.txt").read_text() == "one\nTWO\nthree\n"
        assert (repository.path / "new.txt").read_text() == "x\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"a\r\nb\r\nc\r\n", b"a\r\nB\r\nc\r\n"),
        (b"\xef\xbb\xbfa\nb\n", b"\xef\xbb\xbfa\nB\n"),
        (b"a\nb", b"a\nB"),
        (b"a\r\nb\nc\r", b"a\r\nB\nc\r"),
    ],
)
async def test_u_41_bytes_that_did_not_change_stay(
    repository: RealRepository, service: ModelServer, before: bytes, after: bytes
) -> None:
    repository.write("odd.txt", before)
    repository.commit_all()
    edit = {"name": "edit_file", "input": {"path": "odd.txt", "old_text": "b", "new_text": "B"}}
    service.add(Answer(calls=[edit]), "Done.")
    async with running_server() as server:
        await server.initialize(repository.path, options={"settings": settings_for(service)})
        run = await _dispatched(server)
        assert (await server.command("outpost.apply", {"runId": run["id"]}))["applied"] is True
        assert (repository.path / "odd.txt").read_bytes() == after


async def test_sec_09_files_that_make_programs_act_wait_to_be_named(
    repository: RealRepository, service: ModelServer
) -> None:
    service.add(_writing((".vscode/tasks.json", "{}\n"), ("a.txt", "new\n")), "Done.")
    async with running_server() as server:
        await server.initialize(repository.path, options={"settings": settings_for(service)})
        run = await _dispatched(server)
        outcome = await server.command("outpost.apply", {"runId": run["id"]})
        assert outcome["files"] == ["a.txt"]
        assert outcome["needsOwnAccept"] == [".vscode/tasks.json"]
        assert not (repository.path / ".vscode").exists()
        [known] = (await server.command("outpost.runs"))["runs"]
        assert known["disposition"] == "pending"
        named = {"runId": run["id"], "paths": [".vscode/tasks.json"]}
        assert (await server.command("outpost.apply", named))["applied"] is True
        assert (repository.path / ".vscode/tasks.json").read_text() == "{}\n"


async def test_discarded_changes_can_be_brought_back(repository: RealRepository, service: ModelServer) -> None:
    service.add(_writing(("a.txt", "new\n")), "Done.")
    async with running_server() as server:
        await server.initialize(repository.path, options={"settings": settings_for(service)})
        run = await _dispatched(server)
        assert await server.command("outpost.discard", {"runId": run["id"]}) == {"discarded": True}
        again = await server.command("outpost.reopen", {"runId": run["id"]})
        assert again["run"]["disposition"] == "pending"
        assert (await server.command("outpost.apply", {"runId": run["id"]}))["applied"] is True


async def test_a_run_that_does_not_exist_is_refused_by_name(repository: RealRepository) -> None:
    async with running_server() as server:
        await server.initialize(repository.path)
        for name in ("diff", "apply", "discard", "reopen", "replay", "show", "cancel"):
            for run_id in ("../../etc", "nothing", "20260101-000000-000001-abcdef"):
                fault = await server.command_fault(f"outpost.{name}", {"runId": run_id})
                assert fault["code"] == -32602
                assert "runId" in fault["message"]


async def test_paths_and_hunks_that_do_not_exist_are_refused_by_name(
    repository: RealRepository, service: ModelServer
) -> None:
    service.add(_writing(("a.txt", "new\n")), "Done.")
    async with running_server() as server:
        await server.initialize(repository.path, options={"settings": settings_for(service)})
        run = await _dispatched(server)
        for name, value in (("paths", ["*.txt"]), ("hunks", ["nothing"])):
            fault = await server.command_fault("outpost.apply", {"runId": run["id"], name: value})
            assert fault["code"] == -32602
            assert name in fault["message"]


async def test_virtual_documents_hold_the_report_and_both_sides(
    repository: RealRepository, service: ModelServer
) -> None:
    service.add(_writing(("a.txt", "one\n2\nthree\n")), "All is **done**.")
    abilities = {"workspace": {"textDocumentContent": {"dynamicRegistration": False}}}
    async with running_server() as server:
        result = await server.initialize(
            repository.path, options={"settings": settings_for(service)}, capabilities=abilities
        )
        assert result["capabilities"]["workspace"]["textDocumentContent"] == {"schemes": ["outpost"]}
        run = await _dispatched(server)

        async def text(name: str) -> str:
            uri = f"outpost:/runs/{run['id']}/{name}"
            return str((await server.request("workspace/textDocumentContent", {"uri": uri}))["text"])

        assert "All is **done**." in await text("report.md")
        assert await text("before/a.txt") == "one\ntwo\nthree\n"
        assert await text("after/a.txt") == "one\n2\nthree\n"
        assert "+2" in await text("changes.patch")
        for wrong in ("outpost:/runs/nothing/report.md", "outpost:/else", f"outpost:/runs/{run['id']}/after/no.txt"):
            assert (await server.fault("workspace/textDocumentContent", {"uri": wrong}))["code"] == -32602


async def test_worktrees_are_listed_and_pruned_without_losing_their_changes(
    repository: RealRepository, service: ModelServer
) -> None:
    service.add(_writing(("a.txt", "new\n")), "Done.")
    async with running_server() as server:
        await server.initialize(repository.path, options={"settings": settings_for(service)})
        run = await _dispatched(server)
        listed = await server.command("outpost.worktrees")
        COMMANDS["outpost.worktrees"].result.model_validate(listed)
        [worktree] = listed["worktrees"]
        assert worktree["runId"] == run["id"]
        assert worktree["changed"] is True
        assert worktree["inUse"] is False
        assert worktree["size"] > 0
        assert await server.command("outpost.worktrees", {"prune": True}) == {"worktrees": []}
        assert not Path(worktree["path"]).exists()
        assert (await server.command("outpost.apply", {"runId": run["id"]}))["applied"] is True
        assert (repository.path / "a.txt").read_text() == "new\n"


async def test_where_worktrees_are_made_follows_the_settings_and_each_run_keeps_its_own(
    repository: RealRepository, service: ModelServer, tmp_path: Path
) -> None:
    settings = settings_for(service)
    there = {**settings, "sandbox": {"directory": str(tmp_path / "there")}}
    async with running_server() as server:
        await server.initialize(repository.path, options={"settings": settings})
        runs, places = [], []
        for now in (settings, there):
            server.notify("workspace/didChangeConfiguration", {"settings": now})
            service.add(_writing(("a.txt", "new\n")), "Done.")
            runs.append(await _dispatched(server))
        for worktree in (await server.command("outpost.worktrees"))["worktrees"]:
            places.append(Path(worktree["path"]))
        assert [place.is_relative_to(tmp_path / "there") for place in places].count(True) == 1
        [check] = [one for one in (await server.command("outpost.doctor"))["checks"] if one["name"] == "worktree"]
        assert str(tmp_path / "there") in check["detail"]
        for run in runs:
            assert (await server.command("outpost.discard", {"runId": run["id"]}))["discarded"] is True
        assert (await server.command("outpost.worktrees"))["worktrees"] == []
        assert not any(place.exists() for place in places)


@pytest.mark.parametrize("virtual", [True, False])
async def test_a_report_and_a_patch_are_shown_in_the_editor_where_it_can_show_documents(
    changed: RealRepository, virtual: bool
) -> None:
    abilities = {
        "window": {"showDocument": {"support": True}},
        "workspace": {"textDocumentContent": {}} if virtual else {},
    }
    async with running_server() as server:
        await server.initialize(changed.path, capabilities=abilities)
        run = (await server.command("outpost.review", {"wait": True}))["run"]
        server.answers["window/showDocument"] = lambda _params: {"success": True}
        shown = await server.command("outpost.show", {"runId": run["id"], "open": True})
        assert shown["opened"] is True
        uri = (await server.notification("window/showDocument"))["uri"]
        if virtual:
            assert uri == f"outpost:/runs/{run['id']}/report.md"
            text = (await server.request("workspace/textDocumentContent", {"uri": uri}))["text"]
        else:
            text = Path(uri.removeprefix("file://")).read_text()
        assert "## error: " in text
        assert "src/main.py:" in text
        server.answers["window/showDocument"] = lambda _params: None
        diff = await server.command("outpost.diff", {"runId": run["id"], "open": True})
        assert diff["opened"] is False
        assert "opened" not in await server.command("outpost.diff", {"runId": run["id"]})


async def test_a_client_that_shows_no_documents_is_told_so(changed: RealRepository) -> None:
    async with running_server() as server:
        await server.initialize(changed.path)
        run = (await server.command("outpost.review", {"wait": True}))["run"]
        assert (await server.command("outpost.show", {"runId": run["id"], "open": True}))["opened"] is False
        assert server.all("window/showDocument") == []
