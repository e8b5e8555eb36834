"""The names that spans carry, after the semantic conventions for generative AI, and how counts and texts become values.

What those conventions have no word for stands under `outpost.`. A count that nobody knows is left out, never 0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from outpost_lsp.domain.usage import Usage

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
RESPONSE_MODEL: Final = "gen_ai.response.model"
AGENT_NAME: Final = "gen_ai.agent.name"
CONVERSATION: Final = "gen_ai.conversation.id"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL: Final = "gen_ai.tool.call.id"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
ERROR_TYPE: Final = "error.type"

RUN_ID: Final = "outpost.run.id"
SUBAGENT_ID: Final = "outpost.subagent.id"
STEP: Final = "outpost.step"
ROUTE: Final = "outpost.route"
ROUTE_REASON: Final = "outpost.route.reason"
ROUTE_CONFIDENCE: Final = "outpost.route.confidence"
ROUTE_RULE: Final = "outpost.route.rule"
PURPOSE: Final = "outpost.request.purpose"
USAGE_COMPLETE: Final = "outpost.usage.complete"
TRUNCATED: Final = "outpost.decision.truncated"

OTHER: Final = "_OTHER"
"""The type of an error that has no name of its own."""


def usage_attributes(usage: Usage) -> dict[str, int | bool]:
    """The counts of a usage. One that is a lower bound says so; one of which nothing is known has no counts."""
    counts = {
        "gen_ai.usage.input_tokens": usage.input,
        "gen_ai.usage.output_tokens": usage.output,
        "gen_ai.usage.cache_read.input_tokens": usage.cached,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_created or 0,
    }
    known: dict[str, int | bool] = {name: count for name, count in counts.items() if count}
    if not usage.is_complete:
        return known | {USAGE_COMPLETE: False}
    return known | {name: counts[name] for name in ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens")}


def message(role: str, parts: Sequence[dict[str, Any]]) -> str:
    """One message in the form of the conventions: a list of messages, each with its parts, as JSON text."""
    return as_json([{"role": role, "parts": list(parts)}])


def text_part(text: str) -> dict[str, Any]:
    """A part of a message that is text."""
    return {"type": "text", "content": text}


def call_part(call_id: str | None, name: str, arguments: Any) -> dict[str, Any]:
    """A part of a message that asks for a tool."""
    return {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}


def as_json(value: Any) -> str:
    """A value as JSON text, whatever it is."""
    return json.dumps(value, ensure_ascii=False, default=str)


def masked(text: str, masks: Sequence[re.Pattern[str]]) -> str:
    """The text without what must not leave."""
    for mask in masks:
        text = mask.sub("[redacted]", text)
    # Half of a surrogate pair could not be sent.
    return text.encode("utf-8", "replace").decode()
