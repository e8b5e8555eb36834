"""REL-01: a service that is killed at any moment loses nothing that it acknowledged, and leaves nothing behind.

`OUTPOST_KILLS` is the number of kills, 8 unless it is set: half of them at a known stage, half at a random moment.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from outpost_lsp.service import results
from outpost_lsp.service.outpost import Outpost
from outpost_lsp.service.workspace import Workspace
from outpost_lsp.storage.layout import Layout
from outpost_lsp.worktrees.registration import processes_in
from tests.support.killed_service import settings
from tests.support.model_answers import Answer
from tests.support.model_saying import Received
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository, make_repository

KILLS = int(os.environ.get("OUTPOST_KILLS", "8"))
PATIENCE_S = 120.0


class Lives:
    """The service's program; one life after the other."""

    def __init__(self, base: Path, repository: RealRepository, url: str) -> None:
        arguments = [sys.executable, "-m", "tests.support.killed_service", str(base), str(repository.path), url]
        self._process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def live(self, end: str) -> list[str]:
        """What a life said, its end last."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{end}\n")
        self._process.stdin.flush()
        said: list[str] = []
        while not said or said[-1].split()[0] not in {"dead", "whole"}:
            line = self._process.stdout.readline()
            assert line, said
            said.append(line.strip())
        return said

    def close(self) -> None:
        self._process.communicate(timeout=PATIENCE_S)


def work_with_a_number(request: Received) -> Answer | str:
    """An agent that writes the same new number into two files."""
    if request.json["messages"][-1]["role"] == "tool":
        return "Done."
    work_with_a_number.count += 1  # type: ignore[attr-defined]
    text = f"{work_with_a_number.count}\n"  # type: ignore[attr-defined]
    return Answer(
        calls=[{"name": "write_file", "input": {"path": path, "content": text}} for path in ("one.txt", "new/two.txt")]
    )


@pytest.fixture
def service() -> Iterator[ModelServer]:
    work_with_a_number.count = 0  # type: ignore[attr-defined]
    with ModelServer([work_with_a_number] * (KILLS + 4) * 4, check_history=False) as server:
        yield server


@pytest.mark.timeout(60 + 30 * KILLS)
async def test_REL_01_nothing_is_lost_and_nothing_is_left_after_a_kill_at_any_moment(
    tmp_path: Path, service: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    repository = make_repository(tmp_path / "project", {"one.txt": "0\n", "new/two.txt": "0\n", "other.txt": "other\n"})
    repository.write("other.txt", "not committed\n")
    repository.write("untracked.txt", "untracked\n")
    before = of_the_user(repository)
    chance = random.Random(20)
    lives = Lives(tmp_path, repository, service.base_url)
    promised: dict[str, str] = {}
    try:
        began = asyncio.get_running_loop().time()
        whole = await anyio.to_thread.run_sync(lives.live, "whole")
        length = asyncio.get_running_loop().time() - began
        assert whole[-1] == "whole 0", whole
        for number in range(KILLS):
            end = f"seconds {chance.uniform(0.001, length)}" if number % 2 else f"calls {chance.randrange(400)}"
            said = await anyio.to_thread.run_sync(lives.live, end)
            promised |= promises(said)
            await until_no_git_works(repository, tmp_path / "cache")
            async with restarted(tmp_path, repository, service) as workspace:
                await nothing_is_lost(workspace, promised)
                nothing_is_left(workspace, repository, temporary)
                assert of_the_user(repository) == before, end
                assert (repository.path / "one.txt").read_text() == (repository.path / "new/two.txt").read_text(), end
    finally:
        lives.close()


def promises(said: list[str]) -> dict[str, str]:
    """By run, the last that a person was told of it."""
    told: dict[str, str] = {}
    for line in said:
        kind, *words = line.split()
        if kind == "run":
            told[words[0]] = "begun"
        elif kind == "ended":
            told[words[0]] = words[1]
        elif kind in {"applied", "discarded"}:
            told[words[0]] = kind
    return told


class restarted:  # noqa: N801 - used as a function
    """The service of this process on the same folders."""

    def __init__(self, base: Path, repository: RealRepository, service: ModelServer) -> None:
        environment = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "OUTPOST_CONFIG": os.devnull}
        self._outpost = Outpost(Layout(base / "state", base / "cache"), environment)
        self._repository, self._service = repository, service

    async def __aenter__(self) -> Workspace:
        await self._outpost.__aenter__()
        workspace = self._outpost.add_workspace(
            self._repository.path, client_settings=settings(self._service.base_url), trusted=True
        )
        await workspace.cleared()
        return workspace

    async def __aexit__(self, *_: object) -> None:
        await self._outpost.__aexit__(None, None, None)


async def nothing_is_lost(workspace: Workspace, promised: dict[str, str]) -> None:
    for run_id, told in promised.items():
        run = workspace.runs.load(run_id)
        assert run is not None, run_id
        assert run.is_finished
        if told in {"applied", "discarded"}:
            assert run.disposition == told
        elif told != "begun":
            assert run.status == told
            assert run.changes is not None
    for run in workspace.runs.list():
        if run.disposition == "pending":
            shown = await results.diff(workspace, run)
            assert {each.file.path for each in shown.files} <= {"one.txt", "new/two.txt"}
            assert shown.patch
            await results.discard(workspace, run)
            promised[run.id] = "discarded"


def nothing_is_left(workspace: Workspace, repository: RealRepository, temporary: Path) -> None:
    assert all(run.is_finished for run in workspace.runs.list())
    assert repository.git("worktree", "list").count("\n") == 0
    assert not list((repository.path / ".git").rglob("*.lock"))
    assert not list(repository.path.rglob(".outpost-*"))
    assert [path.name for path in workspace.layout.worktrees.glob("*")] in ([], [".trash"])
    for folder in (workspace.layout.landings, workspace.layout.cache / "home", workspace.layout.cache / "git"):
        assert not list(folder.glob("*"))
    assert not list(temporary.glob("outpost-*"))
    repository.git("fsck", "--strict", "--no-dangling")


def of_the_user(repository: RealRepository) -> dict[str, str]:
    """All that is the user's but for the two files that are applied to."""
    return {
        name: state for name, state in repository.state().items() if name not in {"one.txt", "new/two.txt", "new", "."}
    }


async def until_no_git_works(*places: RealRepository | Path) -> None:
    """A git that was under way when its parent was killed goes on for a moment."""
    folders = [place.path if isinstance(place, RealRepository) else place for place in places]
    with anyio.fail_after(PATIENCE_S):
        while any(processes_in(folder) for folder in folders):
            await asyncio.sleep(0.01)
