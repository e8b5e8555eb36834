"""Events as they were written, in a journal or by a worker, made again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

from pydantic import TypeAdapter

from outpost_lsp.domain.event import AgentEvent, Event
from outpost_lsp.domain.observation import DecisionEvent, DecisionRequestEvent, DecisionResponseEvent
from outpost_lsp.storage.json_lines import tolerant

_AGENT_EVENT: Final[TypeAdapter[Event]] = TypeAdapter(AgentEvent)
DECISIONS: Final[Mapping[str, type[Event]]] = {
    "decision": DecisionEvent,
    "decision-request": DecisionRequestEvent,
    "decision-response": DecisionResponseEvent,
}
"""The kinds of a decision, which only a hub carries."""
_KINDS: Final[Mapping[str, type[Event]]] = {
    **{one.model_fields["kind"].default: one for one in get_args(get_args(AgentEvent)[0])},
    **DECISIONS,
}


def agent_event(data: Mapping[str, Any]) -> Event:
    """An event of an agent's loop; `ValidationError` when it is none."""
    return _AGENT_EVENT.validate_python({**data})


def decision_event(kind: str, data: Mapping[str, Any]) -> Event:
    """An event of a decision; `KeyError` for another kind, `ValidationError` when it is malformed."""
    return DECISIONS[kind].model_validate({**data})


def recorded_event(data: Mapping[str, Any]) -> Event | None:
    """An event of a journal; `None` for a kind of a newer version, whose new fields elsewhere are passed over.

    `ValidationError` when it is malformed, `LookupError` when a new field lies where it cannot be taken out.
    """
    kind = _KINDS.get(str(data.get("kind")))
    return None if kind is None else tolerant(kind, {**data})
