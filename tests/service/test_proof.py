"""After each run the user's repository is compared with what it was: what happened meanwhile is named as that."""

from __future__ import annotations

import pytest

from outpost_lsp.domain.run import Run
from outpost_lsp.service.workspace import Workspace
from tests.service.conftest import Office, loopback
from tests.support.model_answers import Answer
from tests.support.model_saying import Received
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository

EDIT = Answer(calls=[{"name": "write_file", "input": {"path": "b.py", "content": "x = 2\n"}}])


async def work(office: Office, workspace: Workspace) -> Run:
    return await (await office.outpost.run_agent(workspace, "worker", "work")).wait()


async def opened(office: Office, project: RealRepository, server: ModelServer) -> Workspace:
    return await office.workspace(project, loopback(server.base_url, agents={"worker": {"tools": ["files", "edit"]}}))


async def test_a_run_that_nobody_disturbs_has_a_proof_without_differences(
    office: Office, project: RealRepository
) -> None:
    with ModelServer([EDIT, "Done."]) as server:
        workspace = await opened(office, project, server)
        run = await work(office, workspace)
    assert run.disposition == "pending"
    assert workspace.runs.details(run.id)["proof"] == {"changedMeanwhile": [], "takenOver": []}
    assert not any("repository" in note or "checkout" in note for note in run.notes)


async def test_what_the_user_does_meanwhile_is_named_as_that_and_is_no_breach(
    office: Office, project: RealRepository
) -> None:
    def meanwhile(_request: Received) -> str:
        project.commit_all("the user's own")
        project.git("checkout", "-q", "-b", "topic")
        return "Done."

    with ModelServer([EDIT, meanwhile]) as server:
        workspace = await opened(office, project, server)
        run = await work(office, workspace)
    [note] = [note for note in run.notes if "while the run went on" in note]
    assert "HEAD, index, refs" in note
    assert "You or another program" in note
    assert workspace.runs.details(run.id)["proof"]["takenOver"] == []
    assert not any("although nothing was applied" in note for note in run.notes)


@pytest.mark.parametrize("fails", [False, True])
async def test_a_file_of_the_checkout_that_became_the_agents_is_reported_however_the_run_ends(
    office: Office, project: RealRepository, fails: bool
) -> None:
    def escape(_request: Received) -> Answer | str:
        project.write("b.py", "x = 2\n")
        return Answer(status=400, json={"error": {"message": "no"}}) if fails else "Done."

    with ModelServer([EDIT, escape]) as server:
        workspace = await opened(office, project, server)
        run = await work(office, workspace)
    assert run.status == ("failed" if fails else "succeeded")
    assert workspace.runs.details(run.id)["proof"]["takenOver"] == ["b.py"]
    assert any("although nothing was applied" in note and "b.py" in note for note in run.notes)
