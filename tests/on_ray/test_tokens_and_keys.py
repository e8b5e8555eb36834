"""Whose run it is, and where keys are not (SO-10)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from outpost_lsp.errors import OutpostError
from outpost_lsp.remote.http import RemoteExecutor
from outpost_lsp.service.checks import diagnose
from tests.cluster.conftest import Office
from tests.on_ray.conftest import CANARY, OTHER_TOKEN, SLOTS, TOKEN, Cluster, eventually, processes
from tests.support.model_answers import Answer
from tests.support.repositories import RealRepository


async def test_SO_10_a_token_is_needed_and_sees_its_own_runs_only(
    cluster: Cluster, office: Office, project: RealRepository
) -> None:
    cluster.scripted(Answer(silent=True))
    workspace = await office.workspace(project, cluster.settings())
    handle = await office.outpost.run_agent(workspace, "reviewer", "Wait.")
    await cluster.model.until(lambda: bool(cluster.model.requests))
    for token, status in (("none", 401), ("a-token-that-nobody-gave", 401), (OTHER_TOKEN, 404)):
        executor = RemoteExecutor(cluster.url, lambda token=token: token)
        with pytest.raises(OutpostError) as fault:
            await executor.ask("DELETE", f"/v1/jobs/{handle.run.id}")
        assert fault.value.details["status"] == status
        await executor.aclose()
    assert handle.run.status == "running"
    handle.cancel()
    assert (await handle.wait()).status == "cancelled"


async def test_SO_10_no_key_and_no_token_is_in_a_journal_a_log_or_the_object_store(
    cluster: Cluster, office: Office, project: RealRepository
) -> None:
    cluster.scripted("Done.")
    workspace = await office.workspace(project, cluster.settings())
    run = await (await office.outpost.run_agent(workspace, "reviewer", "Look.")).wait()
    assert run.error is None
    # The key was used where it belongs.
    assert CANARY in cluster.model.requests[0].headers["authorization"]
    secrets = (CANARY.encode(), TOKEN.encode(), OTHER_TOKEN.encode())
    looked_at = 0
    for name, data in (*_files(cluster.folder, workspace.layout.state), *_object_stores()):
        looked_at += 1
        for secret in secrets:
            assert secret not in data, name
    assert looked_at > 10


async def test_the_doctor_says_that_the_face_can_be_used(
    cluster: Cluster, office: Office, project: RealRepository
) -> None:
    await eventually(lambda: cluster.health()["free"] == SLOTS)
    workspace = await office.workspace(project, cluster.settings())
    found = {check.name: check for check in await diagnose(office.outpost, workspace)}
    assert found["face"].status == "ok"
    assert f"{SLOTS} of {SLOTS} places are free" in found["face"].detail


def _files(*folders: Path) -> Iterator[tuple[str, bytes]]:
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file() and not path.is_symlink() and path.name != "tokens":
                yield str(path), path.read_bytes()


def _object_stores() -> Iterator[tuple[str, bytes]]:
    """What the nodes' object stores hold, by the descriptors of their processes; holes are left out."""
    for pid in processes("raylet/raylet"):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            try:
                if "plasma" not in str(link.readlink()):
                    continue
                descriptor = os.open(link, os.O_RDONLY)
            except OSError:
                continue
            try:
                yield str(link), b"".join(_data(descriptor))
            finally:
                os.close(descriptor)


def _data(descriptor: int) -> Iterator[bytes]:
    place = 0
    while True:
        try:
            place = os.lseek(descriptor, place, os.SEEK_DATA)
            end = os.lseek(descriptor, place, os.SEEK_HOLE)
        except OSError:
            return
        yield os.pread(descriptor, end - place, place)
        place = end
