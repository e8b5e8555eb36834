"""Where a run's agent works: in this process, or at a face elsewhere.

The invariant: a run is the same whoever carries it out: its dispatch, journal, findings, changes and end are here, and
only its notes name the worker. `LocalExecutor` is the path of every run unless the settings say otherwise; the door to
faces is imported when the first run goes through it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from anyio import to_thread

from outpost_lsp.config.build import AgentRun, model_of
from outpost_lsp.config.schema import RaySettings, Settings
from outpost_lsp.dispatches.remote_agent import RemoteAgent
from outpost_lsp.domain.job import Executor, JobNeeds, JobRecord, JobScope
from outpost_lsp.domain.run import RunStatus
from outpost_lsp.domain.usage import UsageLimits
from outpost_lsp.domain.wording import ended
from outpost_lsp.errors import OutpostError, configuration

if TYPE_CHECKING:
    from outpost_lsp.remote.http import RemoteExecutor
    from outpost_lsp.service.carrying import Assignment, Carried
    from outpost_lsp.service.handle import RunHandle
    from outpost_lsp.service.workspace import Workspace


class RunExecutor(Protocol):
    """Gives a run the agent that its dispatch is carried out with."""

    def agent(
        self, workspace: Workspace, handle: RunHandle, assignment: Assignment
    ) -> AbstractAsyncContextManager[AgentRun | Carried]: ...


class LocalExecutor:
    """Runs are carried out by this process."""

    @asynccontextmanager
    async def agent(
        self, workspace: Workspace, handle: RunHandle, assignment: Assignment
    ) -> AsyncIterator[AgentRun | Carried]:
        """The agent as it was built."""
        del workspace, handle
        yield assignment.agent


class FaceExecutor:
    """Runs are carried out where a face takes them, by `[runs.ray]`."""

    def __init__(self, settings: RaySettings, environment: Mapping[str, str]) -> None:
        self._settings = settings
        self._environment = environment

    @asynccontextmanager
    async def agent(
        self, workspace: Workspace, handle: RunHandle, assignment: Assignment
    ) -> AsyncIterator[AgentRun | Carried]:
        """An agent that sends the run there; the local one when that cannot be, and the settings allow it."""
        built = assignment.agent
        if assignment.is_replay or not isinstance(built, AgentRun):
            yield built
            return
        if not workspace.has_repository:
            handle.note("A folder that is no git repository is worked on here.")
            yield built
            return
        executor = face_executor(self._settings, self._environment, _status_teller(handle))
        try:
            try:
                await executor.check()
            except OutpostError as error:
                if self._settings.when_away != "local" or not error.details.get("away"):
                    raise
                handle.note(f"Carried out here: {ended(error.message)}")
                yield built
                return
            # It waits for a place there; that it runs is the worker's to say.
            handle.update(status="queued")
            remote = await remote_agent(workspace, handle, assignment, executor)
            yield replace(built, agent=remote)
        finally:
            await executor.aclose()


def face_executor(
    settings: RaySettings, environment: Mapping[str, str], waiting: Callable[[bool], None] = lambda _is_away: None
) -> RemoteExecutor:
    """The door to the face that the settings name; its token is looked up at each request. Whoever asks closes it."""
    from outpost_lsp.remote.http import RemoteExecutor

    def token() -> str:
        name = settings.token_env
        found = environment.get(name, "").strip() if name else ""
        if not found:
            raise configuration(
                f"runs.ray.token_env: the variable {name or '(none)'} holds no token", field="runs.ray.token_env"
            )
        return found

    return RemoteExecutor(settings.url, token, ca_file=_file(settings.ca_file), waiting=waiting)


async def remote_agent(
    workspace: Workspace, handle: RunHandle, assignment: Assignment, executor: Executor
) -> RemoteAgent:
    """What a dispatch is given in the place of the agent that was built, for an executor."""
    return RemoteAgent(
        executor=executor,
        job=await _record(workspace, handle, assignment, workspace.settings.runs.ray),
        model=model_of(workspace.settings, handle.run.agent).name,
        packs=workspace.layout.cache / "packs",
        compared_with=assignment.compared_with,
        usage_limits=_usage_limits(workspace.settings),
    )


async def _record(workspace: Workspace, handle: RunHandle, assignment: Assignment, ray: RaySettings) -> JobRecord:
    settings, continuation = workspace.settings, assignment.continuation
    lines: tuple[str, ...] = ()
    if continuation is not None:
        path = workspace.conversations.path(continuation.id)
        lines = tuple((await to_thread.run_sync(path.read_text, "utf-8")).splitlines())
    agents = _reachable(settings, handle.run.agent)
    return JobRecord(
        id=handle.run.id,
        kind=handle.run.kind,
        agent=handle.run.agent,
        settings=_sent(settings, agents),
        limits=assignment.limits,
        brief=assignment.brief,
        scope=_scope(workspace, assignment),
        conversation=lines,
        fork=continuation is not None and continuation.fork,
        needs=JobNeeds(
            shell=any("shell" in settings.agents[name].tools for name in agents),
            repository=_repository_key(workspace),
        ),
        verbose=settings.runs.verbose,
        lease_s=ray.lease_s,
    )


def _scope(workspace: Workspace, assignment: Assignment) -> JobScope | None:
    scope = assignment.finding_scope
    if scope is None:
        return None
    changed = scope.changed
    return JobScope(
        changed=None
        if changed is None
        else {path: tuple((int(start), int(end)) for start, end in ranges) for path, ranges in changed.items()},
        paths=scope.paths,
        span=scope.span,
        outside=scope.outside,
        max_findings=scope.max_findings,
        min_confidence=scope.min_confidence,
        exclude=tuple(workspace.settings.review.exclude),
        dismissed=tuple(workspace.board.listing(status="dismissed")),
    )


def _reachable(settings: Settings, name: str) -> tuple[str, ...]:
    """An agent and all that it can delegate to or fall back on."""
    found: dict[str, None] = {}
    pending = [name]
    while pending:
        one = pending.pop()
        if one in found or one not in settings.agents:
            continue
        found[one] = None
        agent = settings.agents[one]
        if agent.kind == "external":
            raise configuration(f"agent {one}: a program of this machine cannot be carried out elsewhere", agent=one)
        pending += [*agent.subagents, *(agent.candidates or ())]
    return tuple(found)


def _sent(settings: Settings, agents: tuple[str, ...]) -> dict[str, Any]:
    """What a worker needs to know of these settings: who the agents are. Models are the worker's own, by name."""
    tree = {
        name: settings.agents[name].model_dump(mode="json", exclude_defaults=True, exclude_none=True) for name in agents
    }
    return {"default_model": settings.default_model, "agents": tree}


def _usage_limits(settings: Settings) -> dict[str, UsageLimits]:
    return {
        name: UsageLimits(**agent.limits.usage.model_dump(exclude_none=True))
        for name, agent in settings.agents.items()
        if agent.limits.usage is not None
    }


def _repository_key(workspace: Workspace) -> str:
    """The same for all runs of a checkout, and for no other; it tells nothing of where that is."""
    return hashlib.sha256(os.fsencode(workspace.repository.common_dir)).hexdigest()[:32]


def _status_teller(handle: RunHandle) -> Callable[[bool], None]:
    """What keeps a run's status while the face is away, and when it is back."""
    before: list[RunStatus] = []

    def tell(is_away: bool) -> None:
        if handle.run.is_finished:
            return
        if is_away:
            before[:] = [handle.run.status]
        handle.update(status="waiting" if is_away else before[0])

    return tell


def _file(text: str) -> Path | None:
    return Path(text).expanduser() if text else None
