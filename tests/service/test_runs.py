"""Runs of the service: queued, carried, observed, cancelled, and ended exactly once."""

from __future__ import annotations

import asyncio

import pytest

from outpost_lsp.domain.run import FINISHED, ReviewScope
from outpost_lsp.errors import OutpostError
from outpost_lsp.service.signals import Question, RunChanged, RunEvent, Signal, SubagentChanged, Used
from tests.service.conftest import Office, Open, loopback, until
from tests.support.model_answers import Answer
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository

UNCOMMITTED = ReviewScope(scope="uncommitted")


async def test_U_15_a_run_ends_exactly_once_and_everything_else_is_told_before(
    office: Office, project: RealRepository
) -> None:
    workspace = await office.workspace(project)
    handle = await office.outpost.review(workspace, UNCOMMITTED)
    run = await handle.wait()
    assert (run.status, run.findings, run.rejected) == ("succeeded", 1, 0)
    assert office.statuses(run.id) == ["queued", "preparing", "running", "succeeded"]
    mine = [signal for signal in office.signals if isinstance(signal, RunEvent | RunChanged | Used)]
    ends = [
        index for index, signal in enumerate(mine) if isinstance(signal, RunChanged) and signal.run.status in FINISHED
    ]
    assert ends == [len(mine) - 1]
    assert workspace.runs.load(run.id) == run


async def test_DISP_18_runs_beyond_the_ceiling_wait_hold_nothing_and_can_be_cancelled(
    office: Office, project: RealRepository
) -> None:
    with ModelServer([Answer(text="never ends", hang_after=1)]) as server:
        workspace = await office.workspace(project, loopback(server.base_url, runs={"concurrency": 1}))
        first = await office.outpost.review(workspace, UNCOMMITTED)
        second = await office.outpost.review(workspace, UNCOMMITTED)
        await server.until(lambda: len(server.requests) == 1)
        assert (first.run.status, second.run.status) == ("running", "queued")
        assert [path.name for path in workspace.layout.worktrees.iterdir() if path.name[0] != "."] == [first.run.id]
        assert office.outpost.cancel(second.run.id)
        assert (await second.wait()).status == "cancelled"
        third = await office.outpost.review(workspace, UNCOMMITTED)
        first.cancel()
        assert (await first.wait()).status == "cancelled"
        await until(lambda: third.run.status == "running")
        third.cancel()
        await third.wait()
    assert office.statuses(second.run.id) == ["queued", "cancelled"]


async def test_a_change_without_changes_does_not_wait_for_a_place(office: Office, project: RealRepository) -> None:
    with ModelServer([Answer(text="never ends", hang_after=1)]) as server:
        workspace = await office.workspace(project, loopback(server.base_url, runs={"concurrency": 1}))
        busy = await office.outpost.review(workspace, UNCOMMITTED)
        await server.until(lambda: len(server.requests) == 1)
        nothing = await office.outpost.review(workspace, ReviewScope(scope="staged"))
        run = await nothing.wait()
        assert run.status == "succeeded"
        assert any("nothing is staged" in note for note in run.notes)
        assert len(server.requests) == 1
        busy.cancel()
        await busy.wait()


async def test_cancelling_stops_the_request_frees_the_worktree_and_says_so(
    office: Office, project: RealRepository
) -> None:
    with ModelServer([Answer(text="never ends", hang_after=1)]) as server:
        workspace = await office.workspace(project, loopback(server.base_url))
        handle = await office.outpost.review(workspace, UNCOMMITTED)
        await server.until(lambda: len(server.requests) == 1)
        assert office.outpost.cancel(handle.run.id)
        run = await handle.wait()
        await server.until(lambda: server.open_connections == 0)
    assert run.status == "cancelled"
    assert run.finished_at is not None
    assert not office.outpost.cancel(run.id)
    assert len(project.git("worktree", "list").splitlines()) == 1
    with pytest.raises(OutpostError, match="no run"):
        office.outpost.cancel("nobody")


async def test_giving_up_waiting_does_not_end_the_run(office: Office, project: RealRepository) -> None:
    with ModelServer([Answer(text="Done.", delay_s=0.3)]) as server:
        workspace = await office.workspace(project, loopback(server.base_url))
        handle = await office.outpost.review(workspace, UNCOMMITTED)
        waiting = asyncio.ensure_future(handle.wait())
        await server.until(lambda: len(server.requests) == 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await handle.wait()).status == "succeeded"


