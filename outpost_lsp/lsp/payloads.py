"""The payloads of our notifications, made from the service's news; absent fields are left out."""

from __future__ import annotations

from typing import Any

from outpost_lsp.domain.usage import UsageLimits
from outpost_lsp.protocol.records import cost_json, usage_json
from outpost_lsp.service.signals import Routed, SubagentChanged, Used


def route_json(signal: Routed) -> dict[str, Any]:
    """`$/outpost/route`."""
    event = signal.event
    body = {
        "runId": signal.run_id,
        "agent": signal.agent,
        "subagentId": signal.subagent_id,
        "step": event.step,
        "choice": event.choice,
        "model": event.model.name,
        "reason": event.reason,
        "confidence": event.confidence,
        "reportedConfidence": event.reported_confidence,
        "rule": event.rule,
    }
    return _without_absent(body)


def usage_event_json(signal: Used) -> dict[str, Any]:
    """`$/outpost/usage`."""
    body = {
        "runId": signal.run_id,
        "agent": signal.agent,
        "subagentId": signal.subagent_id,
        "step": signal.step,
        "source": signal.source,
        "model": signal.model,
        "delta": usage_json(signal.delta),
        "total": usage_json(signal.total),
        "budgets": [
            {"agent": state.agent, "limits": _limits_json(state.limits), "used": usage_json(state.used)}
            for state in signal.budgets
        ],
        "cost": cost_json(signal.cost),
    }
    return _without_absent(body)


def _limits_json(limits: UsageLimits) -> dict[str, int]:
    names = {"cache_created": "cacheCreated"}
    return {names.get(name, name): limit for name, limit in limits.set_counters()}


def subagent_json(signal: SubagentChanged) -> dict[str, Any]:
    """`$/outpost/subagent`."""
    event = signal.event
    body = {
        "runId": signal.run_id,
        "id": event.id,
        "name": event.name,
        "status": event.status,
        "parentId": signal.parent_id,
        "callId": event.call_id,
        "conversation": event.conversation,
    }
    return _without_absent(body)


def _without_absent(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if value is not None}
