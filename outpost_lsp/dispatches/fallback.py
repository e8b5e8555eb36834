"""Agents tried in order: the next one takes over when a service has run out of quota or is down (FALL rules)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from outpost_lsp.dispatches.cli_agent import CliAgent
from outpost_lsp.domain.event import Candidate
from outpost_lsp.domain.record import Declaration, Record
from outpost_lsp.errors import OutpostError, configuration, quota_fault, unavailable_fault
from outpost_lsp.harness.agent import Agent

Trigger = Literal["quota", "unavailable"]


class FallbackAgent(Declaration):
    """At least two agents, and which failures move on to the next. `names` are for people; by default the models'."""

    candidates: tuple[Agent | CliAgent, ...]
    on: tuple[Trigger, ...]
    names: tuple[str, ...]

    def __init__(
        self, candidates: Sequence[Agent | CliAgent], on: Sequence[Trigger], *, names: Sequence[str] | None = None
    ) -> None:
        candidates = tuple(candidates)
        for candidate in candidates:
            if not isinstance(candidate, Agent | CliAgent):
                raise configuration(f"FallbackAgent: candidates: {type(candidate).__name__} cannot be one")
        if len(candidates) < 2:
            raise configuration("FallbackAgent: candidates: at least two are expected")
        if isinstance(on, str) or not on or len(set(on)) != len(tuple(on)):
            raise configuration("FallbackAgent: on: a list of distinct triggers is expected")
        chosen = tuple(_name(candidate) for candidate in candidates) if names is None else tuple(names)
        if len(chosen) != len(candidates):
            raise configuration("FallbackAgent: names: one for each candidate is expected")
        super().__init__(candidates=candidates, on=tuple(on), names=chosen)

    def candidate(self, index: int) -> Candidate:
        """A candidate as events and results name it."""
        model = self.candidates[index].model
        return Candidate(index=index, name=self.names[index], model=None if model is None else model.name)


def _name(candidate: Agent | CliAgent) -> str:
    return candidate.name if isinstance(candidate, CliAgent) else candidate.model.name


class FailedAttempt(Candidate):
    """A candidate that failed, and why the next one was tried."""

    failure: Trigger
    message: str
    reset_at: str | None = None


class FallbackRecord(Record):
    """Which candidate answered, and what failed before."""

    selected: Candidate
    attempts: tuple[FailedAttempt, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed turn that a fallback agent may move on from."""

    kind: Trigger
    message: str
    reset_at: str | None = None


def classified(error: BaseException) -> Failure | None:
    """What kind of outage a failure is; a quota always wins over unavailability (ERR-04)."""
    if (quota := quota_fault(error)) is not None:
        return Failure("quota", quota.message, quota.reset_at)
    if (unavailable := unavailable_fault(error)) is not None:
        return Failure("unavailable", unavailable.message)
    return None


def exhausted(attempts: Sequence[FailedAttempt], last: OutpostError) -> OutpostError:
    """What is raised when all candidates failed: the last error, or one quota for all (FALL-07)."""
    if not all(attempt.failure == "quota" for attempt in attempts):
        return last
    names = ", ".join(attempt.name for attempt in attempts)
    details = dict(last.details)
    details.pop("resetAt", None)
    resets = [attempt.reset_at for attempt in attempts if attempt.reset_at is not None]
    if len(resets) == len(attempts):
        details["resetAt"] = min(resets)
    return OutpostError("quota", f"every candidate has run out of quota: {names}", details, last)
