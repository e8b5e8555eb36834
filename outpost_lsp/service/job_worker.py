"""Carrying out a job that came from another machine, with this machine's services and none of the sender's word.

The invariant: a record is read as an untrusted folder's settings are (it may choose among models that the operator's own
file names, never define one), its packs are checked, and nothing of a job outlives it but the base of its repository.
Whoever receives jobs (a worker's process) makes one `JobWorker`; it knows nothing of how they came.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import anyio
from anyio import to_thread

from outpost_lsp.config.build import build_agent
from outpost_lsp.config.of_jobs import settings_of_job
from outpost_lsp.config.providers import Services
from outpost_lsp.dispatches.dispatch import dispatch
from outpost_lsp.dispatches.furnishing import Furnishing
from outpost_lsp.dispatches.observe import ObservationHub
from outpost_lsp.dispatches.options import Continuation
from outpost_lsp.dispatches.result import DispatchResult
from outpost_lsp.dispatches.sandboxing import WorktreeSandboxProvider, conversations_of
from outpost_lsp.domain.finding import Dismissal, Finding
from outpost_lsp.domain.job import JobEvent, JobEventKind, JobRecord, JobResult
from outpost_lsp.domain.observation import Observation
from outpost_lsp.errors import OutpostError, leading_failure, recovery_details
from outpost_lsp.harness.gate import Answer, PermissionQuestion
from outpost_lsp.harness.steering import ANYONE, Steering
from outpost_lsp.reviews.scope import exclusion
from outpost_lsp.sandbox.environment import allowed_environment
from outpost_lsp.service.handle import run_error
from outpost_lsp.service.job_bases import MOST_BASE_BYTES, JobBase, JobBases
from outpost_lsp.service.job_folders import job_folder, sweep_job_folders
from outpost_lsp.storage.layout import Layout, RepositoryLayout
from outpost_lsp.storage.presence import Presence
from outpost_lsp.storage.received import ReceivedConversations
from outpost_lsp.tools.findings import FindingScope
from outpost_lsp.worktrees.git import Repository
from outpost_lsp.worktrees.portable import pack_delta
from outpost_lsp.worktrees.snapshot import Snapshot
from outpost_lsp.worktrees.worktree import forget_gone

Tell = Callable[[JobEvent], None]
_FREQUENT: Final = frozenset(("text-delta", "reasoning", "tool-output"))
_QUESTION_S: Final = 300.0
"""How long a permission question waits for its answer; then it is denied."""


class JobWorker:
    """Carries jobs out below one folder, which holds the bases of repositories and what running jobs need.

    `user_file` is the operator's own configuration, `environment` what keys are looked up in.
    """

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        *,
        user_file: Path | None = None,
        can_confine: bool = False,
        most_base_bytes: int = MOST_BASE_BYTES,
    ) -> None:
        self._folder = folder
        self._bases = JobBases(folder / "bases", most_bytes=most_base_bytes)
        self._environment = environment
        self._user_file = user_file
        self._can_confine = can_confine

    def base(self, owner: str, job: JobRecord) -> AbstractAsyncContextManager[JobBase]:
        """The base of a job's repository, kept as long as it is open; owners share none."""
        return self._bases.used(owner, job)

    def running(self, job: JobRecord, tell: Tell) -> RunningJob:
        """A job that is about to be carried out."""
        return RunningJob(self, job, tell)


