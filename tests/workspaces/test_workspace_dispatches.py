"""Dispatches and sandboxes on workspaces (DISP-04 to DISP-12, SBX, CONC, GIT-03)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp import (
    Agent,
    BranchPolicy,
    Brief,
    Command,
    DiffGuard,
    Harness,
    HostSandboxProvider,
    OutpostError,
    Subagent,
    WorktreeSandboxProvider,
    dispatch,
    open_sandbox,
    recovery_details,
)
from tests.harness.stage import calls, provider, says
from tests.workspaces.conftest import SCRIPT, Bench, _sh, commits, sh, worker


async def run(bench: Bench, agent: Agent, brief: Any = "go", *, branch: Any, **options: Any) -> Any:
    return await dispatch(bench.repository.path, agent, brief, branch=branch, layout=bench.layout, **options)


async def test_DISP_04_a_cold_dispatch_works_on_a_named_branch_and_tells_its_commits_newest_first(bench: Bench) -> None:
    script = commits("one", "1", "first") + "; " + commits("two", "2", "second")
    result = await run(bench, worker(script), branch=BranchPolicy("named", "work"))
    assert (result.branch, result.retained_directory) == ("work", None)
    assert [commit.subject for commit in result.commits] == ["second", "first"]
    assert result.commits[0].oid == bench.repository.git("rev-parse", "work")
    assert result.base == bench.repository.head
    assert not result.directory.exists()
    assert {file.path for file in result.changes.files} == {"one", "two"}
    assert '"branch": "work"' in result.report("json")
    assert bench.held_locks() == []


async def test_DISP_04_integrate_merges_before_everything_is_released(bench: Bench) -> None:
    result = await run(bench, worker(commits("one", "1")), branch="integrate", label="My job")
    assert bench.repository.head == result.commits[0].oid
    assert result.branch.startswith("outpost/my-job-")
    assert (len(bench.worktrees()), bench.branches()) == (1, ["main"])


async def test_DISP_05_every_pass_has_a_workspace_of_its_own_and_is_integrated(bench: Bench) -> None:
    agent = Agent(
        "m",
        Harness(
            provider(
                calls(("sh", {"script": commits("one", "1", "first")})),
                says("more"),
                calls(("sh", {"script": commits("two", "2", "second")})),
                says("<outpost>done</outpost>"),
            ),
            tools=[_tool()],
        ),
    )
    result = await run(bench, agent, branch="integrate", passes=3)
    assert (result.completed, len(result.turns)) == (True, 2)
    assert [commit.subject for commit in result.commits] == ["second", "first"]
    assert {"one", "two"} <= set(bench.repository.tree("HEAD"))


def _tool() -> Any:
    from outpost_lsp import Tool

    return Tool("sh", "Runs a script.", SCRIPT, _sh)


async def test_DISP_06_a_failure_keeps_the_workspace_and_says_where_everything_is(bench: Bench) -> None:
    failing = Agent(
        "m",
        Harness(
            provider(calls(("sh", {"script": commits("one", "1")})), OutpostError("provider", "gone")), tools=[_tool()]
        ),
    )
    with pytest.raises(OutpostError) as caught:
        await run(bench, failing, branch="integrate")
    assert str(caught.value) == "gone"
    details = recovery_details(caught.value) or {}
    assert details["branch"] in bench.branches()
    assert Path(details["directory"]).is_dir()
    assert [commit["subject"] for commit in details["commits"]] == ["work"]
    assert Path(details["transcript"]).exists()
    assert bench.held_locks() == []


async def test_DISP_08_commits_count_from_where_the_dispatch_began(bench: Bench) -> None:
    async with bench.open("named", "work") as workspace:
        first = await workspace.dispatch(worker(commits("one", "1", "first")), "go")
        second = await workspace.dispatch(worker(commits("two", "2", "second")), "go")
        third = await workspace.dispatch(worker("true"), "go")
    assert [[commit.subject for commit in one.commits] for one in (first, second, third)] == [["first"], ["second"], []]
    assert second.base == first.commits[0].oid
    assert second.changes is not None
    assert [file.path for file in second.changes.files] == ["two"]


async def test_DISP_09_uncommitted_files_are_in_neither_commits_nor_diff_and_retain_the_workspace(
    bench: Bench,
) -> None:
    result = await run(bench, worker("echo x > draft.txt"), branch=BranchPolicy("named", "work"))
    assert (result.commits, result.changes.files) == ((), ())
    assert result.retained_directory == result.directory
    assert (result.directory / "draft.txt").exists()


async def test_DISP_10_a_borrowed_integrate_workspace_is_integrated_and_stays_open(bench: Bench) -> None:
    async with bench.open("integrate") as workspace:
        for name in ("one", "two"):
            result = await dispatch(None, worker(commits(name, "x")), "go", workspace=workspace)
            assert bench.repository.head == result.commits[0].oid
            assert result.retained_directory is None
        assert workspace.directory.is_dir()


async def test_DISP_11_naming_a_place_drops_the_borrowed_workspace(bench: Bench) -> None:
    agent = Agent("m", Harness(provider(says("one"), says("two"), says("three")), tools=[_tool()]))
    async with bench.open("named", "work") as workspace:
        first = await workspace.dispatch(agent, "go")
        same = await first.resume("more")
        assert same.branch == "work"
    other = await first.resume("elsewhere", branch=BranchPolicy("named", "other"), layout=bench.layout)
    assert (other.branch, other.conversation) == ("other", first.conversation)


async def test_DISP_12_a_warm_conversation_takes_no_settings_of_the_sandbox(bench: Bench) -> None:
    agent = Agent("m", Harness(provider(says("one"), says("two"))))
    async with bench.open("named", "work") as workspace, workspace.sandbox(agent=agent) as sandbox:
        first = await sandbox.dispatch("go")
        for option in ("branch", "guard", "sandbox_provider", "workspace", "copies", "hooks", "limits", "repository"):
            with pytest.raises(OutpostError) as caught:
                await first.resume("more", **{option: "x"})
            assert caught.value.code == "configuration"
        assert (await first.resume("more")).text == "two"


async def test_BRIEF_03_a_template_knows_both_branches(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "brief.md").write_text("{{WORK_BRANCH}} on {{BASE_BRANCH}}")
    events: list[Any] = []
    await run(
        bench, worker("true"), Brief(file=tmp_path / "brief.md"), branch=BranchPolicy("named", "work"),
        observe=events.append,
    )  # fmt: skip
    assert [event.text for event in events if event.kind == "prompt"] == ["work on main"]


async def test_the_checkout_itself_can_be_worked_in(bench: Bench) -> None:
    result = await run(bench, worker(commits("one", "1", "in place") + "; echo x > draft"), branch="current")
    assert (result.branch, result.directory, result.retained_directory) == ("main", bench.repository.path, None)
    assert [commit.subject for commit in result.commits] == ["in place"]
    assert (bench.repository.path / "draft").exists()


async def test_GIT_03_commits_in_the_sandbox_are_by_the_user_and_variables_may_say_otherwise(bench: Bench) -> None:
    asks = "git log -1 --format='%an <%ae> / %cn <%ce>' > who; git add -A; git commit -q --amend --no-edit"
    form = "--format=%an <%ae> / %cn <%ce>"
    await run(bench, worker(commits("one", "1"), asks), branch=BranchPolicy("named", "nobody"))
    assert bench.repository.git("log", "-1", form, "nobody") == "Outpost <outpost@localhost> / Outpost <outpost@localhost>"  # fmt: skip
    bench.repository.git("config", "user.name", "The User")
    bench.repository.git("config", "user.email", "user@example.invalid")
    await run(bench, worker(commits("one", "1")), branch=BranchPolicy("named", "user"))
    assert bench.repository.git("log", "-1", form, "user") == "The User <user@example.invalid> / The User <user@example.invalid>"  # fmt: skip
    named = HostSandboxProvider(variables={"GIT_AUTHOR_NAME": "Somebody"})
    await run(bench, worker(commits("one", "1")), branch=BranchPolicy("named", "other"), sandbox_provider=named)
    assert bench.repository.git("log", "-1", "--format=%an/%cn", "other") == "Somebody/The User"


async def test_SBX_01_a_workspace_belongs_to_one_open_sandbox(bench: Bench) -> None:
    async with bench.open("named", "work") as workspace, workspace.sandbox() as sandbox:
        for attempt in (workspace.dispatch(worker("true"), "go"), _enter(workspace.sandbox())):
            with pytest.raises(OutpostError) as caught:
                await attempt
            assert caught.value.code == "configuration"
        assert sandbox.workspace is workspace
        assert (await sandbox.command(Command(executable="true"))).status == 0


async def _enter(context: Any) -> None:
    async with context:
        pass


async def test_SBX_03_SBX_04_closing_cancels_what_runs_waits_for_it_and_leaves_a_borrowed_workspace_open(
    bench: Bench, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    async with bench.open("named", "work") as workspace:
        async with workspace.sandbox() as sandbox:
            script = f"echo $$ > '{pid}'; exec sleep 1000"
            running = asyncio.ensure_future(sandbox.command(Command(executable="sh", arguments=["-c", script])))
            while not (pid.exists() and pid.read_text().strip()):
                await asyncio.sleep(0.01)
            await sandbox.close()
            assert not Path(f"/proc/{pid.read_text().strip()}").exists()
            with pytest.raises(OutpostError) as caught:
                await running
            assert caught.value.code == "aborted"
            await sandbox.close()
            with pytest.raises(OutpostError) as caught:
                await sandbox.command(Command(executable="true"))
            assert caught.value.code == "configuration"
        assert workspace.directory.is_dir()
        assert bench.held_locks() == [bench.locks.path("work").name]
        async with workspace.sandbox():
            pass


async def test_SBX_03_a_sandbox_closes_the_workspace_that_it_opened(bench: Bench) -> None:
    options: dict[str, Any] = {"branch": BranchPolicy("named", "work"), "layout": bench.layout}
    async with open_sandbox(bench.repository.path, **options) as sandbox:
        assert sandbox.root.parent == bench.workspaces
    assert (len(bench.worktrees()), bench.held_locks()) == (1, [])
    async with open_sandbox(bench.repository.path, **options) as sandbox:
        await sandbox.close(preserve=True)
        assert (len(bench.worktrees()), bench.held_locks()) == (2, [])


async def test_SBX_09_a_subagent_works_in_its_parents_worktree_and_the_parent_sees_its_edits_at_once(
    bench: Bench,
) -> None:
    child = worker("echo from-child > shared.txt")
    parent = Agent(
        "m",
        Harness(
            provider(
                calls(("child", {"prompt": "write"})),
                calls(("sh", {"script": "grep -q from-child shared.txt; git add -A; git commit -qm both"})),
                says("done"),
            ),
            tools=[Subagent("child", "Writes.", child), _tool()],
        ),
    )
    result = await run(bench, parent, branch=BranchPolicy("named", "work"))
    assert [commit.subject for commit in result.commits] == ["both"]


@pytest.mark.parametrize(
    "options",
    [
        {"guard": DiffGuard()},
        {"branch": "current", "guard": DiffGuard()},
        {"branch": "current", "copies": ["a.txt"]},
        {"branch": "named"},
        {"branch": 3},
        {"branch": BranchPolicy("named", "x"), "sandbox_provider": "worktree"},
        {"limits": {"git_s": 0}, "branch": "integrate"},
        {"hooks": {"other": []}, "branch": "integrate"},
    ],
)
async def test_DISP_01_options_that_contradict_each_other_leave_nothing_behind(
    bench: Bench, options: dict[str, Any]
) -> None:
    if options.get("sandbox_provider"):
        options = {**options, "sandbox_provider": WorktreeSandboxProvider(layout=bench.layout)}
    with pytest.raises(OutpostError) as caught:
        await dispatch(bench.repository.path, worker("true"), "go", layout=bench.layout, **options)
    assert caught.value.code == "configuration"
    assert (len(bench.worktrees()), bench.branches()) == (1, ["main"])
    assert not bench.layout.state.exists()


async def test_a_borrowed_workspace_excludes_what_it_was_opened_with(bench: Bench, tmp_path: Path) -> None:
    async with bench.open("named", "work") as workspace:
        for options in ({"branch": "integrate"}, {"guard": DiffGuard()}, {"copies": ["a"]}):
            with pytest.raises(OutpostError) as caught:
                await dispatch(None, worker("true"), "go", workspace=workspace, **options)  # type: ignore[arg-type]
            assert caught.value.code == "configuration"
        with pytest.raises(OutpostError) as caught:
            await dispatch(tmp_path, worker("true"), "go", workspace=workspace)
        assert caught.value.code == "configuration"
        same = await dispatch(bench.repository.path, worker("true"), "go", workspace=workspace)
        assert same.branch == "work"
    with pytest.raises(OutpostError) as caught:
        await dispatch(None, worker("true"), "go")
    assert caught.value.code == "configuration"


def waiting(started: asyncio.Event, go_on: asyncio.Event, script: str) -> Agent:
    """An agent that says when it has started and works when it is told to."""
    from outpost_lsp import Tool

    async def wait(_value: Any, _context: Any) -> str:
        started.set()
        await go_on.wait()
        return "go"

    tools = [Tool("wait", "Waits.", {"type": "object"}, wait), _tool()]
    return Agent("m", Harness(provider(calls(("wait", {})), calls(("sh", {"script": script})), says("done")), tools=tools))  # fmt: skip


@pytest.mark.parametrize("policy", [BranchPolicy("current"), BranchPolicy("named", "work")])
async def test_CONC_01_CONC_02_the_checkout_and_a_named_branch_have_one_dispatch_at_a_time(
    bench: Bench, policy: BranchPolicy
) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()
    running = asyncio.ensure_future(run(bench, waiting(started, go_on, "true"), branch=policy))
    await started.wait()
    with pytest.raises(OutpostError) as caught:
        await run(bench, worker("true"), branch=policy)
    assert caught.value.code == "conflict"
    go_on.set()
    assert (await running).text == "done"
    assert (await run(bench, worker("true"), branch=policy)).text == "done"


async def test_CONC_02_integrate_dispatches_run_in_parallel_and_serialise_only_the_merge(bench: Bench) -> None:
    """All four have started before one of them goes on; each in a worktree of its own (CONC-05)."""
    events = [asyncio.Event() for _ in range(4)]
    go_on = [asyncio.Event() for _ in range(4)]
    agents = [waiting(events[n], go_on[n], commits(f"file-{n}", "x")) for n in range(4)]
    running = [asyncio.ensure_future(run(bench, agent, branch="integrate")) for agent in agents]
    for event in events:
        await event.wait()
    assert len(set(bench.worktrees())) == 5
    results = []
    for number, task in enumerate(running):
        go_on[number].set()
        results.append(await task)
    assert len({result.directory for result in results}) == 4
    assert len({result.conversation for result in results}) == 4
    assert {f"file-{number}" for number in range(4)} <= set(bench.repository.tree("HEAD"))
    assert bench.repository.git("status", "--porcelain") == ""
    assert (len(bench.worktrees()), bench.branches(), bench.held_locks()) == (1, ["main"], [])
    bench.repository.git("fsck", "--strict")


async def test_CONC_03_a_sandbox_does_one_thing_at_a_time(bench: Bench) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()
    async with bench.open("named", "work") as workspace, workspace.sandbox() as sandbox:
        running = asyncio.ensure_future(sandbox.dispatch("go", agent=waiting(started, go_on, "true")))
        await started.wait()
        for attempt in (sandbox.dispatch("go", agent=worker("true")), sandbox.command(Command(executable="true"))):
            with pytest.raises(OutpostError) as caught:
                await attempt
            assert caught.value.code == "configuration"
        go_on.set()
        assert (await running).text == "done"


async def test_cancelling_a_dispatch_keeps_its_work_and_frees_everything(bench: Bench) -> None:
    started, never = asyncio.Event(), asyncio.Event()
    running = asyncio.ensure_future(run(bench, waiting(started, never, "true"), branch=BranchPolicy("named", "work")))
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert bench.held_locks() == []
    assert len(bench.worktrees()) == 2
    sh(bench.repository.path, "git fsck --strict")
    async with bench.open("named", "work"):
        pass
