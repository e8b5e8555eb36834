"""Processes for tests."""

from __future__ import annotations

import subprocess
import sys


def dead_pid() -> int:
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid
