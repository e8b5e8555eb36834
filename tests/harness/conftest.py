"""The stage on which agents are tried."""

from __future__ import annotations

from pathlib import Path

import pytest

from outpost_lsp.storage.layout import Layout
from tests.harness.stage import Stage, make_repository


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(make_repository(tmp_path / "repo"), Layout(tmp_path / "state", tmp_path / "cache"))
