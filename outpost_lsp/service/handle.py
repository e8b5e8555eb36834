"""A run while it is alive: its record, its cancellation, and the handle that faces hold.

A record is saved before it is shown, and before the step that it describes begins (DISP-19); what was used is saved a
moment later, for the journal has it already. Whoever waits for a run may
give up waiting without ending it; only `cancel` ends it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

import anyio

from outpost_lsp.domain.finding import Finding
from outpost_lsp.domain.run import Run, RunError, RunStatus
from outpost_lsp.errors import OutpostError, leading_failure
from outpost_lsp.harness.steering import Steering
from outpost_lsp.storage.identifiers import now_text

logger = logging.getLogger(__name__)


_WRITTEN_EVERY_S: Final = 1.0


class RunRecords(Protocol):
    """Where run records are kept."""

    def save(self, run: Run) -> None: ...

    def save_elsewhere(self, run: Run) -> None: ...


class RunHandle:
    """One run as its starter sees it."""

    def __init__(self, run: Run, records: RunRecords, tell: Callable[[Run], None]) -> None:
        self._run = run
        self._records = records
        self._tell = tell
        self._scope: anyio.CancelScope | None = None
        self._is_cancelled = False
        self._timer: asyncio.TimerHandle | None = None
        self._written_at = -_WRITTEN_EVERY_S
        self._finished = anyio.Event()
        self._fault: OutpostError | None = None
        self.is_left = False
        """Whether the run goes on elsewhere, and nobody follows it here."""
        self.steering: Steering | None = None
        """Reaches the agents while they work."""
        self.snapshot = ""
        """The reviewed commit, once there is one."""
        self.findings: dict[str, Finding] = {}
        """What the run reported, by id, at the places where it stands in the snapshot."""
        self.agents: set[str] = set()
        """The subagents that took part, by name."""
        self.children: set[str] = set()
        """Their runs, by id: whom an instruction can name."""

    @property
    def run(self) -> Run:
        """The record as it is now."""
        return self._run

    @property
    def is_cancel_requested(self) -> bool:
        """Whether somebody asked for its end."""
        return self._is_cancelled

    async def wait(self) -> Run:
        """The record once the run has finished, whatever its end, or was left to go on elsewhere."""
        await self._finished.wait()
        return self._run

    def cancel(self) -> bool:
        """Ask the run to stop; `False` when it has finished already. Asking twice does no harm."""
        if self._run.is_finished or self.is_left:
            return False
        self._is_cancelled = True
        if self._scope is not None:
            self._scope.cancel()
        return True

    def fail(self, fault: OutpostError) -> bool:
        """Stop the run because of something outside it; it ends failed instead of cancelled."""
        if not self.cancel():
            return False
        self._fault = self._fault or fault
        return True

    @property
    def fault(self) -> OutpostError | None:
        """Why the run was stopped from outside, when it was not somebody's wish."""
        return self._fault

    def record(self, **changes: Any) -> Run:
        """Save the record with these changes; nobody is told."""
        self._run = self._run.model_copy(update=changes)
        self._forget_timer()
        self._written_at = time.monotonic()
        self._records.save(self._run)
        return self._run

    def count(self, **changes: Any) -> None:
        """Change the record now, and save it within a second: a disk is too slow for every receipt of many runs."""
        self._run = self._run.model_copy(update=changes)
        left_s = self._written_at + _WRITTEN_EVERY_S - time.monotonic()
        if left_s <= 0:
            self.record()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(left_s, self._save_counted)

    def _save_counted(self) -> None:
        try:
            self.record()
        except (OSError, OutpostError) as fault:
            logger.warning("the usage of run %s could not be saved: %s", self._run.id, fault)

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def update(self, **changes: Any) -> Run:
        """Save the record with these changes, then tell about it."""
        self.record(**changes)
        self._tell(self._run)
        return self._run

    def note(self, *notes: str) -> None:
        """Add what a person should know, each sentence once."""
        fresh = tuple(dict.fromkeys(note for note in notes if note not in self._run.notes))
        if fresh:
            self.update(notes=self._run.notes + fresh)

    def cancellation(self) -> anyio.CancelScope:
        """The scope in which the work has to run; already cancelled when somebody was faster."""
        self._scope = anyio.CancelScope()
        if self._is_cancelled:
            self._scope.cancel()
        return self._scope

    def leave(self) -> None:
        """Stop following a run that goes on elsewhere; whoever waits for it here is told."""
        self._forget_timer()
        self._records.save_elsewhere(self._run)
        self.is_left = True
        self._tell(self._run)
        self._finished.set()

    def finish(self, status: RunStatus, error: BaseException | None = None, **changes: Any) -> None:
        """Record the one end of the run. A disk that refuses the record does not keep anybody waiting."""
        if error is not None:
            changes["error"] = run_error(error)
        try:
            self.update(status=status, finished_at=now_text(), **changes)
        except (OSError, OutpostError) as fault:
            logger.warning("the end of run %s could not be saved: %s", self._run.id, fault)
            self._run = self._run.model_copy(update={"status": status, "finished_at": now_text(), **changes})
            self._tell(self._run)
        finally:
            self._finished.set()


def run_error(error: BaseException) -> RunError:
    """The fault as records keep it; what is no fault of ours is a failure of the process, told by its kind and words.

    Where saving failed besides, the record tells the failure that came first, and the others behind it (FAULT-05).
    """
    if isinstance(error, BaseExceptionGroup):
        first = run_error(leading_failure(error))
        others = "; ".join(run_error(other).message for other in error.exceptions[1:])
        return first.model_copy(update={"message": f"{first.message} (what it left could not all be saved: {others})"})
    if isinstance(error, OutpostError):
        return RunError(code=error.code, message=error.message, details=dict(error.details) or None)
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return RunError(code="process", message=f"{place}{error.strerror or error}")
    return RunError(code="process", message=f"{type(error).__name__}: {error}")
