"""What a run had used when its process died, told from its journal.

A receipt is in the journal at once and in the run's record within a second. What was asked and left no receipt is
unknown, so that the sum is a lower bound unless the dispatch had ended and knew better.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outpost_lsp.domain.price import ModelPriceTable, usage_cost
from outpost_lsp.domain.run import Cost, Run
from outpost_lsp.domain.usage import COUNTERS, UNKNOWN, ZERO, Usage
from outpost_lsp.errors import OutpostError
from outpost_lsp.storage.journal import JournalRecord, read_journal

logger = logging.getLogger(__name__)


def as_its_journal_tells(run: Run, journal: Path, prices: ModelPriceTable | None) -> Run:
    """The record of an interrupted run with usage, models and cost of all receipts; unchanged where nothing was asked."""
    if run.kind == "replay":
        return run
    told = _read(journal)
    if not told.has_begun and run.status in ("queued", "preparing") and run.usage == ZERO:
        return run
    # A journal that could not be written holds less than the record.
    is_whole = all(told.usage.count(name) >= run.usage.count(name) for name in COUNTERS)
    usage = told.usage if is_whole else run.usage
    if not (is_whole and told.is_over):
        usage = usage + UNKNOWN
    models = tuple(dict.fromkeys((*run.models, *told.models)))
    return run.model_copy(update={"usage": usage, "models": models, "cost": _cost(run, usage, prices)})


@dataclass(slots=True)
class _Told:
    usage: Usage = ZERO
    models: list[str] = field(default_factory=list)
    has_begun: bool = False
    """Whether an agent was given its prompt."""
    is_over: bool = False
    """Whether the dispatch ended and knew all that it used."""

    def take(self, record: JournalRecord) -> None:
        event = record.event
        if record.kind == "prompt":
            self.has_begun = True
            self.is_over = False
        elif record.kind == "usage":
            self._count(event)
        elif record.kind == "dispatch-finished":
            usage = event.get("usage")
            self.is_over = isinstance(usage, dict) and usage.get("complete") is not False

    def _count(self, event: Any) -> None:
        usage = Usage.model_validate(event.get("tokens"))
        model = event.get("model")
        if isinstance(model, str):
            usage = usage.attributed(model)
            if event.get("source") != "decision" and model not in self.models:
                self.models.append(model)
        self.usage = self.usage + usage


def _read(journal: Path) -> _Told:
    told = _Told()
    try:
        for record in read_journal(journal):
            told.take(record)
    except (OutpostError, ValueError, OSError) as fault:
        # What was read so far is a lower bound all the same.
        told.is_over = False
        logger.info("the journal %s does not tell what its run used: %s", journal, fault)
    return told


def _cost(run: Run, usage: Usage, prices: ModelPriceTable | None) -> Cost | None:
    known = None if run.cost is None else run.cost.model_copy(update={"complete": False})
    if prices is None:
        return known
    try:
        estimate = usage_cost(usage, prices)
    except OutpostError:
        return known
    if known is not None and (known.currency != estimate.currency or known.amount > estimate.amount):
        return known
    return Cost(amount=estimate.amount, currency=estimate.currency, complete=estimate.complete)
