"""What detached runs left is kept for their owners, within bounds."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from outpost_lsp.cluster.face import LostJobError
from outpost_lsp.cluster.keeping import KeptJob, KeptJobs


def test_an_owner_finds_its_own_only(tmp_path: Path) -> None:
    kept = KeptJobs(tmp_path)
    assert kept.put("a", "one", b"first\nsecond", b"PACK\n\0")
    assert kept.get("a", "one") == (b"first\nsecond", b"PACK\n\0")
    assert kept.get("b", "one") is None
    assert kept.get("a", "two") is None
    kept.remove("a", "one")
    assert kept.get("a", "one") is None
    kept.remove("a", "one")


@pytest.mark.parametrize("name", ["", "..", "../a", "a/b", ".hidden", "a\0b"])
def test_a_name_that_leads_elsewhere_names_nothing(tmp_path: Path, name: str) -> None:
    kept = KeptJobs(tmp_path / "kept")
    assert not kept.put("a", name, b"line", b"")
    assert not kept.put(name, "one", b"line", b"")
    assert kept.get("a", name) is None
    kept.remove(name, name)
    assert list(tmp_path.iterdir()) == []


def test_the_oldest_goes_first_when_there_is_too_much(tmp_path: Path) -> None:
    kept = KeptJobs(tmp_path, most_bytes=3_000)
    for number, name in enumerate(("first", "second", "third")):
        assert kept.put("a", name, b"x" * 1_200, b"")
        os.utime(tmp_path / "a" / f"{name}.job", (time.time() - 60 + number,) * 2)
    assert kept.get("a", "first") is None
    assert kept.get("a", "third") is not None
    assert not kept.put("a", "huge", b"x" * 3_001, b"")


def test_what_nobody_fetched_in_time_goes(tmp_path: Path) -> None:
    kept = KeptJobs(tmp_path, most_s=3_600)
    kept.put("a", "old", b"line", b"")
    os.utime(tmp_path / "a" / "old.job", (time.time() - 7_200,) * 2)
    kept.put("a", "new", b"line", b"")
    assert kept.get("a", "old") is None
    assert kept.get("a", "new") is not None


async def test_a_kept_job_tells_its_lines_and_then_nothing(tmp_path: Path) -> None:
    job = KeptJob(b"first\nsecond", b"PACK")
    assert await job.events(0, 5) == [b"first", b"second"]
    assert await job.events(1, 5) == [b"second"]
    assert await job.result_pack() == b"PACK"
    with pytest.raises(LostJobError):
        await job.events(2, 5)
