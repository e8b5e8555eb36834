"""What a run's worktree holds besides the snapshot, and how its commands run (SNAP-04, SEC-11 to SEC-13, SEC-15)."""

from __future__ import annotations

import os
import shutil
from typing import Any

import pytest

from outpost_lsp.domain.run import Run
from outpost_lsp.service import results
from outpost_lsp.service.workspace import Workspace
from outpost_lsp.worktrees import on_demand
from tests.service.conftest import Office, loopback
from tests.support.model_answers import Answer
from tests.support.model_saying import Received
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository

NAMES = ("of.local", "beside.txt")


def settings(server: ModelServer, **sandbox: Any) -> dict[str, Any]:
    agent = {"tools": ["files", "shell", "edit"]}
    return loopback(server.base_url, agents={"worker": agent}, sandbox=sandbox)


async def work(office: Office, workspace: Workspace) -> Run:
    return await (await office.outpost.run_agent(workspace, "worker", "work")).wait()


def shell(command: str) -> Answer:
    return Answer(calls=[{"name": "shell", "input": {"command": command}}])


def read(path: str) -> Answer:
    return Answer(calls=[{"name": "read_file", "input": {"path": path}}])


@pytest.fixture
def secret(project: RealRepository) -> RealRepository:
    project.write(".gitignore", ".env\nlocal/\n")
    project.write(".env", "TOKEN=of-the-file\n")
    project.write("local/data.txt", "data\n")
    return project


async def test_SEC_11_ignored_files_stay_behind_and_a_note_counts_them(office: Office, secret: RealRepository) -> None:
    with ModelServer([read(".env"), "Done."]) as server:
        run = await work(office, await office.workspace(secret, settings(server)))
        assert "of-the-file" not in server.requests[1].body.decode()
    assert run.status == "succeeded"
    assert any("left out: 2" in note for note in run.notes)


async def test_SNAP_04_what_the_settings_name_comes_along_and_is_listed_with_its_hash(
    office: Office, secret: RealRepository
) -> None:
    with ModelServer([read(".env"), "Done."]) as server:
        workspace = await office.workspace(secret, settings(server, copyIgnored=[".env"]))
        run = await work(office, workspace)
        assert "of-the-file" in server.requests[1].body.decode()
    assert any(".env (sha256 " in note for note in run.notes)
    assert run.changes is None


async def test_SEC_11_a_folders_own_list_counts_only_when_it_is_trusted(office: Office, secret: RealRepository) -> None:
    secret.write(".worktreeinclude", ".env\n")
    with ModelServer([read(".env"), "Done.", read(".env"), "Done."]) as server:
        workspace = office.outpost.add_workspace(secret.path, client_settings=settings(server), trusted=False)
        await workspace.ready()
        await work(office, workspace)
        await workspace.reload(trusted=True)
        await work(office, workspace)
        assert "of-the-file" not in server.requests[1].body.decode()
        assert "of-the-file" in server.requests[3].body.decode()


