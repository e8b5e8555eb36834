"""Where a job keeps what it needs while it runs, and what becomes of that when its process was killed.

The invariant: a folder is its process's alone, and is swept by the next job of the same machine once that is dead.
"""

from __future__ import annotations

import hashlib
import shutil
import socket
from pathlib import Path

from outpost_lsp.storage.owners import process_runs, process_start, this_process
from outpost_lsp.storage.presence import Presence, is_present, sweep


def job_folder(jobs: Path, id: str, presence: Presence) -> Path:
    """The folder of a job that runs in this process, for as long as its presence for `jobs` lasts; it is not made."""
    return jobs / f"{_mark(this_process().pid)}@{presence.name}" / id


def sweep_job_folders(jobs: Path) -> None:
    """Remove what jobs left whose process is dead."""
    prefix = f"{socket.gethostname()}@"
    for folder in jobs.glob("*@*@*"):
        pid, _, rest = folder.name.removeprefix(prefix).partition("@")
        # Another machine may share the folder; whether its processes live cannot be told here.
        if (
            folder.name.startswith(prefix)
            and pid.isdecimal()
            and not _lasts(jobs, int(pid), rest.partition("@")[2], folder.name)
        ):
            shutil.rmtree(folder, ignore_errors=True)
    sweep(jobs)


def _lasts(jobs: Path, pid: int, presence: str, name: str) -> bool:
    """Whether the job may still run: a container of the same name does not see its process."""
    if presence.isalnum():
        return is_present(jobs, presence)
    return process_runs(pid) and name.startswith(_mark(pid))


def _mark(pid: int) -> str:
    started = hashlib.sha256(process_start(pid).encode()).hexdigest()[:12]
    return f"{socket.gethostname()}@{pid}@{started}"
