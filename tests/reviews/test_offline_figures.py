"""What the offline reviewer promises in figures, on a part of the standard library: it catches slips and is silent."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from tests.benchmarks import offline_reviewer

PACKAGES = ("json", "http", "logging", "concurrent", "wsgiref", "unittest")


async def test_slips_are_caught_and_corrections_bring_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Path(sysconfig.get_paths()["stdlib"])
    monkeypatch.setattr(offline_reviewer, "_TRIED", 10)
    figures = await offline_reviewer.measure([library / name for name in PACKAGES], 1, verbose=True)
    assert figures["caught"] >= 75
    assert figures["new on the corrected side"] <= 1.0
    assert figures["errors and warnings per 1,000 lines"] <= 0.35
