"""Reviews that go on elsewhere without the process that sent them, and what is fetched of them later."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp.domain.run import ReviewScope, Run
from outpost_lsp.errors import OutpostError
from outpost_lsp.service.detached import DetachedRun, detached_run, start_detached
from outpost_lsp.service.handle import RunHandle
from outpost_lsp.service.results import diff
from outpost_lsp.service.workspace import Workspace
from outpost_lsp.storage.journal import read_journal
from tests.cluster.conftest import Office, Open, until
from tests.support.hosted_face import OTHER_TOKEN, TOKEN, HostedFace, hosted_face
from tests.support.model_answers import Answer
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository


@asynccontextmanager
async def at_work(face: HostedFace, open_office: Open, project: RealRepository, **more: Any) -> AsyncIterator[At]:
    """A process that begins, works and ends; the next one finds what it left."""
    async with open_office() as office:
        office.environment["OUTPOST_RAY_TOKEN"] = TOKEN
        yield At(office, await office.workspace(project, face.settings() | more))


class At:
    """A service with one workspace."""

    def __init__(self, office: Office, workspace: Workspace) -> None:
        self.office = office
        self.outpost = office.outpost
        self.workspace = workspace

    async def left(self, scope: ReviewScope | None = None) -> Run:
        scope = scope or ReviewScope()
        planned = await self.outpost.plan_review(self.workspace, scope)
        handle = start_detached(self.outpost, planned, scope)
        await handle.wait()
        return handle.run

    def found(self, run_id: str) -> DetachedRun:
        run = self.workspace.runs.load(run_id)
        assert run is not None
        return detached_run(self.outpost, self.workspace, run)

    async def fetched(self, run_id: str) -> RunHandle:
        detached = self.found(run_id)
        assert await detached.ended()
        handle = detached.fetch()
        await handle.wait()
        return handle


def operator(tmp_path: Path, model: ModelServer) -> Path:
    file = tmp_path / "operator.toml"
    file.write_text(
        'default_model = "main"\n'
        f'[providers.loopback]\nkind = "openai"\nbase_url = "{model.base_url}"\napi = "chat"\napi_key_env = ""\n'
        'max_retries = 0\n[models.main]\nprovider = "loopback"\nname = "small"\n'
    )
    return file


def models() -> dict[str, Any]:
    return {
        "defaultModel": "main",
        "providers": {"loopback": {"kind": "openai", "baseUrl": "http://127.0.0.1:9/v1", "apiKeyEnv": ""}},
        "models": {"main": {"provider": "loopback", "name": "small"}},
    }


async def test_a_detached_review_ends_as_one_that_was_followed(
    open_office: Open, project: RealRepository, tmp_path: Path
) -> None:
    async with hosted_face(tmp_path / "face") as face:
        async with at_work(face, open_office, project) as here:
            followed = await (await here.outpost.review(here.workspace, ReviewScope())).wait()
            kinds = [record.kind for record in read_journal(here.workspace.journal_path(followed.id))]
            findings = [one.model_dump(exclude={"id", "run_id"}) for one in here.workspace.board.listing()]
            assert findings
        async with at_work(face, open_office, project) as first:
            left = await first.left()
            assert left.status == "running"
            assert left.error is None
        async with at_work(face, open_office, project) as second:
            # Nobody carries it here, and nobody takes it for a dead process's.
            known = second.workspace.runs.load(left.id)
            assert known is not None
            assert known.status == "running"
            # Its process ends by itself: what it did is kept without anybody asking.
            await until(lambda: left.id in face.engine.ended)
            handle = await second.fetched(left.id)
            run = handle.run
            assert run.error is None
            assert (run.status, run.text, run.findings) == ("succeeded", followed.text, followed.findings)
            assert run.notes == followed.notes
            assert [record.kind for record in read_journal(second.workspace.journal_path(run.id))] == kinds
            assert [one.model_dump(exclude={"id", "run_id"}) for one in second.workspace.board.listing()] == findings
            # It is fetched once, and nothing of it stays there.
            with pytest.raises(OutpostError, match="fetched already"):
                second.found(left.id)
        assert not list((tmp_path / "face").rglob("*.job"))


async def test_what_a_detached_review_changed_is_there_to_be_applied(
    open_office: Open, project: RealRepository, tmp_path: Path
) -> None:
    call = {"name": "write_file", "input": {"path": "a.py", "content": "import math\n\nprint(math.pi)\n"}}
    with ModelServer([Answer(calls=[call]), "Done."]) as model:
        async with hosted_face(tmp_path / "face", user_file=operator(tmp_path, model)) as face:
            settings = models() | {"agents": {"reviewer": {"tools": ["files", "edit", "findings"]}}}
            async with at_work(face, open_office, project, **settings) as first:
                left = await first.left()
            # The file is gone on with, and the base moves on.
            project.write("b.py", "x = 2\n")
            project.commit_all("later")
            async with at_work(face, open_office, project, **settings) as second:
                run = (await second.fetched(left.id)).run
                assert run.error is None
                assert run.disposition == "pending"
                assert b"+import math" in (await diff(second.workspace, run)).patch


async def test_a_detached_review_is_stopped_and_what_it_did_is_fetched(
    open_office: Open, project: RealRepository, tmp_path: Path
) -> None:
    calls = [{"name": "list_files", "input": {}}]
    with ModelServer([Answer(calls=calls), Answer(silent=True)]) as model:
        async with hosted_face(tmp_path / "face", user_file=operator(tmp_path, model)) as face:
            async with at_work(face, open_office, project, **models()) as first:
                left = await first.left()
            await model.until(lambda: len(model.requests) == 2)
            async with at_work(face, open_office, project, **models()) as second:
                await second.found(left.id).cancel()
                run = (await second.fetched(left.id)).run
                assert run.status == "cancelled"
                assert run.usage.input > 0
                kinds = [record.kind for record in read_journal(second.workspace.journal_path(run.id))]
                assert "tool-result" in kinds


async def test_a_question_of_a_detached_review_is_denied_at_once(
    open_office: Open, project: RealRepository, tmp_path: Path
) -> None:
    call = {"name": "write_file", "input": {"path": "new.txt", "content": "new\n"}}
    with ModelServer([Answer(calls=[call]), "Done."]) as model:
        async with hosted_face(tmp_path / "face", user_file=operator(tmp_path, model)) as face:
            permissions = {"default": "allow", "rules": [{"effect": "ask", "tools": ["write_file"]}]}
            agents = {"reviewer": {"tools": ["files", "edit"], "permissions": permissions}}
            async with at_work(face, open_office, project, **models(), agents=agents) as first:
                left = await first.left()
                run = (await first.fetched(left.id)).run
                assert run.status == "succeeded"
                assert run.disposition == "none"
                assert len(model.requests) == 2


async def test_a_run_that_the_face_does_not_know_is_interrupted_and_can_still_be_asked_for(
    open_office: Open, project: RealRepository, tmp_path: Path
) -> None:
    async with hosted_face(tmp_path / "face") as face:
        async with at_work(face, open_office, project) as first:
            left = await first.left()
            await until(lambda: left.id in face.engine.ended)
        async with at_work(face, open_office, project) as second:
            second.office.environment["OUTPOST_RAY_TOKEN"] = OTHER_TOKEN
            detached = second.found(left.id)
            assert not await detached.ended()
            assert detached.run.status == "interrupted"
            assert detached.run.error is not None
            assert "another token" in detached.run.error.message
            second.office.environment["OUTPOST_RAY_TOKEN"] = TOKEN
            run = (await second.fetched(left.id)).run
            assert (run.status, run.error) == ("succeeded", None)
            assert run.findings > 0


async def test_a_face_that_is_away_leaves_the_run_as_it_is(
    open_office: Open, project: RealRepository, tmp_path: Path
) -> None:
    async with hosted_face(tmp_path / "face") as face, at_work(face, open_office, project) as first:
        left = await first.left()
    async with at_work(face, open_office, project) as second:
        with pytest.raises(OutpostError, match="cannot be reached"):
            await second.found(left.id).ended()
        known = second.workspace.runs.load(left.id)
        assert known is not None
        assert known.status == "running"
    async with at_work(
        face, open_office, project, runs={"executor": "ray", "ray": {"url": "http://127.0.0.1:9"}}
    ) as it:
        with pytest.raises(OutpostError, match="was sent to"):
            it.found(left.id)


async def test_what_cannot_be_left_is_refused_before_anything_starts(
    open_office: Open, project: RealRepository, tmp_path: Path
) -> None:
    async with hosted_face(tmp_path / "face") as face:
        refused: list[tuple[dict[str, Any], str]] = [
            ({"runs": {}}, "--executor ray"),
            ({"budget": {"perRun": {"output": 10}}}, "budget.per_run"),
            ({"budget": {"perDay": {"output": 10}}}, "budget.per_day"),
        ]
        for settings, said in refused:
            async with at_work(face, open_office, project, **settings) as here:
                with pytest.raises(OutpostError, match=said):
                    await here.left()
                assert here.workspace.runs.list() == []
        assert face.engine.placed == []


async def test_a_review_of_nothing_ends_here(open_office: Open, project: RealRepository, tmp_path: Path) -> None:
    project.git("checkout", "--", ".")
    async with hosted_face(tmp_path / "face") as face, at_work(face, open_office, project) as here:
        assert (await here.left()).status == "succeeded"
        assert face.engine.placed == []
