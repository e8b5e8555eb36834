"""The running account of tokens, up the chain of ancestors (TBUD rules).

Every loop owns a `Budget` linked to its parent's. A receipt is added at every level first, so that spent tokens are
known even when they break a ceiling; then the checks run from the root down, so that an ancestor's breach is reported
as the ancestor's failure. A breach is remembered: later checks of that budget or of a descendant raise the same error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from outpost_lsp.domain.usage import ZERO, Usage, UsageLimits
from outpost_lsp.errors import OutpostError


class Ceiling(Protocol):
    """Something above all loops that may refuse further spending: money of a run, tokens of a day."""

    def charge(self, usage: Usage) -> OutpostError | None:
        """Add a receipt; the fault when it broke the ceiling."""


class Budget:
    """What one loop and its descendants used, and what they may use."""

    __slots__ = ("_ceilings", "breach", "limits", "line", "owner", "used")

    def __init__(
        self,
        owner: str,
        limits: UsageLimits | None = None,
        parent: Budget | None = None,
        ceilings: tuple[Ceiling, ...] = (),
    ) -> None:
        self.owner = owner
        self.limits = limits if limits is not None and limits.set_counters() else None
        self.line: tuple[Budget, ...] = (self,) if parent is None else (*parent.line, self)
        """This budget and its ancestors, the root first."""
        self.used: Usage = ZERO
        self.breach: OutpostError | None = None
        """The fault that this budget's own ceiling raised first; every later check raises it again."""
        self._ceilings = ceilings

    def add(self, usage: Usage, *, attempt_cut: bool = False) -> None:
        """Count a receipt here and at every ancestor; remembers what it breaks, raises nothing.

        `attempt_cut`: the receipt is the lower bound of an answer that is asked for again, which alone does not
        make a strict budget unusable (TBUD-04).
        """
        for budget in self.line:
            budget.take(usage, attempt_cut)

    def check(self) -> None:
        """Raise the breach of the outermost broken budget of the chain."""
        for budget in self.line:
            if budget.breach is not None:
                raise budget.breach

    def ancestor_breach(self) -> OutpostError | None:
        """The breach of this budget or an ancestor, without raising it."""
        return next((budget.breach for budget in self.line if budget.breach is not None), None)

    def chain(self) -> tuple[Budget, ...]:
        """The budgets that have a ceiling, the root first."""
        return tuple(budget for budget in self.line if budget.limits is not None)

    def take(self, usage: Usage, attempt_cut: bool) -> None:
        """Count a receipt at this level alone; `add` counts it at every level."""
        self.used = self.used + usage
        for ceiling in self._ceilings:
            self._remember(lambda ceiling=ceiling: ceiling.charge(usage))  # type: ignore[misc]
        if self.limits is None:
            return
        if not usage.is_complete and not attempt_cut:
            self._remember(self._incomplete)
        self._remember(self._exceeded)

    def _remember(self, fault: Callable[[], OutpostError | None]) -> None:
        if self.breach is None:
            self.breach = fault()

    def _incomplete(self) -> OutpostError:
        return OutpostError(
            "configuration",
            f"{self.owner} has a limit in tokens, which needs complete receipts, and a request did not report its "
            "usage: remove the limit or use a service that reports usage",
            {"agent": self.owner},
        )

    def _exceeded(self) -> OutpostError | None:
        broken = self.limits.exceeded_by(self.used) if self.limits is not None else None
        if broken is None:
            return None
        counter, limit, used = broken
        return OutpostError(
            "limit",
            f"{self.owner} exceeded its limit of {limit} {counter.replace('_', ' ')} tokens: {used} used",
            {"limit": "usage", "agent": self.owner, "counter": counter, "ceiling": limit, "used": used},
        )
