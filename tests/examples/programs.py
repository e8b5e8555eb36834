"""Running the programs of `examples/` as a person would: real processes in a real repository."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    status: int
    output: str
    errors: str

    @property
    def lines(self) -> list[str]:
        return self.output.splitlines()


def run_program(name: str, repository: Path, home: Path, *arguments: str, **variables: str) -> Ended:
    """Run a program of the examples in `repository`, with nothing of our own environment but the way to git."""
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(home),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "PYTHONWARNINGS": "error",
        "PYTHONDONTWRITEBYTECODE": "1",
        **variables,
    }
    ended = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        cwd=repository,
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)
