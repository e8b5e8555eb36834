"""What the commands take and answer that start runs, stop them, speak to them and tell about them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from outpost_lsp.domain.record import Record
from outpost_lsp.domain.run import RunStatus, ScopeKind
from outpost_lsp.protocol.commands.arguments import Params, Startable, Text
from outpost_lsp.protocol.records import Range, Run


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
    untold: str | None = Field(default=None, description="why there is no step in it, in a sentence for people")
    opened: bool | None = Field(default=None, description="whether the editor shows the report, when that was asked")


class TranscriptResult(Record):
    """The messages of a conversation."""

    messages: list[dict[str, Any]]
