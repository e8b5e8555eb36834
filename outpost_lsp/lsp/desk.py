"""What works once the service is loaded: the service itself, its workspaces, and everything that shows them.

Opened after `initialized`, in the background. The server hands requests and document events here; nothing here knows
how messages travel.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lsprotocol import types

from outpost_lsp.config.environment import default_layout
from outpost_lsp.domain.run import Run
from outpost_lsp.lsp import commands
from outpost_lsp.lsp.applying import EditorLanding
from outpost_lsp.lsp.client import EventLevel
from outpost_lsp.lsp.diagnostics import DiagnosticPublisher
from outpost_lsp.lsp.documents import Document, differs_from_disk
from outpost_lsp.lsp.editing import EditFollower
from outpost_lsp.lsp.key_masks import KeyMasks
from outpost_lsp.lsp.looking import Looking
from outpost_lsp.lsp.places import Places
from outpost_lsp.lsp.progress import ProgressBoard, Token
from outpost_lsp.lsp.protocol import INVALID_PARAMS, RequestFault
from outpost_lsp.lsp.questions import Questions
from outpost_lsp.lsp.reporter import Reporter
from outpost_lsp.lsp.settings import ClientSettings
from outpost_lsp.lsp.showing import DocumentName, show_document
from outpost_lsp.lsp.virtual import virtual_content
from outpost_lsp.lsp.watching import DISMISSALS_FILE, FileWatching
from outpost_lsp.protocol.names import SECRET_REQUEST
from outpost_lsp.protocol.uris import path_of
from outpost_lsp.service.outpost import Outpost
from outpost_lsp.service.workspace import Workspace

if TYPE_CHECKING:
    from outpost_lsp.lsp.server import OutpostServer
    from outpost_lsp.service.estimates import Estimate

logger = logging.getLogger(__name__)

_SECRET_S: Final = 120.0
"""A person may have to unlock the storage first."""


class Desk:
    """One client's desk."""

    def __init__(self, server: OutpostServer) -> None:
        self._server = server
        self._stack = AsyncExitStack()
        protocol = server.protocol
        ask_client = self._ask_secret if server.options.secrets else None
        self.outpost = Outpost(default_layout(os.environ), os.environ, ask_client=ask_client)
        self.places = Places(self.outpost, server.documents, server.spellings, server.client.encoding)
        self._publisher = DiagnosticPublisher(protocol, self.places, server.documents)
        self._edits = EditFollower(self.places, self._publisher)
        self.looking = Looking(server.client, self.places, server.documents, self._edits.flush)
        self._progress = ProgressBoard(protocol, server.client, self._cancel_run)
        self._questions = Questions(protocol)
        self.reporter = Reporter(
            protocol, self.places, self._publisher, self._progress, self._questions, self._event_level
        )
        self.settings = ClientSettings(server, self.outpost, self.reporter)
        self._watching = FileWatching(protocol, server.client, self._files_with_findings)
        self._lenses: asyncio.TimerHandle | None = None
        self._latest: Path | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    # Life

    async def open(self) -> None:
        """Start the service and add the folders; what they hold is looked up in the background."""
        await self._stack.enter_async_context(self.outpost)
        self._stack.callback(self.outpost.subscribe(self.reporter))
        self._publisher.after_publish = self._published
        self._publisher.before_publish = self._edits.hand_over
        self._server.protocol.on_relief(self._publisher.relieved)
        for fault in self._server.options.faults:
            self.reporter.message(2, f"Outpost: {fault}")
        self._stack.callback(KeyMasks(self.outpost).install(self._server.protocol))
        self._watching.begin()
        await self.settings.open()
        self.folders_changed()
        # What was loaded stays: the collector need not walk over it again and again.
        gc.freeze()

    async def drain(self, deadline_s: float) -> None:
        """Cancel every run and wait for their ends."""
        self._questions.close()
        await self.outpost.drain(deadline_s)

    async def close(self) -> None:
        """Let go of everything."""
        self._questions.close()
        self.settings.close()
        self._watching.close()
        for task in self._tasks:
            task.cancel()
        await self._stack.aclose()

    async def confirm_cost(self, cost: Estimate) -> bool:
        """Ask the person before a review that costs money."""
        return await self._questions.confirm(f"Outpost: {cost.text}.", "Review")

    # Folders and settings

    def folders_changed(self) -> None:
        """Make the service's workspaces those that the client has open."""
        wanted = self._server.folders
        for workspace in self.outpost.workspaces:
            if workspace.folder not in wanted:
                self._publisher.forget(workspace)
                self._later(self.outpost.remove_workspace(workspace.folder))
        known = {workspace.folder for workspace in self.outpost.workspaces}
        for folder in wanted:
            if folder not in known:
                self._later(self._open_workspace(self.settings.add(folder)))

    async def _open_workspace(self, workspace: Workspace) -> None:
        await workspace.ready()
        self.settings.tell_faults(workspace)
        for document in self._server.documents:
            found = self.places.locate(document.path) if document.path is not None else None
            if found is not None and found[0] is workspace:
                self._edits.opened(document)
        for path in workspace.paths_with_findings():
            self._publisher.changed(workspace, path)

    def settings_changed(self, settings: Any) -> Awaitable[None]:
        """The client's settings are others now."""
        return self.settings.changed(settings)

    def files_changed(self, params: types.DidChangeWatchedFilesParams) -> None:
        """Files changed outside the editor: settings are read again, findings are looked for where they are now."""
        for change in params.changes:
            path = path_of(change.uri)
            if path is None:
                continue
            self.settings.file_saved(path)
            found = self.places.locate(path)
            self._dismissals_written(path)
            if found is not None and self._server.documents.at(path) is None:
                found[0].changed_on_disk(found[1])
                # Somebody may have looked in between, so that for the service nothing is new.
                self._publisher.changed(*found)

    # Documents

    def document_opened(self, document: Document) -> None:
        """A document is open now."""
        self._latest = document.path
        self._edits.opened(document)

    def document_changed(self, document: Document) -> None:
        """A document has other text now."""
        self._latest = document.path
        self._edits.changed(document)

    def document_saved(self, document: Document) -> None:
        """A document's text is on disk now."""
        self._edits.flush(document)
        if document.path is not None:
            self.settings.file_saved(document.path)
            self._dismissals_written(document.path)

    def document_closed(self, document: Document) -> None:
        """A document is not open any more."""
        self._edits.closed(document)

    def _dismissals_written(self, path: Path) -> None:
        """The dismissals of a team count as they are on disk, whether the file is open or not."""
        found = self.places.locate(path)
        if found is not None and found[1] == DISMISSALS_FILE:
            found[0].changed_on_disk(DISMISSALS_FILE)

    def flush_edits(self) -> None:
        """Let the findings follow every edit that was made."""
        for document in self._server.documents:
            self._edits.flush(document)

    async def unsaved(self, workspace: Workspace) -> Mapping[str, str]:
        """The texts of open documents of the workspace that differ from their files, by path in the repository."""
        await self.settings.settled()
        self.flush_edits()
        mine = []
        for document in self._server.documents:
            found = self.places.locate(document.path) if document.path is not None else None
            if found is not None and found[0] is workspace and document.path is not None:
                mine.append((found[1], document.path, document.text))

        def differing() -> dict[str, str]:
            return {path: text for path, file, text in mine if differs_from_disk(file, text)}

        return await asyncio.to_thread(differing)

    # Requests

    def execute(self, params: types.ExecuteCommandParams) -> Any:
        """Carry out a command."""
        return commands.execute(self, params.command, params.arguments, params.work_done_token)

    def progress_cancelled(self, token: Token) -> None:
        """A person pressed cancel."""
        self._progress.cancelled(token)

    # For commands

    async def pick(self, uri: str | None) -> tuple[Workspace, str]:
        """The workspace that a command means, and the path in it.

        Without a URI it is that of the document that was opened or edited last; without one, too, the only one, or the
        one that the person chooses.
        """
        if uri is not None:
            return self.places.demand(uri)
        if not self.outpost.workspaces:
            raise RequestFault(INVALID_PARAMS, "uri: no folder is open")
        found = self.places.locate(self._latest) if self._latest is not None else None
        if found is not None:
            return found[0], ""
        workspaces = self.outpost.workspaces
        if len(workspaces) == 1:
            return workspaces[0], ""
        names = _distinct_names(workspaces)
        chosen = await self._questions.choose("Outpost: which folder is meant?", list(names))
        if chosen is None:
            raise RequestFault(INVALID_PARAMS, f"uri: {len(workspaces)} folders are open; say which one is meant")
        return names[chosen], ""

    @property
    def is_ready(self) -> bool:
        """Whether every workspace is open, under the settings that the client told last."""
        return self.settings.are_settled and all(workspace.is_ready for workspace in self.outpost.workspaces)

    def landing(self, workspace: Workspace) -> EditorLanding:
        """A way into the user's files of a workspace, through the editor."""
        self.flush_edits()
        server = self._server
        return EditorLanding(server.protocol, server.client, self.places, server.documents, workspace)

    async def content(self, params: types.TextDocumentContentParams) -> dict[str, Any]:
        """The text of a virtual document."""
        await self.all_ready()
        return await commands.translated(virtual_content(self, params.uri), frozenset(("runId",)))

    def progress_during(
        self, token: Token | None, title: str, message: str
    ) -> AbstractContextManager[Callable[[str], None]]:
        """Show a piece of work that is no run, where its request brought a token; it is told how that ended."""
        return self._progress.during(token, title, message)

    async def show(self, workspace: Workspace, run: Run, name: DocumentName) -> bool:
        """Show a run's report or patch in the editor; whether it is shown."""
        return await show_document(self._server, self, workspace, run, name)

    async def all_ready(self) -> None:
        """Wait until every workspace is open, under the settings that the client told last."""
        await self.settings.settled()
        for workspace in self.outpost.workspaces:
            await workspace.ready()

    def workspace_of_finding(self, finding_id: str) -> Workspace:
        """The workspace that holds a finding."""
        self.flush_edits()
        for workspace in self.outpost.workspaces:
            if workspace.finding(finding_id) is not None:
                return workspace
        raise RequestFault(INVALID_PARAMS, f"findingId: there is no finding {finding_id!r}")

    def workspace_of_conversation(self, conversation: str) -> Workspace:
        """The workspace that holds a conversation."""
        for workspace in self.outpost.workspaces:
            if workspace.conversations.exists(conversation):
                return workspace
        raise RequestFault(INVALID_PARAMS, f"conversation: there is no conversation {conversation!r}")

    def _event_level(self, run_id: str) -> EventLevel:
        """Which events of a run are sent: what the client asked for at the start, else what is configured."""
        if self._server.options.events is not None:
            return self._server.options.events
        handle = self.outpost.handle(run_id)
        for workspace in self.outpost.workspaces:
            if handle is not None and str(workspace.folder) == handle.run.workspace:
                return workspace.settings.runs.events
        return "summary"

    async def _ask_secret(self, provider: str) -> str | None:
        """A provider's key out of the client's secret storage; it is kept nowhere here."""
        try:
            answer = await self._server.protocol.ask(SECRET_REQUEST, {"provider": provider}, _SECRET_S)
        except (RequestFault, TimeoutError) as error:
            logger.info("the client did not answer the question for a key: %s", error)
            return None
        value = answer.get("value") if isinstance(answer, dict) else None
        return value if isinstance(value, str) else None

    def _cancel_run(self, run_id: str) -> None:
        self.outpost.cancel(run_id)

    def _published(self) -> None:
        self._refresh_lenses()
        self._watching.refresh()

    def _files_with_findings(self) -> Iterator[Path]:
        for workspace in self.outpost.workspaces:
            for path in workspace.paths_with_findings():
                yield self.places.file(workspace, path)

    def _refresh_lenses(self) -> None:
        """Ask the client to fetch lenses again, once for many publishes."""
        if self._lenses is None and self._server.client.can("workspace.codeLens.refreshSupport"):
            self._lenses = asyncio.get_running_loop().call_later(0.25, self._send_refresh)

    def _send_refresh(self) -> None:
        self._lenses = None
        self._later(self._server.protocol.ask("workspace/codeLens/refresh", None, 10.0))

    def _later(self, work: Awaitable[Any]) -> None:
        """Do something beside; its failure is logged."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, RequestFault | TimeoutError):
            logger.info("the client did not answer: %s", error)
        else:
            logger.error("something failed beside the requests", exc_info=error)


def _distinct_names(workspaces: Sequence[Workspace]) -> dict[str, Workspace]:
    """What folders are called in a question: by their last names where those differ, else in full."""
    last = [workspace.folder.name for workspace in workspaces]
    return {
        name if last.count(name) == 1 else str(workspace.folder): workspace
        for name, workspace in zip(last, workspaces, strict=True)
    }
