"""Asking the client to tell when files change outside it: settings files, a team's dismissals, files with findings.

Only these are watched, by name, since watching whole trees costs some clients dearly. The set follows the findings, a
little later, so that a review that reports many does not register many times.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from outpost_lsp.lsp.protocol import RequestFault

if TYPE_CHECKING:
    from outpost_lsp.lsp.client import Client
    from outpost_lsp.lsp.protocol import OutpostProtocol

logger = logging.getLogger(__name__)

SETTINGS_FILES: Final = ("outpost.toml", "pyproject.toml")
DISMISSALS_FILE: Final = ".outpost/dismissals.json"
_METHOD: Final = "workspace/didChangeWatchedFiles"
_DELAY_S: Final = 1.0
_PATIENCE_S: Final = 60.0
_MOST_FILES: Final = 500


class FileWatching:
    """The watchers that are registered with one client. `files` gives those that have findings."""

    def __init__(self, protocol: OutpostProtocol, client: Client, files: Callable[[], Iterable[Path]]) -> None:
        self._protocol = protocol
        self._files = files
        self._can = client.can("workspace.didChangeWatchedFiles.dynamicRegistration")
        self._watched: tuple[str, ...] = ()
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Watch the settings files and the dismissals of a team."""
        if self._can:
            self._start([f"**/{name}" for name in (*SETTINGS_FILES, DISMISSALS_FILE)], "outpost-settings")

    def refresh(self) -> None:
        """The files with findings may be others now."""
        if self._can and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_DELAY_S, self._update)

    def close(self) -> None:
        """Register nothing more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _update(self) -> None:
        self._timer = None
        if self._task is not None and not self._task.done():
            self.refresh()
            return
        wanted = tuple(_glob(path) for path in sorted(self._files())[:_MOST_FILES])
        if wanted != self._watched:
            self._task = asyncio.get_running_loop().create_task(self._replace(wanted), name="watch files")

    async def _replace(self, wanted: tuple[str, ...]) -> None:
        before, self._watched = self._number if self._watched else 0, wanted
        self._number += 1
        if wanted:
            await self._register(wanted, f"outpost-findings-{self._number}")
        if before:
            unregistered = [{"id": f"outpost-findings-{before}", "method": _METHOD}]
            # The misspelling is the protocol's own.
            await self._ask("client/unregisterCapability", {"unregisterations": unregistered})

    def _start(self, globs: Iterable[str], name: str) -> None:
        self._task = asyncio.get_running_loop().create_task(self._register(globs, name), name="watch settings files")

    async def _register(self, globs: Iterable[str], name: str) -> None:
        options = {"watchers": [{"globPattern": glob} for glob in globs]}
        registration = {"id": name, "method": _METHOD, "registerOptions": options}
        await self._ask("client/registerCapability", {"registrations": [registration]})

    async def _ask(self, method: str, params: dict[str, Any]) -> None:
        try:
            await self._protocol.ask(method, params, _PATIENCE_S)
        except (RequestFault, TimeoutError) as error:
            logger.info("the client does not watch files: %s", error)


def _glob(path: Path) -> str:
    """A pattern that means one file: what patterns give a meaning stands in a class of its own, or for any character."""
    return "".join("?" if character in "*?[]{}!," else character for character in path.as_posix())
