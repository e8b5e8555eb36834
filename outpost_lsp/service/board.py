"""The findings of one workspace: kept, placed in the text of this moment, dismissed, and told about when they change.

A finding is shown only where its quote stands, in the text that counts now: the open document's, else the disk's
(REL-18). What is stored is the finding as it was reported. Changes are written soon after, together. Lives on the event
loop; `load` alone may run in a worker, before anybody else has the board.
"""

from __future__ import annotations

import asyncio
import logging
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from outpost_lsp.domain.anchor import SourceText
from outpost_lsp.domain.finding import Dismissal, Finding, FindingStatus
from outpost_lsp.errors import OutpostError, configuration
from outpost_lsp.reviews.tracking import TrackedFinding, edit_between, follow, place
from outpost_lsp.storage.dismissed import DismissedFinding, parsed_time
from outpost_lsp.storage.findings import FindingStore
from outpost_lsp.storage.shared_dismissals import read_shared_dismissals, update_shared_dismissals

logger = logging.getLogger(__name__)

_LARGEST_FILE: Final = 64 * 1024 * 1024


class Standing(NamedTuple):
    """A finding with the place where it stands now; its own `span` may be where it was reported."""

    finding: Finding
    start_line: int
    start_character: int
    end_line: int
    end_character: int


class FindingBoard:
    """Findings by file. `changed` is told each path whose findings are others now."""

    def __init__(self, top: Path, store: FindingStore, changed: Callable[[str], None]) -> None:
        self._top = top
        self._store = store
        self._changed = changed
        self._files: dict[str, dict[str, TrackedFinding]] = {}
        self._paths: dict[str, str] = {}
        self._documents: dict[str, SourceText] = {}
        self._on_disk: dict[str, _DiskText] = {}
        self._save_handle: asyncio.Handle | None = None
        self.shares_dismissals = False
        """Whether dismissals are kept in the repository, for everybody."""

    def load(self) -> None:
        """Place what earlier sessions left."""
        for path in self._store.paths():
            source = self._source(path)
            for finding in self._store.at(path):
                self._insert(self._placed(finding, source))

    def catch_up(self) -> None:
        """Take over what other processes found, replaced or dismissed meanwhile, and tell about it."""
        if self._store.dismissals.refresh():
            for path in list(self._files):
                self._changed(path)
        if not self._store.refresh():
            return
        for path in sorted({*self._files, *self._store.paths()}):
            tracked = self._files.get(path, {})
            stored = {finding.id: finding for finding in self._store.at(path)}
            gone = [finding_id for finding_id in tracked if finding_id not in stored]
            fresh = [
                finding
                for finding_id, finding in stored.items()
                if finding_id not in tracked or tracked[finding_id].finding != finding
            ]
            for finding_id in gone:
                self._forget(finding_id)
            for finding in fresh:
                self._insert(self._placed(finding, self._source(path)))
            if gone or fresh:
                self._changed(path)

    # Asking

    def listing(self, path: str | None = None, status: FindingStatus | None = None) -> list[Finding]:
        """The findings as they stand now, by path and place."""
        paths = sorted(self._files) if path is None else [path]
        for each in paths:
            self._catch_up(each)
        found = [self._shown(one, each) for each in paths for one in self._files.get(each, {}).values()]
        chosen = [finding for finding in found if status is None or finding.status == status]
        return sorted(chosen, key=lambda one: (one.path, one.span.start_line, one.span.start_character))

    def standing(self, path: str) -> list[Standing]:
        """Where the findings of a file that are diagnostics stand, without making anew each one that only moved."""
        self._catch_up(path)
        source = self._source(path)
        has_dismissals = len(self._store.dismissals.findings) > 0
        found = []
        for one in self._files.get(path, {}).values():
            if one.is_withdrawn:
                continue
            if source is not None and not one.is_stale and not has_dismissals and one.finding.status != "dismissed":
                first, last = source.line_of(one.start), source.line_of(one.end)
                starts = source.line_starts
                found.append(Standing(one.finding, first, one.start - starts[first], last, one.end - starts[last]))
                continue
            shown = self._shown(one, path)
            if shown.status in ("open", "stale"):
                span = shown.span
                found.append(Standing(shown, span.start_line, span.start_character, span.end_line, span.end_character))
        return sorted(found, key=lambda one: one[1:3])

    def find(self, finding_id: str) -> Finding | None:
        """One finding as it stands now."""
        path = self._paths.get(finding_id)
        if path is None:
            return None
        self._catch_up(path)
        return self._shown(self._files[path][finding_id], path)

    def is_withdrawn(self, finding_id: str) -> bool:
        """Whether most of its quote is gone, so that it is no diagnostic any more."""
        path = self._paths.get(finding_id)
        return path is not None and self._files[path][finding_id].is_withdrawn

    def every(self) -> list[Finding]:
        """All findings, at the places where they stand now."""
        return self.listing()

    def text_of(self, path: str) -> str | None:
        """The text of a file that counts now; `None` when there is none."""
        self._catch_up(path)
        source = self._source(path)
        return None if source is None else source.text

    def dismissal_of(self, finding: Finding) -> Dismissal | None:
        """The dismissal that speaks of a finding, also one whose time is over; the one in force first."""
        records = self._dismissals_of(finding)
        now = datetime.now(UTC)
        return next((one.dismissal for one in sorted(records, key=lambda one: one.is_over(now))), None)

    # Changing

    def publish(self, finding: Finding) -> None:
        """Take a finding that a run reported, or another wording of one that it reported before."""
        before = {one.finding.id for one in self._files.get(finding.path, {}).values()}
        self._store.put([finding])
        kept = {one.id for one in self._store.at(finding.path)}
        for gone in before - kept:
            self._forget(gone)
        self._catch_up(finding.path)
        if finding.id in kept:
            self._insert(self._placed(finding, self._source(finding.path)))
        self._touched(finding.path)

    def remove(self, finding_ids: Iterable[str]) -> int:
        """Forget findings; the count of those that were there."""
        ids = [finding_id for finding_id in finding_ids if finding_id in self._paths]
        paths = {self._paths[finding_id] for finding_id in ids}
        self._store.remove(ids)
        for finding_id in ids:
            self._forget(finding_id)
        for path in sorted(paths):
            self._touched(path)
        return len(ids)

    def clear(self, path: str | None = None) -> int:
        """Forget the findings of a file, or all."""
        return self.remove([one.id for one in self.listing(path)])

    def dismiss(self, finding_id: str, reason: str | None, until: str | None) -> Finding:
        """Remember that a finding is not to be shown."""
        finding = self._known(finding_id)
        if until is not None and parsed_time(until) is None:
            raise configuration(f"until: {until!r} is no date and no RFC 3339 time", field="until")
        dismissal = self._store.dismissals.dismiss(finding, reason=reason, until=until)
        if self.shares_dismissals:
            update_shared_dismissals(self._top, add=[DismissedFinding.of(finding, dismissal)])
        self._touched(finding.path)
        return self._now(finding_id)

    def restore(self, finding_id: str) -> Finding:
        """Take every dismissal of a finding back."""
        finding = self._known(finding_id)
        fingerprints = [record.fingerprint for record in self._dismissals_of(finding)]
        self._store.dismissals.restore(finding)
        if self.shares_dismissals:
            update_shared_dismissals(self._top, restore=fingerprints)
        if finding.status == "dismissed":
            self._store.put([finding.model_copy(update={"status": "open", "dismissal": None})])
            self._files[finding.path][finding_id].finding = self._store.get(finding_id) or finding
        self._touched(finding.path)
        return self._now(finding_id)

    def follow_shared_dismissals(self) -> tuple[str, ...]:
        """Read the repository's dismissals; what in them could not be understood."""
        shared = read_shared_dismissals(self._top)
        for record in shared.records:
            if self._store.dismissals.findings.get(record.fingerprint) is None:
                self._store.dismissals.add(record)
        return shared.faults

    # Documents

    def opened(self, path: str, text: str) -> None:
        """A document is open: its text counts instead of the disk's."""
        before = self._source(path)
        self._documents[path] = SourceText(text)
        self._on_disk.pop(path, None)
        if before is None or before.text != self._documents[path].text:
            self._place_again(path)

    def edited(self, path: str, old_text: str, new_text: str) -> None:
        """A document changed: its findings move with their text, or turn stale."""
        known = self._documents.get(path)
        old, new = SourceText(old_text), SourceText(new_text)
        self._documents[path] = new
        tracked = self._files.get(path)
        if not tracked:
            return
        if known is None or known.text != old.text:
            self._place_again(path)
            return
        edit = edit_between(old.text, new.text)
        if edit is not None and follow(tracked.values(), edit, new):
            self._changed(path)

    def closed(self, path: str) -> None:
        """A document is closed: the disk's text counts again."""
        source = self._documents.pop(path, None)
        after = self._source(path)
        if (source.text if source else None) != (after.text if after else None):
            self._place_again(path)

    def changed_on_disk(self, path: str) -> None:
        """A file was written by somebody; findings in it are told about when they stand elsewhere now."""
        if path in self._files and path not in self._documents and self._catch_up(path):
            self._changed(path)

    # Writing

    def flush(self) -> None:
        """Write what is not written yet. A disk that refuses is told to the log; the next time tries again."""
        if self._save_handle is not None:
            self._save_handle.cancel()
            self._save_handle = None
        try:
            self._store.save()
        except (OSError, OutpostError) as error:
            logger.warning("findings could not be saved: %s", error)

    def _touched(self, path: str) -> None:
        self._changed(path)
        if self._save_handle is None:
            # Findings come in bunches; what is reported in one turn of the loop is written in one piece.
            self._save_handle = asyncio.get_running_loop().call_soon(self._save_soon)

    def _save_soon(self) -> None:
        self._save_handle = None
        self.flush()

    # Placing

    def _place_again(self, path: str) -> None:
        if self._files.get(path):
            self._place_all(path)
            self._changed(path)

    def _place_all(self, path: str) -> None:
        source = self._source(path)
        tracked = self._files.get(path, {})
        for finding_id, one in list(tracked.items()):
            tracked[finding_id] = self._placed(one.finding, source)

    def _catch_up(self, path: str) -> bool:
        """Look whether a file that is not open changed on disk; its findings are placed again when it did."""
        known = self._on_disk.get(path)
        if known is None or path in self._documents or known.signature == _signature(self._top / path):
            return False
        del self._on_disk[path]
        self._place_all(path)
        return True

    @staticmethod
    def _placed(finding: Finding, source: SourceText | None) -> TrackedFinding:
        if source is None:
            # The file is gone: nothing of the quote is left.
            return TrackedFinding(finding, 0, 0, 0.0)
        return place(finding, source)

    def _insert(self, tracked: TrackedFinding) -> None:
        finding = tracked.finding
        self._files.setdefault(finding.path, {})[finding.id] = tracked
        self._paths[finding.id] = finding.path

    def _forget(self, finding_id: str) -> None:
        path = self._paths.pop(finding_id)
        of_path = self._files[path]
        del of_path[finding_id]
        if not of_path:
            del self._files[path]
            self._on_disk.pop(path, None)

    def _shown(self, tracked: TrackedFinding, path: str) -> Finding:
        finding = tracked.shown(self._source(path)) if not tracked.is_withdrawn else _withdrawn(tracked.finding)
        dismissal = self._dismissal_in_force(finding)
        if dismissal is not None:
            return finding.model_copy(update={"status": "dismissed", "dismissal": dismissal})
        return finding if finding.status != "dismissed" else finding.model_copy(update={"status": "open"})

    def _source(self, path: str) -> SourceText | None:
        document = self._documents.get(path)
        if document is not None:
            return document
        if path not in self._on_disk:
            self._on_disk[path] = _read(self._top / path)
        return self._on_disk[path].source

    # Dismissals

    def _dismissals_of(self, finding: Finding) -> list[DismissedFinding]:
        return self._store.dismissals.findings.all_covering(finding)

    def _dismissal_in_force(self, finding: Finding) -> Dismissal | None:
        dismissals = self._store.dismissals.findings
        return dismissals.covering(finding) if len(dismissals) else None

    def _known(self, finding_id: str) -> Finding:
        path = self._paths.get(finding_id)
        if path is None:
            raise configuration(f"findingId: there is no finding {finding_id!r}", field="findingId")
        return self._files[path][finding_id].finding

    def _now(self, finding_id: str) -> Finding:
        return self._shown(self._files[self._paths[finding_id]][finding_id], self._paths[finding_id])


def _withdrawn(finding: Finding) -> Finding:
    return finding.model_copy(update={"status": "stale", "severity": "hint", "suggestion": None})


@dataclass(frozen=True, slots=True)
class _DiskText:
    """A file as it was read: `signature` tells whether it was written since."""

    signature: tuple[int, ...]
    source: SourceText | None


def _signature(file: Path) -> tuple[int, ...]:
    try:
        status = file.lstat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode


def _read(file: Path) -> _DiskText:
    signature = _signature(file)
    try:
        if not signature or not stat.S_ISREG(signature[3]) or signature[1] > _LARGEST_FILE:
            return _DiskText(signature, None)
        return _DiskText(signature, SourceText(file.read_bytes().decode("utf-8", "replace")))
    except OSError:
        return _DiskText(signature, None)
