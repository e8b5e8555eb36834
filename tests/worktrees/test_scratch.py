"""Folders in the system's temporary folder are cleared when their process died, and no others are."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from outpost_lsp.worktrees.scratch import scratch_folder, sweep_scratch
from tests.support.processes import dead_pid


def test_REL_01_only_what_dead_processes_left_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    own = scratch_folder("index")
    assert own.stat().st_mode & 0o777 == 0o700
    (own / "index").write_text("ours")
    dead = tmp_path / f"outpost-merge-{dead_pid()}-12345-abc"
    dead.mkdir()
    (dead / "base").write_text("left")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = tmp_path / f"outpost-index-{dead_pid()}-12345-link"
    link.symlink_to(elsewhere)
    other = tmp_path / "outpost-of-somebody"
    other.mkdir()
    sweep_scratch()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([own.name, link.name, "elsewhere", other.name])
