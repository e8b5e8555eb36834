"""Which process owns something, and whether it still runs.

A process id alone is reused sooner or later, so an owner is the id together with the time its process started
(LOCK-05). Locks and run records carry owners.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Owner:
    """A process. `started` is empty where the system does not tell."""

    pid: int
    started: str = ""

    @property
    def is_alive(self) -> bool:
        """Whether this very process still runs. When that cannot be told it counts as alive (LOCK-03)."""
        if not process_runs(self.pid):
            return False
        started = process_start(self.pid)
        return not started or not self.started or started == self.started


def this_process() -> Owner:
    """The owner that stands for the running process."""
    return _owner(os.getpid())


def process_runs(pid: int) -> bool:
    """Whether a process with this id exists; a zombie does not run any more."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return pid < 2**31
    return _state(pid) not in ("Z", "X")


def process_start(pid: int) -> str:
    """When the process started, as text that differs for another process with the same id; empty when unknown."""
    fields = _stat_fields(pid)
    return f"{fields[19]}@{_boot()}" if len(fields) > 19 else ""


@lru_cache(maxsize=4)
def _owner(pid: int) -> Owner:
    # Keyed by the id, so that a forked child does not take itself for its parent.
    return Owner(pid, process_start(pid))


def _state(pid: int) -> str:
    fields = _stat_fields(pid)
    return fields[0] if fields else ""


def _stat_fields(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return []
    # The name of the program may hold blanks and brackets: the fields begin behind its last bracket.
    return text.rpartition(")")[2].split()


@lru_cache(maxsize=1)
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
    except OSError:
        return ""
