"""What an editor gets of a program's output that ended a run (FAULT-08)."""

from __future__ import annotations

import json
from pathlib import Path

from outpost_lsp.errors import OutpostError
from outpost_lsp.lsp.commands import fault_of
from outpost_lsp.lsp.short_details import LONGEST, short_details
from tests.lsp.conftest import settings_for
from tests.lsp.server_process import running_server
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository


def test_FAULT_08_texts_of_details_have_two_thousand_characters_at_most() -> None:
    whole = "first line\n" + "x" * 200_000 + "\nwhy it failed"
    assert len(whole) == 200_025
    short = short_details({"status": 1, "stdout": "short", "stderr": whole})
    assert (short["status"], short["stdout"]) == (1, "short")
    assert len(short["stderr"]) == LONGEST == 2_000
    assert short["stderr"].startswith("first line\n")
    assert short["stderr"].endswith("\nwhy it failed")
    assert "200025 characters in all" in short["stderr"]
    exact = "y" * 2_000
    assert short_details({"stdout": exact}) == {"stdout": exact}


def test_FAULT_08_the_answer_to_a_request_is_shortened() -> None:
    error = OutpostError("process", "it failed", {"status": 1, "stderr": "x" * 9_000, "runId": "r1"})
    assert len(fault_of(error).data["details"]["stderr"]) == 2_000
    assert len(error.details["stderr"]) == 9_000


async def test_FAULT_08_a_run_s_record_keeps_what_the_editor_gets_shortened(
    changed: RealRepository, service: ModelServer, private_home: Path
) -> None:
    # Set-up commands run before the agent; what they say when they fail is in the fault.
    settings = settings_for(service)
    settings["sandbox"] = {**settings.get("sandbox", {}), "setup": ["yes failing | head -c 20000; exit 3"]}
    async with running_server() as server:
        await server.initialize(changed.path, options={"settings": settings, "trusted": True})
        run = (await server.command("outpost.review", {"wait": True}))["run"]
        assert run["status"] == "failed"
        assert run["error"]["code"] == "process"
        assert len(run["error"]["details"]["stdout"]) == 2_000
    (record,) = private_home.rglob(f"{run['id']}.json")
    assert len(json.loads(record.read_text())["run"]["error"]["details"]["stdout"]) == 20_000
