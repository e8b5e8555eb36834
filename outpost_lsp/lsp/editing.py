"""Edits of open documents on their way to the findings that have to follow them.

The first edit after a pause is passed on at once; while edits keep coming, at most one per document and tenth of a
second is, the last one always. Whoever asks about findings flushes first, so that no answer is older than the text.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from outpost_lsp.lsp.documents import Document

if TYPE_CHECKING:
    from outpost_lsp.lsp.diagnostics import DiagnosticPublisher
    from outpost_lsp.lsp.places import Places
    from outpost_lsp.service.workspace import Workspace

INTERVAL_S: Final = 0.1
_LARGE: Final = 4 * 1024 * 1024
_LARGE_INTERVAL_S: Final = 1.0


@dataclass(slots=True)
class _Followed:
    text: str
    last: float = 0.0
    timer: asyncio.TimerHandle | None = None


class EditFollower:
    """Hands the texts of open documents to their workspaces."""

    def __init__(self, places: Places, publisher: DiagnosticPublisher) -> None:
        self._places = places
        self._publisher = publisher
        self._followed: dict[str, _Followed] = {}

    def opened(self, document: Document) -> None:
        """A document is open: its text counts instead of the disk's."""
        self.closed(document, tell=False)
        if document.path is None or (found := self._places.locate(document.path)) is None:
            return
        self._followed[document.uri] = _Followed(document.text)
        workspace, path = found
        workspace.opened(path, document.text)
        self._publisher.respell(document.path)

    def changed(self, document: Document) -> None:
        """A document changed."""
        followed = self._followed.get(document.uri)
        if followed is None or followed.timer is not None:
            return
        interval = INTERVAL_S if len(followed.text) < _LARGE else _LARGE_INTERVAL_S
        wait = followed.last + interval - time.monotonic()
        if wait <= 0:
            self.flush(document)
        else:
            followed.timer = asyncio.get_running_loop().call_later(wait, self.flush, document)

    def flush(self, document: Document) -> None:
        """Pass on what was not passed on yet, and publish where it stands now."""
        found = self.hand_over(document)
        if found is not None:
            # The version is another one even where no finding moved.
            self._publisher.publish_now(*found)
            self._followed[document.uri].last = time.monotonic()

    def hand_over(self, document: Document) -> tuple[Workspace, str] | None:
        """Let the findings follow what was not passed on yet; where, when there was something."""
        followed = self._followed.get(document.uri)
        if followed is None:
            return None
        if followed.timer is not None:
            followed.timer.cancel()
            followed.timer = None
        new = document.text
        if new == followed.text or document.path is None or (found := self._places.locate(document.path)) is None:
            return None
        old, followed.text, followed.last = followed.text, new, time.monotonic()
        workspace, path = found
        workspace.edited(path, old, new)
        return found

    def closed(self, document: Document, *, tell: bool = True) -> None:
        """A document is closed: the disk's text counts again."""
        followed = self._followed.pop(document.uri, None)
        if followed is None:
            return
        if followed.timer is not None:
            followed.timer.cancel()
        if tell and document.path is not None and (found := self._places.locate(document.path)) is not None:
            workspace, path = found
            workspace.closed(path)
            self._publisher.changed(workspace, path)
