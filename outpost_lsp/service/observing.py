"""From what the engine observes to what a run's record and its listeners learn.

One observer per run, a synchronous sink of the run's hub: the record is changed first, listeners are told after. It
reads events only; nothing here changes how a run goes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from outpost_lsp.domain.event import (
    ConversationEvent,
    Event,
    FindingEvent,
    ModelRetryEvent,
    ModelRouteEvent,
    PhaseEvent,
    QuotaEvent,
    SubagentEvent,
    TextDeltaEvent,
    UsageEvent,
    WarningEvent,
)
from outpost_lsp.domain.finding import Finding
from outpost_lsp.domain.observation import Observation
from outpost_lsp.domain.price import ModelPriceTable, usage_cost
from outpost_lsp.domain.run import Cost
from outpost_lsp.domain.usage import Usage
from outpost_lsp.harness.runtime import Receipt
from outpost_lsp.service.handle import RunHandle
from outpost_lsp.service.signals import Routed, RunEvent, Signal, SubagentChanged, Used

PATIENCE_S: Final = 1.0
"""A wait for a service that is longer than this is worth telling: the run is `waiting` meanwhile."""

_QUIET: Final = (TextDeltaEvent, UsageEvent, WarningEvent)
"""Events that may come while a service is waited for."""


class RunObserver:
    """Follows one run. `publish` takes each accepted finding to the workspace.

    With `is_shared` other runs and processes count on the record at every receipt, because a ceiling is common to them.
    """

    def __init__(
        self,
        handle: RunHandle,
        tell: Callable[[Signal], None],
        publish: Callable[[Finding], None],
        prices: ModelPriceTable | None = None,
        *,
        is_shared: bool = False,
    ) -> None:
        self._handle = handle
        self._tell = tell
        self._publish = publish
        self._prices = prices
        self._is_shared = is_shared
        self._agents: dict[str | None, str] = {None: handle.run.agent}

    def __call__(self, observation: Observation) -> None:
        """Take one observation of the run's hub."""
        event = observation.event
        self._update_record(event)
        self._tell(RunEvent(self._handle.run.id, observation))
        match event:
            case ModelRouteEvent():
                run_id, owner = self._handle.run.id, event.subagent_id
                self._tell(Routed(run_id, self._agent(owner), owner, event))
            case SubagentEvent():
                self._agents[event.id] = event.name
                self._handle.agents.add(event.name)
                self._handle.children.add(event.id)
                self._tell(SubagentChanged(self._handle.run.id, event.subagent_id, event))
            case _:
                pass

    def on_receipt(self, receipt: Receipt) -> None:
        """Take one accounted request; called by the accounting itself, before any event of it."""
        cost = self.cost(receipt.total)
        run = self._handle.run
        changes: dict[str, object] = {"usage": receipt.total, "cost": cost}
        if receipt.source != "decision" and receipt.model not in run.models:
            changes["models"] = (*run.models, receipt.model)
        if self._is_shared:
            self._handle.record(**changes)
        else:
            self._handle.count(**changes)
        self._tell(
            Used(
                run_id=run.id,
                agent=receipt.agent,
                subagent_id=receipt.subagent_id,
                step=receipt.step,
                source=receipt.source,
                model=receipt.model,
                delta=receipt.delta,
                total=receipt.total,
                budgets=receipt.budgets,
                cost=cost,
            )
        )

    def cost(self, usage: Usage) -> Cost | None:
        """What the usage costs, when prices are configured."""
        if self._prices is None:
            return None
        estimate = usage_cost(usage, self._prices)
        return Cost(amount=estimate.amount, currency=estimate.currency, complete=estimate.complete)

    def _agent(self, subagent_id: str | None) -> str:
        return self._agents.get(subagent_id, subagent_id or "")

    def _update_record(self, event: Event) -> None:
        match event:
            case PhaseEvent(name="running"):
                self._handle.update(status="running")
            case ConversationEvent():
                self._handle.update(conversation=event.id)
            case FindingEvent():
                self._finding(event)
            case ModelRetryEvent(wait_s=wait_s) if (wait_s or 0) >= PATIENCE_S:
                self._handle.update(status="waiting")
            case QuotaEvent():
                self._handle.update(status="waiting")
            case WarningEvent():
                self._handle.note(event.message)
            case _ if self._handle.run.status == "waiting" and not isinstance(event, _QUIET):
                self._handle.update(status="running")

    def _finding(self, event: FindingEvent) -> None:
        run = self._handle.run
        if event.finding is None:
            self._handle.update(rejected=run.rejected + 1)
            return
        is_new = event.finding.id not in self._handle.findings
        self._handle.findings[event.finding.id] = event.finding
        self._publish(event.finding)
        if is_new and event.finding.status != "dismissed":
            self._handle.update(findings=run.findings + 1)