async def test_leaving_the_service_cancels_what_runs_and_the_records_say_so(
    open_office: Open, project: RealRepository
) -> None:
    with ModelServer([Answer(text="never ends", hang_after=1)]) as server:
        async with open_office() as office:
            workspace = await office.workspace(project, loopback(server.base_url, runs={"concurrency": 1}))
            live = await office.outpost.review(workspace, UNCOMMITTED)
            queued = await office.outpost.review(workspace, UNCOMMITTED)
            await server.until(lambda: len(server.requests) == 1)
        await server.until(lambda: server.open_connections == 0)
    assert (live.run.status, queued.run.status) == ("cancelled", "cancelled")
    async with open_office() as office:
        workspace = await office.workspace(project)
        assert {run.status for run in office.outpost.runs()} == {"cancelled"}


async def test_a_listener_that_fails_disturbs_nobody(
    office: Office, project: RealRepository, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_signal: Signal) -> None:
        raise RuntimeError("a broken listener")

    office.outpost.subscribe(fail)
    workspace = await office.workspace(project)
    handle = await office.outpost.review(workspace, UNCOMMITTED)
    assert (await handle.wait()).status == "succeeded"
    assert "a broken listener" in caplog.text


async def test_a_run_that_fails_names_its_code_and_keeps_what_it_used(office: Office, project: RealRepository) -> None:
    call = {"name": "list_files", "input": {}}
    with ModelServer([Answer(calls=[call]), Answer(status=401, json={"error": {"message": "no"}})]) as server:
        workspace = await office.workspace(project, loopback(server.base_url))
        handle = await office.outpost.review(workspace, UNCOMMITTED)
        run = await handle.wait()
    assert run.status == "failed"
    assert run.error is not None
    assert run.error.code == "provider"
    assert run.usage.output == 5
    assert run.conversation is not None


@pytest.mark.parametrize(
    ("scope", "options", "word"),
    [
        (ReviewScope(scope="branch", base="nowhere"), {}, "base"),
        (ReviewScope(scope="commit", revision="--output=x"), {}, "revision"),
        (ReviewScope(scope="file", paths=("missing.py",)), {}, "missing.py"),
        (UNCOMMITTED, {"agent": "nobody"}, "nobody"),
    ],
)
async def test_what_names_nothing_is_refused_and_starts_no_run(
    office: Office, project: RealRepository, scope: ReviewScope, options: dict[str, str], word: str
) -> None:
    workspace = await office.workspace(project)
    with pytest.raises(OutpostError, match=word) as fault:
        await office.outpost.review(workspace, scope, **options)  # type: ignore[arg-type]
    assert fault.value.code == "configuration"
    assert office.outpost.runs() == []
    assert not any(isinstance(signal, RunChanged) for signal in office.signals)


async def test_the_snapshot_is_of_the_moment_of_the_command_also_for_a_run_that_waits(
    office: Office, project: RealRepository
) -> None:
    hang = Answer(text="never ends", hang_after=1, when={"model": "small"})
    with ModelServer([hang]) as server:
        settings = loopback(server.base_url, runs={"concurrency": 1})
        settings["agents"] = {"offline-reviewer": {"model": "offline", "tools": ["files", "git", "findings"]}}
        workspace = await office.workspace(project, settings)
        busy = await office.outpost.review(workspace, UNCOMMITTED)
        await server.until(lambda: len(server.requests) == 1)
        waiting = await office.outpost.review(workspace, UNCOMMITTED, agent="offline-reviewer")
        project.git("checkout", "-q", "--", "a.py")
        busy.cancel()
        run = await waiting.wait()
    assert run.findings == 1


async def test_unsaved_text_is_reviewed_and_the_disk_is_left_alone(office: Office, project: RealRepository) -> None:
    project.git("checkout", "-q", "--", "a.py")
    workspace = await office.workspace(project)
    before = project.state()
    handle = await office.outpost.review(workspace, UNCOMMITTED, unsaved={"b.py": "print(undefined_name)\n"})
    run = await handle.wait()
    assert [finding.path for finding in handle.findings.values()] == ["b.py"]
    assert run.findings == 1
    assert project.state() == before


async def test_a_delegation_is_told_with_its_usage_and_budgets(office: Office, project: RealRepository) -> None:
    answers = [
        Answer(calls=[{"name": "reviewer", "input": {"prompt": "Look."}}], when={"contains": "coordinate this"}),
        Answer(text="Fine.", when={"contains": "Look.", "results": 0}),
        Answer(text="All fine.", when={"results": 1}),
    ]
    with ModelServer(answers) as server:
        limits = {"agents": {"coordinator": {"limits": {"usage": {"output": 5_000}}}}}
        workspace = await office.workspace(project, loopback(server.base_url) | limits)
        handle = await office.outpost.coordinate(workspace, "coordinate this")
        run = await handle.wait()
        assert not server.unanswered
    assert (run.status, run.text) == ("succeeded", "All fine.")
    delegations = [signal for signal in office.signals if isinstance(signal, SubagentChanged)]
    assert [one.event.status for one in delegations] == ["started", "finished"]
    used = [signal for signal in office.signals if isinstance(signal, Used)]
    assert [(one.agent, one.subagent_id is None) for one in used] == [
        ("coordinator", True),
        ("reviewer", False),
        ("coordinator", True),
    ]
    assert [one.total.output for one in used] == [5, 10, 15]
    assert [one.budgets[0].used.output for one in used] == [5, 10, 15]
    assert run.usage.output == 15


