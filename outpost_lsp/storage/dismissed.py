"""What was dismissed, and which findings that covers. Pure; the stores beside keep it.

A dismissal covers the fingerprint, and a later finding on the same quote with another code or wording and no higher
severity. It ends with its date, and by itself when the quoted code changes, since the quote is part of the fingerprint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

from outpost_lsp.domain.finding import (
    Dismissal,
    Finding,
    Severity,
    fingerprint,
    normalised_quote,
    severity_at_least,
)
from outpost_lsp.domain.record import NonBlank, Record

_MOST_EQUAL_QUOTES: Final = 1_000


class DismissedFinding(Record):
    """A dismissal with what is needed to know the finding again."""

    fingerprint: NonBlank
    path: str
    code: str
    severity: Severity
    quote: str
    title: str = ""
    dismissal: Dismissal

    @classmethod
    def of(cls, finding: Finding, dismissal: Dismissal) -> DismissedFinding:
        """The record of dismissing `finding`."""
        return cls(
            fingerprint=finding.fingerprint,
            path=finding.path,
            code=finding.code,
            severity=finding.severity,
            quote=finding.quote,
            title=finding.title,
            dismissal=dismissal,
        )

    def covers(self, finding: Finding) -> bool:
        """Whether it speaks of this finding, whatever its date says."""
        if finding.fingerprint == self.fingerprint:
            return True
        if finding.path != self.path or normalised_quote(finding.quote) != normalised_quote(self.quote):
            return False
        if severity_at_least(finding.severity, self.severity) and finding.severity != self.severity:
            return False
        own, other = _ordinal(self.fingerprint, self), _ordinal(finding.fingerprint, finding)
        return own is not None and own == other

    def is_over(self, now: datetime) -> bool:
        """Whether its date has passed; a date that is no date never does."""
        until = parsed_time(self.dismissal.until)
        return until is not None and until <= now


class DismissedFindings:
    """Dismissals by fingerprint and by quote."""

    def __init__(self, records: Iterable[DismissedFinding] = ()) -> None:
        self._by_fingerprint: dict[str, DismissedFinding] = {}
        self._by_quote: dict[tuple[str, str], dict[str, DismissedFinding]] = {}
        self._paths: Counter[str] = Counter()
        for record in records:
            self.add(record)

    def __len__(self) -> int:
        return len(self._by_fingerprint)

    def __iter__(self) -> Iterator[DismissedFinding]:
        return iter(tuple(self._by_fingerprint.values()))

    def add(self, record: DismissedFinding) -> None:
        """Add a record in place of one with the same fingerprint."""
        self.discard(record.fingerprint)
        self._by_fingerprint[record.fingerprint] = record
        self._by_quote.setdefault(_place(record), {})[record.fingerprint] = record
        self._paths[record.path] += 1

    def discard(self, fingerprint: str) -> bool:
        """Take a record out; whether there was one."""
        record = self._by_fingerprint.pop(fingerprint, None)
        if record is not None:
            self._by_quote[_place(record)].pop(fingerprint)
            self._paths[record.path] -= 1
        return record is not None

    def clear(self) -> None:
        """Take everything out."""
        self._by_fingerprint.clear()
        self._by_quote.clear()
        self._paths.clear()

    def speaks_of(self, path: str) -> bool:
        """Whether any record is about this file."""
        return self._paths[path] > 0

    def get(self, fingerprint: str) -> DismissedFinding | None:
        """The record with this fingerprint, whatever its date says."""
        return self._by_fingerprint.get(fingerprint)

    def all_covering(self, finding: Finding) -> list[DismissedFinding]:
        """Every record that speaks of `finding`, the one with its own fingerprint first."""
        own = self._by_fingerprint.get(finding.fingerprint)
        others = self._by_quote.get((finding.path, normalised_quote(finding.quote)), {}).values()
        found = [record for record in others if record is not own and record.covers(finding)]
        return [own, *found] if own is not None else found

    def covering(self, finding: Finding, now: datetime | None = None) -> Dismissal | None:
        """The dismissal in force for `finding`; `None` when there is none or its date has passed."""
        now = datetime.now(UTC) if now is None else now
        return next((record.dismissal for record in self.all_covering(finding) if not record.is_over(now)), None)

    def over(self, now: datetime | None = None) -> list[DismissedFinding]:
        """Those whose date has passed: their findings return once, and say why."""
        now = datetime.now(UTC) if now is None else now
        return [record for record in self if record.is_over(now)]


def parsed_time(text: str | None) -> datetime | None:
    """A time from RFC 3339 text; a date alone means its beginning, a time without zone is UTC. `None` for others."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _place(record: DismissedFinding) -> tuple[str, str]:
    return record.path, normalised_quote(record.quote)


def _ordinal(wanted: str, about: Finding | DismissedFinding) -> int | None:
    """The finding's place among equal quotes, which its fingerprint was made from."""
    numbers = range(_MOST_EQUAL_QUOTES)
    return next((n for n in numbers if fingerprint(about.path, about.code, about.quote, n) == wanted), None)
