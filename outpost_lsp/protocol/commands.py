"""One pair of models per command of the editor protocol: what it takes and what it answers (section 3 of the protocol).

Arguments are checked strictly, here and nowhere deeper: a field that is unknown, missing or of another type is refused
with a sentence that names it. `COMMANDS` maps each name to its pair; the schemas and the documentation are made of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.alias_generators import to_camel

from outpost_lsp.domain.finding import FindingStatus
from outpost_lsp.domain.record import Record
from outpost_lsp.domain.run import RunStatus, ScopeKind
from outpost_lsp.protocol.records import Finding, Range, Run


class ArgumentsError(ValueError):
    """An argument that is refused; the message names the field."""


class Params(BaseModel):
    """What a command takes: camelCase, nothing unknown, nothing converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, alias_generator=to_camel)


Text = Annotated[str, Field(min_length=1, pattern=r"\S")]


class NoParams(Params):
    """Nothing."""


class Startable(Params):
    """What every command that starts a run takes."""

    wait: bool = Field(default=False, description="answer when the run has finished, not when it is queued")


class ReviewParams(Startable):
    """What to review, with which agent, and an extra instruction."""

    scope: ScopeKind = Field(default="uncommitted", description="what is looked at")
    uri: str | None = Field(
        default=None, description="the document of `file` and `selection`; else it picks the folder"
    )
    range: Range | None = Field(default=None, description="the part of the document that `selection` means")
    base: Text | None = Field(default=None, description="the revision that `branch` is compared with")
    revision: Text | None = Field(default=None, description="the commit of the scope `commit`")
    agent: Text | None = Field(default=None, description="a configured agent; by default `[review] agent`")
    brief: Text | None = Field(default=None, description="an extra instruction")

    @model_validator(mode="after")
    def _fields_of_the_scope(self) -> ReviewParams:
        needs = {"file": ("uri",), "selection": ("uri", "range"), "commit": ("revision",)}
        for name in needs.get(self.scope, ()):
            if getattr(self, name) is None:
                raise ValueError(f"{name}: the scope {self.scope!r} needs it")
        for name, scopes in (("range", ("selection",)), ("base", ("branch",)), ("revision", ("commit",))):
            if getattr(self, name) is not None and self.scope not in scopes:
                raise ValueError(f"{name}: the scope {self.scope!r} has no use for it")
        return self


class CoordinateParams(Startable):
    """A brief for the agent that delegates."""

    brief: Text
    uri: str | None = Field(default=None, description="a document or folder, to pick the workspace folder")
    agent: Text = Field(default="coordinator", description="a configured agent")


class DispatchParams(Startable):
    """A brief for any configured agent."""

    agent: Text = Field(description="a configured agent")
    brief: Text
    uri: str | None = Field(default=None, description="a document or folder, to pick the workspace folder")


class FixParams(Startable):
    """A finding to be fixed by an agent."""

    finding_id: Text
    agent: Text = Field(default="fixer", description="a configured agent that can edit")


class UsageCeilings(Params):
    """Ceilings in tokens."""

    input: Annotated[int, Field(ge=0)] | None = None
    cached: Annotated[int, Field(ge=0)] | None = None
    cache_created: Annotated[int, Field(ge=0)] | None = None
    output: Annotated[int, Field(ge=0)] | None = None


class RaisedLimits(Params):
    """Higher limits for a run that met its own."""

    max_steps: Annotated[int, Field(gt=0)] | None = None
    max_tool_calls: Annotated[int, Field(gt=0)] | None = None
    max_delegation_depth: Annotated[int, Field(ge=0)] | None = None
    usage: UsageCeilings | None = None


class ContinueParams(Startable):
    """A conversation to go on with."""

    conversation: Text
    brief: Text
    agent: Text | None = Field(default=None, description="by default the agent that held the conversation")
    limits: RaisedLimits | None = Field(default=None, description="higher ones, for a run that met its own")
    fork: bool = Field(default=False, description="go on in a copy; the conversation itself stays as it is")


class RunParams(Params):
    """A run."""

    run_id: Text


class ViewParams(RunParams):
    """A run to look at."""

    open: bool = Field(
        default=False, description="also show it in the editor (`window/showDocument`): the report, or the patch"
    )


class ReplayParams(Startable):
    """A run to go through again from its journal."""

    run_id: Text