async def test_U_30_a_runs_budget_stops_it_and_the_message_names_counter_limit_and_use(
    office: Office, project: RealRepository
) -> None:
    call = {"name": "list_files", "input": {}}
    with ModelServer([Answer(calls=[call], usage={"input": 10, "output": 30}, times=0)]) as server:
        settings = loopback(server.base_url, budget={"perRun": {"output": 50}})
        workspace = await office.workspace(project, settings)
        run = await (await office.outpost.review(workspace, UNCOMMITTED)).wait()
        assert len(server.requests) == 2
    assert run.status == "failed"
    assert run.error is not None
    assert run.error.code == "limit"
    for word in ("50", "output", "60"):
        assert word in run.error.message
    assert run.usage.output == 60


async def test_BUD_05_a_days_budget_ends_the_other_live_runs_and_refuses_new_ones_after_a_restart(
    open_office: Open, project: RealRepository
) -> None:
    hang = Answer(text="never ends", hang_after=1, when={"contains": "hang here"}, times=0)
    spend = Answer(text="Done.", usage={"input": 1, "output": 100}, times=0)
    with ModelServer([hang, spend]) as server:
        settings = loopback(server.base_url, budget={"perDay": {"output": 100}})
        async with open_office() as office:
            workspace = await office.workspace(project, settings)
            live = await office.outpost.run_agent(workspace, "reviewer", "hang here")
            await server.until(lambda: len(server.requests) == 1)
            spender = await office.outpost.run_agent(workspace, "reviewer", "spend")
            ended = await spender.wait()
            other = await live.wait()
        assert (ended.status, other.status) == ("failed", "failed")
        assert other.error is not None
        assert other.error.details is not None
        assert other.error.details["budget"] == "per_day"
        async with open_office() as office:
            workspace = await office.workspace(project, settings)
            refused = await (await office.outpost.run_agent(workspace, "reviewer", "again")).wait()
        assert refused.status == "failed"
        assert refused.error is not None
        assert refused.error.code == "limit"
        assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("answer", "told"), [("allow", "Edited"), ("deny", "permission was not given"), (None, "not given")]
)
async def test_a_permission_question_is_asked_and_without_an_answer_it_is_no(
    office: Office, project: RealRepository, answer: str | None, told: str
) -> None:
    def decide(signal: Signal) -> None:
        if isinstance(signal, Question) and answer is not None:
            signal.take()
            assert signal.input["path"] == "new.txt"
            signal.answer(answer)  # type: ignore[arg-type]

    office.outpost.subscribe(decide)
    call = {"name": "write_file", "input": {"path": "new.txt", "content": "x\n"}}
    with ModelServer([Answer(calls=[call]), "Done."]) as server:
        settings = loopback(server.base_url)
        rules = {"default": "allow", "rules": [{"effect": "ask", "tools": ["write_file"]}]}
        settings["agents"] = {"fixer": {"permissions": rules}}
        workspace = await office.workspace(project, settings)
        run = await (await office.outpost.run_agent(workspace, "fixer", "write it")).wait()
        last = server.requests[1].body.decode()
    assert run.status == "succeeded"
    assert (run.changes is not None) is (answer == "allow")
    if answer != "allow":
        assert told in last


async def test_a_question_of_a_cancelled_run_is_withdrawn(office: Office, project: RealRepository) -> None:
    asked: list[Question] = []

    def take(signal: Signal) -> None:
        if isinstance(signal, Question):
            signal.take()
            asked.append(signal)

    office.outpost.subscribe(take)
    call = {"name": "write_file", "input": {"path": "new.txt", "content": "x\n"}}
    with ModelServer([Answer(calls=[call])]) as server:
        settings = loopback(server.base_url)
        settings["agents"] = {"fixer": {"permissions": {"default": "ask"}}}
        workspace = await office.workspace(project, settings)
        handle = await office.outpost.run_agent(workspace, "fixer", "write it")
        await until(lambda: bool(asked))
        handle.cancel()
        assert (await handle.wait()).status == "cancelled"
    assert asked[0].withdrawn


