"""The runs that are going on in this process, each in a task of its own.

A run never works in the task of the request that started it, and ends exactly once, whatever happens (U-15): its record
says how. Owned by `Outpost`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from outpost_lsp.domain.run import Run, RunKind, RunStatus
from outpost_lsp.errors import OutpostError, leading_failure
from outpost_lsp.service.handle import RunHandle
from outpost_lsp.service.signals import RunChanged, Signal
from outpost_lsp.storage.identifiers import new_run_id, now_text

if TYPE_CHECKING:
    from outpost_lsp.service.workspace import Workspace

logger = logging.getLogger(__name__)

_KEPT_HANDLES: Final = 256

Job = Callable[[RunHandle], Awaitable[None]]


class LiveRuns:
    """Handles by id, those of ended runs included, and the tasks of the others."""

    def __init__(self, tell: Callable[[Signal], None]) -> None:
        self._tell = tell
        self._handles: dict[str, RunHandle] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def handle(self, run_id: str) -> RunHandle | None:
        """The handle of a run that was started here."""
        return self._handles.get(run_id)

    def of(self, workspace: Workspace) -> list[RunHandle]:
        """The runs of a workspace that have not ended."""
        folder = str(workspace.folder)
        return [self._handles[id] for id in self._tasks if self._handles[id].run.workspace == folder]

    def start(self, workspace: Workspace, kind: RunKind, agent: str, title: str, job: Job, **known: Any) -> RunHandle:
        """Record a run, tell about it, and begin its job."""
        run = Run(
            id=new_run_id(),
            kind=kind,
            agent=agent,
            title=title,
            status="queued",
            workspace=str(workspace.folder),
            started_at=now_text(),
            **known,
        )
        return self.resume(workspace, run, job)

    def resume(self, workspace: Workspace, run: Run, job: Job) -> RunHandle:
        """Carry a run of this record from here on."""
        handle = RunHandle(run, workspace.runs, lambda run: self._tell(RunChanged(run)))
        workspace.runs.save(run)
        self._handles[run.id] = handle
        self._tell(RunChanged(run))
        task = asyncio.get_running_loop().create_task(self._carry(handle, job), name=f"run {run.id}")
        self._tasks[run.id] = task
        task.add_done_callback(lambda _: self._ended(run.id))
        return handle

    def _ended(self, run_id: str) -> None:
        self._tasks.pop(run_id, None)
        # The records on disk tell of all runs; what stays in a server's memory is bounded.
        for old in list(self._handles)[:-_KEPT_HANDLES]:
            if old not in self._tasks:
                del self._handles[old]

    async def drain(self, deadline_s: float, of: Workspace | None = None) -> bool:
        """Cancel every run, or those of one workspace, and wait for their ends; `False` when some had to be cut off."""
        chosen = [handle.run.id for handle in self.of(of)] if of is not None else list(self._tasks)
        for id in chosen:
            self._handles[id].cancel()
        tasks = {self._tasks[id] for id in chosen if id in self._tasks}
        if not tasks:
            return True
        _, late = await asyncio.wait(tasks, timeout=deadline_s)
        for task in late:
            logger.warning("%s did not stop in time", task.get_name())
            task.cancel()
        return not late

    async def _carry(self, handle: RunHandle, job: Job) -> None:
        try:
            with handle.cancellation():
                await job(handle)
                if not handle.run.is_finished and not handle.is_left:
                    handle.finish("succeeded")
            if not handle.run.is_finished and handle.fault is not None:
                raise handle.fault
        except Exception as error:
            fault = leading_failure(error)
            if not isinstance(fault, OutpostError):
                logger.exception("run %s failed in an unforeseen way", handle.run.id)
                handle.finish("failed", error)
                return
            logger.info("run %s failed: %s", handle.run.id, fault)
            # A turn that was stopped from inside is as cancelled as one that somebody stopped (BOUND-04).
            handle.finish(_end_of(fault), error)
        finally:
            # Also the way out of a cancelled task, when the server ends: the record must not say "running".
            if not handle.run.is_finished and not handle.is_left:
                handle.finish("cancelled")


def _end_of(fault: OutpostError) -> RunStatus:
    if fault.details.get("interrupted"):
        # Whoever carried it out is gone; nobody knows how it would have ended.
        return "interrupted"
    return "cancelled" if fault.code == "aborted" else "failed"
