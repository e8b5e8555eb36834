"""The dismissals of a team, as an editor sees them: told when they cannot be read, followed when they change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.lsp.conftest import reporting, settings_for
from tests.lsp.server_inside import InsideServer, inside_server
from tests.support.model_answers import Answer
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository

_WATCHES = {"workspace": {"didChangeWatchedFiles": {"dynamicRegistration": True}}}


async def _open(server: InsideServer, changed: RealRepository, service: ModelServer) -> None:
    settings = settings_for(service, review={"dismissals": "shared"})
    options = {"settings": settings, "trusted": True}
    await server.initialize(changed.path, options=options, capabilities=_WATCHES)


def _written(server: InsideServer, file: Path) -> None:
    server.notify("workspace/didChangeWatchedFiles", {"changes": [{"uri": file.as_uri(), "type": 2}]})


async def _statuses(server: InsideServer) -> list[str]:
    return [one["status"] for one in (await server.command("outpost.findings"))["findings"]]


async def test_a_finding_that_a_colleague_no_longer_dismisses_comes_back_for_the_dismisser(
    changed: RealRepository, service: ModelServer
) -> None:
    file = changed.path / ".outpost/dismissals.json"
    service.add(Answer(calls=[reporting()]), "Done.")
    async with inside_server() as server:
        await _open(server, changed, service)
        registered = await server.notification(
            "client/registerCapability",
            lambda params: any(one["id"] == "outpost-settings" for one in params["registrations"]),
        )
        watchers = registered["registrations"][0]["registerOptions"]["watchers"]
        assert {"globPattern": "**/.outpost/dismissals.json"} in watchers
        await server.command("outpost.review", {"wait": True})
        [finding] = (await server.command("outpost.findings"))["findings"]
        await server.command("outpost.dismiss", {"findingId": finding["id"], "reason": "agreed"})
        assert await _statuses(server) == ["dismissed"]
        shared = json.loads(file.read_text())
        assert [one["fingerprint"] for one in shared["dismissals"]] == [finding["fingerprint"]]
        file.write_text(json.dumps({**shared, "dismissals": []}))
        _written(server, file)
        assert await _statuses(server) == ["open"]


async def test_a_shared_file_that_cannot_be_read_is_told_at_once_with_its_name_and_what_helps(
    changed: RealRepository, service: ModelServer
) -> None:
    file = changed.path / ".outpost/dismissals.json"
    file.parent.mkdir()
    file.write_text("<<<<<<< ours\n")
    service.add(Answer(calls=[reporting()]), "Done.")

    def is_told(params: Any) -> bool:
        return f"{file}: line 1: a merge conflict is not settled; mend it" in params["message"]

    async with inside_server() as server:
        await _open(server, changed, service)
        told = await server.notification("window/showMessage", is_told)
        assert (told["type"], "none of its dismissals counts" in told["message"]) == (2, True)
        await server.command("outpost.review", {"wait": True})
        [finding] = (await server.command("outpost.findings"))["findings"]
        fault = await server.command_fault("outpost.dismiss", {"findingId": finding["id"]})
        assert (fault["code"], fault["data"]["code"]) == (-32803, "workspace")
        assert "mend it, or take back an earlier version with git; it was left as it is" in fault["message"]
        assert await _statuses(server) == ["open"]
        # Mended in the editor, by a client that tells of what it saves only.
        server.open(file.as_uri(), "<<<<<<< ours\n")
        file.write_text("{}")
        server.notify("textDocument/didSave", {"textDocument": {"uri": file.as_uri()}})
        await server.command("outpost.dismiss", {"findingId": finding["id"]})
        assert await _statuses(server) == ["dismissed"]
        assert len([one for one in server.all("window/showMessage") if "merge conflict" in one["message"]]) == 1
