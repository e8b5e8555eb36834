"""What is missing of the decisions and routes of a recorded turn.

An agent is routed or it is not, at each step of a turn: first a decision begins and ends, then the route is told, then
the model is at work (ROUTE-10, ROUTE-50, ROUTE-53). A decision that ends in a fault may end the turn; where the model went
on to work, the route was told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from outpost_lsp.storage.journal import JournalRecord

_WORK: Final = frozenset(("text", "tool"))


class RouteGaps:
    """Looks at the records of one agent within one turn. `found` are sentences for people, in the order of the records."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._is_routed = False
        self._step: object = None
        self._is_deciding = False
        self._has_decision = False
        self._has_route = False
        self._is_told = False
        self._unrouted: list[object] = []

    def take(self, record: JournalRecord) -> None:
        """Look at the next record."""
        event = record.event
        if record.kind == "decision":
            self._decision(event)
        elif record.kind == "step":
            self._close()
            self._step, self._has_decision, self._has_route, self._is_told = event.get("index"), False, False, False
        elif record.kind == "model-route":
            self._route(event.get("step"))
        elif record.kind == "usage" and event.get("source") == "decision":
            self._is_routed = True
        elif record.kind in _WORK or (record.kind == "usage" and event.get("source") == "model"):
            self._work()

    def end(self) -> list[str]:
        """What is missing; only when all was seen it is certain that an agent is routed."""
        self._close()
        if self._is_routed:
            self.found += [f"the decision and the route of step {step} are missing" for step in self._unrouted]
        return self.found

    def _decision(self, event: Mapping[str, Any]) -> None:
        self._is_routed = True
        if event.get("status") == "started":
            self._close()
            self._is_deciding = True
        elif self._is_deciding:
            self._is_deciding = False
            self._has_decision = True
        else:
            self.found.append("the beginning of a decision is missing")
            self._has_decision = True

    def _close(self) -> None:
        if self._is_deciding:
            self.found.append("the end of a decision is missing")
        self._is_deciding = False

    def _route(self, step: object) -> None:
        self._is_routed = True
        self._has_route = True
        if self._is_deciding:
            self._close()
        elif not self._has_decision:
            self.found.append(f"the decision of step {step} is missing")

    def _work(self) -> None:
        if self._has_route or self._is_told or self._step is None:
            return
        self._is_told = True
        if self._is_deciding:
            self._close()
        elif not self._has_decision:
            self._unrouted.append(self._step)
            return
        self.found.append(f"the route of step {self._step} is missing")
