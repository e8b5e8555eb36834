"""Runs that a worker carries out, through a real face on loopback, are as those of this process (SO-01, SO-07, SO-08)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp.domain.run import ReviewScope
from outpost_lsp.errors import OutpostError
from outpost_lsp.sandbox.standing import present_on_disk
from outpost_lsp.service.results import apply, diff
from outpost_lsp.service.signals import Question, Signal
from outpost_lsp.service.workspace import Workspace
from outpost_lsp.storage.journal import read_journal
from tests.cluster.conftest import Office, until
from tests.support.hosted_face import OTHER_TOKEN, TOKEN, HostedFace, hosted_face
from tests.support.model_answers import Answer
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository

NOWHERE = "http://127.0.0.1:9/v1"


@asynccontextmanager
async def elsewhere(
    office: Office, project: RealRepository, tmp_path: Path, model: ModelServer, **agents: Any
) -> AsyncIterator[tuple[HostedFace, Workspace]]:
    """A workspace whose runs go to a worker, which alone can reach the model."""
    office.environment["OUTPOST_RAY_TOKEN"] = TOKEN
    operator = tmp_path / "operator.toml"
    operator.write_text(
        'default_model = "main"\n'
        f'[providers.loopback]\nkind = "openai"\nbase_url = "{model.base_url}"\napi = "chat"\napi_key_env = ""\n'
        'max_retries = 0\n[models.main]\nprovider = "loopback"\nname = "small"\n'
    )
    async with hosted_face(tmp_path / "face", user_file=operator) as face:
        settings = face.settings() | {
            "defaultModel": "main",
            "providers": {"loopback": {"kind": "openai", "baseUrl": NOWHERE, "api": "chat", "apiKeyEnv": ""}},
            "models": {"main": {"provider": "loopback", "name": "small"}},
            "agents": agents,
        }
        yield face, await office.workspace(project, settings)


def write(path: str, content: str) -> dict[str, Any]:
    return {"name": "write_file", "input": {"path": path, "content": content}}


async def test_SO_01_a_review_elsewhere_is_the_same_but_for_ids_times_and_the_workers_note(
    office: Office, project: RealRepository, tmp_path: Path
) -> None:
    office.environment["OUTPOST_RAY_TOKEN"] = TOKEN
    here = await office.workspace(project)
    local = await (await office.outpost.review(here, ReviewScope())).wait()
    local_kinds = [record.kind for record in read_journal(here.journal_path(local.id))]
    local_findings = [finding.model_dump(exclude={"id", "run_id"}) for finding in here.board.listing()]
    assert local.status == "succeeded"
    assert local.findings > 0
    await office.outpost.remove_workspace(project.path)
    async with hosted_face(tmp_path / "face") as face:
        there = await office.workspace(project, face.settings())
        remote = await (await office.outpost.review(there, ReviewScope())).wait()
        assert remote.error is None
        assert remote.status == "succeeded"
        assert remote.text == local.text
        assert remote.findings == local.findings
        assert [note for note in remote.notes if note not in local.notes] == ["Carried out by here."]
        kinds = [record.kind for record in read_journal(there.journal_path(remote.id))]
        assert kinds == local_kinds
        findings = [finding.model_dump(exclude={"id", "run_id"}) for finding in there.board.listing()]
        assert findings == local_findings
        assert "GET /v1/health" in face.requests


async def test_what_an_agent_changed_elsewhere_is_applied_here(
    office: Office, project: RealRepository, tmp_path: Path
) -> None:
    calls = [write("a.py", "import math\n\nprint(math.pi)\n"), write("new/b.txt", "new\n")]
    with ModelServer([Answer(calls=calls), "Done."]) as model:
        async with elsewhere(office, project, tmp_path, model) as (_face, workspace):
            before = project.state()
            run = await (await office.outpost.run_agent(workspace, "fixer", "Mend a.py.")).wait()
            assert run.error is None
            assert run.status == "succeeded"
            assert run.disposition == "pending"
            assert run.usage.input == 20
            assert project.state() == before
            changed = await diff(workspace, run)
            assert sorted(each.file.path for each in changed.files) == ["a.py", "new/b.txt"]
            assert b"+import math" in changed.patch


async def test_a_conversation_that_was_held_elsewhere_goes_on_there_and_here(
    office: Office, project: RealRepository, tmp_path: Path
) -> None:
    with ModelServer(["First.", "Second.", "Third."]) as model:
        async with elsewhere(office, project, tmp_path, model) as (face, workspace):
            first = await (await office.outpost.run_agent(workspace, "reviewer", "One.")).wait()
            assert first.conversation is not None
            kept = workspace.conversations.messages(first.conversation)
            assert [message.role for message in kept] == ["user", "assistant"]
            again = await office.outpost.continue_conversation(workspace, first.conversation, "Two.")
            second = await again.wait()
            assert second.error is None
            assert second.conversation == first.conversation
            assert len(workspace.conversations.messages(first.conversation)) == 4
            sent = model.requests[1].json["messages"]
            assert [message["content"] for message in sent if message["role"] == "assistant"] == ["First."]
            assert len(face.engine.placed[1].conversation) > 0


async def test_SO_03_cancelling_here_cancels_there(office: Office, project: RealRepository, tmp_path: Path) -> None:
    with ModelServer([Answer(silent=True)]) as model:
        async with elsewhere(office, project, tmp_path, model) as (face, workspace):
            handle = await office.outpost.run_agent(workspace, "reviewer", "Wait.")
            await model.until(lambda: bool(model.requests))
            assert handle.cancel()
            run = await handle.wait()
            assert run.status == "cancelled"
            await model.until(lambda: model.open_connections == 0)
            assert [request for request in face.requests if request.startswith("DELETE")]


async def test_SO_07_an_instruction_reaches_the_agent_there(
    office: Office, project: RealRepository, tmp_path: Path
) -> None:
    calls = [{"name": "list_files", "input": {}}]
    with ModelServer([Answer(calls=calls, hold="go"), "Done."]) as model:
        async with elsewhere(office, project, tmp_path, model) as (_face, workspace):
            handle = await office.outpost.run_agent(workspace, "reviewer", "Look.")
            await model.until(lambda: bool(model.requests))
            sending = asyncio.ensure_future(office.outpost.steer(handle.run.id, "Look at b.py, too."))
            await until(lambda: any(request.endswith("/steer") for request in _face.requests))
            model.release("go")
            assert (await sending).mode == "injected"
            assert (await handle.wait()).status == "succeeded"
            assert "Look at b.py, too." in str(model.requests[1].json["messages"])
            with pytest.raises(OutpostError) as fault:
                await office.outpost.steer(handle.run.id, "Too late.")
            assert fault.value.code == "steering"


@pytest.mark.parametrize("answer", ["allow", "deny"])
async def test_SO_07_a_permission_question_is_answered_here(
    answer: str, office: Office, project: RealRepository, tmp_path: Path
) -> None:
    permissions = {"default": "allow", "rules": [{"effect": "ask", "tools": ["write_file"]}]}
    asked: list[Question] = []

    def listen(signal: Signal) -> None:
        if isinstance(signal, Question):
            asked.append(signal)
            signal.take()
            signal.answer(answer)  # type: ignore[arg-type]

    office.outpost.subscribe(listen)
    with ModelServer([Answer(calls=[write("c.txt", "c\n")]), "Done."]) as model:
        async with elsewhere(office, project, tmp_path, model, fixer={"permissions": permissions}) as (_, workspace):
            run = await (await office.outpost.run_agent(workspace, "fixer", "Write c.txt.")).wait()
            assert run.status == "succeeded"
            assert [question.tool for question in asked] == ["write_file"]
            assert (run.changes is not None) == (answer == "allow")


async def test_SO_08_the_base_goes_once_and_ignored_files_never(
    office: Office, project: RealRepository, tmp_path: Path
) -> None:
    project.write(".gitignore", "*.secret\n")
    project.write("key.secret", "canary\n")
    project.write("untracked.txt", "with you\n")
    with ModelServer([Answer(text="Done.", times=0)]) as model:
        async with elsewhere(office, project, tmp_path, model) as (face, workspace):
            for brief in ("One.", "Two."):
                run = await (
                    await office.outpost.run_agent(workspace, "reviewer", brief, unsaved={"b.py": "x = 3\n"})
                ).wait()
                assert run.status == "succeeded"
            assert len([request for request in face.requests if request.endswith("/base")]) == 1
            files = project.tree(face.engine.placed[0].snapshot)
            assert files["b.py"] == b"x = 3\n"
            assert files["untracked.txt"] == b"with you\n"
            assert "key.secret" not in files
            assert all(len(delta) < 2_000 for delta in face.engine.deltas)


async def test_SO_10_a_token_sees_its_own_runs_only_and_none_is_told_so(
    office: Office, project: RealRepository, tmp_path: Path
) -> None:
    with ModelServer([Answer(silent=True)]) as model:
        async with elsewhere(office, project, tmp_path, model) as (face, workspace):
            handle = await office.outpost.run_agent(workspace, "reviewer", "Wait.")
            await model.until(lambda: bool(model.requests))
            from outpost_lsp.remote.http import RemoteExecutor

            for token, status in (("a-token-that-nobody-gave", 401), (OTHER_TOKEN, 404)):
                executor = RemoteExecutor(face.url, lambda token=token: token)
                with pytest.raises(OutpostError) as fault:
                    await executor.ask("GET", f"/v1/jobs/{handle.run.id}/result.pack")
                assert fault.value.details["status"] == status
                await executor.aclose()
            handle.cancel()
            await handle.wait()


async def test_SO_10_no_key_and_no_path_of_this_machine_is_in_a_record(
    office: Office, project: RealRepository, tmp_path: Path
) -> None:
    office.environment["SERVICE_KEY"] = "canary-key-77"
    with ModelServer(["Done."]) as model:
        async with elsewhere(office, project, tmp_path, model) as (face, workspace):
            run = await (await office.outpost.run_agent(workspace, "reviewer", "Look.")).wait()
            assert run.status == "succeeded"
            record = face.engine.placed[0].to_line().decode()
            for secret in ("canary-key-77", TOKEN, str(project.path), str(tmp_path), NOWHERE):
                assert secret not in record


async def test_SO_04_a_job_whose_process_is_gone_is_an_interrupted_run(
    office: Office, project: RealRepository, tmp_path: Path
) -> None:
    with ModelServer([Answer(silent=True)]) as model:
        async with elsewhere(office, project, tmp_path, model) as (face, workspace):
            handle = await office.outpost.run_agent(workspace, "reviewer", "Wait.")
            await model.until(lambda: bool(model.requests))
            next(iter(face.engine.jobs.values())).lost.set()
            run = await handle.wait()
            assert run.status == "interrupted"
            assert len(face.engine.placed) == 1
            assert len(model.requests) == 1


@pytest.mark.parametrize("when_away", ["fail", "local"])
async def test_SO_06_an_engine_that_is_away_fails_the_run_or_it_is_carried_out_here(
    when_away: str, office: Office, project: RealRepository, tmp_path: Path
) -> None:
    office.environment["OUTPOST_RAY_TOKEN"] = TOKEN
    ray = {"url": "http://127.0.0.1:9", "whenAway": when_away}
    workspace = await office.workspace(project, {"runs": {"executor": "ray", "ray": ray}})
    run = await (await office.outpost.review(workspace, ReviewScope())).wait()
    if when_away == "fail":
        assert run.status == "failed"
        assert run.error is not None
        assert "127.0.0.1:9" in run.error.message
        assert "runs.ray.url" in run.error.message
    else:
        assert run.status == "succeeded"
        assert run.findings > 0
        assert any("127.0.0.1:9" in note for note in run.notes)


async def test_a_model_that_the_worker_does_not_know_is_named(
    office: Office, project: RealRepository, tmp_path: Path
) -> None:
    with ModelServer([]) as model:
        async with elsewhere(office, project, tmp_path, model, reviewer={"model": "main"}) as (face, workspace):
            (tmp_path / "operator.toml").write_text("")
            run = await (await office.outpost.run_agent(workspace, "reviewer", "Look.")).wait()
            assert run.status == "failed"
            assert run.error is not None
            assert "the worker offers no 'main'" in run.error.message
            assert len(face.engine.placed) == 1


async def test_SO_12_applying_a_remote_run_with_a_conflict_among_ten_files_changes_none(
    office: Office, project: RealRepository, tmp_path: Path
) -> None:
    names = [f"part{number}.txt" for number in range(10)]
    for name in names:
        project.write(name, "one\ntwo\n")
    project.commit_all("parts")
    calls = [write(name, "one\n2\n") for name in names]
    with ModelServer([Answer(calls=calls), "Done."]) as model:
        async with elsewhere(office, project, tmp_path, model) as (_face, workspace):
            run = await (await office.outpost.run_agent(workspace, "fixer", "Write them.")).wait()
            assert run.error is None
            assert run.changes is not None
            assert run.changes.files == 10
            project.write(names[7], "one\nzwei\n")
            before = project.state()
            landed: list[object] = []

            async def land(operations: object) -> bool:
                landed.append(operations)
                return True

            outcome = await apply(workspace, run, present=lambda path: present_on_disk(workspace.top, path), land=land)
            assert not outcome.applied
            assert [conflict.path for conflict in outcome.conflicts] == [names[7]]
            assert landed == []
            assert project.state() == before
            assert workspace.runs.load(run.id).disposition == "pending"  # type: ignore[union-attr]
