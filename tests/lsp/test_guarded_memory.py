"""The server and the command line forbid others to read their memory before they start anything (SEC-13)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_IS_GUARDED = "ctypes.CDLL(None).prctl(3, 0, 0, 0, 0) == 0"
_SERVER = f"""
import asyncio, ctypes
from outpost_lsp.lsp.connection import StreamConnection
from outpost_lsp.lsp.front import FrontDoor

async def main():
    front = FrontDoor()
    front.attach(StreamConnection(front.receive, front.ended.set))
    front.receive(b"no message of the protocol")
    print({_IS_GUARDED})
    await front.close(5)

asyncio.run(main())
"""
_COMMAND_LINE = f"""
import argparse, asyncio, ctypes
from outpost_lsp.cli.session import opened

async def main():
    async with opened(argparse.Namespace(folder="."), starts_runs=True):
        print({_IS_GUARDED})

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the system call is Linux's")
@pytest.mark.parametrize("program", [_SERVER, _COMMAND_LINE], ids=["server", "command line"])
def test_SEC_13_no_child_can_read_the_environment_of_what_started_it(program: str, tmp_path: Path) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "OUTPOST_CONFIG": os.devnull,
        "OUTPOST_STATE_DIR": str(tmp_path / "state"),
        "OUTPOST_CACHE_DIR": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.returncode) == ("True", 0), done.stderr
