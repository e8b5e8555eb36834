"""The dismissals that are in force in a workspace: a person's own, and those of the team where they are shared.

Each stands in one place only. The team's stay in their file and are read from it: what a colleague takes back there is
shown again for everybody, whoever dismissed it. A file that cannot be read is told about at once, and what it said
before counts until it can. Whoever holds these asks them from time to time whether they are others now, since a
dismissal can end with its date.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from outpost_lsp.domain.finding import Dismissal, Finding
from outpost_lsp.storage.dismissals import DismissalStore
from outpost_lsp.storage.dismissed import DismissedFinding, DismissedFindings
from outpost_lsp.storage.identifiers import now_text
from outpost_lsp.storage.shared_dismissals import SHARED_PATH, read_shared_dismissals, update_shared_dismissals


class Dismissals:
    """What was dismissed in the repository at `top`. `warn` is told once what is wrong with the team's file."""

    def __init__(self, top: Path, own: DismissalStore, warn: Callable[[str], None] = lambda _fault: None) -> None:
        self._top = top
        self._own = own
        self._warn = warn
        self._faults: tuple[str, ...] = ()
        self._shared = DismissedFindings()
        self._is_shared = False
        self._read: tuple[int, int, int, int] | None = None
        self._over: frozenset[str] = self._past()

    def follow(self, *, shared: bool) -> tuple[str, ...]:
        """Share them from now on, or keep them private; what in the team's file could not be understood."""
        self._is_shared = shared
        if not shared:
            self._shared.clear()
            self._faults = ()
            return ()
        return self._read_shared()

    def of_the_team(self) -> tuple[DismissedFinding, ...]:
        """What the team's file says, where it is followed."""
        return tuple(self._shared)

    def refresh(self) -> bool:
        """Take over what others dismissed or took back, and notice dates that passed; whether anything changed."""
        changed = self._own.refresh()
        if self._is_shared and self._read != self._stamp():
            self._read_shared()
            changed = True
        over = self._past()
        changed, self._over = changed or over != self._over, over
        return changed

    def may_speak_of(self, path: str) -> bool:
        """Whether anything in this file was ever dismissed."""
        return self._own.findings.speaks_of(path) or self._shared.speaks_of(path)

    def in_force(self) -> list[DismissedFinding]:
        """Every dismissal that counts now."""
        now = datetime.now(UTC)
        return [record for record in (*self._own.findings, *self._shared) if not record.is_over(now)]

    def records_of(self, finding: Finding) -> list[DismissedFinding]:
        """Every dismissal that speaks of a finding, whatever its date says."""
        return [*self._own.findings.all_covering(finding), *self._shared.all_covering(finding)]

    def of(self, finding: Finding) -> tuple[Dismissal | None, bool]:
        """The dismissal that speaks of a finding, and whether it is in force; one in force goes before one that is over."""
        now = datetime.now(UTC)
        over = None
        for record in self.records_of(finding):
            if not record.is_over(now):
                return record.dismissal, True
            over = over or record.dismissal
        return over, False

    def dismiss(self, finding: Finding, reason: str | None, until: str | None) -> None:
        """Dismiss a finding until a date, or until its code changes."""
        if not self._is_shared:
            self._own.dismiss(finding, reason=reason, until=until)
            return
        record = DismissedFinding.of(finding, Dismissal(reason=reason, at=now_text(), until=until))
        with self._own.alone():
            update_shared_dismissals(self._top, add=[record])
        # What was kept private before would outlive the team's.
        self._own.restore(finding)
        self._read_shared()

    def restore(self, finding: Finding) -> None:
        """Take every dismissal of a finding back."""
        if shared := self._shared.all_covering(finding):
            with self._own.alone():
                update_shared_dismissals(self._top, restore=[record.fingerprint for record in shared])
            self._read_shared()
        self._own.restore(finding)

    def _read_shared(self) -> tuple[str, ...]:
        self._read = self._stamp()
        read = read_shared_dismissals(self._top)
        if read.is_known:
            self._shared.clear()
            for record in read.records:
                self._shared.add(record)
        before, self._faults = self._faults, read.faults
        for fault in read.faults:
            if fault not in before:
                self._warn(fault if read.is_known else f"{fault}; {self._meanwhile()}")
        return read.faults

    def _meanwhile(self) -> str:
        return (
            "until then what it said before counts" if len(self._shared) else "until then none of its dismissals counts"
        )

    def _stamp(self) -> tuple[int, int, int, int] | None:
        try:
            status = (self._top / SHARED_PATH).lstat()
        except OSError:
            return None
        # The mode and the time of its change: a file that could not be read may be readable now.
        return status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size

    def _past(self) -> frozenset[str]:
        now = datetime.now(UTC)
        return frozenset(record.fingerprint for kept in (self._own.findings, self._shared) for record in kept.over(now))
