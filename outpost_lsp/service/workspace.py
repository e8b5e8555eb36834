"""One folder that somebody works in: its repository, its settings, its findings and its runs.

The repository is found, the findings of earlier sessions are placed and what a dead process left is marked in `ready`,
which every operation awaits. A folder that is no repository is a workspace all the same: it has settings, and a fault
that says why nothing can run there. Made by `Outpost.add_workspace`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outpost_lsp.domain.finding import Finding, FindingStatus
from outpost_lsp.errors import OutpostError, configuration

if TYPE_CHECKING:
    from outpost_lsp.config.schema import Settings
    from outpost_lsp.service.board import FindingBoard
    from outpost_lsp.service.outpost import Outpost
    from outpost_lsp.storage.layout import RepositoryLayout
    from outpost_lsp.storage.runs import RunStore
    from outpost_lsp.worktrees.git import Repository

logger = logging.getLogger(__name__)


class Workspace:
    """A workspace folder. Paths of findings and documents are relative to the repository's top, in POSIX form."""

    settings: Settings
    """The settings in force."""
    faults: tuple[str, ...]
    """What was wrong with the settings that were refused."""
    layout: RepositoryLayout
    runs: RunStore
    board: FindingBoard

    def __init__(
        self,
        outpost: Outpost,
        folder: Path,
        *,
        client_settings: Mapping[str, Any] | None = None,
        trusted: bool | None = None,
    ) -> None:
        self.folder = folder
        self.faults = ()
        self._outpost = outpost
        self._client_settings = client_settings
        self._trusted = trusted
        self._repository: Repository | None = None
        self._repository_fault: OutpostError | None = None
        self._opening: asyncio.Task[None] | None = None

    @property
    def top(self) -> Path:
        """The repository's top folder; the folder itself where there is no repository."""
        return self._repository.top if self._repository is not None else self.folder

    @property
    def repository(self) -> Repository:
        """The repository; the fault that says why there is none, otherwise. Known once `ready` has returned."""
        if self._repository is not None:
            return self._repository
        raise self._repository_fault or configuration(f"{self.folder} is not opened yet")

    async def ready(self) -> None:
        """Wait until the repository is known and earlier findings are placed."""
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open())
        await asyncio.shield(self._opening)

    @property
    def is_ready(self) -> bool:
        """Whether `ready` would return at once."""
        task = self._opening
        return task is not None and task.done() and not task.cancelled() and task.exception() is None

    async def aclose(self) -> None:
        """Stop opening it, when that is still going on, and write down what is not yet on disk."""
        if self._opening is not None and not self._opening.done():
            self._opening.cancel()
            await asyncio.wait({self._opening})
        if self.is_ready:
            self.board.flush()

    # Findings

    def findings(self, path: str | None = None, status: FindingStatus | None = None) -> list[Finding]:
        """Findings as they stand now, by path and place."""
        return self.board.listing(path, status) if self.is_ready else []

    def finding(self, finding_id: str) -> Finding | None:
        """One finding by its id."""
        return self.board.find(finding_id) if self.is_ready else None

    def dismiss(self, finding_id: str, *, reason: str | None = None, until: str | None = None) -> Finding:
        """Remember that this finding is not to be shown."""
        return self.board.dismiss(finding_id, reason, until)

    def restore(self, finding_id: str) -> Finding:
        """Take a dismissal back."""
        return self.board.restore(finding_id)

    def clear(self, path: str | None = None) -> int:
        """Forget the findings of a file, or all; dismissals stay. The count of those forgotten."""
        return self.board.clear(path)

    # Documents

    def opened(self, path: str, text: str) -> None:
        """A document is open: its text counts from now on, not the disk's."""
        if self.is_ready:
            self.board.opened(path, text)

    def edited(self, path: str, old_text: str, new_text: str) -> None:
        """A document changed: its findings move with their text, or turn stale."""
        if self.is_ready:
            self.board.edited(path, old_text, new_text)

    def closed(self, path: str) -> None:
        """A document is closed: the disk's text counts again."""
        if self.is_ready:
            self.board.closed(path)
