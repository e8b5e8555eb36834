"""The records of the editor protocol: runs, findings and usage as clients see them (section 2 of the protocol).

Made from the domain's records by adding what only an editor knows: URIs, and positions in the negotiated encoding. A
field that is absent is left out. Every face that shows JSON uses these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from outpost_lsp.domain import run as domain
from outpost_lsp.domain import usage as counted
from outpost_lsp.domain.finding import Finding as DomainFinding
from outpost_lsp.domain.finding import FindingStatus, Severity
from outpost_lsp.domain.record import Record
from outpost_lsp.domain.run import Disposition, RunKind, RunStatus, ScopeKind
from outpost_lsp.protocol.names import Encoding
from outpost_lsp.protocol.positions import range_json

Spell = Callable[[Path], str]
"""Writes the URI of an absolute path as the client would."""

Lines = Callable[[str], Sequence[str]]
"""The lines, with their ends, of the file with this repository-relative path; empty when it cannot be read."""


class Position(Record):
    """A place in a document; `character` counts in the negotiated encoding."""

    line: Annotated[int, Field(strict=True, ge=0)]
    character: Annotated[int, Field(strict=True, ge=0)]


class Range(Record):
    """A half-open range of a document."""

    start: Position
    end: Position


class TextEdit(Record):
    """Text to put in place of a range."""

    range: Range
    new_text: str


class Usage(Record):
    """Token counts. `complete` is false when some request did not report its usage."""

    input: int
    cached: int
    cache_created: int | None = None
    output: int
    complete: bool = Field(description="false when some request did not report its usage")


class Scope(Record):
    """What a review looks at, as it was asked."""

    scope: ScopeKind
    uri: str | None = None
    range: Range | None = None
    base: str | None = None
    revision: str | None = None
    paths: list[str] | None = None


class RunError(Record):
    """Why a run failed; `code` is one of the fault codes."""

    code: str
    message: str
    details: dict[str, Any] | None = None


class Cost(Record):
    """An estimate in money; incomplete when something had no price or reported no usage."""

    amount: float
    currency: str
    complete: bool


class Changes(Record):
    """What the agent changed in its worktree."""

    files: int
    insertions: int
    deletions: int


class Run(Record):
    """A dispatch that people see: one agent, one brief, one snapshot."""

    id: str = Field(description="unique, and sorts by time")
    kind: RunKind = Field(description="what started it")
    agent: str = Field(description="the configured agent")
    title: str = Field(description="one line for people")
    status: RunStatus = Field(
        description="`waiting`: a service asked for patience; `interrupted`: the process died, found at the next start"
    )
    workspace: str = Field(description="the URI of the workspace folder")
    started_at: str = Field(description="RFC 3339")
    finished_at: str | None = Field(default=None, description="RFC 3339")
    base: str = Field(description="the commit the snapshot stands on; empty before it is known and without commits")
    scope: Scope | None = Field(default=None, description="the scope of a review, as it was asked")
    conversation: str | None = Field(default=None, description="the id to continue from")
    text: str | None = Field(default=None, description="the agent's final answer")
    error: RunError | None = Field(default=None, description="why it failed")
    usage: Usage = Field(
        description="the whole dispatch: every step, subagent, routing decision and summary, each counted once"
    )
    cost: Cost | None = Field(default=None, description="only when prices are configured and something of it is known")
    models: list[str] = Field(description="the models that really answered")
    findings: int = Field(description="how many findings it published")
    rejected: int = Field(description="how many reported findings were refused: their quote or path does not exist")
    notes: list[str] = Field(
        description="what a person should know: files left out, instruction files used, a fallback taken"
    )
    changes: Changes | None = Field(default=None, description="what the agent changed in its worktree")
    disposition: Disposition = Field(description="what became of the changes")


class Suggestion(Record):
    """A ready fix of the finding's own file."""

    title: str
    edits: list[TextEdit]


