"""Replays of runs whose journals do not hold all of them: a fault says so, nothing ends as if it were the same."""

from __future__ import annotations

from tests.service.conftest import Open, loopback
from tests.support.model_answers import Answer
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository


async def test_RPL_05_changes_that_a_run_made_and_its_journal_does_not_hold_are_a_replay_fault(
    open_office: Open, project: RealRepository
) -> None:
    write = Answer(calls=[{"name": "write_file", "input": {"path": "made.txt", "content": "made\n"}}])
    with ModelServer([write, "Made.", "Nothing to do."]) as server:
        async with open_office() as office:
            settings = loopback(server.base_url) | {"runs": {"replayable": False}}
            workspace = await office.workspace(project, settings)
            made = await (await office.outpost.run_agent(workspace, "fixer", "work")).wait()
            idle = await (await office.outpost.run_agent(workspace, "fixer", "work")).wait()
            unlike = await (await office.outpost.replay(workspace, made.id)).wait()
            alike = await (await office.outpost.replay(workspace, idle.id)).wait()
        assert len(server.requests) == 3, "a replay asks no model"
    assert made.changes is not None
    assert (unlike.status, unlike.changes) == ("failed", None)
    assert unlike.error is not None
    assert (unlike.error.code, (unlike.error.details or {})["kind"]) == ("replay", "unrecorded")
    assert "the run changed 1 file; its journal was kept with `[runs] replayable = false`" in unlike.error.message
    assert (alike.status, alike.text) == ("succeeded", "Nothing to do.")
