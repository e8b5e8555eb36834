"""Whoever sends no run elsewhere loads nothing of it; whoever does loads no engine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.repositories import make_repository

_ELSEWHERE = ("ray", "starlette", "uvicorn", "outpost_lsp.remote", "outpost_lsp.cluster")
_TELL = f"""
import sys
print([name for name in sys.modules if any(name == one or name.startswith(one + ".") for one in {_ELSEWHERE!r})])
"""


def loaded(script: str, *arguments: str, **variables: str) -> str:
    environment = {"PATH": os.environ["PATH"], "OUTPOST_CONFIG": os.devnull, **variables}
    command = [sys.executable, "-c", script + _TELL, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("name", ["outpost_lsp", "outpost_lsp.lsp.serve", "outpost_lsp.service.outpost"])
def test_importing_loads_nothing_of_runs_elsewhere(name: str) -> None:
    assert loaded(f"import {name}") == "[]"


def test_a_run_of_this_machine_loads_nothing_of_runs_elsewhere(tmp_path: Path) -> None:
    project = make_repository(tmp_path / "project", {"a.py": "x = 1\n"})
    project.write("a.py", "print(undefined_name)\n")
    script = """
import sys
from outpost_lsp.cli.main import main
assert main(["review", "-q", "-C", sys.argv[1]], serve=None, cluster=None) == 1
"""
    folders = {"OUTPOST_STATE_DIR": str(tmp_path / "state"), "OUTPOST_CACHE_DIR": str(tmp_path / "cache")}
    assert loaded(script, str(project.path), **folders) == "[]"


def test_the_door_to_runs_elsewhere_loads_no_engine() -> None:
    assert loaded("import outpost_lsp.remote.http") == (
        "['outpost_lsp.remote', 'outpost_lsp.remote.jobs', 'outpost_lsp.remote.http']"
    )
