"""Where a job keeps what it needs while it runs, and what becomes of that when its process was killed.

The invariant: a folder is its process's alone, and is swept by the next job of the same machine once that is dead.
"""

from __future__ import annotations

import hashlib
import shutil
import socket
from pathlib import Path

from outpost_lsp.storage.owners import process_runs, process_start, this_process


def job_folder(jobs: Path, id: str) -> Path:
    """The folder of a job that runs in this process; it is not made."""
    return jobs / _mark(this_process().pid) / id


def sweep_job_folders(jobs: Path) -> None:
    """Remove what jobs left whose process is dead."""
    prefix = f"{socket.gethostname()}@"
    for folder in jobs.glob("*@*@*"):
        pid = folder.name.removeprefix(prefix).partition("@")[0]
        # Another machine may share the folder; whether its processes live cannot be told here.
        if folder.name.startswith(prefix) and pid.isdecimal() and not _is_of(folder.name, int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_of(name: str, pid: int) -> bool:
    return process_runs(pid) and name == _mark(pid)


def _mark(pid: int) -> str:
    started = hashlib.sha256(process_start(pid).encode()).hexdigest()[:12]
    return f"{socket.gethostname()}@{pid}@{started}"
