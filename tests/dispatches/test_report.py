"""The report of a run (REPORT rules that need a run of their own)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp import Agent, Harness, ModelPriceTable, Tool, dispatch
from tests.harness.stage import Stage, calls, echo, provider, says
from tests.workspaces.conftest import SCRIPT, Bench, _sh, commits, worker

ANY: dict[str, Any] = {"type": "object"}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    from outpost_lsp import Layout
    from tests.support.repositories import make_repository

    repository = make_repository(tmp_path / "bench", {"a.txt": "one\ntwo\nthree\n"})
    return Bench(repository, Layout(tmp_path / "bench-state", tmp_path / "bench-cache"))


async def test_REPORT_02_passes_tell_the_net_diff_summed_usage_and_every_failure(bench: Bench) -> None:
    steps = [
        calls(("sh", {"script": commits("one", "1\n", "first")}), ("absent", {"command": "make"})),
        says("more secret-word"),
        calls(("sh", {"script": "git mv one two; " + commits("three", "3\n", "second")}), ("absent", {})),
        says("STOP"),
    ]
    result = await dispatch(
        bench.repository.path,
        Agent("m", Harness(provider(*steps), tools=[Tool("sh", "Runs a script.", SCRIPT, _sh)])),
        "go",
        branch="integrate",
        layout=bench.layout,
        passes=3,
        until="STOP",
        redact=["secret-[a-z]+"],
        prices=ModelPriceTable("EUR", {"m": {"input": 1.0, "output": 1.0}}),
    )
    report = json.loads(result.report("json"))
    base = bench.repository.git("rev-list", "--max-parents=0", "HEAD")
    assert (report["diff"]["baseline"], report["diff"]["head"]) == (base, bench.repository.head)
    # `one` came and went.
    assert [file["paths"] for file in report["diff"]["files"]] == [["three"], ["two"]]
    assert [commit["subject"] for commit in report["commits"]] == ["second", "first"]
    assert report["usage"] == result.usage.to_json()
    assert (report["usage"]["input"], len(result.turns)) == (8, 2)
    assert result.cost is not None
    assert report["cost"] == result.cost.to_json()
    assert result.cost.amount == pytest.approx(12 / 1_000_000)
    assert [(failure["tool"], failure["command"], failure["pass"]) for failure in report["failed_tools"]] == [
        ("absent", "make", 1),
        ("absent", None, 2),
    ]
    assert report["text"] == "more [redacted]\nSTOP"
    assert "2 files, +2 -0" in result.report()


async def test_REPORT_03_a_binary_file_and_a_pure_rename_count_no_lines(bench: Bench) -> None:
    script = "printf 'a\\000b' > data.bin; git mv a.txt b.txt; " + commits("c.txt", "new\n")
    result = await dispatch(bench.repository.path, worker(script), "go", branch="integrate", layout=bench.layout)
    diff = json.loads(result.report("json"))["diff"]
    assert diff["files"] == [
        {"paths": ["a.txt", "b.txt"], "added": 0, "removed": 0, "binary": False},
        {"paths": ["c.txt"], "added": 1, "removed": 0, "binary": False},
        {"paths": ["data.bin"], "added": 0, "removed": 0, "binary": True},
    ]
    assert (diff["files_changed"], diff["added"], diff["removed"], diff["binary_files"]) == (3, 1, 0, 1)
    assert "`a.txt` → `b.txt`: +0 -0" in result.report()
    assert "`data.bin`: binary" in result.report()


async def test_REPORT_06_without_a_diff_the_report_is_written_and_a_warning_says_so(stage: Stage) -> None:
    async def spoil(_value: Any, context: Any) -> str:
        shutil.rmtree(context.sandbox.root)
        return "gone"

    result = await stage.run(Agent("m", Harness(provider(calls(("spoil", {})), says("done")), tools=[Tool("spoil", "S.", ANY, spoil)])))  # fmt: skip
    report = json.loads(result.report("json"))
    assert (report["text"], report["diff"]) == ("done", None)
    assert any("could not be collected" in warning for warning in report["warnings"])
    assert "could not be collected" in result.report()


async def test_REPORT_08_fifty_failures_are_kept_shortened_and_the_rest_is_counted(stage: Stage) -> None:
    def long(_value: Any, _context: Any) -> str:
        raise ValueError("x" * 5_000)

    many = [calls(*[("long", {}, f"{step}-{number}") for number in range(27)]) for step in range(2)]
    result = await stage.run(Agent("m", Harness(provider(*many, says("done")), tools=[echo, Tool("long", "L.", ANY, long)])))  # fmt: skip
    report = json.loads(result.report("json"))
    assert (len(report["failed_tools"]), report["omitted_failures"]) == (50, 4)
    assert {len(failure["preview"]) for failure in report["failed_tools"]} == {2_000}
    assert "and 4 more" in result.report()