class RunningJob:
    """One job while it runs: its steering, its open questions, its events."""

    def __init__(self, worker: JobWorker, job: JobRecord, tell: Tell) -> None:
        self._worker = worker
        self._job = job
        self._tell = tell
        self._seq = 0
        self._steering = Steering()
        self._sending: set[asyncio.Task[None]] = set()
        self._steered: set[str] = set()
        self._answers: dict[str, asyncio.Future[Answer]] = {}
        self._sent_lines: dict[str, int] = {}

    def emit(self, kind: JobEventKind, data: Mapping[str, Any]) -> None:
        """Tell the next thing that happened."""
        self._seq += 1
        self._tell(JobEvent(seq=self._seq, kind=kind, data=data))

    def steer(self, id: str, text: str, subagent: str | None, *, to_anyone: bool) -> None:
        """Take an instruction, once however often it arrives; a `steered` event tells what became of it."""
        if id in self._steered:
            return
        self._steered.add(id)
        task = asyncio.ensure_future(self._steer(id, text, subagent, to_anyone=to_anyone))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    def answer(self, question: str, answer: Answer) -> None:
        """Take a person's answer; one to no open question is nobody's."""
        waiting = self._answers.get(question)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    async def run(self, delta: bytes, base: JobBase) -> tuple[JobResult, bytes]:
        """Carry the job out on its base. The result and its pack; a fault of the run is in the result.

        Cancelling it stops the agent and whatever it started; what it leaves on disk is removed in any case.
        """
        job = self._job
        jobs = self._worker._folder / "jobs"
        presence = await to_thread.run_sync(Presence, jobs)
        place = job_folder(jobs, f"{job.id}-{uuid4().hex[:8]}", presence)
        try:
            await to_thread.run_sync(sweep_job_folders, jobs)
            await forget_gone(base.store)
            await base.take_delta(delta)
            return await self._carried(base.store, place)
        except OutpostError as error:
            return JobResult(error=run_error(error)), b""
        finally:
            self._steering.close()
            for task in tuple(self._sending):
                task.cancel()
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(lambda: shutil.rmtree(place, ignore_errors=True))
                presence.close()

    async def _carried(self, store: Repository, place: Path) -> tuple[JobResult, bytes]:
        job, worker = self._job, self._worker
        settings, notes = await to_thread.run_sync(
            lambda: settings_of_job(job, worker._user_file, can_confine=worker._can_confine)
        )
        layout = Layout(place / "state", place / "cache")
        folders = layout.for_repository(store.common_dir)
        continuation = self._continued(folders)
        services = Services(settings, worker._environment)
        try:
            agent = build_agent(
                services,
                job.agent,
                finding_scope=self._finding_scope(),
                limits=job.limits,
                is_trusted=False,
                confinement_works=worker._can_confine,
            )
            sandbox = settings.sandbox
            confined = sandbox.shell == "confined" and worker._can_confine
            provider = WorktreeSandboxProvider(
                layout=layout,
                repository=store,
                snapshot=Snapshot(job.snapshot, job.tree, job.base, job.base),
                keep="never",
                environment=allowed_environment(worker._environment, names=sandbox.environment),
                furnishing=Furnishing(is_confined=confined),
                lazy=True,
                git_timeout_s=sandbox.git_timeout_s,
            )
            observed = ObservationHub([lambda observation: self._observed(observation, folders)], verbose=job.verbose)
            try:
                result = await dispatch(
                    store.top,
                    agent.agent,
                    job.brief,
                    sandbox_provider=provider,
                    observation=observed,
                    steering=self._steering,
                    continuation=continuation,
                    watchdog=agent.watchdog,
                    prices=agent.prices,
                    journal=False,
                    label=job.agent,
                    redact=agent.redact,
                    ask=self._ask,
                    dispatch_id=job.id,
                )
            except OutpostError as error:
                self._send_lines(folders)
                return self._failed(error, (*agent.notes, *notes)), b""
            self._send_lines(folders)
            return await self._finished(store, result, (*agent.notes, *notes))
        finally:
            with anyio.CancelScope(shield=True):
                await services.aclose()

    async def _finished(
        self, store: Repository, result: DispatchResult, notes: tuple[str, ...]
    ) -> tuple[JobResult, bytes]:
        pack, commit, tree = b"", "", ""
        if result.changes is not None and not result.changes.is_empty:
            commit, tree = result.changes.commit, result.changes.tree
            pack = await pack_delta(store, self._job.snapshot, [commit])
        told = JobResult(
            text=result.text,
            usage=result.usage,
            models=result.models,
            notes=tuple(dict.fromkeys((*notes, *result.notes))),
            conversation=result.conversation,
            commit=commit,
            tree=tree,
        )
        return told, pack

    def _failed(self, error: OutpostError, notes: tuple[str, ...]) -> JobResult:
        known = recovery_details(error) or {}
        return JobResult(
            error=run_error(leading_failure(error)),
            models=tuple(known.get("models") or ()),
            notes=tuple(dict.fromkeys((*notes, *(known.get("notes") or ())))),
            conversation=known.get("conversation"),
        )

    # What the agent is given

    def _finding_scope(self) -> FindingScope:
        scope = self._job.scope
        if scope is None:
            return FindingScope(run_id=self._job.id, agent=self._job.agent)
        dismissed = {finding.fingerprint: finding.dismissal for finding in scope.dismissed}

        def dismissal(finding: Finding) -> Dismissal | None:
            return dismissed.get(finding.fingerprint)

        return FindingScope(
            run_id=self._job.id,
            agent=self._job.agent,
            snapshot=self._job.snapshot,
            changed=scope.changed,
            paths=scope.paths,
            span=scope.span,
            outside=scope.outside,
            max_findings=scope.max_findings,
            min_confidence=scope.min_confidence,
            excluded=exclusion(scope.exclude, scope.paths),
            dismissed=dismissal,
        )

    def _continued(self, folders: RepositoryLayout) -> Continuation | None:
        lines = self._job.conversation
        if not lines:
            return None
        id = str(json.loads(lines[0]).get("id"))
        received = ReceivedConversations(conversations_of(folders))
        try:
            received.append(id, lines)
        finally:
            received.close()
        if not self._job.fork:
            self._sent_lines[id] = sum(len(line.encode()) + 1 for line in lines)
        return Continuation(id, self._job.fork)

    # What is told

    def _observed(self, observation: Observation, folders: RepositoryLayout) -> None:
        if observation.event.kind not in _FREQUENT:
            self._send_lines(folders)
        self.emit("observation", json.loads(observation.to_line()))

    def _send_lines(self, folders: RepositoryLayout) -> None:
        """What conversations have got since, so that they can be gone on with wherever this job ends."""
        for path in sorted(folders.conversations.glob("*.jsonl")):
            id = path.name.removesuffix(".jsonl")
            sent = self._sent_lines.get(id, 0)
            if path.stat().st_size <= sent:
                continue
            with path.open("rb") as file:
                file.seek(sent)
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            if whole:
                self._sent_lines[id] = sent + len(whole)
                self.emit("transcript", {"conversation": id, "lines": whole.decode().splitlines()})

    async def _ask(self, question: PermissionQuestion) -> Answer:
        if self._job.detach:
            # Nobody is there who could answer.
            return "deny"
        id = uuid4().hex
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._answers[id] = waiting
        self.emit(
            "question",
            {
                "id": id,
                "tool": question.tool,
                "input": question.input,
                "reason": question.reason,
                "paths": list(question.resources.paths),
                "command": question.resources.command,
                "subagentId": question.subagent_id,
            },
        )
        try:
            with anyio.move_on_after(_QUESTION_S):
                return await waiting
            return "deny"
        finally:
            del self._answers[id]

    async def _steer(self, id: str, text: str, subagent: str | None, *, to_anyone: bool) -> None:
        try:
            delivery = await self._steering.send(text, ANYONE if to_anyone else subagent)
        except OutpostError as error:
            self.emit("steered", {"id": id, "error": error.message})
        else:
            self.emit("steered", {"id": id, "mode": delivery.mode})
