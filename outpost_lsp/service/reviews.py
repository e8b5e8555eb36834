"""A review as a run: what was asked is prepared before the run exists, then an agent is carried over it.

Preparing first means that the snapshot is of the moment when the command arrived, and that a value which names nothing
is refused instead of becoming a failed run. A change scope without changes ends at once, without a request and without
waiting for a place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anyio import to_thread

from outpost_lsp.config.build import check_agent
from outpost_lsp.dispatches.sandboxing import OpenedSandbox
from outpost_lsp.domain.finding import Finding
from outpost_lsp.domain.run import CHANGE_SCOPES, ReviewScope, Run
from outpost_lsp.errors import configuration
from outpost_lsp.reviews.brief import scope_title
from outpost_lsp.reviews.scope import PreparedReview, ReviewSettings, prepare_review, refuse_without_repository
from outpost_lsp.service.carrying import Assignment, carry, sandbox_provider
from outpost_lsp.service.estimates import Estimate, estimate, files_and_bytes, folder_files_and_bytes
from outpost_lsp.service.handle import RunHandle
from outpost_lsp.worktrees.changes import file_at
from outpost_lsp.worktrees.git import Repository

if TYPE_CHECKING:
    from outpost_lsp.config.schema import Settings
    from outpost_lsp.service.executors import RunExecutor
    from outpost_lsp.service.outpost import Outpost
    from outpost_lsp.service.workspace import Workspace

_COMPARED_FILE_LIMIT = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedReview:
    """A review that is ready to become a run."""

    outpost: Outpost
    workspace: Workspace
    prepared: PreparedReview
    agent: str

    @property
    def title(self) -> str:
        """The run in one line."""
        return self.prepared.title

    async def estimate(self) -> Estimate | None:
        """What it takes at least, for a review of the whole workspace by a model that has a price."""
        if self.prepared.scope.scope != "workspace" or self.outpost.offline or self.prepared.is_empty:
            return None
        snapshot = self.prepared.snapshot.commit
        counted = await files_and_bytes(self.workspace.repository, snapshot, self.prepared.scope.paths)
        return estimate(self.workspace.settings, self.agent, *counted)

    async def perform(self, handle: RunHandle) -> None:
        """The run's job."""
        if self.prepared.is_empty:
            await self.carried(handle)
            return
        async with self.outpost.place(self.workspace, handle):
            await self.carried(handle)

    def assignment(self, handle: RunHandle) -> Assignment:
        """What the agent is asked to do in this run."""
        prepared, workspace = self.prepared, self.workspace
        scope = prepared.finding_scope(handle.run.id, self.agent, dismissed=workspace.board.dismissal_of)
        return Assignment(
            agent=self.outpost.build(workspace, self.agent, finding_scope=scope),
            brief=prepared.brief,
            snapshot=prepared.snapshot,
            keep="changed",
            finding_scope=scope,
            compared_with=prepared.base,
        )

    async def carried(
        self, handle: RunHandle, sandbox: OpenedSandbox | None = None, executor: RunExecutor | None = None
    ) -> None:
        """Carry an agent over what was prepared, in an open sandbox when one is given, and end the run."""
        prepared, workspace = self.prepared, self.workspace
        handle.record(base=prepared.snapshot.head, notes=prepared.notes)
        handle.snapshot = prepared.snapshot.commit
        if prepared.is_empty:
            await self._replace_earlier(handle, {self.agent})
            handle.finish("succeeded", text=prepared.notes[-1] if prepared.notes else "Nothing to review.")
            return
        assignment = self.assignment(handle)
        assignment.sandbox, assignment.executor = sandbox, executor
        result = await carry(self.outpost, workspace, handle, assignment)
        await self._replace_earlier(handle, {self.agent, *handle.agents, *_reporters(handle)})
        handle.finish("succeeded", text=result.text)

    async def _replace_earlier(self, handle: RunHandle, agents: set[str]) -> None:
        """A finished review replaces those agents' earlier findings in its scope, and only those."""
        earlier = [finding for finding in self.workspace.board.reported_by(agents) if finding.run_id != handle.run.id]
        if earlier:
            replaced = [finding.id for finding in earlier if await self._replaces(finding, handle)]
            self.workspace.board.remove(replaced)

    async def _replaces(self, finding: Finding, handle: RunHandle) -> bool:
        prepared, scope = self.prepared, self.prepared.scope
        if scope.scope not in CHANGE_SCOPES:
            return prepared.covers(finding)
        run = self.workspace.runs.load(finding.run_id)
        same_scope = run is not None and run.scope is not None and _same(run.scope, handle.run.scope)
        if prepared.covers(finding):
            return same_scope or _touches_change(finding, prepared)
        return same_scope and run is not None and await self._was_taken_back(finding, run)

    async def _was_taken_back(self, finding: Finding, run: Run) -> bool:
        """Whether the file is out of the scope because its change is gone, rather than because it was committed."""
        repository, snapshot = self.workspace.repository, self.prepared.snapshot
        if not run.base:
            return True
        before = await _text(repository, run.base, finding.path)
        return before == await _text(repository, snapshot.commit, finding.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFolderReview:
    """A review in a folder that is no repository: of a copy, which is made when the run has its place (SNAP-09)."""

    outpost: Outpost
    workspace: Workspace
    scope: ReviewScope
    agent: str
    brief: str | None
    unsaved: Mapping[str, str]

    @property
    def title(self) -> str:
        """The run in one line."""
        return scope_title(self.scope, "")

    async def estimate(self) -> Estimate | None:
        """What it takes at least, for a review of the whole folder by a model that has a price."""
        if self.scope.scope != "workspace" or self.outpost.offline:
            return None
        counted = await folder_files_and_bytes(self.workspace.folder, self.scope.paths)
        return estimate(self.workspace.settings, self.agent, *counted)

    async def perform(self, handle: RunHandle) -> None:
        """The run's job."""
        workspace = self.workspace
        provider = sandbox_provider(self.outpost, workspace, unsaved=self.unsaved, keep="changed")
        async with (
            self.outpost.place(workspace, handle),
            provider.open(workspace.folder, handle.run.id) as sandbox,
        ):
            assert sandbox.repository is not None
            settings = review_settings(workspace.settings)
            prepared = await prepare_review(
                sandbox.repository,
                self.scope,
                brief=self.brief,
                settings=settings,
                dismissed=workspace.board.dismissals.in_force(),
            )
            planned = PlannedReview(outpost=self.outpost, workspace=workspace, prepared=prepared, agent=self.agent)
            await planned.carried(handle, sandbox)


async def plan_review(
    outpost: Outpost,
    workspace: Workspace,
    scope: ReviewScope,
    agent: str,
    brief: str | None,
    unsaved: Mapping[str, str],
) -> PlannedReview | PlannedFolderReview:
    """Check and prepare a review. Raises `configuration` for what names nothing, `workspace` where none can work."""
    await workspace.ready()
    check_agent(workspace.settings, agent)
    workspace.check_workable()
    if not workspace.has_repository:
        refuse_without_repository(scope, workspace.folder)
        for path in scope.paths:
            if not await to_thread.run_sync((workspace.folder / path).exists):
                raise configuration(f"paths: there is no {path} in {workspace.folder}", field="paths", path=path)
        return PlannedFolderReview(
            outpost=outpost, workspace=workspace, scope=scope, agent=agent, brief=brief, unsaved=unsaved
        )
    prepared = await prepare_review(
        workspace.repository,
        scope,
        unsaved=unsaved if workspace.settings.sandbox.unsaved else {},
        brief=brief,
        settings=review_settings(workspace.settings),
        dismissed=workspace.board.dismissals.in_force(),
    )
    return PlannedReview(outpost=outpost, workspace=workspace, prepared=prepared, agent=agent)


def review_settings(settings: Settings) -> ReviewSettings:
    """What a review takes from the configuration."""
    review, sandbox = settings.review, settings.sandbox
    return ReviewSettings(
        outside_diff=review.outside_diff,
        max_findings=review.max_findings,
        min_confidence=review.min_confidence,
        exclude=tuple(review.exclude),
        instructions=tuple(review.instructions),
        uncommitted=sandbox.uncommitted,
        untracked=sandbox.untracked,
        max_untracked_mib=sandbox.max_untracked_mib,
        git_timeout_s=sandbox.git_timeout_s,
    )


def _reporters(handle: RunHandle) -> set[str]:
    return {finding.agent for finding in handle.findings.values()}


def _same(earlier: ReviewScope, scope: ReviewScope | None) -> bool:
    return scope is not None and earlier == scope


def _touches_change(finding: Finding, prepared: PreparedReview) -> bool:
    ranges = (prepared.changed or {}).get(finding.path, ())
    span = finding.span
    return any(start <= span.end_line and span.start_line < max(end, start + 1) for start, end in ranges)


async def _text(repository: Repository, commit: str, path: str) -> bytes | None:
    return await file_at(repository, commit, path, _COMPARED_FILE_LIMIT)
