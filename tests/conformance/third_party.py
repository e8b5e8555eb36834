"""The environment that holds the third-party servers, and how a test starts one of them.

The servers never enter the project's own environment. `OUTPOST_CONFORMANCE_PYTHON` names an interpreter that has them;
otherwise they are expected in `tests/conformance/venv`, which a continuous integration run makes for itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
VENV = HERE / "venv"


@cache
def interpreter() -> str:
    """An interpreter that has the servers; skips the test where they are not installed, never in CI."""
    named = os.environ.get("OUTPOST_CONFORMANCE_PYTHON")
    if named:
        return named
    python = VENV / "bin" / "python"
    if _has_servers(python):
        return str(python)
    if not os.environ.get("CI"):
        pytest.skip(
            "third-party servers are not installed: python -m venv tests/conformance/venv, then install "
            "tests/conformance/requirements.txt and, with --no-deps, requirements-without-dependencies.txt"
        )
    install()
    return str(python)


def install() -> None:
    """Make the environment with the servers."""
    subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-r", str(HERE / "requirements.txt")], check=True)
    subprocess.run([*pip, "--no-deps", "-r", str(HERE / "requirements-without-dependencies.txt")], check=True)


def _has_servers(python: Path) -> bool:
    if not python.exists():
        return False
    probe = [str(python), "-c", "import jevcompat, laya.serve, uvicorn"]
    return subprocess.run(probe, check=False, capture_output=True).returncode == 0


@contextmanager
def started(script: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Iterator[Any]:
    """Run a script of this folder; gives the JSON of the first line it prints, once it serves."""
    process = subprocess.Popen(
        [interpreter(), str(HERE / script), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PATH": os.environ.get("PATH", ""), "PYTHONUNBUFFERED": "1", **(environment or {})},
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"{script} ended with {process.wait(30)} before it served"
        yield json.loads(line)
    finally:
        process.communicate(timeout=60)  # Closing its input tells the script to end.
