"""Dispatches under a budget that several of them share (BUD rules).

One turn of an agent is one attempt. Receipts reach the shared budget from the engine's accounting, before anybody is
told; when another dispatch uses the budget up, the turn that runs here is cancelled and ends with that fault (BUD-05,
BUD-09). Made by `dispatch` for its `budget=` option.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from outpost_lsp.domain.usage import Usage
from outpost_lsp.domain.workflow_budget import Attempt, WorkflowBudget
from outpost_lsp.errors import OutpostError


class SharedBudget:
    """A workflow's budget as one dispatch meets it: a ceiling above its loops, and its turns as attempts."""

    __slots__ = ("_attempt", "_workflow")

    def __init__(self, workflow: WorkflowBudget) -> None:
        self._workflow = workflow
        self._attempt: Attempt | None = None

    def charge(self, usage: Usage) -> OutpostError | None:
        """Add a receipt to the present attempt; the fault when it used the budget up."""
        if self._attempt is None:
            return None
        try:
            self._attempt.report_usage(usage)
        except OutpostError as fault:
            return fault
        return None

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Bracket one turn; raises what forbids it, or what another attempt broke meanwhile."""
        broken: list[OutpostError] = []
        scope = anyio.CancelScope()

        def on_breach(fault: OutpostError) -> None:
            broken.append(fault)
            scope.cancel()

        with self._workflow.begin_attempt(on_breach) as attempt:
            self._attempt = attempt
            try:
                with scope:
                    yield
            finally:
                self._attempt = None
        if scope.cancelled_caught:
            raise broken[0]
