"""The doctor looks at the face that `[runs.ray]` names, and says what helps."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from outpost_lsp.service.checks import Check, diagnose
from tests.cluster.conftest import Office
from tests.support.hosted_face import TOKEN, EngineHere, hosted_face
from tests.support.repositories import RealRepository


async def looked_at(office: Office, project: RealRepository, settings: dict[str, object]) -> Check | None:
    workspace = await office.workspace(project, settings)
    found = {check.name: check for check in await diagnose(office.outpost, workspace)}
    await office.outpost.remove_workspace(project.path)
    return found.get("face")


async def test_a_face_that_takes_the_token_is_told_with_its_places(
    office: Office, project: RealRepository, tmp_path: Path
) -> None:
    office.environment["OUTPOST_RAY_TOKEN"] = TOKEN
    async with hosted_face(tmp_path / "face") as face:
        found = await looked_at(office, project, face.settings())
        assert found is not None
        assert (found.status, "4 of 4 places are free" in found.detail) == ("ok", True)
        assert TOKEN not in found.detail
        assert face.requests == ["GET /v1/health"]


@pytest.mark.parametrize(
    ("places", "status", "says"),
    [((0, 0), "fail", "outpost-lsp worker"), ((4, 0), "warn", "all of its 4 places are taken")],
)
async def test_a_cluster_without_a_place_is_told(
    places: tuple[int, int],
    status: str,
    says: str,
    office: Office,
    project: RealRepository,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def capacity(_engine: EngineHere) -> tuple[int, int]:
        return places

    monkeypatch.setattr(EngineHere, "capacity", capacity)
    office.environment["OUTPOST_RAY_TOKEN"] = TOKEN
    async with hosted_face(tmp_path / "face") as face:
        found = await looked_at(office, project, face.settings())
        assert found is not None
        assert (found.status, says in found.detail) == (status, True)


@pytest.mark.parametrize(
    ("token", "says"),
    [
        ("", "the variable OUTPOST_RAY_TOKEN holds no token"),
        ("a-token-that-nobody-gave", "look at the variable that runs.ray.token_env names"),
    ],
)
async def test_a_token_that_is_missing_or_not_accepted_is_a_failure_with_its_remedy(
    token: str, says: str, office: Office, project: RealRepository, tmp_path: Path
) -> None:
    office.environment["OUTPOST_RAY_TOKEN"] = token
    async with hosted_face(tmp_path / "face") as face:
        found = await looked_at(office, project, face.settings())
        assert found is not None
        assert (found.status, says in found.detail) == ("fail", True)
        assert not token or token not in found.detail


async def test_a_face_that_is_away_is_a_failure_only_where_runs_need_it(
    office: Office, project: RealRepository
) -> None:
    office.environment["OUTPOST_RAY_TOKEN"] = TOKEN
    for runs, status in (
        ({"executor": "ray"}, "fail"),
        ({"executor": "ray", "ray": {"whenAway": "local"}}, "warn"),
        ({}, "warn"),
    ):
        ray = {"url": "http://127.0.0.1:9", **runs.get("ray", {})}  # type: ignore[dict-item]
        found = await looked_at(office, project, {"runs": {**runs, "ray": ray}})
        assert found is not None
        assert (found.status, "runs.ray.url" in found.detail) == (status, True)
    assert await looked_at(office, project, {}) is None


async def test_the_command_prints_the_check_as_json(
    environment: dict[str, str], project: RealRepository, tmp_path: Path
) -> None:
    mine = {"OUTPOST_STATE_DIR": str(tmp_path / "state"), "OUTPOST_CACHE_DIR": str(tmp_path / "cache")}
    async with hosted_face(tmp_path / "face") as face:
        arguments = ["doctor", "--json", "-C", str(project.path)]
        arguments += ["--set", "runs.executor=ray", "--set", f"runs.ray.url={face.url}"]
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "outpost_lsp", *arguments],
            env={**environment, **mine, "OUTPOST_RAY_TOKEN": TOKEN},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["face"]["status"] == "ok"
