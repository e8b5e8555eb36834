"""`--executor ray` on the command line, as processes, with a face on loopback."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from tests.support.hosted_face import TOKEN, hosted_face
from tests.support.repositories import RealRepository, make_repository


async def command(environment: dict[str, str], tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The program, which sends its runs to a face."""
    mine = {"OUTPOST_STATE_DIR": str(tmp_path / "state"), "OUTPOST_CACHE_DIR": str(tmp_path / "cache")}
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "outpost_lsp", *arguments],
        env={**environment, **mine, "OUTPOST_RAY_TOKEN": TOKEN},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


async def test_a_review_and_an_audit_are_carried_out_by_the_face(
    environment: dict[str, str], project: RealRepository, tmp_path: Path
) -> None:
    make_repository(tmp_path / "other", {"a.py": "print(undefined_name)\n"})
    (tmp_path / "list.txt").write_text("project\nother\n")
    async with hosted_face(tmp_path / "face") as face:
        there = ("--executor", "ray", "--set", f"runs.ray.url={face.url}")
        reviewed = await command(environment, tmp_path, "review", "-C", str(project.path), "--format", "json", *there)
        assert reviewed.returncode == 1, reviewed.stderr
        assert "Carried out by here." in json.loads(reviewed.stdout)["run"]["notes"]
        audited = await command(
            environment, tmp_path, "audit", str(tmp_path / "list.txt"), "--output", str(tmp_path / "reports"), *there
        )
        assert audited.returncode == 1, audited.stderr
        summary = json.loads((tmp_path / "reports" / "summary.json").read_text())
        assert [each["status"] for each in summary["repositories"]] == ["succeeded", "succeeded"]
        assert all("Carried out by here." in each["notes"] for each in summary["repositories"])
        assert len(face.engine.placed) == 3


async def test_a_detached_review_prints_its_id_and_is_collected_later(
    environment: dict[str, str], project: RealRepository, tmp_path: Path
) -> None:
    async with hosted_face(tmp_path / "face") as face:
        here = ("-C", str(project.path), "--set", f"runs.ray.url={face.url}")
        left = await command(environment, tmp_path, "review", *here, "--executor", "ray", "--detach")
        assert left.returncode == 0, left.stderr
        id = left.stdout.strip()
        assert f"outpost-lsp collect {id}" in left.stderr
        listed = await command(environment, tmp_path, "runs", *here, "--json")
        assert [(run["id"], run["status"]) for run in json.loads(listed.stdout)] == [(id, "running")]
        collected = await command(environment, tmp_path, "collect", id[:-1], *here, "--format", "json")
        assert collected.returncode == 1, collected.stderr
        told = json.loads(collected.stdout)
        assert (told["run"]["id"], told["run"]["status"]) == (id, "succeeded")
        assert len(told["findings"]) == told["run"]["findings"] > 0
        shown = await command(environment, tmp_path, "show", id, *here)
        assert "Carried out by here." in shown.stdout
        again = await command(environment, tmp_path, "collect", id, *here)
        assert again.returncode == 2
        assert "fetched already" in again.stderr
        refused = await command(environment, tmp_path, "review", *here, "--detach", "--output", "report.txt")
        assert refused.returncode == 2
        assert "outpost-lsp collect" in refused.stderr
        assert len(face.engine.placed) == 1
