"""What detached runs left, kept in files where the face is until somebody fetches it.

The invariant: an owner finds its own only; what is kept is bounded in bytes and age, the oldest goes first, and each
entry is whole or not there.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import uuid4

from outpost_lsp.cluster.face import LostJobError

KEPT_S: Final = 7 * 24 * 3600.0
MOST_KEPT_BYTES: Final = 4 * 1024 * 1024 * 1024
_NAME: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,99}")


class KeptJobs:
    """A folder of ended jobs."""

    def __init__(self, folder: Path, *, most_bytes: int = MOST_KEPT_BYTES, most_s: float = KEPT_S) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._most_s = most_s

    def put(self, owner: str, id: str, lines: bytes, pack: bytes) -> bool:
        """Keep a job's lines and pack; `False` when they are larger than all that may be kept."""
        place = self._place(owner, id)
        if place is None or len(lines) + len(pack) > self._most_bytes:
            return False
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = place.with_name(f".{uuid4().hex}")
        temporary.write_bytes(b"%d\n" % len(lines) + lines + pack)
        temporary.chmod(0o600)
        temporary.replace(place)
        self._prune()
        return True

    def get(self, owner: str, id: str) -> tuple[bytes, bytes] | None:
        """A job's lines and pack; `None` when there is none (any more)."""
        place = self._place(owner, id)
        try:
            data = b"" if place is None else place.read_bytes()
        except OSError:
            return None
        size, separator, rest = data.partition(b"\n")
        if not separator:
            return None
        return rest[: int(size)], rest[int(size) :]

    def remove(self, owner: str, id: str) -> None:
        """Forget a job."""
        place = self._place(owner, id)
        if place is not None:
            place.unlink(missing_ok=True)

    def _place(self, owner: str, id: str) -> Path | None:
        if not _NAME.fullmatch(owner) or not _NAME.fullmatch(id):
            return None
        return self._folder / owner / f"{id}.job"

    def _prune(self) -> None:
        total = 0
        for age_s, size, path in sorted(self._entries()):
            total += size
            if total > self._most_bytes or age_s > self._most_s:
                path.unlink(missing_ok=True)

    def _entries(self) -> Iterator[tuple[float, int, Path]]:
        for path in self._folder.glob("*/*.job"):
            try:
                status = path.stat()
            except OSError:
                continue
            yield time.time() - status.st_mtime, status.st_size, path


class KeptJob:
    """A job that has ended, as the face hands it out."""

    def __init__(self, lines: bytes, pack: bytes) -> None:
        self._lines = lines.split(b"\n")
        self._pack = pack

    async def take_base(self, pack: bytes) -> None:
        """It needs none any more."""

    async def events(self, after: int, wait_s: float) -> list[bytes]:
        """The rest of its lines, at once."""
        del wait_s
        if after >= len(self._lines):
            raise LostJobError("nothing came after the end of the run")
        return self._lines[after:]

    async def steer(self, id: str, text: str, subagent: str | None, to_anyone: bool) -> None:
        """Nobody is there to take it."""

    async def answer(self, question: str, answer: str) -> None:
        """Nobody asks any more."""

    async def result_pack(self) -> bytes:
        """The objects of the result."""
        return self._pack

    async def cancel(self) -> None:
        """It has ended; whoever keeps it forgets it."""
