"""Who holds a worktree: the words of its lock, and whether the process that wrote them still lives.

The invariant: a worktree whose owner may be alive is nobody else's to touch. The lock's reason names the run, the base
commit and the process with its start time, since process ids are used again (SNAP-03, LOCK-05), and the world in which
the id counts: containers that share a folder do not see each other's processes, nor does a machine those of another. What
they do see is the kernel's lock on the file, which ends with the process.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

_REASON = re.compile(r"outpost run (\S+) base ([0-9a-f]+) pid (\d+) start (\d+|unknown)(?: in (\S+))?\s*")
_YOUNG_S: Final = 60.0
"""The lock's file is written a moment before the kernel's lock on it is taken."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The run and the process that a worktree belongs to."""

    run_id: str
    base: str
    pid: int
    start: str
    world: str = ""
    """Where the process id counts; empty in locks that do not say, which are taken for this one's."""
    file: Path | None = field(default=None, compare=False)
    """The lock that says so."""

    @property
    def reason(self) -> str:
        """The words of the lock."""
        place = f" in {self.world}" if self.world else ""
        return f"outpost run {self.run_id} base {self.base} pid {self.pid} start {self.start}{place}"

    @property
    def is_alive(self) -> bool:
        """Whether that very process runs; not to know counts as yes."""
        if self.world and self.world != this_world():
            return self.file is None or _is_held(self.file)
        return process_is_alive(self.pid, self.start)


class Hold:
    """The kernel's lock on the lock of a worktree: who cannot see this process sees it alive by that, until `close`."""

    def __init__(self, administrative: Path) -> None:
        self._descriptor: int | None = None
        try:
            self._descriptor = os.open(administrative / "locked", os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(self._descriptor, fcntl.LOCK_SH)
        except OSError:
            # A file system without such locks: nobody can take it there, and so nobody takes this process for dead.
            self.close()

    def close(self) -> None:
        """Let go; a second time nothing happens."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __del__(self) -> None:
        self.close()


def _is_held(lock: Path) -> bool:
    """Whether some process holds the kernel's lock on the file; not to know counts as yes."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return True
    try:
        if time.time() - os.fstat(descriptor).st_mtime < _YOUNG_S:
            return True
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def this_world() -> str:
    """Names the processes that this one can see: a start of a machine, and a process namespace of it; empty if unknown."""
    try:
        return f"{os.stat('/proc/self/ns/pid').st_ino}@{_boot()}"  # noqa: PTH116 - one call
    except OSError:
        return ""


@cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


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
    return Owner(run_id, base, os.getpid(), start_time(os.getpid()), this_world())


def owner_of(administrative: Path) -> Owner | None:
    """The owner by the lock of a worktree's registration; `None` when the product did not lock it."""
    file = administrative / "locked"
    try:
        text = file.read_text("utf-8", "replace")
    except OSError:
        return None
    found = _REASON.fullmatch(text)
    return None if found is None else Owner(found[1], found[2], int(found[3]), found[4], found[5] or "", file)


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
