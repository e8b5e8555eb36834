"""Which process owns something, and whether it still runs.

A process id alone is reused sooner or later, so an owner is the id together with the time its process started
(LOCK-05), and the world in which the id counts: containers and machines that share a folder do not see each other's
processes, and tell by `presence` whether one lives. Locks and run records carry owners.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from outpost_lsp.storage.presence import Presence, is_present


@dataclass(frozen=True, slots=True)
class Owner:
    """A process. `started` is empty where the system does not tell."""

    pid: int
    started: str = ""
    world: str = ""
    """Where the id counts; empty where nothing says so, which is taken for this one."""
    present: tuple[Path, str] | None = field(default=None, compare=False)
    """The folder and the name of its presence, by which other worlds see it."""

    @property
    def is_alive(self) -> bool:
        """Whether this very process still runs. When that cannot be told it counts as alive (LOCK-03)."""
        if self.present is not None and self.world and self.world != this_world():
            return is_present(*self.present)
        if not process_runs(self.pid):
            return False
        started = process_start(self.pid)
        return not started or not self.started or started == self.started


def this_process() -> Owner:
    """The owner that stands for the running process."""
    return _owner(os.getpid())


def record_of(owner: Owner, presence: Presence) -> dict[str, Any]:
    """An owner as it is written down, with the presence that it holds; a world only with one."""
    record: dict[str, Any] = {"pid": owner.pid, "started": owner.started}
    return record | ({"world": owner.world, "present": presence.name} if presence.name and owner.world else {})


def owner_in(record: Any, folder: Path) -> Owner | None:
    """The owner that a record in a folder tells of; `None` when it tells of none."""
    known = record if isinstance(record, dict) else {}
    pid, started, world, name = (known.get(key) for key in ("pid", "started", "world", "present"))
    if type(pid) is not int or not isinstance(started or "", str):
        return None
    # A name, not a path: nothing outside the folder is opened for it.
    if isinstance(world, str) and isinstance(name, str) and name.isalnum():
        return Owner(pid, started or "", world, (folder, name))
    return Owner(pid, started or "")


def this_world() -> str:
    """Names the processes that this one can see: a start of a machine, and a process namespace of it; empty if unknown."""
    try:
        return f"{Path('/proc/self/ns/pid').stat().st_ino}@{_boot()}"
    except OSError:
        return ""


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
    return Owner(pid, process_start(pid), this_world())


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
