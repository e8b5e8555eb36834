"""One model per notification and request of ours (section 4 of the protocol).

The server sends plain dictionaries, since the hot path has no time for models; the models are the contract, and tests
hold what is sent against them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from outpost_lsp.domain.event import UsageSource
from outpost_lsp.domain.record import Record
from outpost_lsp.protocol.records import Cost, Finding, Run, Usage


class RunNotification(Record):
    """A run's status, disposition or counts changed."""

    run: Run


class RouteNotification(Record):
    """A model was selected for a step; sent before the request that uses it."""

    run_id: str
    agent: str
    subagent_id: str | None = None
    step: int
    choice: str
    model: str
    reason: Literal["selected", "confidence", "unavailable"]
    confidence: float | None = None
    reported_confidence: float | None = None
    rule: str | None = None


class Budget(Record):
    """An agent of the chain that has a limit, and what it and its children used."""

    agent: str
    limits: dict[str, int]
    used: Usage


class UsageNotification(Record):
    """One accounted request; `total` is the dispatch so far."""

    run_id: str
    agent: str
    subagent_id: str | None = None
    step: int | None = None
    source: UsageSource
    model: str
    delta: Usage
    total: Usage
    budgets: list[Budget]
    cost: Cost | None = None


class SubagentNotification(Record):
    """A delegation began or ended."""

    run_id: str
    id: str
    name: str
    status: Literal["started", "finished", "failed"]
    parent_id: str | None = None
    call_id: str
    conversation: str | None = None


class FindingsNotification(Record):
    """The findings behind the diagnostics of one document, all of them."""

    uri: str
    findings: list[Finding]


class EventNotification(Record):
    """Something happened inside a run; the event as the engine spells it."""

    run_id: str
    event: dict[str, Any]


class SecretParams(Record):
    """Which provider's key is asked for."""

    provider: str


class SecretResult(Record):
    """The key; absent or `null`: the client has none."""

    value: str | None = None


@dataclass(frozen=True, slots=True)
class NotificationShape:
    """A notification's payload and when it is sent."""

    params: type[Record]
    when: str


NOTIFICATIONS: Final[dict[str, NotificationShape]] = {
    "$/outpost/run": NotificationShape(RunNotification, "every change of a run's status, disposition or counts"),
    "$/outpost/route": NotificationShape(RouteNotification, "each routing selection, before the request that uses it"),
    "$/outpost/usage": NotificationShape(UsageNotification, "each accounted request"),
    "$/outpost/subagent": NotificationShape(SubagentNotification, "the life cycle of a delegation"),
    "$/outpost/findings": NotificationShape(FindingsNotification, "whenever the diagnostics of a document change"),
    "$/outpost/event": NotificationShape(EventNotification, "the agent event stream, as subscribed"),
}
