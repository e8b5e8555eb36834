"""Reviews that go on elsewhere without this process, and how their outcome is fetched when somebody asks for it.

The invariant: a review is handed over once, and followed here only until its worker has all it needs; what became of it
is then carried through the same door as any other run's, from its first event, and only what was carried to its end is
let go of there. A run that is left belongs to no process of this machine, so that none that dies interrupts it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import anyio

from outpost_lsp.config.build import AgentRun
from outpost_lsp.dispatches.remote_base import KeptBase
from outpost_lsp.domain.job import LAST_KINDS, BasePack, JobEvent, JobHandle, JobRecord
from outpost_lsp.domain.run import ReviewScope, Run, RunError
from outpost_lsp.errors import OutpostError, configuration, leading_failure
from outpost_lsp.reviews.kept import kept_review, review_from
from outpost_lsp.service.carrying import Assignment, Carried
from outpost_lsp.service.ceilings import Allowance
from outpost_lsp.service.executors import face_executor, remote_agent
from outpost_lsp.service.handle import RunHandle
from outpost_lsp.service.reviews import PlannedFolderReview, PlannedReview, review_settings
from outpost_lsp.storage.identifiers import now_text
from outpost_lsp.worktrees.portable import pack_delta

if TYPE_CHECKING:
    from outpost_lsp.remote.http import RemoteExecutor
    from outpost_lsp.service.outpost import Outpost
    from outpost_lsp.service.workspace import Workspace

_DETAIL: Final = "elsewhere"
_CANCEL_S: Final = 20.0
KEPT_DAYS: Final = 7
"""How long a face keeps what a detached run left (`cluster/keeping.py`)."""


# Leaving


def start_detached(outpost: Outpost, planned: PlannedReview | PlannedFolderReview, scope: ReviewScope) -> RunHandle:
    """Start a review elsewhere; its handle is left as soon as the worker has begun.

    `configuration` where that cannot be, before anything starts. A review of nothing ends at once, as ever.
    """
    if not isinstance(planned, PlannedReview):
        raise configuration("--detach: a folder that is no git repository is reviewed here, so it cannot be left")
    workspace = planned.workspace
    settings = workspace.settings
    if settings.runs.executor != "ray" or outpost.offline:
        raise configuration("--detach: only what is carried out elsewhere can be left; add --executor ray")
    for table in ("per_run", "per_day"):
        if Allowance.of(getattr(settings.budget, table)):
            raise configuration(
                f"--detach: nobody is here to watch budget.{table}; give the agent limits.usage, which the worker keeps",
                field=f"budget.{table}",
            )

    async def perform(handle: RunHandle) -> None:
        if planned.prepared.is_empty:
            await planned.carried(handle)
            return
        async with outpost.place(workspace, handle):
            await _hand_over(outpost, planned, handle)

    return outpost.start(workspace, "review", planned.agent, planned.title, perform, scope=scope)


async def _hand_over(outpost: Outpost, planned: PlannedReview, handle: RunHandle) -> None:
    """Send the review, follow it until it has begun, and leave it."""
    workspace, prepared = planned.workspace, planned.prepared
    assignment = planned.assignment(handle)
    if not isinstance(assignment.agent, AgentRun):
        raise configuration("--detach: a recording is gone through here")
    handle.record(base=prepared.snapshot.head, notes=prepared.notes)
    ray = workspace.settings.runs.ray
    executor = face_executor(ray, outpost.environment)
    try:
        await executor.check()
        handle.update(status="queued")
        agent = await remote_agent(workspace, handle, assignment, executor)
        job = agent.record_on(prepared.snapshot, prepared.brief).model_copy(update={"detach": True})
        delta = await pack_delta(workspace.repository, job.base, job.commits)
        kept = {"url": ray.url, "agent": planned.agent, "review": kept_review(prepared)}
        workspace.runs.save_details(handle.run.id, workspace.runs.details(handle.run.id) | {_DETAIL: kept})
        taken = await executor.submit(job, delta, KeptBase(workspace.repository, job.base, agent.packs))
        try:
            await _until_begun(taken)
        except BaseException:
            _forget(workspace, handle.run.id)
            with anyio.CancelScope(shield=True), anyio.move_on_after(_CANCEL_S):
                await taken.cancel()
            raise
        handle.record(status="running")
        handle.leave()
    finally:
        await executor.aclose()


async def _until_begun(job: JobHandle) -> None:
    """Return when the worker has all it needs; the base is brought meanwhile, if it has to be."""
    async with aclosing(job.events()) as events:
        async for event in events:
            if event.kind == "lost":
                raise OutpostError("process", str(event.data.get("message")), {"interrupted": True})
            if event.kind == "cancelled":
                raise OutpostError("aborted", "the run was cancelled where it was carried out")
            if event.kind != "base-needed":
                return


# Fetching


@dataclass(slots=True, kw_only=True)
class DetachedRun:
    """A run that was left."""

    outpost: Outpost
    workspace: Workspace
    run: Run
    kept: Mapping[str, Any]

    async def ended(self) -> bool:
        """Wait until it has ended there; `False` when the face knows no such run, which is then `interrupted`.

        Giving up to wait changes nothing. `provider` when the face cannot be reached.
        """
        async with self._face() as executor:
            await executor.check()
            async with aclosing(executor.taken(self.run.id).events()) as events:
                async for event in events:
                    if event.kind in LAST_KINDS:
                        return self._has_end(event, executor.name)
        return False

    def _has_end(self, event: JobEvent, name: str) -> bool:
        message = str(event.data.get("message"))
        if event.data.get("away"):
            raise OutpostError("provider", f"{message}; the run goes on, so try again later", {"executor": "ray"})
        if not event.data.get("gone"):
            return True
        message = (
            f"{name} knows no such run: it was lost with its machine, ended more than {KEPT_DAYS} days ago, or was sent "
            "with another token"
        )
        error = RunError(code="process", message=message)
        ended = {"status": "interrupted", "finished_at": now_text(), "error": error}
        self.run = self.workspace.change_run(self.run.id, **ended)
        return False

    async def cancel(self) -> None:
        """Stop it there; what it did until then can still be fetched."""
        async with self._face() as executor:
            await executor.check()
            await executor.taken(self.run.id).cancel()

    def fetch(self) -> RunHandle:
        """Carry what happened into this machine's records, as a run that goes on here; call when it has ended."""
        planned = self._planned()
        self.workspace.journal_path(self.run.id).unlink(missing_ok=True)
        if self.run.conversation is not None:
            # Somebody began to fetch it and did not come to its end.
            self.workspace.conversations.path(self.run.conversation).unlink(missing_ok=True)
        fresh = {"status": "running", "finished_at": None, "error": None, "conversation": None}
        run = self.run.model_copy(update=fresh | {"findings": 0, "rejected": 0})

        async def perform(handle: RunHandle) -> None:
            try:
                await planned.carried(handle, executor=_FetchingExecutor(self))
            except Exception as error:
                if _is_its_own(leading_failure(error)):
                    await self._let_go()
                raise
            await self._let_go()

        return self.outpost.live.resume(self.workspace, run, perform)

    async def _let_go(self) -> None:
        _forget(self.workspace, self.run.id)
        with anyio.CancelScope(shield=True), anyio.move_on_after(_CANCEL_S):
            async with self._face() as executor:
                await executor.taken(self.run.id).cancel()

    def _planned(self) -> PlannedReview:
        prepared = review_from(self.kept.get("review") or {}, review_settings(self.workspace.settings))
        return PlannedReview(
            outpost=self.outpost, workspace=self.workspace, prepared=prepared, agent=str(self.kept.get("agent"))
        )

    @asynccontextmanager
    async def _face(self) -> AsyncIterator[RemoteExecutor]:
        executor = face_executor(self.workspace.settings.runs.ray, self.outpost.environment)
        try:
            yield executor
        finally:
            await executor.aclose()


