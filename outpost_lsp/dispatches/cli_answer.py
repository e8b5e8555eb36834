"""What an external agent's answer means: how its work ended, what it used, whether it said that it is done.

Pure; read by `cli_turn.py`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from outpost_lsp.domain.usage import Usage
from outpost_lsp.errors import OutpostError


class MarkerSearch:
    """Looks for the completion markers in text that comes in pieces."""

    def __init__(self, markers: tuple[str, ...], found: asyncio.Future[str]) -> None:
        self._markers = markers
        self._found = found
        self._tail = ""
        self._longest = max((len(marker) for marker in markers), default=0)

    def __call__(self, text: str) -> None:
        if self._found.done() or not self._longest:
            return
        self._tail += text
        marker = next((marker for marker in self._markers if marker in self._tail), None)
        if marker is not None:
            self._found.set_result(marker)
        self._tail = self._tail[-self._longest :]


def usage_of(answer: Any) -> Usage:
    """What an answer says it used; an agent that says nothing leaves a lower bound (EXEC-07)."""
    said = None if answer is None else answer.usage
    if said is None:
        return Usage(input=0, cached=0, output=0, complete=False)
    cached, created = said.cached_read_tokens or 0, said.cached_write_tokens or 0
    return Usage(
        input=said.input_tokens + cached + created,
        cached=cached,
        cache_created=created or None,
        output=said.output_tokens + (said.thought_tokens or 0),
    )


def check_reason(reason: str, name: str) -> None:
    """Raise what an end other than an answer means."""
    match reason:
        case "max_tokens":
            raise OutpostError(
                "limit", f"the answer of the agent {name} was cut off by its output limit", {"limit": "maxOutputTokens"}
            )
        case "max_turn_requests":
            raise OutpostError("limit", f"the agent {name} reached its own limit of steps", {"limit": "maxSteps"})
        case "refusal":
            raise OutpostError("response", f"the agent {name} refused")
        case "cancelled":
            raise OutpostError("aborted", f"the agent {name} gave up although nobody asked it to")
