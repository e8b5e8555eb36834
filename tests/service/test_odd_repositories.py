"""Repositories in odd states, from the command to what is applied: a result, or one clear sentence (REL-19)."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from outpost_lsp.domain.landing import FileOperation
from outpost_lsp.domain.run import ReviewScope, Run
from outpost_lsp.errors import OutpostError
from outpost_lsp.sandbox.landing import land
from outpost_lsp.sandbox.standing import present_on_disk
from outpost_lsp.service import results
from outpost_lsp.service.results import ApplyOutcome
from outpost_lsp.service.workspace import Workspace
from tests.service.conftest import Office, loopback
from tests.support.model_answers import Answer
from tests.support.model_saying import Received
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository

LONG = "/".join(("d" * 99, "e" * 99, "f" * 99, "file.txt"))


def write(**files: str) -> Answer:
    return Answer(
        calls=[{"name": "write_file", "input": {"path": path, "content": text}} for path, text in files.items()]
    )


async def work(office: Office, workspace: Workspace) -> Run:
    return await (await office.outpost.run_agent(workspace, "worker", "work")).wait()


async def apply(workspace: Workspace, run: Run) -> ApplyOutcome:
    async def landed(operations: Sequence[FileOperation]) -> bool:
        await land(workspace.top, operations, records=workspace.layout.landings)
        return True

    return await results.apply(workspace, run, present=lambda path: present_on_disk(workspace.top, path), land=landed)


async def opened(office: Office, project: RealRepository, server: ModelServer) -> Workspace:
    return await office.workspace(
        project, loopback(server.base_url, agents={"worker": {"tools": ["files", "edit"]}}, runs={"concurrency": 2})
    )


async def test_a_path_of_300_characters_is_changed_and_applied(office: Office, project: RealRepository) -> None:
    project.write(LONG, "before\n")
    project.commit_all()
    with ModelServer([write(**{LONG: "after\n"}), "Done."]) as server:
        workspace = await opened(office, project, server)
        outcome = await apply(workspace, await work(office, workspace))
    assert (outcome.applied, outcome.files) == (True, (LONG,))
    assert (project.path / LONG).read_text() == "after\n"


async def test_a_large_file_pointer_stays_as_git_has_it_and_its_content_is_not_overwritten(
    office: Office, project: RealRepository
) -> None:
    """The filter does not run (SEC-02), so the agent sees the pointer; the user's file holds what it points to."""
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "a" * 64 + "\nsize 100\n"
    project.write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
    project.write("large.bin", pointer)
    project.commit_all()
    project.git("config", "filter.lfs.clean", f"printf '{pointer}'")
    project.git("config", "filter.lfs.smudge", "false")
    project.git("config", "filter.lfs.required", "true")
    # Older than the index, as it is once git has laid it out and a moment has passed.
    os.utime(project.write("large.bin", "the whole content\n"), (1_700_000_000, 1_700_000_000))
    project.git("add", "large.bin")
    heard: list[str] = []

    def read(_request: Received) -> Answer:
        return Answer(calls=[{"name": "read_file", "input": {"path": "large.bin"}}])

    def overwrite(request: Received) -> Answer:
        heard.append(request.body.decode())
        return write(**{"large.bin": "other\n", "b.py": "x = 2\n"})

    with ModelServer([read, overwrite, "Done."]) as server:
        workspace = await opened(office, project, server)
        run = await work(office, workspace)
        outcome = await apply(workspace, run)
    assert run.status == "succeeded", run.error
    assert "size 100" in heard[0]
    assert "the whole content" not in heard[0]
    assert [one.path for one in outcome.conflicts] == ["large.bin"]
    assert (project.path / "large.bin").read_text() == "the whole content\n"
    assert (project.path / "b.py").read_text() == "x = 1\n"


async def test_a_worktree_that_is_deleted_by_hand_in_mid_run_ends_in_one_sentence_and_leaves_nothing(
    office: Office, project: RealRepository
) -> None:
    before = project.state()

    def delete(_request: Received) -> Answer:
        for path in workspace.layout.worktrees.iterdir():
            shutil.rmtree(path)
        return write(**{"made.txt": "made\n"})

    with ModelServer([delete, "Done."], check_history=False) as server:
        workspace = await opened(office, project, server)
        run = await work(office, workspace)
    assert run.is_finished
    said = " ".join((run.error.message if run.error else "", *run.notes))
    assert "gone" in said or "does not exist" in said, said
    assert "Traceback" not in said
    assert project.state() == before
    project.git("worktree", "prune")
    project.git("fsck", "--strict", "--no-dangling")


async def test_a_branch_that_is_deleted_meanwhile_takes_no_work_along(office: Office, project: RealRepository) -> None:
    project.git("stash")
    project.git("checkout", "-q", "-b", "topic")
    project.write("topic.txt", "topic\n")
    project.commit_all()

    def delete(_request: Received) -> str:
        project.git("checkout", "-q", "main")
        project.git("branch", "-q", "-D", "topic")
        project.git("reflog", "expire", "--expire=now", "--all")
        project.git("gc", "-q", "--prune=now")
        return "Done."

    with ModelServer([write(**{"b.py": "x = 2\n"}), delete]) as server:
        workspace = await opened(office, project, server)
        run = await work(office, workspace)
        project.git("gc", "-q", "--prune=now")
        outcome = await apply(workspace, run)
    assert (run.status, outcome.applied, outcome.files) == ("succeeded", True, ("b.py",))
    assert (project.path / "b.py").read_text() == "x = 2\n"
    assert not (project.path / "topic.txt").exists()


@pytest.mark.parametrize("becomes", ["folder", "loop", "link out"])
async def test_a_file_that_became_something_else_meanwhile_is_a_conflict_and_stays(
    office: Office, project: RealRepository, becomes: str, tmp_path: Path
) -> None:
    place = project.path / "b.py"
    outside = tmp_path / "outside.py"
    outside.write_text("x = 1\n")
    with ModelServer([write(**{"b.py": "x = 2\n", "new.py": "y = 1\n"}), "Done."]) as server:
        workspace = await opened(office, project, server)
        run = await work(office, workspace)
        place.unlink()
        if becomes == "folder":
            project.write("b.py/inner.py", "inner\n")
        else:
            place.symlink_to("b.py" if becomes == "loop" else outside)
        outcome = await apply(workspace, run)
    assert [one.path for one in outcome.conflicts] == ["b.py"]
    assert not (project.path / "new.py").exists()
    assert outside.read_text() == "x = 1\n"
    assert place.is_dir() if becomes == "folder" else place.is_symlink()


@pytest.fixture
def read_only(project: RealRepository) -> Iterator[RealRepository]:
    """The project on a disk that nobody can write to."""
    place = str(project.path)
    for arguments in (["--bind", place, place], ["-o", "remount,bind,ro", place]):
        done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"a read-only disk needs the right to mount one: {done.stderr.strip()}")
    yield project
    subprocess.run(["umount", "-l", place], check=True)


async def test_a_read_only_repository_is_said_in_one_sentence(office: Office, read_only: RealRepository) -> None:
    """Snapshots and worktrees are kept in the repository; without room for them nothing is run elsewhere."""
    workspace = await office.workspace(read_only)
    with pytest.raises(OutpostError) as caught:
        await office.outpost.review(workspace, ReviewScope(scope="uncommitted"))
    assert caught.value.code == "workspace"
    assert "\n" not in caught.value.message
    assert "Read-only" in caught.value.message or "insufficient permission" in caught.value.message
    assert caught.value.message.endswith(f"are kept in {read_only.git_dir}, which has to be writable")
    assert workspace.runs.list() == []
