"""Events as they were written, in a journal or by a worker, made again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import TypeAdapter

from outpost_lsp.domain.event import AgentEvent, Event
from outpost_lsp.domain.observation import DecisionEvent, DecisionRequestEvent, DecisionResponseEvent

_AGENT_EVENT: Final[TypeAdapter[Event]] = TypeAdapter(AgentEvent)
DECISIONS: Final[Mapping[str, type[Event]]] = {
    "decision": DecisionEvent,
    "decision-request": DecisionRequestEvent,
    "decision-response": DecisionResponseEvent,
}
"""The kinds of a decision, which only a hub carries."""


def agent_event(data: Mapping[str, Any]) -> Event:
    """An event of an agent's loop; `ValidationError` when it is none."""
    return _AGENT_EVENT.validate_python({**data})


def decision_event(kind: str, data: Mapping[str, Any]) -> Event:
    """An event of a decision; `KeyError` for another kind, `ValidationError` when it is malformed."""
    return DECISIONS[kind].model_validate({**data})
