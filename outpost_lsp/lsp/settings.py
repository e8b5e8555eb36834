"""The client's settings and its trust, from `initialize` on, and how changes of them reach the workspaces.

Three sources, later wins: `initializationOptions.settings`, `workspace/didChangeConfiguration`, and what the client
answers to `workspace/configuration`. Nothing in them stops the server: what is wrong is told once, and the settings
before stay in force.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from outpost_lsp.domain.markdown import one_line
from outpost_lsp.lsp.protocol import RequestFault
from outpost_lsp.lsp.watching import SETTINGS_FILES
from outpost_lsp.protocol.uris import path_of

if TYPE_CHECKING:
    from outpost_lsp.lsp.reporter import Reporter
    from outpost_lsp.lsp.server import OutpostServer
    from outpost_lsp.service.outpost import Outpost
    from outpost_lsp.service.workspace import Workspace

logger = logging.getLogger(__name__)

_PULL_S: Final = 60.0
_PATIENCE_S: Final = 2.0
"""How long the start, or a request, waits for the client's settings; what comes later is applied when it comes."""

_WARNING: Final = 2
_SECTION: Final = "outpost"


class ClientSettings:
    """Keeps the workspaces' settings in step with the client's."""

    def __init__(self, server: OutpostServer, outpost: Outpost, reporter: Reporter) -> None:
        self._server = server
        self._outpost = outpost
        self._reporter = reporter
        self._pushed: Mapping[str, Any] = {}
        self._pulled: dict[Path, Mapping[str, Any]] = {}
        self._told: dict[Path, frozenset[str]] = {}
        self._beside: set[asyncio.Task[None]] = set()
        self._changes: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Ask for what the client has, and to be told when it changes; a slow client is not waited for."""
        self._do_beside(self._register())
        pulling = self._do_beside(self._pull())
        await asyncio.wait({pulling}, timeout=_PATIENCE_S)
        if not pulling.done():
            self._do_beside(self._apply_late(pulling))

    def close(self) -> None:
        """Stop waiting for the client."""
        for task in self._beside:
            task.cancel()

    def _do_beside(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)
        return task

    async def _apply_late(self, pulling: asyncio.Task[None]) -> None:
        await pulling
        await self._apply()

    def add(self, folder: Path) -> Workspace:
        """The workspace of a folder, under the client's settings and trust."""
        return self._outpost.add_workspace(folder, client_settings=self._of(folder), trusted=self._trust(folder))

    def changed(self, settings: Any) -> asyncio.Task[None]:
        """`workspace/didChangeConfiguration` came; what is asked from now on is answered under the new settings."""
        return self._change(self._take(settings))

    def _change(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._do_beside(work)
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return task

    @property
    def are_settled(self) -> bool:
        """Whether every change that came is in force."""
        return not self._changes

    async def settled(self) -> None:
        """Wait until the changes that came are in force, though never long: a client may not answer what it is asked."""
        if self._changes:
            await asyncio.wait(set(self._changes), timeout=_PATIENCE_S)

    async def _take(self, settings: Any) -> None:
        # With `null` the notification only says that asking again is worth it.
        if isinstance(settings, Mapping):
            inner = settings.get(_SECTION, settings)
            if isinstance(inner, Mapping):
                self._pushed = inner
            elif inner is not None:
                self._reporter.message(_WARNING, "Outpost: settings.outpost: an object is expected")
        elif settings is not None:
            self._reporter.message(_WARNING, "Outpost: settings: an object is expected")
        await self._pull()
        await self._apply()

    async def trust(self, workspace: Workspace, *, is_trusted: bool) -> None:
        """The client's own trust in a folder is another now."""
        await workspace.ready()
        await workspace.reload(self._of(workspace.folder), trusted=is_trusted)
        self.tell_faults(workspace)

    def file_saved(self, path: Path) -> None:
        """A file was written; if it holds settings they are read again, and count for what is asked from now on."""
        concerned = [one for one in self._outpost.workspaces if path.parent == one.folder]
        if path.name in SETTINGS_FILES and concerned:
            self._change(self._apply(concerned))

    def tell_faults(self, workspace: Workspace) -> None:
        """Tell what is wrong with a workspace's settings; what was told and is still wrong is not told again."""
        before = frozenset().union(*self._told.values())
        self._told[workspace.folder] = frozenset(workspace.faults)
        for fault in dict.fromkeys(workspace.faults):
            if fault not in before:
                self._reporter.message(_WARNING, f"Outpost: {one_line(fault, 600)}")

    async def _apply(self, workspaces: list[Workspace] | None = None) -> None:
        for workspace in self._outpost.workspaces if workspaces is None else workspaces:
            await workspace.ready()
            await workspace.reload(self._of(workspace.folder))
            self.tell_faults(workspace)

    async def _register(self) -> None:
        registrations: list[dict[str, Any]] = []
        client = self._server.client
        if client.can("workspace.didChangeConfiguration.dynamicRegistration"):
            registrations.append(
                {
                    "id": "outpost-configuration",
                    "method": "workspace/didChangeConfiguration",
                    "registerOptions": {"section": _SECTION},
                }
            )
        if registrations:
            await self._ask("client/registerCapability", {"registrations": registrations})

    async def _pull(self) -> None:
        if not self._server.client.can("workspace.configuration"):
            return
        folders = list(self._server.folders.items())
        items = [{"scopeUri": uri, "section": _SECTION} for _, uri in folders] or [{"section": _SECTION}]
        answer = await self._ask("workspace/configuration", {"items": items})
        if not isinstance(answer, list):
            return
        for (folder, _), value in zip(folders, answer, strict=False):
            if isinstance(value, Mapping):
                self._pulled[folder] = value
            elif value is not None:
                self._reporter.message(_WARNING, "Outpost: the client's section outpost: an object is expected")

    async def _ask(self, method: str, params: dict[str, Any]) -> Any:
        try:
            return await self._server.protocol.ask(method, params, _PULL_S)
        except (RequestFault, TimeoutError) as error:
            logger.info("the client did not answer %s: %s", method, error)
            return None

    def _of(self, folder: Path) -> Mapping[str, Any]:
        merged: Mapping[str, Any] = {}
        for part in (self._server.options.settings, self._pushed, self._pulled.get(folder)):
            merged = _merged(merged, part or {})
        return merged

    def _trust(self, folder: Path) -> bool | None:
        trusted = self._server.options.trusted
        if not isinstance(trusted, frozenset):
            return trusted
        # A list says of every folder whether it is in it.
        return folder in {path_of(uri) for uri in trusted}


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> Mapping[str, Any]:
    """Two settings, key by key; tables are merged at every depth."""
    result = dict(below)
    for key, value in above.items():
        known = result.get(key)
        both_tables = isinstance(known, Mapping) and isinstance(value, Mapping)
        result[key] = _merged(known or {}, value) if both_tables else value
    return result
