"""One job in a worker's process: its events until they are read, its lease, and its end, whatever engine started it.

The invariant: a job is carried out once, and not before somebody reads its events, so that what waited for a place in
vain costs nothing; it ends itself when nobody has read for its lease, and its process goes as soon as its end was
collected, or a while after it. Knows no engine: `job.py` puts it into an actor of Ray. Rules: SO-03, SO-11.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, cast

import anyio

from outpost_lsp.domain.job import MOST_RECORD_BYTES, JobEvent, JobRecord
from outpost_lsp.errors import OutpostError
from outpost_lsp.harness.gate import Answer
from outpost_lsp.service.job_bases import JobBase
from outpost_lsp.service.job_worker import JobWorker, RunningJob

Keep = Callable[[bytes, bytes], Awaitable[bool]]
GATHERING_S: Final = 0.05
"""Events that come in a burst are handed on together; a lone one at once."""
_COLLECTED_S: Final = 60.0
"""How long a finished job waits to be collected."""
_LAST_WORDS_S: Final = 1.0
"""How long a job that was collected, or cancelled, still answers."""
_UNWIND_S: Final = 10.0
_BASE_S: Final = 600.0
"""How long a job waits for the base of its repository."""


class HostedJob:
    """A job that was placed here. `gone` is called once, when its process may end.

    `keep` is given the lines and the pack of a detached job that has ended, and says whether they are kept elsewhere, so
    that nothing has to wait here until somebody comes for them.
    """

    def __init__(
        self,
        worker: JobWorker,
        job: JobRecord,
        delta: bytes,
        *,
        place: str,
        owner: str = "",
        gone: Callable[[], None],
        keep: Keep | None = None,
        collected_s: float = _COLLECTED_S,
    ) -> None:
        self.job = job
        self._worker = worker
        self._place = place
        self._owner = owner
        self._gone = gone
        self._collected_s = collected_s
        self._keep = keep if job.detach else None
        self._is_settled = asyncio.Event()
        self._running: RunningJob | None = None
        self._lines: list[bytes] = []
        self._pack = b""
        self._arrived = asyncio.Event()
        self._first_read = asyncio.Event()
        self._collected = asyncio.Event()
        self._readers = 0
        self._lacking: JobBase | None = None
        self._base = asyncio.Event()
        self._handed_at = 0.0
        self._read_at = _now()
        self._task = asyncio.ensure_future(self._carry(delta))
        self._watching = asyncio.ensure_future(self._watch())

    async def take_base(self, pack: Path) -> None:
        """Take the base that was asked for."""
        if self._lacking is not None:
            await self._lacking.take(pack)
            self._base.set()

    async def events(self, after: int, wait_s: float) -> list[bytes]:
        """The lines after the event of that number, as soon as there are any; none after `wait_s` of silence."""
        self._first_read.set()
        self._readers += 1
        try:
            if after >= len(self._lines):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        while after >= len(self._lines):
                            self._arrived.clear()
                            await self._arrived.wait()
            if (rest := self._handed_at + GATHERING_S - _now()) > 0 and not self._task.done():
                await asyncio.sleep(rest)
        finally:
            self._readers -= 1
            self._handed_at = self._read_at = _now()
        return self._lines[after:]

    def steer(self, id: str, text: str, subagent: str | None, *, to_anyone: bool) -> None:
        """Hand an instruction to the agent."""
        if self._running is not None:
            self._running.steer(id, text, subagent, to_anyone=to_anyone)

    def answer(self, question: str, answer: str) -> None:
        """Hand a person's answer to a question over; what is no answer is a no."""
        if self._running is not None:
            self._running.answer(question, cast("Answer", answer if answer in ("allow", "allow-run") else "deny"))

    def result_pack(self) -> bytes:
        """The objects of the result."""
        return self._pack

    async def cancel(self) -> bool:
        """Stop it, or, when it has ended, have it collected; returns when whatever it had started is gone.

        True when nobody will ask for it again: what a detached job did until it was stopped is still to be fetched.
        """
        had_ended = self._task.done()
        await self._stop()
        if self._keep is not None:
            await self._is_settled.wait()
            if not had_ended:
                return False
        self._collected.set()
        return True

    def abandon(self) -> None:
        """Stop watching: whoever holds the process ends it."""
        self._watching.cancel()

    # Within

    async def _stop(self) -> None:
        self._task.cancel()
        await asyncio.wait((self._task,), timeout=_UNWIND_S)

    async def _carry(self, delta: bytes) -> None:
        running = self._running = self._worker.running(self.job, self._tell)
        try:
            if not self.job.detach:
                await self._first_read.wait()
            async with self._worker.base(self._owner, self.job) as base:
                if await base.lacks():
                    self._lacking = base
                    running.emit("base-needed", {})
                    async with asyncio.timeout(_BASE_S):
                        await self._base.wait()
                running.emit("started", {"worker": self._place})
                result, self._pack = await running.run(delta, base)
        except asyncio.CancelledError:
            running.emit("cancelled", {})
        except TimeoutError:
            running.emit("lost", {"message": "the base of the repository did not come in time"})
        except OutpostError as error:
            running.emit("lost", {"message": error.message})
        except Exception as error:  # noqa: BLE001 - whatever it was, whoever waits is told
            running.emit("lost", {"message": f"the worker failed: {type(error).__name__}: {error}"})
        else:
            running.emit("result", result.to_json())

    def _tell(self, event: JobEvent) -> None:
        line = event.to_line()
        if len(line) > MOST_RECORD_BYTES:
            note: dict[str, Any] = {"kind": "warning", "message": "an event was too large to be sent"}
            line = event.model_copy(update={"kind": "observation", "data": {"event": note}}).to_line()
        self._lines.append(line)
        self._arrived.set()

    async def _watch(self) -> None:
        """End what nobody follows, and then this process."""
        lease_s = float("inf") if self.job.detach else self.job.lease_s
        while not self._task.done():
            await asyncio.wait((self._task,), timeout=min(1.0, self.job.lease_s / 4))
            if not self._readers and _now() - self._read_at > lease_s:
                await self._stop()
                self._collected.set()
        try:
            is_kept = self._keep is not None and await self._keep(b"\n".join(self._lines), self._pack)
        finally:
            self._is_settled.set()
        if not is_kept:
            await self._until_collected()
        await anyio.sleep(_LAST_WORDS_S)
        self._gone()

    async def _until_collected(self) -> None:
        patience = self._collected_s
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(patience, self.job.lease_s) if self.job.detach else patience):
                await self._collected.wait()


def _now() -> float:
    return asyncio.get_running_loop().time()
