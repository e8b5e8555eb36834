"""The findings of a checkout, across restarts and processes.

Held in memory, written in batches: `put` and `remove` change the table at once, `save` writes what changed. One agent
never has the same fingerprint twice: the newer run's finding stands (REL-12). Used by the service's board; not for
several threads at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from outpost_lsp.domain.finding import Finding
from outpost_lsp.storage.dismissals import DismissalStore
from outpost_lsp.storage.json_lines import encoded, tolerant
from outpost_lsp.storage.operation_log import OperationLog


class FindingStore:
    """Findings by id, path and run; `dismissals` stand beside them unless another store is given."""

    def __init__(self, folder: Path, *, dismissals: DismissalStore | None = None) -> None:
        self.folder = folder
        self.dismissals = dismissals if dismissals is not None else DismissalStore(folder)
        self._by_id: dict[str, Finding] = {}
        self._by_path: dict[str, dict[str, Finding]] = {}
        self._by_fingerprint: dict[tuple[str, str], str] = {}
        self._unsaved: dict[str, Finding | None] = {}
        self._log = OperationLog(folder / "findings.jsonl", apply=self._apply, reset=self._start_over)
        self._log.refresh()

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Finding]:
        return iter(tuple(self._by_id.values()))

    def get(self, id: str) -> Finding | None:
        """One finding."""
        return self._by_id.get(id)

    def at(self, path: str) -> list[Finding]:
        """The findings of a file."""
        return list(self._by_path.get(path, {}).values())

    def paths(self) -> list[str]:
        """The files that have findings."""
        return list(self._by_path)

    def of_run(self, run_id: str) -> list[Finding]:
        """The findings that a run reported."""
        return [finding for finding in self._by_id.values() if finding.run_id == run_id]

    def put(self, findings: Iterable[Finding]) -> None:
        """Add findings, or put them in place of those with the same ids; written with the next `save`."""
        for finding in findings:
            self._insert(finding)
            self._unsaved[finding.id] = finding

    def remove(self, ids: Iterable[str]) -> int:
        """Forget findings; how many there were. Written with the next `save`."""
        count = 0
        for id in list(ids):
            if self._discard(id):
                self._unsaved[id] = None
                count += 1
        return count

    @property
    def is_saved(self) -> bool:
        """Whether everything is on disk."""
        return not self._unsaved

    def save(self) -> None:
        """Write what changed, in one piece; nothing is forgotten when that fails."""
        if not self._unsaved:
            return
        with self._log.locked():
            self.refresh()
            self._log.append(
                [_removal(id) if finding is None else _addition(finding) for id, finding in self._unsaved.items()]
            )
            if self._log.is_mostly_history(len(self)):
                self._log.write_anew(_addition(finding) for finding in self)
        self._unsaved.clear()

    def refresh(self) -> bool:
        """Take over what other processes saved; whether anything changed. What is not saved yet stays as it is."""
        changed = self._log.refresh()
        if changed:
            for id, finding in self._unsaved.items():
                if finding is None:
                    self._discard(id)
                else:
                    self._insert(finding)
        return changed

    def _apply(self, change: dict[str, Any]) -> bool:
        id = change.get("remove")
        if isinstance(id, str):
            self._discard(id)
            return True
        try:
            self._insert(tolerant(Finding, change.get("put")))
        except ValueError:
            return False
        return True

    def _start_over(self) -> None:
        self._by_id.clear()
        self._by_path.clear()
        self._by_fingerprint.clear()

    def _insert(self, finding: Finding) -> None:
        self._discard(finding.id)
        twin = self._by_id.get(self._by_fingerprint.get((finding.agent, finding.fingerprint), ""))
        if twin is not None:
            if twin.run_id > finding.run_id:
                return
            self._discard(twin.id)
        self._by_id[finding.id] = finding
        self._by_path.setdefault(finding.path, {})[finding.id] = finding
        self._by_fingerprint[finding.agent, finding.fingerprint] = finding.id

    def _discard(self, id: str) -> bool:
        finding = self._by_id.pop(id, None)
        if finding is None:
            return False
        of_path = self._by_path[finding.path]
        del of_path[id]
        if not of_path:
            del self._by_path[finding.path]
        del self._by_fingerprint[finding.agent, finding.fingerprint]
        return True


def _addition(finding: Finding) -> bytes:
    return b'{"put":' + encoded(finding) + b"}"


def _removal(id: str) -> bytes:
    return json.dumps({"remove": id}).encode()
