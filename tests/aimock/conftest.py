"""The mock of model services that others made (npm: @copilotkit/aimock), run as a program."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
_PATIENCE_S = 60.0


def _program() -> str:
    installed = HERE / "node_modules" / ".bin" / "llmock"
    found = os.environ.get("OUTPOST_AIMOCK") or (str(installed) if installed.exists() else None)
    if found is None or shutil.which("node") is None:
        if os.environ.get("CI"):
            pytest.fail("CI has no aimock: .ci/run installs it with npm ci in tests/aimock")
        pytest.skip("no aimock here; run npm ci in tests/aimock")
    return found


@pytest.fixture(scope="session")
def aimock() -> Iterator[str]:
    """The address of the mock, without a path. A request that no fixture fits is an error of the service."""
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = chosen.getsockname()[1]
    command = [_program(), "-p", str(port), "-f", str(HERE / "fixtures"), "--strict", "--log-level", "warn"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        try:
            _wait_for(port, process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _PATIENCE_S
    while process.poll() is None and time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    pytest.fail(f"aimock did not start (status {process.poll()})")
