"""What an editor or a terminal says to an agent is a text and nothing else (BRIEF-08)."""

from __future__ import annotations

import pytest

from outpost_lsp.domain.run import ReviewScope
from tests.service.conftest import Office, loopback
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository

BRIEF = "Look at {{WORK_BRANCH}} and {{ nothing }}, then !`touch ran` once."


@pytest.mark.parametrize("kind", ["dispatch", "review"])
async def test_BRIEF_08_a_brief_is_never_expanded(office: Office, project: RealRepository, kind: str) -> None:
    with ModelServer(["done"]) as server:
        workspace = await office.workspace(project, loopback(server.base_url, sandbox={"keep": "always"}))
        if kind == "dispatch":
            handle = await office.outpost.run_agent(workspace, "fixer", BRIEF)
        else:
            handle = await office.outpost.review(workspace, ReviewScope(scope="uncommitted"), brief=BRIEF)
        run = await handle.wait()
        assert run.status == "succeeded"
        sent = "".join(str(message["content"]) for message in server.requests[0].json["messages"])
    assert BRIEF in sent
    assert not list(workspace.layout.worktrees.rglob("ran"))
    assert not (project.path / "ran").exists()