class SteerParams(Params):
    """A person's text for a running agent."""

    run_id: Text
    text: Text
    subagent: Text | None = Field(
        default=None, description="a child's run id; `null`: the main loop only; absent: whoever works"
    )


class RunsParams(Params):
    """Which runs to list."""

    limit: Annotated[int, Field(gt=0)] | None = None
    status: RunStatus | None = None


class TranscriptParams(Params):
    """A conversation to read."""

    conversation: Text


class ApplyParams(Params):
    """What of a run's changes to apply; all of it by default."""

    run_id: Text
    paths: list[Text] | None = Field(default=None, description="as in `outpost.diff`; names, never patterns")
    hunks: list[Text] | None = Field(default=None, description="ids from `outpost.diff`")


class TrustParams(Params):
    """Whether a folder is trusted; every folder when `uri` is absent."""

    uri: str | None = None
    trusted: bool


class WorktreesParams(Params):
    """The worktrees that exist."""

    prune: bool = Field(default=False, description="remove those that nobody uses; first saves what no ref reaches")


class FindingsParams(Params):
    """Which findings to list."""

    uri: str | None = None
    status: FindingStatus | None = None


class DismissParams(Params):
    """A finding not to show any more."""

    finding_id: Text
    reason: Text | None = None
    until: str | None = Field(default=None, description="RFC 3339: the finding may return after it")

    @field_validator("until")
    @classmethod
    def _is_a_time(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                datetime.fromisoformat(value)
            except ValueError:
                raise ValueError("an RFC 3339 time is expected") from None
        return value


class FindingParams(Params):
    """A finding."""

    finding_id: Text


class ClearParams(Params):
    """Whose findings to forget; those of every document when `uri` is absent."""

    uri: str | None = None


class RunResult(Record):
    """The run that was started or asked about."""

    run: Run


class CancelResult(Record):
    """Whether there was anything to cancel."""

    cancelled: bool


class SteerResult(Record):
    """How the text reached the agent."""

    delivery: Literal["injected", "resumed"]


class RunsResult(Record):
    """Runs, newest first."""

    runs: list[Run]


class ShowResult(Record):
    """The timeline of a run, from its journal."""

    run: Run
    steps: list[dict[str, Any]]
    subagents: list[dict[str, Any]]
    routes: list[dict[str, Any]]
    opened: bool | None = Field(default=None, description="whether the editor shows the report, when that was asked")


class TranscriptResult(Record):
    """The messages of a conversation."""

    messages: list[dict[str, Any]]


class Hunk(Record):
    """A part of a file's changes that can be applied alone."""

    id: str
    header: str


class ChangedFile(Record):
    """A file that the agent changed. `before` and `after` are absent for binary files."""

    path: str
    uri: str
    status: Literal["added", "modified", "deleted", "renamed"]
    old_uri: str | None = None
    before: str | None = None
    after: str | None = None
    hunks: list[Hunk]


class DiffResult(Record):
    """What a run changed."""

    files: list[ChangedFile]
    patch: str
    opened: bool | None = Field(default=None, description="whether the editor shows the patch, when that was asked")


class Conflict(Record):
    """A file that could not be merged."""

    path: str
    reason: str


class ApplyResult(Record):
    """What became of the changes. `needsOwnAccept`: files that make programs act; name them to apply them."""

    applied: bool
    files: list[str]
    conflicts: list[Conflict]
    needs_own_accept: list[str]


class DiscardResult(Record):
    """Whether there was anything to discard."""

    discarded: bool


class TrustResult(Record):
    """Whether the folder is trusted now."""

    trusted: bool


class WorktreeEntry(Record):
    """A worktree of a run."""

    path: str
    run_id: str
    size: int
    in_use: bool
    changed: bool


class WorktreesResult(Record):
    """The worktrees that are there."""

    worktrees: list[WorktreeEntry]


class FindingsResult(Record):
    """Findings at their current places."""

    findings: list[Finding]


class FindingResult(Record):
    """The finding as it is now."""

    finding: Finding


class ClearResult(Record):
    """How many findings were forgotten."""

    cleared: int


class AgentEntry(Record):
    """A configured agent."""

    name: str
    description: str
    model: str
    tools: list[str]
    subagents: list[str]
    limits: dict[str, Any]
    routing: str | None = None


class AgentsResult(Record):
    """The configured agents."""

    agents: list[AgentEntry]


class Check(Record):
    """One thing that was looked at."""

    name: str
    status: Literal["ok", "warn", "fail"]
    detail: str


class DoctorResult(Record):
    """Whether everything that the product needs is there."""

    checks: list[Check]


@dataclass(frozen=True, slots=True)
class CommandShape:
    """A command's argument, its result, and what it does in one line."""

    params: type[Params]
    result: type[Record]
    summary: str


COMMANDS: Final[dict[str, CommandShape]] = {
    "outpost.review": CommandShape(
        ReviewParams,
        RunResult,
        "review a scope and publish what is found; before the scope `workspace` with a model that has a price, an estimate "
        "is shown and asked about (`window/showMessageRequest`), and without a yes nothing starts (`aborted`)",
    ),
    "outpost.coordinate": CommandShape(CoordinateParams, RunResult, "start the agent that delegates on a brief"),
    "outpost.dispatch": CommandShape(DispatchParams, RunResult, "start any configured agent on a brief"),
    "outpost.fix": CommandShape(FixParams, RunResult, "let an agent fix a finding"),
    "outpost.continue": CommandShape(ContinueParams, RunResult, "go on with a conversation"),
    "outpost.cancel": CommandShape(RunParams, CancelResult, "stop a run, queued or live"),
    "outpost.steer": CommandShape(SteerParams, SteerResult, "say something to a running agent"),
    "outpost.runs": CommandShape(RunsParams, RunsResult, "list the runs, newest first"),
    "outpost.show": CommandShape(ViewParams, ShowResult, "the timeline of a run, from its journal"),
    "outpost.transcript": CommandShape(TranscriptParams, TranscriptResult, "the messages of a conversation"),
    "outpost.diff": CommandShape(ViewParams, DiffResult, "what a run changed"),
    "outpost.apply": CommandShape(ApplyParams, ApplyResult, "bring a run's changes into the user's files"),
    "outpost.discard": CommandShape(RunParams, DiscardResult, "give up a run's changes"),
    "outpost.reopen": CommandShape(RunParams, RunResult, "make applied or discarded changes pending again"),
    "outpost.trust": CommandShape(TrustParams, TrustResult, "tell that the client's trust in a folder changed"),
    "outpost.worktrees": CommandShape(WorktreesParams, WorktreesResult, "list the worktrees, or prune them"),
    "outpost.findings": CommandShape(FindingsParams, FindingsResult, "list the findings at their current places"),
    "outpost.dismiss": CommandShape(DismissParams, FindingResult, "do not show a finding any more"),
    "outpost.restore": CommandShape(FindingParams, FindingResult, "show a dismissed finding again"),
    "outpost.clear": CommandShape(ClearParams, ClearResult, "forget findings"),
    "outpost.replay": CommandShape(ReplayParams, RunResult, "go through a run again, from its journal alone"),
    "outpost.agents": CommandShape(NoParams, AgentsResult, "list the configured agents"),
    "outpost.doctor": CommandShape(NoParams, DoctorResult, "check what the product needs"),
}


def parse(name: str, arguments: Any) -> Params:
    """The checked argument of the command `name`; `ArgumentsError` names what is wrong.

    `arguments` is the request's list: absent, empty or `[null]` mean an empty object, and there is one at most.
    """
    shape = COMMANDS[name]
    if arguments is not None and not isinstance(arguments, list | tuple):
        raise ArgumentsError("arguments: a list with one object is expected")
    given = list(arguments or [])
    if len(given) > 1:
        raise ArgumentsError(f"arguments[1]: {name} takes one object, and {len(given)} values came")
    value = given[0] if given and given[0] is not None else {}
    if not isinstance(value, dict):
        raise ArgumentsError(f"arguments[0]: an object is expected, and {_json_type(value)} came")
    try:
        return shape.params.model_validate(value)
    except ValidationError as error:
        raise ArgumentsError(_describe(error)) from None


def _describe(error: ValidationError) -> str:
    faults = []
    for fault in error.errors(include_url=False, include_context=False, include_input=False):
        field = ".".join(str(part) for part in fault["loc"])
        text = fault["msg"].removeprefix("Value error, ")
        match fault["type"]:
            case "extra_forbidden":
                text = "there is no such field"
            case "missing":
                text = "is missing"
            case "string_pattern_mismatch" | "string_too_short":
                text = "is blank"
        faults.append(f"{field}: {text}" if field else text)
    return "; ".join(faults)


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    return "a string" if isinstance(value, str) else "a list"
