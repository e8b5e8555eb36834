"""REL-02: each folder on a full disk of its own. The run fails with one fault, nothing earlier is harmed, space is enough
to go on. Needs root for the small disks; the tests say so where it is missing.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from outpost_lsp.domain.run import ReviewScope, Run
from outpost_lsp.errors import OutpostError
from outpost_lsp.service.outpost import Outpost
from outpost_lsp.service.workspace import Workspace
from outpost_lsp.storage.layout import Layout
from tests.service.conftest import loopback
from tests.support.model_answers import Answer
from tests.support.model_server import ModelServer
from tests.support.repositories import make_repository


class SmallDisk:
    """A disk of 2 MiB."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def fill(self) -> None:
        with contextlib.suppress(OSError), (self.place / "ballast").open("ab", buffering=0) as file:
            for size in (65_536, 512, 1):
                with contextlib.suppress(OSError):
                    while file.write(b"x" * size) == size:
                        pass

    def free(self) -> None:
        (self.place / "ballast").unlink()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", str(place)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        if os.environ.get("CI"):
            pytest.fail(f"CI cannot mount a small disk: {mounted.stderr.strip()}")
        pytest.skip(f"a small disk needs the right to mount one: {mounted.stderr.strip()}")
    yield SmallDisk(place)
    subprocess.run(["umount", "-l", str(place)], check=True)


async def work(outpost: Outpost, workspace: Workspace) -> Run | OutpostError:
    try:
        return await (await outpost.run_agent(workspace, "worker", "work")).wait()
    except OutpostError as error:
        return error


@pytest.mark.parametrize("full", ["state", "cache", "repository", "temporary"])
async def test_REL_02_a_run_on_a_full_disk_fails_with_one_fault_and_free_space_is_enough_to_go_on(
    small_disk: SmallDisk, full: str, tmp_path: Path, private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {name: tmp_path / name for name in ("state", "cache", "repository", "temporary")}
    places[full] = small_disk.place / full
    places["temporary"].mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(places["temporary"]))
    monkeypatch.setenv("TMPDIR", str(places["temporary"]))
    project = make_repository(places["repository"], {"a.txt": "one\n", "b.txt": "two\n"})
    write = Answer(calls=[{"name": "write_file", "input": {"path": "made.txt", "content": os.urandom(2_000).hex()}}])
    environment = {"PATH": os.environ["PATH"], "HOME": str(private_home), "OUTPOST_CONFIG": os.devnull}
    with ModelServer([write, "Done."] * 4, check_history=False) as server:
        async with Outpost(Layout(places["state"], places["cache"]), environment) as outpost:
            settings = loopback(server.base_url, agents={"worker": {"tools": ["files", "edit"]}})
            workspace = outpost.add_workspace(project.path, client_settings=settings, trusted=True)
            await workspace.ready()
            earlier = await work(outpost, workspace)
            assert isinstance(earlier, Run)
            assert earlier.status == "succeeded"
            project.write("a.txt", f"one\n{os.urandom(3_000).hex()}\n")
            before = project.state()
            small_disk.fill()
            failed = await work(outpost, workspace)
            fault = failed if isinstance(failed, OutpostError) else failed.error
            assert fault is not None, failed
            assert str(places[full]) in fault.message, fault
            assert "Traceback" not in fault.message
            assert any(word in fault.message.lower() for word in ("space", "unable to write", "full")), fault
            assert workspace.runs.load(earlier.id) == earlier
            assert [one for one in workspace.runs.list() if not one.is_finished] == []
            assert {name: one for name, one in project.state().items() if "ballast" not in name} == before
            small_disk.free()
            project.git("fsck", "--strict", "--no-dangling")
            later = await work(outpost, workspace)
            assert isinstance(later, Run), later
            assert later.status == "succeeded", later.error
            reviewed = await (await outpost.review(workspace, ReviewScope(scope="file", paths=("a.txt",)))).wait()
            assert reviewed.status == "succeeded", reviewed.error
        assert project.state() == before


async def test_REL_02_a_disk_that_fills_while_an_agent_writes_is_told_to_the_agent(
    small_disk: SmallDisk, tmp_path: Path, private_home: Path
) -> None:
    project = make_repository(tmp_path / "project", {"a.txt": "one\n"})
    heard: list[str] = []

    def write_more(request: object) -> Answer:
        small_disk.fill()
        return Answer(calls=[{"name": "write_file", "input": {"path": "a.txt", "content": "x" * 50_000}}])

    environment = {"PATH": os.environ["PATH"], "HOME": str(private_home), "OUTPOST_CONFIG": os.devnull}
    with ModelServer([write_more, "Could not."], check_history=False) as server:
        async with Outpost(Layout(tmp_path / "state", small_disk.place / "cache"), environment) as outpost:
            settings = loopback(server.base_url, agents={"worker": {"tools": ["files", "edit"]}})
            workspace = outpost.add_workspace(project.path, client_settings=settings, trusted=True)
            await workspace.ready()
            run = await work(outpost, workspace)
            heard.append(server.requests[1].body.decode())
            assert isinstance(run, Run)
            assert "No space left" in heard[0]
            assert (run.status, run.changes) == ("succeeded", None)
    assert (project.path / "a.txt").read_text() == "one\n"
