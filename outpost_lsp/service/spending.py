"""What was used and what it cost, by day, agent and model, told from the records and journals of runs.

A journal says which agent of a run spent what; where it is missing, cut or of another opinion than the run's record, the
record counts and everything is the run's own agent's. What nobody reported or priced is unknown and never zero. Replays
spend nothing. Used by `outpost-lsp usage`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from outpost_lsp.domain.price import ModelPriceTable, UsageCost, usage_cost
from outpost_lsp.domain.run import Run
from outpost_lsp.domain.usage import COUNTERS, ZERO, ModelUsage, Usage
from outpost_lsp.errors import OutpostError
from outpost_lsp.storage.journal import read_journal

NO_MODEL: Final = ""
"""The model of what no model of a table accounts for."""


@dataclass(slots=True)
class Spending:
    """One line: what an agent used of a model in a day of the person's. `cost` is `None` where no price is known."""

    day: str
    agent: str
    model: str
    runs: set[str] = field(default_factory=set)
    usage: Usage = ZERO
    cost: UsageCost | None = None
    answered: set[str] = field(default_factory=set)
    """Who answered, where that is another than `model`, which was asked and is what has a price: a decision service
    that was left the choice names the model that it took."""

    @property
    def has_tokens(self) -> bool:
        """Whether any tokens were reported: with none, and not all reported, the tokens are unknown."""
        return self.usage.is_complete or any(self.usage.count(name) for name in COUNTERS)

    @property
    def is_free(self) -> bool:
        """Whether nothing was used for certain, as by the built-in rules."""
        return self.usage.is_complete and not any(self.usage.count(name) for name in COUNTERS)


def spending(runs: Iterable[Run], journal_of: Mapping[str, Path], prices: ModelPriceTable | None) -> list[Spending]:
    """The lines of all runs, by day, agent and model. `journal_of` gives the journal of a run by its id."""
    lines: dict[tuple[str, str, str], Spending] = {}
    for run in runs:
        if run.kind == "replay":
            continue
        day = _day(run.started_at)
        journal = journal_of.get(run.id)
        told = _Told() if journal is None else _read(run.agent, journal)
        for agent, usage in _by_agent(run, told.used):
            for model, part in _by_model(usage):
                line = lines.setdefault((day, agent, model), Spending(day, agent, model))
                line.runs.add(run.id)
                line.usage = line.usage + part
                line.answered |= told.answered.get((agent, model), set()) - {model}
    for line in lines.values():
        line.cost = _cost(line.usage, prices)
    return [lines[key] for key in sorted(lines)]


def _day(moment: str) -> str:
    # The day of the person, not of Greenwich.
    try:
        return datetime.fromisoformat(moment).astimezone().date().isoformat()
    except ValueError:
        return moment[:10]


@dataclass(slots=True)
class _Told:
    """What a journal tells: what each agent used by itself, and who answered where it asked for a decision."""

    used: dict[str, Usage] = field(default_factory=dict)
    answered: dict[tuple[str, str], set[str]] = field(default_factory=dict)


def _by_agent(run: Run, told: Mapping[str, Usage]) -> Iterator[tuple[str, Usage]]:
    total = ZERO
    for usage in told.values():
        total = total + usage
    if told and all(total.count(name) == run.usage.count(name) for name in COUNTERS):
        yield from told.items()
    elif run.usage != ZERO:
        yield run.agent, run.usage


def _read(agent: str, journal: Path) -> _Told:
    names: dict[str | None, str] = {None: agent}
    told = _Told()
    used = told.used
    asked: dict[str | None, str] = {}
    try:
        for record in read_journal(journal):
            event = record.event
            owner = event.get("subagentId")
            if record.kind == "subagent":
                names[str(event.get("id"))] = str(event.get("name"))
            elif record.kind == "usage":
                usage = Usage.model_validate(event.get("tokens"))
                model = event.get("model")
                usage = usage.attributed(model) if isinstance(model, str) else usage
                name = names.get(owner, agent)
                used[name] = used.get(name, ZERO) + usage
            elif record.kind == "decision" and isinstance(model := event.get("model"), str):
                owner = owner or record.scope.get("subagentId")
                if event.get("status") == "started":
                    asked[owner] = model
                elif event.get("status") == "finished" and owner in asked:
                    told.answered.setdefault((names.get(owner, agent), asked[owner]), set()).add(model)
    except (OutpostError, ValueError, OSError):
        return _Told()
    return told


def _by_model(usage: Usage) -> Iterator[tuple[str, Usage]]:
    parts = usage.models or {}
    for name, part in parts.items():
        yield name, _of(part).attributed(name)
    rest = {name: usage.count(name) - sum(getattr(part, name) or 0 for part in parts.values()) for name in COUNTERS}
    is_whole = usage.is_complete or any(part.complete is False for part in parts.values())
    if any(count > 0 for count in rest.values()) or not is_whole:
        yield (
            NO_MODEL,
            Usage(input=max(rest["input"], 0), output=max(rest["output"], 0), complete=usage.complete),
        )


def _of(part: ModelUsage) -> Usage:
    # Built with its table at once: some services count the cache outside `input`.
    return Usage.model_construct(
        input=part.input,
        cached=part.cached,
        cache_created=part.cache_created,
        output=part.output,
        complete=part.complete,
        models=None,
    )


def _cost(usage: Usage, prices: ModelPriceTable | None) -> UsageCost | None:
    if prices is None:
        return None
    try:
        cost = usage_cost(usage, prices)
    except OutpostError:
        return None
    return cost if cost.is_known else None