async def test_an_instruction_reaches_a_running_agent_and_is_refused_when_there_is_none(
    office: Office, project: RealRepository
) -> None:
    call = {"name": "list_files", "input": {}}
    with ModelServer([Answer(calls=[call], delay_s=0.3), "Done."]) as server:
        workspace = await office.workspace(project, loopback(server.base_url))
        handle = await office.outpost.review(workspace, UNCOMMITTED)
        await server.until(lambda: len(server.requests) == 1)
        delivery = await office.outpost.steer(handle.run.id, "Look at b.py too.")
        await handle.wait()
        assert "Look at b.py too." in server.requests[1].body.decode()
    assert delivery.mode == "injected"
    with pytest.raises(OutpostError) as fault:
        await office.outpost.steer(handle.run.id, "too late")
    assert fault.value.code == "steering"


async def test_an_instruction_for_a_child_that_there_is_not_is_refused_at_once(
    office: Office, project: RealRepository
) -> None:
    with ModelServer([Answer(silent=True)]) as server:
        workspace = await office.workspace(project, loopback(server.base_url))
        handle = await office.outpost.review(workspace, UNCOMMITTED)
        await server.until(lambda: len(server.requests) == 1)
        with pytest.raises(OutpostError, match="no child 'nobody'") as fault:
            await office.outpost.steer(handle.run.id, "Look.", "nobody")
        assert fault.value.code == "configuration"
        handle.cancel()
        await handle.wait()


async def test_U_33_a_long_wait_for_a_service_is_shown_as_waiting(office: Office, project: RealRepository) -> None:
    busy = Answer(status=429, headers={"Retry-After": "2"}, json={"error": {"message": "slow down"}})
    with ModelServer([busy, "Done."]) as server:
        settings = loopback(server.base_url)
        settings["providers"]["loopback"]["maxRetries"] = 1
        workspace = await office.workspace(project, settings)
        handle = await office.outpost.review(workspace, UNCOMMITTED)
        run = await handle.wait()
    assert run.status == "succeeded"
    assert office.statuses(run.id) == ["queued", "preparing", "running", "waiting", "running", "succeeded"]


async def test_wrong_settings_leave_the_last_good_ones_in_force(office: Office, project: RealRepository) -> None:
    workspace = await office.workspace(project, {"review": {"maxFindings": 7}})
    await workspace.reload({"review": {"maxFindings": "many"}})
    assert workspace.settings.review.max_findings == 7
    assert "max_findings" in workspace.faults[0]
    await workspace.reload({"review": {"maxFindings": 9}})
    assert (workspace.settings.review.max_findings, workspace.faults) == (9, ())


async def test_a_folder_without_a_repository_is_a_workspace_that_says_why_it_cannot_review(
    office: Office, project: RealRepository
) -> None:
    plain = project.path.parent / "plain"
    plain.mkdir()
    workspace = office.outpost.add_workspace(plain)
    await workspace.ready()
    with pytest.raises(OutpostError, match="not a git repository") as fault:
        await office.outpost.review(workspace, UNCOMMITTED)
    assert fault.value.code == "workspace"


async def test_removing_a_workspace_cancels_its_runs_only(office: Office, project: RealRepository) -> None:
    other = RealRepository(project.path.parent / "other")
    project.git("clone", "-q", str(project.path), str(other.path))
    other.write("a.py", "print(undefined)\n")
    with ModelServer([Answer(text="never ends", hang_after=1, times=0)]) as server:
        mine = await office.workspace(project, loopback(server.base_url))
        theirs = await office.workspace(other, loopback(server.base_url))
        first = await office.outpost.review(mine, UNCOMMITTED)
        second = await office.outpost.review(theirs, UNCOMMITTED)
        await server.until(lambda: len(server.requests) == 2)
        await office.outpost.remove_workspace(project.path)
        assert (first.run.status, second.run.status) == ("cancelled", "running")
        assert office.outpost.workspaces == (theirs,)
        second.cancel()
        await second.wait()


async def test_RPL_01_a_replay_spends_nothing_and_no_ceiling_keeps_it_from_going_on(
    open_office: Open, project: RealRepository
) -> None:
    with ModelServer([Answer(text="Done.")]) as server:
        async with open_office() as office:
            workspace = await office.workspace(project, loopback(server.base_url))
            recorded = await (await office.outpost.run_agent(workspace, "reviewer", "work")).wait()
        prices = {
            "main": {"provider": "loopback", "name": "small", "price": {"currency": "USD", "input": 1, "output": 1}}
        }
        budget = {"perRun": {"cost": 0.0, "output": 0}, "perDay": {"output": 1, "cost": 0.0}}
        async with open_office() as office:
            workspace = await office.workspace(
                project, loopback(server.base_url) | {"models": prices, "budget": budget}
            )
            refused = await (await office.outpost.run_agent(workspace, "reviewer", "work")).wait()
            replayed = await (await office.outpost.replay(workspace, recorded.id)).wait()
        assert len(server.requests) == 1
    assert refused.error is not None
    assert refused.error.code == "limit"
    assert (replayed.status, replayed.text, replayed.usage) == ("succeeded", "Done.", recorded.usage)
