"""The findings of one workspace: kept, placed in the text of this moment, dismissed, and told about when they change.

A finding is shown only where its quote stands, in the text that counts now: the open document's, else the disk's
(REL-18). What is stored is the finding as it was reported. Changes are written soon after, together. Lives on the event
loop; `load` alone may run in a worker, before anybody else has the board.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from outpost_lsp.domain.anchor import SourceText
from outpost_lsp.domain.finding import Dismissal, Finding, FindingStatus
from outpost_lsp.errors import OutpostError, configuration
from outpost_lsp.reviews.edit import edit_between
from outpost_lsp.reviews.tracking import TrackedFinding, follow, place, place_all, starts_of_twins
from outpost_lsp.service.dismissing import Dismissals
from outpost_lsp.service.texts import FileTexts
from outpost_lsp.service.view import FindingView, Standing, alike
from outpost_lsp.storage.dismissed import parsed_time
from outpost_lsp.storage.findings import FindingStore
from outpost_lsp.storage.shared_dismissals import SHARED_PATH

logger = logging.getLogger(__name__)


class FindingBoard:
    """Findings by file. `changed` is told each path whose findings are others now, `warn` what a person should mend."""

    def __init__(
        self,
        top: Path,
        store: FindingStore,
        changed: Callable[[str], None],
        warn: Callable[[str], None] = lambda _fault: None,
    ) -> None:
        self._store = store
        self._changed = changed
        self._files: dict[str, dict[str, TrackedFinding]] = {}
        self._paths: dict[str, str] = {}
        self._texts = FileTexts(top)
        self._save_handle: asyncio.Handle | None = None
        self.dismissals = Dismissals(top, store.dismissals, warn)
        self._view = FindingView(self._texts, self.dismissals)

    def load(self) -> None:
        """Place what earlier sessions left."""
        for path in self._store.paths():
            for tracked in _placed(self._store.at(path), self._texts[path]):
                self._insert(tracked)

    def catch_up(self) -> None:
        """Take over what other processes found, replaced or dismissed meanwhile, and tell about it."""
        self.follow_dismissed()
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
                self._insert(self._placed_beside(finding))
            if gone or fresh:
                self._changed(path)

    def follow_dismissed(self) -> None:
        """Take over what others dismissed or took back, and tell about it."""
        if self.dismissals.refresh():
            for path in list(self._files):
                self._changed(path)

    # Asking

    def paths(self) -> list[str]:
        """The files that have findings."""
        return sorted(self._files)

    def listing(self, path: str | None = None, status: FindingStatus | None = None) -> list[Finding]:
        """The findings as they stand now, by path and place."""
        found = []
        for each in sorted(self._files) if path is None else [path]:
            self._catch_up(each)
            found += [self._view.merged(group, each) for group in self._groups(each)]
        chosen = [finding for finding in found if status is None or finding.status == status]
        return sorted(chosen, key=lambda one: (one.path, one.span.start_line, one.span.start_character))

    def standing(self, path: str) -> list[Standing]:
        """Where the findings of a file that are diagnostics stand, without making anew each one that only moved."""
        self._catch_up(path)
        return self._view.standing(self._groups(path), path)

    def find(self, finding_id: str) -> Finding | None:
        """One finding as it stands now."""
        path = self._paths.get(finding_id)
        if path is None:
            return None
        self._catch_up(path)
        return self._now(finding_id)

    def is_withdrawn(self, finding_id: str) -> bool:
        """Whether most of its quote is gone, so that it is no diagnostic any more."""
        path = self._paths.get(finding_id)
        return path is not None and self._files[path][finding_id].is_withdrawn

    def reported_by(self, agents: Iterable[str]) -> list[Finding]:
        """Each finding of these agents, also one that is shown as another agent's; at the places where they stand now."""
        wanted = frozenset(agents)
        return self._each(lambda one: one.agent in wanted)

    def of_run(self, run_id: str) -> list[Finding]:
        """Each finding of a run, also one that is shown as another agent's; at the places where they stand now."""
        return self._each(lambda one: one.run_id == run_id)

    def find_alike(self, finding: Finding) -> list[Finding]:
        """The findings about the same code that are there now, whoever reported them."""
        return self._each(lambda one: one.fingerprint == finding.fingerprint)

    def _each(self, is_meant: Callable[[Finding], bool]) -> list[Finding]:
        found = []
        for path, tracked in self._files.items():
            mine = [finding_id for finding_id, one in tracked.items() if is_meant(one.finding)]
            if mine:
                self._catch_up(path)
                found += [self._view.of(self._files[path][finding_id], path) for finding_id in mine]
        return found

    def text_of(self, path: str) -> str | None:
        """The text of a file that counts now; `None` when there is none."""
        self._catch_up(path)
        source = self._texts[path]
        return None if source is None else source.text

    def dismissal_of(self, finding: Finding) -> Dismissal | None:
        """The dismissal that speaks of a finding, also one whose time is over; the one in force first."""
        return self.dismissals.of(finding)[0]

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
            self._insert(self._placed_beside(finding))
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
        """Forget the findings of a file, or all; the count of those that were shown."""
        paths = sorted(self._files) if path is None else [path]
        count = sum(len(self._groups(each)) for each in paths)
        self.remove([finding_id for each in paths for finding_id in list(self._files.get(each, ()))])
        return count

    def clear_earlier(self, run_id: str) -> int:
        """Forget the findings of every run before this one; the count of those forgotten."""
        return self.remove([one.finding.id for one in self._all() if one.finding.run_id < run_id])

    def dismiss(self, finding_id: str, reason: str | None, until: str | None) -> Finding:
        """Remember that a finding is not to be shown."""
        finding = self._known(finding_id)
        if until is not None and parsed_time(until) is None:
            raise configuration(f"until: {until!r} is no date and no RFC 3339 time", field="until")
        self.dismissals.dismiss(finding, reason, until)
        self._touched(finding.path)
        return self._now(finding_id)

    def restore(self, finding_id: str) -> Finding:
        """Take every dismissal of a finding back."""
        finding = self._known(finding_id)
        self.dismissals.restore(finding)
        if finding.status == "dismissed":
            self._store.put([finding.model_copy(update={"status": "open", "dismissal": None})])
            self._files[finding.path][finding_id].finding = self._store.get(finding_id) or finding
        self._touched(finding.path)
        return self._now(finding_id)

    def mark_fixed(self, finding_id: str) -> None:
        """What settles a finding was applied: it counts as fixed while its quote is not there."""
        finding = self._known(finding_id)
        self._store.put([finding.model_copy(update={"status": "fixed"})])
        self._files[finding.path][finding_id].finding = self._store.get(finding_id) or finding
        self._touched(finding.path)

    def follow_dismissals(self, *, shared: bool) -> tuple[str, ...]:
        """Share dismissals with everybody who has the repository, or keep them; what in theirs was not understood."""
        before = self.dismissals.of_the_team()
        faults = self.dismissals.follow(shared=shared)
        if before != self.dismissals.of_the_team():
            for path in self.paths():
                self._changed(path)
        return faults

    # Documents

    def opened(self, path: str, text: str) -> None:
        """A document is open: its text counts instead of the disk's."""
        before, source = self._texts[path], SourceText(text)
        self._texts.set_document(path, source)
        if before is None or before.text != source.text:
            self._place_again(path)

    def edited(self, path: str, old_text: str, new_text: str) -> None:
        """A document changed: its findings move with their text, or turn stale."""
        known = self._texts.document(path)
        old, new = SourceText(old_text), SourceText(new_text)
        self._texts.set_document(path, new)
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
        source = self._texts.close_document(path)
        after = self._texts[path]
        if (source.text if source else None) != (after.text if after else None):
            self._place_again(path)

    def changed_on_disk(self, path: str) -> None:
        """A file was written by somebody; findings in it are told about when they stand elsewhere now."""
        if path == SHARED_PATH:
            self.follow_dismissed()
        if path in self._files and self._catch_up(path):
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
        tracked = self._files.get(path, {})
        for one in _placed([one.finding for one in tracked.values()], self._texts[path]):
            tracked[one.finding.id] = one

    def _catch_up(self, path: str) -> bool:
        """Look whether a file that is not open changed on disk; its findings are placed again when it did."""
        if not self._texts.was_written(path):
            return False
        self._place_all(path)
        return True

    def _placed_beside(self, finding: Finding) -> TrackedFinding:
        """One more finding, at none of the texts that are its twins' own."""
        source = self._texts[finding.path]
        if source is None:
            return _without_text(finding)
        return place(finding, source, starts_of_twins(finding, self._files.get(finding.path, {}).values()))

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
            self._texts.forget(path)

    # Showing

    def _all(self) -> list[TrackedFinding]:
        return [one for of_path in self._files.values() for one in of_path.values()]

    def _groups(self, path: str) -> list[list[TrackedFinding]]:
        return alike(self._files.get(path, {}).values())

    def _now(self, finding_id: str) -> Finding:
        path = self._paths[finding_id]
        own = self._files[path][finding_id]
        same = [one for one in self._files[path].values() if one.finding.fingerprint == own.finding.fingerprint]
        others = [one for one in alike(same)[0] if one is not own]
        return self._view.merged([own, *others], path)

    def _known(self, finding_id: str) -> Finding:
        path = self._paths.get(finding_id)
        if path is None:
            raise configuration(f"findingId: there is no finding {finding_id!r}", field="findingId")
        return self._files[path][finding_id].finding


def _placed(findings: Iterable[Finding], source: SourceText | None) -> list[TrackedFinding]:
    return place_all(findings, source) if source is not None else [_without_text(finding) for finding in findings]


def _without_text(finding: Finding) -> TrackedFinding:
    """A finding whose file is gone: nothing of the quote is left."""
    return TrackedFinding(finding, 0, 0, 0.0)