class Dismissal(Record):
    """Somebody said not to show a finding: why, since when, until when (RFC 3339)."""

    reason: str | None = None
    at: str
    until: str | None = None


class Finding(Record):
    """A reviewer's remark, at its current place."""

    id: str = Field(description="unique in the workspace")
    run_id: str = Field(description="the run that reported it")
    agent: str
    also_by: list[str] | None = Field(default=None, description="other agents that reported the same")
    uri: str = Field(description="spelled as the client spelled it")
    range: Range = Field(description="its current place: it follows edits")
    severity: Severity
    code: str = Field(description="a short slug of the kind of fault")
    title: str = Field(description="one line")
    detail: str = Field(description="Markdown, written by a model")
    quote: str = Field(description="the source text that it is anchored to")
    suggestion: Suggestion | None = Field(default=None, description="a ready fix")
    in_diff: bool | None = Field(
        default=None, description="in the change scopes: whether it lies in a changed hunk, or is new against the base"
    )
    dismissal: Dismissal | None = Field(default=None, description="why, since when and until when it is not shown")
    confidence: float | None = Field(default=None, description="from 0 to 1")
    status: FindingStatus = Field(description="`stale`: the quoted text was edited")
    fingerprint: str = Field(description="stable across runs and line moves")


def usage_json(usage: counted.Usage) -> dict[str, Any]:
    """A usage on the wire: `complete` is always there, the table by models never."""
    body: dict[str, Any] = {"input": usage.input, "cached": usage.cached}
    if usage.cache_created is not None:
        body["cacheCreated"] = usage.cache_created
    return body | {"output": usage.output, "complete": usage.is_complete}


def cost_json(cost: domain.Cost | None) -> dict[str, Any] | None:
    """A cost on the wire; `None` for one of which nothing is known, since nobody may take it for 0."""
    return cost.to_json() if cost is not None and cost.is_known else None


def run_json(run: domain.Run, spell: Spell, scope: dict[str, Any] | None = None) -> dict[str, Any]:
    """A run on the wire. `scope` is the scope in the client's own words, where they are known."""
    body = run.to_json()
    body["workspace"] = spell(Path(run.workspace))
    body["usage"] = usage_json(run.usage)
    if cost_json(run.cost) is None:
        body.pop("cost", None)
    if scope is not None:
        body["scope"] = scope
    elif run.scope is not None:
        body["scope"] = _scope_json(run.scope)
    return body


def finding_json(finding: DomainFinding, uri: str, lines: Sequence[str], encoding: Encoding) -> dict[str, Any]:
    """A finding on the wire; `lines` are the file's, as the client sees it."""
    body: dict[str, Any] = {
        "id": finding.id,
        "runId": finding.run_id,
        "agent": finding.agent,
        "uri": uri,
        "range": range_json(lines, finding.span, encoding),
        "severity": finding.severity,
        "code": finding.code,
        "title": finding.title,
        "detail": finding.detail,
        "quote": finding.quote,
        "status": finding.status,
        "fingerprint": finding.fingerprint,
    }
    if finding.suggestion is not None:
        body["suggestion"] = {
            "title": finding.suggestion.title,
            "edits": [
                {"range": range_json(lines, edit.span, encoding), "newText": edit.text}
                for edit in finding.suggestion.edits
            ],
        }
    if finding.also_by:
        body["alsoBy"] = list(finding.also_by)
    if finding.in_diff is not None:
        body["inDiff"] = finding.in_diff
    if finding.dismissal is not None:
        body["dismissal"] = finding.dismissal.to_json()
    if finding.confidence is not None:
        body["confidence"] = finding.confidence
    return body


def _scope_json(scope: domain.ReviewScope) -> dict[str, Any]:
    body: dict[str, Any] = {"scope": scope.scope}
    if scope.base is not None:
        body["base"] = scope.base
    if scope.revision is not None:
        body["revision"] = scope.revision
    if scope.paths:
        body["paths"] = list(scope.paths)
    return body
