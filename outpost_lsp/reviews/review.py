"""The reviewer's job as one coroutine, for programs that embed the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from outpost_lsp.dispatches.dispatch import dispatch
from outpost_lsp.dispatches.options import AnyAgent
from outpost_lsp.dispatches.result import DispatchResult
from outpost_lsp.dispatches.sandboxing import WorktreeSandboxProvider
from outpost_lsp.domain.event import Event, FindingEvent
from outpost_lsp.domain.finding import Finding
from outpost_lsp.domain.model import ModelProvider, ModelSpec
from outpost_lsp.domain.run import ReviewScope, ScopeKind
from outpost_lsp.errors import configuration
from outpost_lsp.harness.agent import Agent, Harness
from outpost_lsp.reviews.instructions import SHIPPED_AGENTS
from outpost_lsp.reviews.offline import OfflineModelProvider
from outpost_lsp.reviews.scope import ReviewSettings, prepare_review
from outpost_lsp.storage.identifiers import new_run_id
from outpost_lsp.storage.layout import Layout
from outpost_lsp.tools.files import file_tools
from outpost_lsp.tools.findings import FindingScope, finding_tools
from outpost_lsp.tools.git import git_tools
from outpost_lsp.tools.search import search_tools
from outpost_lsp.worktrees.git import find_repository

AgentForScope = Callable[[FindingScope], AnyAgent]


class Review(NamedTuple):
    """What a review found. `result` is absent when there was nothing to review, and no request was made."""

    findings: tuple[Finding, ...]
    result: DispatchResult | None
    notes: tuple[str, ...]


async def review(
    repository: str | Path,
    scope: ReviewScope | ScopeKind = "uncommitted",
    *,
    model_provider: ModelProvider | None = None,
    model: str | ModelSpec = "offline",
    agent: AgentForScope | None = None,
    brief: str | None = None,
    unsaved: Mapping[str, str | bytes] | None = None,
    settings: ReviewSettings | None = None,
    layout: Layout | None = None,
    observe: Callable[[Event], None] | None = None,
    **options: Any,
) -> Review:
    """Review a scope of a repository and give the findings, each anchored by its quote.

    Without `model_provider` the rule-based offline provider reviews. `agent` makes an agent of one's own from the
    `FindingScope`, which `finding_tools(scope)` needs. `options` are those of `dispatch`.
    """
    if agent is not None and model_provider is not None:
        raise configuration("review: agent: goes with no model_provider")
    found = await find_repository(Path(repository))
    asked = scope if isinstance(scope, ReviewScope) else ReviewScope(scope=scope)
    prepared = await prepare_review(found, asked, unsaved=unsaved, brief=brief, settings=settings)
    if prepared.is_empty:
        return Review((), None, prepared.notes)
    run_id = new_run_id()
    label = options.pop("label", "reviewer")
    findings: dict[str, Finding] = {}

    def collect(event: Event) -> None:
        if isinstance(event, FindingEvent) and event.finding is not None:
            findings[event.finding.id] = event.finding
        if observe is not None:
            observe(event)

    within = prepared.finding_scope(run_id, label)
    reviewer = _reviewer(model_provider, model, within) if agent is None else agent(within)
    result = await dispatch(
        found.top,
        reviewer,
        prepared.brief,
        sandbox_provider=WorktreeSandboxProvider(layout=layout, snapshot=prepared.snapshot),
        observe=collect,
        label=label,
        dispatch_id=run_id,
        **options,
    )
    return Review(tuple(findings.values()), result, tuple(dict.fromkeys((*prepared.notes, *result.notes))))


def _reviewer(provider: ModelProvider | None, model: str | ModelSpec, scope: FindingScope) -> Agent:
    harness = Harness(
        OfflineModelProvider() if provider is None else provider,
        instructions=SHIPPED_AGENTS["reviewer"].instructions,
        tools=[file_tools(), search_tools(), git_tools(), finding_tools(scope)],
    )
    return Agent(model, harness)