@pytest.mark.parametrize("trusted", [False, True])
async def test_a_large_repository_is_not_laid_out_for_what_comes_along(
    office: Office, secret: RealRepository, monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    monkeypatch.setattr(on_demand, "_INDEX_OF_A_LARGE_REPOSITORY", 0)
    secret.write("deep/down/.gitignore", "*.local\n")
    secret.write("deep/down/beside.txt", "beside\n")
    secret.write("deep/down/of.local", "came along\n")
    secret.write("far/away.txt", "away\n")
    secret.write(".worktreeinclude", "of.local\n")
    laid_out: list[list[str]] = []

    def look(_request: Received) -> Answer:
        (place,) = (path for path in workspace.layout.worktrees.iterdir() if not path.name.startswith("."))
        laid_out.append(sorted(path.name for path in place.rglob("*") if path.is_file()))
        return Answer(calls=[{"name": "read_file", "input": {"path": f"deep/down/{name}"}} for name in NAMES])

    with ModelServer([look, "Done."]) as server:
        workspace = office.outpost.add_workspace(secret.path, client_settings=settings(server), trusted=trusted)
        await workspace.ready()
        run = await work(office, workspace)
        heard = server.requests[1].body.decode()
    assert ("of.local" in laid_out[0], "away.txt" in laid_out[0], "beside.txt" in laid_out[0]) == (
        trusted,
        False,
        False,
    )
    assert ("came along" in heard, "beside" in heard) == (trusted, True)
    assert (run.status, run.changes) == ("succeeded", None)


async def test_set_up_commands_run_before_the_agent_and_their_failure_names_them(
    office: Office, project: RealRepository
) -> None:
    with ModelServer([read("made.txt"), "Done."]) as server:
        workspace = await office.workspace(project, settings(server, setup=["echo prepared > made.txt"]))
        run = await work(office, workspace)
        assert "prepared" in server.requests[1].body.decode()
        assert run.status == "succeeded"
        await workspace.reload(settings(server, setup=["echo broken >&2; exit 4"]))
        run = await work(office, workspace)
        assert len(server.requests) == 2
    assert run.status == "failed"
    assert run.error is not None
    for word in ("exit 4", "status 4", "broken"):
        assert word in run.error.message
    assert not (project.path / "made.txt").exists()


async def test_SEC_12_the_shell_is_off_by_default(office: Office, project: RealRepository) -> None:
    with ModelServer(["Done."]) as server:
        run = await work(office, await office.workspace(project, settings(server)))
        assert '"shell"' not in server.requests[0].body.decode()
    assert any("sandbox.shell is off" in note for note in run.notes)


async def test_SEC_13_ROUTE_08_commands_see_no_key_and_no_home_of_the_users(
    office: Office, project: RealRepository, environment: dict[str, str]
) -> None:
    environment["OPENAI_API_KEY"] = "canary-key-in-the-environment"
    with ModelServer([shell("env; echo HOME=$HOME"), "Done."]) as server:
        await work(office, await office.workspace(project, settings(server, shell="unconfined")))
        told = server.requests[1].body.decode()
    assert "PATH=" in told
    assert "canary-key" not in told
    assert f"HOME={environment['HOME']}\\n" not in told


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
async def test_SEC_12_LOCAL_05_confined_commands_reach_neither_home_nor_checkout_nor_network(
    office: Office, project: RealRepository, environment: dict[str, str]
) -> None:
    if not await office.outpost.can_confine():
        pytest.skip("bubblewrap cannot start on this machine")
    (project.path.parent / "outside.txt").write_text("outside\n", "utf-8")
    command = (
        f"cat {project.path.parent}/outside.txt; echo x > {project.path}/a.py; cat {environment['HOME']}/.profile;"
        " git status --short; echo made > inside.txt; echo ended"
    )
    before = project.state()
    with ModelServer([shell(command), "Done."]) as server:
        run = await work(office, await office.workspace(project, settings(server, shell="confined")))
        told = server.requests[1].body.decode()
    assert "ended" in told
    assert told.count("No such file or directory") >= 2
    assert run.changes is not None
    assert run.changes.files == 1
    assert project.state() == before


async def test_SEC_12_LOCAL_05_without_bubblewrap_a_confined_shell_is_absent_and_a_note_says_why(
    office: Office, project: RealRepository, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    only_git = tmp_path_factory.mktemp("bin")
    git = shutil.which("git")
    assert git is not None
    (only_git / "git").symlink_to(git)
    environment["PATH"] = os.fspath(only_git)
    with ModelServer(["Done."]) as server:
        run = await work(office, await office.workspace(project, settings(server, shell="confined")))
        assert '"shell"' not in server.requests[0].body.decode()
    assert any("cannot be confined" in note for note in run.notes)


async def test_a_repository_that_an_agent_makes_is_part_of_what_it_changed_and_the_run_says_what_is_not(
    office: Office, project: RealRepository
) -> None:
    who = "-c user.name=agent -c user.email=agent@localhost"
    command = f"git init -q made && echo one > made/one.txt && cd made && git add . && git {who} commit -qm one"
    with ModelServer([shell(command), "Done."]) as server:
        workspace = await office.workspace(project, settings(server, shell="unconfined"))
        run = await work(office, workspace)
    assert run.disposition == "pending"
    assert any("made/" in note and "history" in note for note in run.notes)
    shown = await results.diff(workspace, run)
    assert [each.file.path for each in shown.files] == ["made/one.txt"]
