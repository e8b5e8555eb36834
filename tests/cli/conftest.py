"""The real program, run as a process in real repositories, with folders and settings of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.repositories import RealRepository, make_repository

PATIENCE_S = 120


@dataclass(frozen=True)
class Ended:
    """How a run of the program ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Program:
    """`python -m outpost_lsp` with an environment that knows nothing of this machine's user."""

    environment: dict[str, str]
    config: Path

    def __call__(self, *arguments: str, cwd: Path | None = None, stdin: str | None = None, **variables: str) -> Ended:
        done = subprocess.run(
            [sys.executable, "-m", "outpost_lsp", *arguments],
            cwd=cwd,
            env=self.environment | variables,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Ended(done.returncode, done.stdout, done.stderr)

    def together(self, *commands: Sequence[str], cwd: Path | None = None) -> list[Ended]:
        """Several of it at once, as happens when an editor, a terminal and a hook meet (REL-12)."""
        with ThreadPoolExecutor(max_workers=4) as pool:
            return list(pool.map(lambda command: self(*command, cwd=cwd), commands))

    @contextlib.contextmanager
    def started(self, *arguments: str, cwd: Path | None = None, **variables: str) -> Iterator[subprocess.Popen[str]]:
        """The program while it runs; killed in the end if it still does."""
        process = subprocess.Popen(
            [sys.executable, "-m", "outpost_lsp", *arguments],
            cwd=cwd,
            env=self.environment | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.communicate()

    def use_model(self, base_url: str, *, api: str = "chat", more: str = "") -> None:
        """Configure a model on a loopback service."""
        self.config.write_text(
            f"""
default_model = "main"
[providers.loopback]
kind = "openai"
base_url = "{base_url}"
api = "{api}"
api_key_env = ""
max_retries = 0
[models.main]
provider = "loopback"
name = "small"
{more}
""",
            "utf-8",
        )


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """The program with empty folders and an empty configuration file of its own."""
    home = tmp_path / "program-home"
    home.mkdir()
    config = home / "config.toml"
    config.write_text("", "utf-8")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "OUTPOST_CONFIG": str(config),
        "OUTPOST_STATE_DIR": str(home / "state"),
        "OUTPOST_CACHE_DIR": str(home / "cache"),
        "PYTHONWARNINGS": "error",
    }
    return Program(environment, config)


@pytest.fixture
def project(tmp_path: Path) -> RealRepository:
    """A repository with a clean commit and one slip that is not committed."""
    repository = make_repository(
        tmp_path / "project",
        {"shop/orders.py": "import math\n\n\ndef area(r):\n    return math.pi * r\n", "README.md": "shop\n"},
    )
    repository.write("shop/orders.py", "def area(r):\n    return math.pi * r\n")
    return repository


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("what was waited for never came")
        time.sleep(0.01)
