"""What a hub delivers: events with a number, a time, a source and a scope (section 15 of the engine rules).

The kinds here are of the hub alone: no agent's loop makes them, and no turn holds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, StrictBool

from outpost_lsp.domain.event import Event
from outpost_lsp.domain.record import NonBlank, Record, SafeInt
from outpost_lsp.domain.usage import Usage


class DecisionEvent(Event):
    """A decision request began, ended or failed (section 15). Not an agent event: only a hub carries it."""

    kind: Literal["decision"] = "decision"
    status: Literal["started", "finished", "failed"]
    provider: NonBlank
    model: NonBlank
    duration_ms: SafeInt | None = None
    usage: Usage | None = None
    truncated: StrictBool | None = None
    code: NonBlank | None = None


class DecisionRequestEvent(Event):
    kind: Literal["decision-request"] = "decision-request"
    request: Any


class DecisionResponseEvent(Event):
    kind: Literal["decision-response"] = "decision-response"
    response: Any


class DispatchStartEvent(Event):
    kind: Literal["dispatch-start"] = "dispatch-start"


class DispatchFinishedEvent(Event):
    kind: Literal["dispatch-finished"] = "dispatch-finished"
    status: Literal["done", "failed", "cancelled"]
    completed: bool
    branch: str | None = None
    commits: tuple[Mapping[str, Any], ...] | None = None
    usage: Usage
    error: Mapping[str, Any] | None = None


class WorkspaceCommitsEvent(Event):
    kind: Literal["workspace-commits"] = "workspace-commits"
    baseline: Mapping[str, Any] | None = None
    commits: tuple[Mapping[str, Any], ...] | None = None
    unavailable: str | None = None


Source = Literal[
    "decision", "agent", "harness", "workflow", "sandbox", "git", "hooks", "transfer", "conversation", "recovery"
]


class Scope(Record):
    """Whose event it is."""

    execution_id: str | None = None
    task_key: str | None = None
    attempt: int | None = None
    dispatch_id: str | None = None
    pass_: int | None = Field(default=None, alias="pass")
    subagent_id: str | None = None
    candidate: int | None = None


class Observation(Record):
    """An event as a hub delivers it: numbered, timed, with its source and scope."""

    seq: int
    at: str
    source: Source
    scope: Scope
    event: Event

    def to_line(self) -> bytes:
        # The event is serialised by its own class; the declared base would drop its fields.
        return self.model_dump_json(by_alias=True, exclude_none=True, serialize_as_any=True).encode()
