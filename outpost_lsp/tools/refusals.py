"""Refusals of the sandbox -> results that go back to the model.

A path that may not be read, a file that changed meanwhile, a program that took too long: the agent is to know and go on, whatever the harness does
with tools that break (TOOL-10). Faults of other kinds, a cancelled call among them, pass through.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from outpost_lsp.domain.tool import ToolContext, ToolOutput
from outpost_lsp.errors import OutpostError

Run = Callable[[Mapping[str, Any], ToolContext], Awaitable[ToolOutput]]

_REFUSALS = frozenset(("workspace", "conflict", "timeout"))


def answering_refusals(run: Run) -> Run:
    """The same tool, with a refusal as its error result."""

    @functools.wraps(run)
    async def guarded(value: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        try:
            return await run(value, context)
        except OutpostError as error:
            if error.code not in _REFUSALS:
                raise
            return failure(error.message)

    return guarded


def failure(text: str) -> ToolOutput:
    """A tool error."""
    return ToolOutput(text, is_error=True)