def detached_run(outpost: Outpost, workspace: Workspace, run: Run) -> DetachedRun:
    """The run as one that was left. `configuration` for any other, and where the settings name another face."""
    kept = workspace.runs.details(run.id).get(_DETAIL)
    if not isinstance(kept, dict):
        raise configuration(f"run {run.id} was not left to go on elsewhere, or is fetched already (it is {run.status})")
    url = workspace.settings.runs.ray.url
    if kept.get("url") != url:
        raise configuration(
            f"run {run.id} was sent to {kept.get('url')}, and runs.ray.url is {url or 'not set'}", field="runs.ray.url"
        )
    return DetachedRun(outpost=outpost, workspace=workspace, run=run, kept=kept)


class _FetchingExecutor:
    """Gives a run an agent that has worked elsewhere already."""

    def __init__(self, detached: DetachedRun) -> None:
        self._detached = detached

    @asynccontextmanager
    async def agent(
        self, workspace: Workspace, handle: RunHandle, assignment: Assignment
    ) -> AsyncIterator[AgentRun | Carried]:
        """The agent that was built, with the run elsewhere in its place."""
        built = assignment.agent
        assert isinstance(built, AgentRun)
        async with self._detached._face() as executor:
            agent = await remote_agent(workspace, handle, assignment, _Taken(executor))
            yield replace(built, agent=agent)


class _Taken:
    """An executor whose job was submitted before."""

    def __init__(self, executor: RemoteExecutor) -> None:
        self._executor = executor

    @property
    def name(self) -> str:
        return self._executor.name

    async def submit(self, job: JobRecord, delta: bytes, base: BasePack) -> JobHandle:
        del delta, base
        return _Followed(self._executor.taken(job.id))


class _Followed:
    """A job that is only listened to: whatever goes wrong here, it and its result stay there."""

    def __init__(self, job: JobHandle) -> None:
        self.events, self.result_pack = job.events, job.result_pack
        self.steer, self.answer = job.steer, job.answer

    async def cancel(self) -> None:
        """Nobody stops what has ended."""

    async def aclose(self) -> None:
        """It is let go of when the run is on record."""


def _is_its_own(error: BaseException) -> bool:
    """Whether a fault is how the run ended there, and not what kept its end from being recorded here."""
    return isinstance(error, OutpostError) and (
        error.code == "aborted" or bool(error.details.get("remote") or error.details.get("interrupted"))
    )


def _forget(workspace: Workspace, run_id: str) -> None:
    known = workspace.runs.details(run_id)
    known.pop(_DETAIL, None)
    workspace.runs.save_details(run_id, known)
