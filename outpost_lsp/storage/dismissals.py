"""Dismissals that a person keeps for themselves, across runs, restarts and processes.

Each is written as it is made. Used by the service's board, and by reviews that tell a reviewer what not to raise.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from outpost_lsp.domain.finding import Dismissal, Finding
from outpost_lsp.storage.dismissed import DismissedFinding, DismissedFindings
from outpost_lsp.storage.identifiers import now_text
from outpost_lsp.storage.json_lines import encoded, tolerant
from outpost_lsp.storage.operation_log import OperationLog


class DismissalStore:
    """The dismissals kept in a folder; ask `findings` what they cover."""

    def __init__(self, folder: Path) -> None:
        self.findings = DismissedFindings()
        self._log = OperationLog(folder / "dismissals.jsonl", apply=self._apply, reset=self.findings.clear)
        self._log.refresh()

    def dismiss(self, finding: Finding, *, reason: str | None = None, until: str | None = None) -> Dismissal:
        """Dismiss a finding until a date, or until its code changes."""
        dismissal = Dismissal(reason=reason, at=now_text(), until=until)
        self.add(DismissedFinding.of(finding, dismissal))
        return dismissal

    def add(self, record: DismissedFinding) -> None:
        """Keep a dismissal that was made elsewhere."""
        self._save([b'{"dismiss":' + encoded(record) + b"}"])

    def restore(self, finding: Finding) -> bool:
        """Take back every dismissal that covers a finding; whether there was one."""
        self.refresh()
        covering = self.findings.all_covering(finding)
        if covering:
            self._save([json.dumps({"restore": record.fingerprint}).encode() for record in covering])
        return bool(covering)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No other process changes what is dismissed in this checkout meanwhile: here, or in the team's file beside."""
        with self._log.locked():
            yield

    def refresh(self) -> bool:
        """Take over what other processes dismissed; whether anything changed."""
        return self._log.refresh()

    def _save(self, changes: list[bytes]) -> None:
        with self._log.locked():
            self._log.refresh()
            self._log.append(changes)
            for change in changes:
                self._apply(json.loads(change))
            if self._log.is_mostly_history(len(self.findings)):
                self._log.write_anew([b'{"dismiss":' + encoded(record) + b"}" for record in self.findings])

    def _apply(self, change: dict[str, Any]) -> bool:
        fingerprint = change.get("restore")
        if isinstance(fingerprint, str):
            self.findings.discard(fingerprint)
            return True
        try:
            self.findings.add(tolerant(DismissedFinding, change.get("dismiss")))
        except ValueError:
            return False
        return True
