"""What the commands about folders, their agents and their worktrees take and answer."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from outpost_lsp.domain.record import Record
from outpost_lsp.protocol.commands.arguments import Params


class TrustParams(Params):
    """Whether a folder is trusted; every folder when `uri` is absent."""

    uri: str | None = None
    trusted: bool


class WorktreesParams(Params):
    """The worktrees that exist."""

    prune: bool = Field(default=False, description="remove those that nobody uses; first saves what no ref reaches")


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
