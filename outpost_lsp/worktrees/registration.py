"""Who holds a worktree: the words of its lock, and whether the process that wrote them still lives.

The invariant: a worktree whose owner may be alive is nobody else's to touch. The lock's reason names the run, the base
commit and the process with its start time, since process ids are used again (SNAP-03, LOCK-05). Pure but for /proc.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

_REASON = re.compile(r"outpost run (\S+) base ([0-9a-f]+) pid (\d+) start (\d+|unknown)\s*")


@dataclass(frozen=True, slots=True)
class Owner:
    """The run and the process that a worktree belongs to."""

    run_id: str
    base: str
    pid: int
    start: str

    @property
    def reason(self) -> str:
        """The words of the lock."""
        return f"outpost run {self.run_id} base {self.base} pid {self.pid} start {self.start}"

    @property
    def is_alive(self) -> bool:
        """Whether that very process runs; not to know counts as yes."""
        return process_is_alive(self.pid, self.start)


def process_is_alive(pid: int, start: str) -> bool:
    """Whether the process that had this id and start time runs; not to know counts as yes."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    now = start_time(pid)
    return "unknown" in {start, now} or now == start


def this_process(run_id: str, base: str) -> Owner:
    """The owner that this process is."""
    return Owner(run_id, base, os.getpid(), start_time(os.getpid()))


def owner_of(administrative: Path) -> Owner | None:
    """The owner by the lock of a worktree's registration; `None` when the product did not lock it."""
    try:
        text = (administrative / "locked").read_text("utf-8", "replace")
    except OSError:
        return None
    found = _REASON.fullmatch(text)
    return None if found is None else Owner(found[1], found[2], int(found[3]), found[4])


def start_time(pid: int) -> str:
    """When a process started, in ticks since the machine did; `unknown` where the system does not say."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return "unknown"
    return text.rpartition(")")[2].split()[19]


def processes_in(directory: Path) -> list[int]:
    """The processes whose working directory lies in a folder, as far as this user may see."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            place = (entry / "cwd").readlink()
        except OSError:
            continue
        if place.is_relative_to(directory):
            found.append(int(entry.name))
    return found
