"""What is missing from a recorded turn, where the rest of it tells.

The numbers of records say nothing: kinds that a journal leaves out have numbers, too. But steps are counted, a result
belongs to a call and a call to a result before the next step, a step of a routed agent has a decision and a route, and the
receipts of a turn add up to its summary. What nothing else refers to, a finding or a text, is missed by nobody.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from outpost_lsp.dispatches.route_gaps import RouteGaps
from outpost_lsp.domain.markdown import one_line
from outpost_lsp.domain.usage import COUNTERS, Usage
from outpost_lsp.storage.journal import JournalRecord

_MAIN: Final = None


class GapFinder:
    """Looks at the records of one turn in their order. What `end` gives are sentences for people."""

    def __init__(self) -> None:
        self.gaps: list[str] = []
        self._steps: Counter[object] = Counter()
        self._open: dict[object, Counter[object]] = {}
        self._routes: dict[object, RouteGaps] = {}
        self._spent: Counter[str] = Counter()
        self._is_counted = True

    def take(self, record: JournalRecord) -> None:
        """Look at the next record between the prompt and the summary."""
        event = record.event
        owner = event.get("subagentId", _MAIN)
        if record.source == "decision":
            owner = owner if owner is not None else record.scope.get("subagentId", _MAIN)
        if record.source in ("decision", "harness"):
            routes = self._routes.get(owner)
            if routes is None:
                routes = self._routes[owner] = RouteGaps()
            routes.take(record)
        if record.source == "decision":
            return
        if record.source != "harness":
            # An external agent keeps its own order, and counts as it likes.
            self._is_counted = False
        elif record.kind == "step":
            self._step(event.get("index"), owner)
        elif record.kind == "tool":
            self._open.setdefault(owner, Counter())[event.get("callId")] += 1
        elif record.kind == "tool-result":
            calls = self._open.get(owner)
            if not calls or not calls[event.get("callId")]:
                self.gaps.append(f"the call of a result of {_shown(event.get('name'))} is missing")
            else:
                calls[event.get("callId")] -= 1
        elif record.kind == "usage" and isinstance(tokens := event.get("tokens"), dict):
            self._spent.update({name: count for name in COUNTERS if type(count := tokens.get(_wire(name))) is int})

    def end(self, total: Usage) -> list[str]:
        """All gaps of the turn, whose summary counts `total`."""
        if self._is_counted and any(self._spent[name] != (total.count(name) or 0) for name in COUNTERS):
            self.gaps.append("the receipts do not add up to what the turn used")
        return self.gaps + [gap for routes in self._routes.values() for gap in routes.end()]

    def _step(self, index: object, owner: object) -> None:
        last = self._steps[owner]
        if type(index) is not int:
            return
        if index != last + 1:
            self.gaps.append(f"step {index} follows {f'step {last}' if last else 'nothing'}")
        elif self._open.get(owner, Counter()).total():
            self.gaps.append(f"a result that step {index} was given is missing")
        self._steps[owner] = index
        self._open.pop(owner, None)


def _wire(counter: str) -> str:
    head, *rest = counter.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _shown(name: object) -> str:
    return one_line(name, 60) if isinstance(name, str) else "a tool"
