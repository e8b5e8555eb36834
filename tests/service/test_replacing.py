"""A finished review of a scope replaces that agent's earlier findings in that scope, and only those."""

from __future__ import annotations

from outpost_lsp.domain.finding import Span
from outpost_lsp.domain.run import ReviewScope
from outpost_lsp.service.workspace import Workspace
from tests.service.conftest import Office, Open, loopback
from tests.support.model_answers import Answer
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository

SLIP = "print(undefined_name)\n"
UNCOMMITTED = ReviewScope(scope="uncommitted")


async def review(
    office: Office, workspace: Workspace, scope: ReviewScope = UNCOMMITTED, agent: str = "reviewer"
) -> str:
    handle = await office.outpost.review(workspace, scope, agent=agent)
    run = await handle.wait()
    assert run.status == "succeeded", run.error
    return run.id


def places(workspace: Workspace, status: str = "open") -> list[tuple[str, int]]:
    found = workspace.findings()
    return [(one.path, one.span.start_line) for one in found if one.status == status]


async def test_a_second_review_of_the_same_scope_leaves_only_its_own_findings(
    office: Office, project: RealRepository
) -> None:
    project.write("b.py", SLIP)
    workspace = await office.workspace(project)
    await review(office, workspace)
    assert places(workspace) == [("a.py", 1), ("b.py", 0)]
    project.write("b.py", "x = 2\n")
    last = await review(office, workspace)
    assert places(workspace) == [("a.py", 1)]
    assert {one.run_id for one in workspace.findings()} == {last}


async def test_a_review_of_one_file_leaves_the_findings_of_others(office: Office, project: RealRepository) -> None:
    project.write("b.py", SLIP)
    workspace = await office.workspace(project)
    await review(office, workspace, ReviewScope(scope="file", paths=("a.py",)))
    await review(office, workspace, ReviewScope(scope="file", paths=("b.py",)))
    assert places(workspace) == [("a.py", 1), ("b.py", 0)]
    project.write("a.py", "print(1)\n")
    await review(office, workspace, ReviewScope(scope="file", paths=("a.py",)))
    assert places(workspace, "open") == [("b.py", 0)]
    assert places(workspace, "stale") == []


async def test_a_review_of_a_selection_replaces_only_what_lies_in_it(office: Office, project: RealRepository) -> None:
    project.write("b.py", SLIP + "x = 1\n" * 5 + "print(another_name)\n")
    workspace = await office.workspace(project)
    await review(office, workspace, ReviewScope(scope="file", paths=("b.py",)))
    assert places(workspace) == [("b.py", 0), ("b.py", 6)]
    project.write("b.py", "print(1)\n" + "x = 1\n" * 5 + "print(1)\n")
    span = Span(start_line=0, start_character=0, end_line=1, end_character=0)
    await review(office, workspace, ReviewScope(scope="selection", paths=("b.py",), span=span))
    assert [one.quote for one in workspace.findings()] == ["print(another_name)"]


async def test_a_review_of_changes_leaves_findings_in_lines_that_did_not_change(
    office: Office, project: RealRepository
) -> None:
    project.write("b.py", SLIP + "x = 1\n" * 5)
    project.commit_all()
    workspace = await office.workspace(project)
    await review(office, workspace, ReviewScope(scope="file", paths=("b.py",)))
    project.write("b.py", SLIP + "x = 1\n" * 5 + "y = 2\n")
    await review(office, workspace)
    # The offline reviewer says of an old fault only that it was there, as a hint; both stand for one place.
    assert ("b.py", 0) in places(workspace)


async def test_another_agents_findings_stay(office: Office, project: RealRepository) -> None:
    settings = {"agents": {"second": {"tools": ["files", "git", "findings"]}}}
    workspace = await office.workspace(project, settings)
    await review(office, workspace, agent="second")
    await review(office, workspace)
    assert [(one.agent, one.also_by) for one in workspace.findings()] == [("reviewer", ("second",))]
    project.write("a.py", "print(1)\n")
    await review(office, workspace)
    assert [one.agent for one in workspace.findings()] == ["second"]


async def test_findings_of_work_that_was_committed_stay_and_of_work_that_was_taken_back_go(
    office: Office, project: RealRepository
) -> None:
    project.write("b.py", SLIP)
    workspace = await office.workspace(project)
    await review(office, workspace)
    assert places(workspace) == [("a.py", 1), ("b.py", 0)]
    project.git("checkout", "-q", "--", "a.py")
    project.git("add", "b.py")
    project.git("commit", "-q", "-m", "b")
    await review(office, workspace)
    assert [one.path for one in workspace.findings()] == ["b.py"]


async def test_a_failed_review_replaces_nothing(office: Office, project: RealRepository) -> None:
    with ModelServer([Answer(status=401, json={"error": {"message": "no"}})]) as server:
        workspace = await office.workspace(project)
        await review(office, workspace)
        await workspace.reload(loopback(server.base_url))
        handle = await office.outpost.review(workspace, UNCOMMITTED)
        assert (await handle.wait()).status == "failed"
    assert places(workspace) == [("a.py", 1)]


async def test_findings_survive_a_restart_and_are_replaced_after_it(open_office: Open, project: RealRepository) -> None:
    async with open_office() as office:
        await review(office, await office.workspace(project))
    project.write("a.py", "# a line above\n\nprint(math.pi)\n")
    async with open_office() as office:
        workspace = await office.workspace(project)
        assert places(workspace) == [("a.py", 2)]
        project.write("a.py", "print(1)\n")
        await review(office, workspace)
        assert workspace.findings() == []


async def test_U_11_two_runs_are_listed_with_their_findings_after_a_restart(
    open_office: Open, project: RealRepository
) -> None:
    project.write("b.py", SLIP)
    async with open_office() as office:
        workspace = await office.workspace(project)
        first = await review(office, workspace, ReviewScope(scope="file", paths=("a.py",)))
        second = await review(office, workspace, ReviewScope(scope="file", paths=("b.py",)))
    async with open_office() as office:
        workspace = await office.workspace(project)
        assert [run.id for run in office.outpost.runs()] == [second, first]
        assert {(one.run_id, one.path) for one in workspace.findings()} == {(first, "a.py"), (second, "b.py")}
