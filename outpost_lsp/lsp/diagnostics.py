"""Findings as diagnostics: one publish per file and tenth of a second, always of what holds now.

A file's diagnostics are made when they are sent, from the findings and the text of that moment, so that no publish can
carry an old place or an old version (REL-18). While the client does not keep up nothing is sent; what changed meanwhile
is sent once, when it does.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from outpost_lsp.domain.finding import Finding
from outpost_lsp.lsp.encoding import EncodedFile, dumped

if TYPE_CHECKING:
    from outpost_lsp.lsp.documents import Document, Documents
    from outpost_lsp.lsp.places import Places
    from outpost_lsp.lsp.protocol import OutpostProtocol
    from outpost_lsp.service.view import Standing
    from outpost_lsp.service.workspace import Workspace

logger = logging.getLogger(__name__)

INTERVAL_S: Final = 0.1
_SLICE_S: Final = 0.004
_MANY: Final = 200
_PAUSE_S: Final = 0.25

Key = tuple["Workspace", str]


class DiagnosticPublisher:
    """Publishes the findings of each file when they changed."""

    def __init__(self, protocol: OutpostProtocol, places: Places, documents: Documents) -> None:
        self._protocol = protocol
        self._places = places
        self._documents = documents
        self._waiting: dict[Key, None] = {}
        self._last: dict[Key, float] = {}
        self._published: dict[Key, str] = {}
        self._encoded: dict[Key, EncodedFile] = {}
        self._details: dict[Key, asyncio.TimerHandle] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.after_publish: Callable[[], None] = lambda: None
        self.before_publish: Callable[[Document], object] | None = None
        """Lets findings follow the edits of a document that were not passed on yet."""

    def changed(self, workspace: Workspace, path: str) -> None:
        """The findings of a file changed: publish them soon, at once when nothing was published lately."""
        self._waiting[workspace, path] = None
        if self._timer is None:
            self._arm(0.0)

    def publish_now(self, workspace: Workspace, path: str) -> None:
        """Publish a file's findings without waiting, unless the client does not keep up."""
        key = (workspace, path)
        if self._protocol.is_congested:
            self._waiting[key] = None
        else:
            self._waiting.pop(key, None)
            self._publish(key)

    def flush(self) -> None:
        """Publish whatever waits: a run is about to end."""
        for workspace, path in list(self._waiting):
            self.publish_now(workspace, path)
        for key, timer in list(self._details.items()):
            timer.cancel()
            self._send_details(key, self._published.get(key) or self._places.uri(*key))

    def relieved(self) -> None:
        """The client keeps up again."""
        if self._waiting:
            self._arm(0.0)

    def respell(self, path: Path) -> None:
        """A document was opened, perhaps under another spelling: move its diagnostics there."""
        found = self._places.locate(path)
        if found is not None and (found in self._published or found in self._waiting):
            self.publish_now(*found)

    def forget(self, workspace: Workspace) -> None:
        """Withdraw everything of a workspace that was removed."""
        for key in [key for key in self._published if key[0] is workspace]:
            self._send(key, self._published.pop(key), [])
            self._last.pop(key, None)
        for waiting in [key for key in self._waiting if key[0] is workspace]:
            del self._waiting[waiting]

    def _arm(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._run)

    def _run(self) -> None:
        """Publish what is due, for a few milliseconds; then come back for the rest."""
        self._timer = None
        if self._protocol.is_congested:
            return
        now = time.monotonic()
        end, next_due = now + _SLICE_S, float("inf")
        for key in list(self._waiting):
            due = self._last.get(key, 0.0) + INTERVAL_S
            if due > now:
                next_due = min(next_due, due)
            elif time.monotonic() > end:
                next_due = now
                break
            else:
                del self._waiting[key]
                self._publish(key)
        if next_due < float("inf"):
            self._arm(max(0.0, next_due - time.monotonic()))

    def _publish(self, key: Key) -> None:
        workspace, path = key
        document = self._documents.at(self._places.file(workspace, path))
        if document is not None and self.before_publish is not None:
            self.before_publish(document)
            self._waiting.pop(key, None)
        standing = workspace.standing(path)
        uri = self._places.uri(workspace, path)
        before = self._published.get(key)
        if before is not None and before != uri:
            self._send(key, before, [])
        if not standing and before is None:
            self._last.pop(key, None)
            return
        if standing:
            self._published[key] = uri
        else:
            self._published.pop(key, None)
        self._send(key, uri, standing)
        # Counted from the end, so that a file whose publish takes long leaves time for everything else.
        self._last[key] = time.monotonic()

    def _send(self, key: Key, uri: str, standing: Sequence[Standing]) -> None:
        encoded = self._encoded.setdefault(key, EncodedFile()) if standing else EncodedFile()
        diagnostics = encoded.diagnostics(standing, self._places.lines(*key), self._places.encoding)
        document = self._documents.get(uri)
        version = "" if document is None else f',"version":{document.version}'
        self._protocol.notify_encoded(
            "textDocument/publishDiagnostics", f'{{"uri":{dumped(uri)},"diagnostics":{diagnostics}{version}}}'
        )
        if key in self._details:
            self._details.pop(key).cancel()
        if len(standing) <= _MANY:
            self._send_details(key, uri)
        else:
            # The text of many findings is sent when the person pauses; where they stand is told at once.
            self._details[key] = asyncio.get_running_loop().call_later(_PAUSE_S, self._send_details, key, uri)
        self.after_publish()

    def _send_details(self, key: Key, uri: str) -> None:
        self._details.pop(key, None)
        workspace, path = key
        standing = workspace.standing(path) if self._published.get(key) == uri else []
        if standing:
            encoded = self._encoded.setdefault(key, EncodedFile())
            lines, encoding = self._places.lines(*key), self._places.encoding
            records = encoded.records(standing, uri, lines, encoding, lambda one: workspace.finding(one.id) or one)
        else:
            self._encoded.pop(key, None)
            records = "[]"
        self._protocol.notify_encoded("$/outpost/findings", f'{{"uri":{dumped(uri)},"findings":{records}}}')


def shown_findings(workspace: Workspace, path: str) -> list[Finding]:
    """The findings of a file that are diagnostics: not dismissed, not fixed, and with enough of their text left."""
    return [
        finding
        for finding in workspace.findings(path)
        if finding.status == "open" or (finding.status == "stale" and not workspace.is_withdrawn(finding.id))
    ]
