"""Temporary folders of dead processes go; those of processes that cannot be seen from here stay."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from outpost_lsp.worktrees.scratch import scratch_folder, sweep_scratch
from tests.support.processes import dead_pid


def test_only_what_a_dead_process_of_this_world_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    own = scratch_folder("index")
    kind, world, pid, start, rest = own.name.removeprefix("outpost-").split("-", 4)
    dead = tmp_path / f"outpost-{kind}-{world}-{dead_pid()}-1-{rest}"
    elsewhere = tmp_path / f"outpost-{kind}-{int(world) + 1}-{dead_pid()}-1-{rest}"
    foreign = tmp_path / f"outpost-{kind}-{pid}"
    for folder in (dead, elsewhere, foreign):
        folder.mkdir()
    sweep_scratch()
    assert sorted(tmp_path.iterdir()) == sorted([own, elsewhere, foreign])
    assert start
