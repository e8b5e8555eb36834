"""The service behind every face: workspaces, live runs, the queue, and the one door through which news leaves.

`async with Outpost(...)` brackets a server's life or a command's; leaving it cancels what still runs.
Faces hold an `Outpost` and know nothing of what is under it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from outpost_lsp.config.build import AgentRun, build_agent
from outpost_lsp.config.keys import AskClient
from outpost_lsp.config.prices import price_table
from outpost_lsp.config.providers import Services
from outpost_lsp.config.schema import Settings
from outpost_lsp.domain.run import ReviewScope, Run, RunKind, RunStatus
from outpost_lsp.errors import OutpostError, configuration
from outpost_lsp.harness.steering import ANYONE, Delivery, Target
from outpost_lsp.sandbox.confinement import probe_confinement
from outpost_lsp.service.ceilings import day_ceiling
from outpost_lsp.service.cleaning import unknown_run
from outpost_lsp.service.dispatches import plan_continuation, plan_dispatch, plan_fix, plan_replay
from outpost_lsp.service.estimates import Estimate
from outpost_lsp.service.executors import FaceExecutor, LocalExecutor, RunExecutor
from outpost_lsp.service.handle import RunHandle
from outpost_lsp.service.live import Job, LiveRuns
from outpost_lsp.service.reviews import PlannedFolderReview, PlannedReview, plan_review
from outpost_lsp.service.signals import Listener, Signal
from outpost_lsp.service.slots import Slots
from outpost_lsp.service.timeline import timeline, without_journal
from outpost_lsp.service.timeline_shape import Timeline
from outpost_lsp.service.workspace import Workspace
from outpost_lsp.storage.journal import read_journal
from outpost_lsp.storage.layout import Layout
from outpost_lsp.tools.findings import FindingScope

logger = logging.getLogger(__name__)

_DRAIN_S: Final = 10.0
"""Clean-up of a run is bounded by this; what is not done is cut off."""


class Outpost:
    """Runs, queued and live, over any number of workspaces.

    `environment` is what keys and settings are looked up in; nothing below reads the process's own.
    `offline` makes every agent answer with the offline provider, whatever is configured. `ask_client` asks an editor's
    secret storage for the key of a provider.
    """

    def __init__(
        self,
        layout: Layout,
        environment: Mapping[str, str],
        *,
        offline: bool = False,
        ask_client: AskClient | None = None,
    ) -> None:
        self.layout = layout
        self.environment = environment
        self.offline = offline
        self._ask_client = ask_client
        self._can_confine: bool | None = None
        self.slots = Slots()
        self._slots_elsewhere = Slots()
        self._workspaces: dict[Path, Workspace] = {}
        self.live = LiveRuns(self.tell)
        self._listeners: list[Listener] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.drain(_DRAIN_S)
        for workspace in list(self._workspaces.values()):
            await workspace.aclose()
        self._workspaces.clear()

    # Workspaces

    @property
    def workspaces(self) -> tuple[Workspace, ...]:
        """Every folder that was added, in that order."""
        return tuple(self._workspaces.values())

    def add_workspace(
        self, folder: Path, *, client_settings: Mapping[str, Any] | None = None, trusted: bool | None = None
    ) -> Workspace:
        """The workspace of `folder`, made now or earlier. `await workspace.ready()` before asking what it holds."""
        folder = _absolute(folder)
        workspace = self._workspaces.get(folder)
        if workspace is None:
            workspace = Workspace(self, folder, client_settings=client_settings, trusted=trusted)
            self._workspaces[folder] = workspace
        return workspace

    async def remove_workspace(self, folder: Path) -> None:
        """Forget a folder; its live runs are cancelled, what they made is kept."""
        workspace = self._workspaces.pop(_absolute(folder), None)
        if workspace is None:
            return
        await self.live.drain(_DRAIN_S, of=workspace)
        await workspace.aclose()

    # News

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Tell `listener` everything from now on; the result ends it."""
        self._listeners.append(listener)

        def unsubscribe() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unsubscribe

    def tell(self, signal: Signal) -> None:
        """Hand one piece of news to every listener; one that fails disturbs neither the run nor the others."""
        for listener in tuple(self._listeners):
            try:
                listener(signal)
            except Exception:
                logger.exception("a listener failed on %s", type(signal).__name__)

    # Agents

    @property
    def can_ask_for_keys(self) -> bool:
        """Whether an editor is asked for a key that is not in the environment."""
        return self._ask_client is not None

    def make_services(self, settings: Settings) -> Services:
        """The services of one version of a workspace's settings."""
        return Services(settings, self.environment, offline=self.offline, ask_client=self._ask_client)

    def build(
        self,
        workspace: Workspace,
        agent: str,
        *,
        finding_scope: FindingScope | None = None,
        limits: Mapping[str, Any] | None = None,
    ) -> AgentRun:
        """A configured agent, ready to be dispatched. `limits` replaces single limits of its own."""
        return build_agent(
            workspace.services,
            agent,
            settings=workspace.settings,
            finding_scope=finding_scope,
            limits=limits,
            folder=workspace.folder,
            is_trusted=workspace.is_trusted,
            confinement_works=workspace.can_confine,
        )

    async def can_confine(self) -> bool:
        """Whether commands can run confined on this machine; looked up once."""
        if self._can_confine is None:
            self._can_confine = (await probe_confinement(path=self.environment.get("PATH", ""))).is_available
        return self._can_confine

    # Runs

    def executor(self, workspace: Workspace) -> RunExecutor:
        """Who carries this workspace's runs out."""
        if self._goes_elsewhere(workspace):
            return FaceExecutor(workspace.settings.runs.ray, self.environment)
        return LocalExecutor()

    def _goes_elsewhere(self, workspace: Workspace) -> bool:
        return workspace.settings.runs.executor == "ray" and not self.offline

    def _most_at_once(self, workspace: Workspace) -> int:
        runs = workspace.settings.runs
        return runs.ray.concurrency if self._goes_elsewhere(workspace) else runs.concurrency

    async def review(
        self,
        workspace: Workspace,
        scope: ReviewScope,
        *,
        agent: str | None = None,
        brief: str | None = None,
        unsaved: Mapping[str, str] | None = None,
        confirm: Callable[[Estimate], Awaitable[bool]] | None = None,
    ) -> RunHandle:
        """Start a review. What names nothing (an agent, a revision, a path) is a `configuration` fault and starts nothing.

        `unsaved` holds the texts of open, changed documents by their path in the repository. `confirm` is asked before a
        review of the whole workspace that costs money; without its yes nothing starts, which is an `aborted` fault.
        """
        planned = await self.plan_review(workspace, scope, agent=agent, brief=brief, unsaved=unsaved)
        cost = None if confirm is None else await planned.estimate()
        if confirm is not None and cost is not None and not await confirm(cost):
            raise OutpostError("aborted", "the review was not started: nobody agreed to what it costs")
        return self.start_review(planned, scope)

    async def plan_review(
        self,
        workspace: Workspace,
        scope: ReviewScope,
        *,
        agent: str | None = None,
        brief: str | None = None,
        unsaved: Mapping[str, str] | None = None,
    ) -> PlannedReview | PlannedFolderReview:
        """Check and prepare a review without starting it; as `review` does first."""
        name = agent or workspace.settings.review.agent
        return await plan_review(self, workspace, scope, name, brief, unsaved or {})

    def start_review(self, planned: PlannedReview | PlannedFolderReview, scope: ReviewScope) -> RunHandle:
        """Start what was planned for a scope."""
        return self.start(planned.workspace, "review", planned.agent, planned.title, planned.perform, scope=scope)

    async def run_agent(
        self, workspace: Workspace, agent: str, brief: str, *, unsaved: Mapping[str, str] | None = None
    ) -> RunHandle:
        """Start a configured agent on a brief."""
        planned = await plan_dispatch(self, workspace, agent, brief, unsaved=unsaved or {})
        return self.start(workspace, "dispatch", agent, planned.title, planned.perform)

    async def coordinate(
        self,
        workspace: Workspace,
        brief: str,
        agent: str = "coordinator",
        *,
        unsaved: Mapping[str, str] | None = None,
    ) -> RunHandle:
        """Start the agent that delegates."""
        return await self.run_agent(workspace, agent, brief, unsaved=unsaved)

    async def continue_conversation(
        self,
        workspace: Workspace,
        conversation: str,
        brief: str,
        *,
        agent: str | None = None,
        limits: Mapping[str, Any] | None = None,
        fork: bool = False,
        unsaved: Mapping[str, str] | None = None,
    ) -> RunHandle:
        """Go on with a conversation, or with a copy of it. `limits` replaces single limits of its agent."""
        planned = await plan_continuation(
            self, workspace, conversation, brief, agent=agent, limits=limits, fork=fork, unsaved=unsaved or {}
        )
        return self.start(workspace, "continue", planned.agent, planned.title, planned.perform)

    async def fix(
        self,
        workspace: Workspace,
        finding_id: str,
        *,
        agent: str = "fixer",
        unsaved: Mapping[str, str] | None = None,
    ) -> RunHandle:
        """Let an agent settle a finding; what it changes waits to be applied."""
        planned = await plan_fix(self, workspace, finding_id, agent, unsaved=unsaved or {})
        return self.start(workspace, "fix", agent, planned.title, planned.perform)

    @asynccontextmanager
    async def place(self, workspace: Workspace, handle: RunHandle) -> AsyncIterator[None]:
        """A place among the runs at work; the run is `preparing` from then on."""
        slots = self._slots_elsewhere if self._goes_elsewhere(workspace) else self.slots
        async with slots.place(lambda: self._most_at_once(workspace)):
            day = day_ceiling(self, workspace, handle)
            if day is not None and (fault := day.check()) is not None:
                raise fault
            handle.update(status="preparing")
            yield

    async def replay(self, workspace: Workspace, run_id: str) -> RunHandle:
        """Go through a recorded run again; neither a model nor a router is asked."""
        planned = await plan_replay(self, workspace, run_id)
        return self.start(
            workspace, "replay", planned.run.agent, planned.title, planned.perform, scope=planned.run.scope
        )

    def start(self, workspace: Workspace, kind: RunKind, agent: str, title: str, job: Job, **known: Any) -> RunHandle:
        """Record a run and begin its job in a task of its own."""
        return self.live.start(workspace, kind, agent, title, job, **known)

    def handle(self, run_id: str) -> RunHandle | None:
        """The handle of a run that was started here."""
        return self.live.handle(run_id)

    def cancel(self, run_id: str) -> bool:
        """Stop a run, queued or live; `False` when it had ended, `configuration` when there is no such run."""
        handle = self.live.handle(run_id)
        if handle is None:
            self.find_run(run_id)
            return False
        return handle.cancel()

    def runs(self, limit: int | None = None, status: RunStatus | None = None) -> list[Run]:
        """The runs of every workspace, newest first."""
        found: dict[str, Run] = {}
        for workspace in self._ready():
            for run in workspace.runs.list(limit=limit, status=status):
                found.setdefault(run.id, run)
        newest_first = sorted(found.values(), key=lambda run: run.id, reverse=True)
        return newest_first if limit is None else newest_first[:limit]

    def find_run(self, run_id: str) -> tuple[Workspace, Run]:
        """A recorded run and its workspace; `configuration` when there is none."""
        for workspace in self._ready():
            run = workspace.runs.load(run_id)
            if run is not None:
                return workspace, run
        raise unknown_run(run_id, self._ready())

    def timeline(self, run_id: str) -> Timeline:
        """What happened in a run, from its journal; without one, why there is nothing to tell."""
        workspace, run = self.find_run(run_id)
        path = workspace.journal_path(run.id)
        prices = price_table(workspace.settings)
        return timeline(read_journal(path), prices) if path.exists() else Timeline(untold=without_journal(run, path))

    async def steer(self, run_id: str, text: str, subagent: Target = ANYONE) -> Delivery:
        """Give a running agent an instruction; returns once it was received.

        `subagent`: the run id of a child, `None` for the main loop only, omitted for whichever is at work.
        """
        handle = self.live.handle(run_id)
        if handle is None:
            self.find_run(run_id)
        if handle is None or handle.run.is_finished or handle.steering is None:
            raise OutpostError("steering", f"run {run_id} has no agent at work", {"text": text, "runId": run_id})
        if isinstance(subagent, str) and subagent not in handle.children:
            raise configuration(f"subagent: run {run_id} has no child {subagent!r}", field="subagent")
        return await handle.steering.send(text, subagent)

    def _ready(self) -> list[Workspace]:
        return [workspace for workspace in self._workspaces.values() if workspace.is_ready]

    async def drain(self, deadline_s: float) -> bool:
        """Cancel every run and wait for their ends; `False` when some did not end in time and were cut off."""
        return await self.live.drain(deadline_s)


def _absolute(folder: Path) -> Path:
    # Names only: links are not resolved, so that paths are spelled as whoever named the folder spells them.
    return Path(os.path.abspath(folder))  # noqa: PTH100 - `resolve` would follow links
