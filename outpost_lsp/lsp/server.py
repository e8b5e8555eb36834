"""The language server: the life of one client from `initialize` to `exit`, and its documents.

What needs the service is behind the desk, which is loaded after `initialized` (or by the first request that needs it),
so that documents are served meanwhile. Document changes are applied at once, in the order in which they
arrive; everything later sees them. Made by the front door.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from outpost_lsp import __version__
from outpost_lsp.lsp.capabilities import SERVER_NAME, initialize_result
from outpost_lsp.lsp.client import Client, Options, Session, read_session
from outpost_lsp.lsp.documents import Change, Document, Documents
from outpost_lsp.lsp.protocol import OutpostProtocol
from outpost_lsp.protocol.uris import UriSpellings, path_of

if TYPE_CHECKING:
    from pathlib import Path

    from outpost_lsp.lsp.desk import Desk

logger = logging.getLogger(__name__)
T = TypeVar("T")

_DRAIN_S: Final = 0.8
"""How long `shutdown` waits for runs to end; its answer has to come within a second (REL-04)."""


class OutpostServer(LanguageServer):
    """One client's server. `ended` is set when the process should go."""

    protocol: OutpostProtocol

    def __init__(self, ended: asyncio.Event, when_initialized: Callable[[Session], None]) -> None:
        super().__init__(name=SERVER_NAME, version=__version__, protocol_cls=OutpostProtocol)
        self.client = Client()
        self.options = Options()
        self.documents = Documents()
        self.spellings = UriSpellings()
        self.folders: dict[Path, str] = {}
        self._ended = ended
        self._when_initialized = when_initialized
        self._is_draining = False
        self._may_go = False
        self._desk: asyncio.Task[Desk] | None = None
        self._register()

    def _register(self) -> None:
        handlers: dict[str, Callable[..., Any]] = {
            types.INITIALIZE: self._initialize,
            types.INITIALIZED: self._begin,
            types.SHUTDOWN: self._shut_down,
            types.EXIT: self._exit,
            types.SET_TRACE: self._set_trace,
            types.TEXT_DOCUMENT_DID_OPEN: self._did_open,
            types.TEXT_DOCUMENT_DID_CHANGE: self._did_change,
            types.TEXT_DOCUMENT_DID_SAVE: self._did_save,
            types.TEXT_DOCUMENT_DID_CLOSE: self._did_close,
            types.TEXT_DOCUMENT_HOVER: lambda params: self._with_desk(lambda desk: desk.looking.hover(params)),
            types.TEXT_DOCUMENT_CODE_ACTION: lambda params: self._with_desk(
                lambda desk: desk.looking.code_actions(params)
            ),
            types.TEXT_DOCUMENT_CODE_LENS: lambda params: self._with_desk(
                lambda desk: desk.looking.code_lenses(params)
            ),
            types.WORKSPACE_EXECUTE_COMMAND: lambda params: self._with_desk(lambda desk: desk.execute(params)),
            types.WORKSPACE_TEXT_DOCUMENT_CONTENT: lambda params: self._with_desk(lambda desk: desk.content(params)),
            types.WORKSPACE_DID_CHANGE_CONFIGURATION: lambda params: self._with_desk(
                lambda desk: desk.settings_changed(params.settings)
            ),
            types.WORKSPACE_DID_CHANGE_WATCHED_FILES: lambda params: self._with_desk(
                lambda desk: desk.files_changed(params)
            ),
            types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS: self._folders_changed,
            types.WINDOW_WORK_DONE_PROGRESS_CANCEL: lambda params: self._with_desk(
                lambda desk: desk.progress_cancelled(params.token)
            ),
        }
        # The decorator that pygls has for this marks the function, which a bound method does not allow.
        self.protocol.fm.features.update(handlers)

    # The desk

    def _with_desk(self, work: Callable[[Desk], T | Awaitable[T]]) -> T | Awaitable[T]:
        """Do `work` at the desk: at once when it is open, else as soon as it is."""
        desk = self._open_desk()
        if desk.done() and not desk.cancelled() and desk.exception() is None:
            return work(desk.result())

        async def wait() -> T:
            result = work(await asyncio.shield(desk))
            return await result if asyncio.isfuture(result) or asyncio.iscoroutine(result) else result  # type: ignore[return-value]

        return wait()

    def _open_desk(self) -> asyncio.Task[Desk]:
        if self._desk is None:
            self._desk = asyncio.get_running_loop().create_task(self._load_desk(), name="open the desk")
        return self._desk

    async def _load_desk(self) -> Desk:
        # The HTTP library would load a whole terminal program of its own, which nothing here ever calls.
        sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
        # Imported in a thread, so that documents and simple requests are served meanwhile.
        module = await asyncio.to_thread(importlib.import_module, "outpost_lsp.lsp.desk")
        desk: Desk = module.Desk(self)
        await desk.open()
        return desk

    def _if_open(self) -> Desk | None:
        task = self._desk
        if task is None or not task.done() or task.cancelled() or task.exception() is not None:
            return None
        return task.result()

    # Life

    def begin(self, session: Session) -> None:
        """Serve the client whose `initialize` was answered."""
        self.client, self.options = session.client, session.options
        for uri in session.folders:
            self._add_folder(uri)
        self.protocol.begin()
        logger.info("serving %s, positions in %s", self.client.name or "a client", self.client.encoding)

    def _initialize(self, params: Any) -> dict[str, Any]:
        session = read_session(params)
        self._when_initialized(session)
        self.begin(session)
        return initialize_result(session.client)

    def _begin(self, _: types.InitializedParams) -> None:
        self._open_desk().add_done_callback(_log_failure)

    def _shut_down(self, _: None) -> Awaitable[None]:
        # At once, so that whatever comes behind it in the same breath is refused.
        self.protocol.stop_serving()
        self._is_draining = True
        return self._drain()

    async def _drain(self) -> None:
        desk = self._if_open()
        if desk is not None:
            await desk.drain(_DRAIN_S)
        self._is_draining = False
        if self._may_go:
            # The answer is sent in the same turn of the loop, just behind.
            asyncio.get_running_loop().call_soon(self._ended.set)

    def _set_trace(self, params: types.SetTraceParams) -> None:
        self.protocol.trace = params.value

    def _exit(self, _: None) -> None:
        # Some clients do not wait for the answer to `shutdown`; it is sent all the same.
        self._may_go = True
        if not self._is_draining:
            self._ended.set()

    async def close(self, deadline_s: float) -> None:
        """Cancel what runs and let go of everything, within the time given."""
        await self.protocol.abandon()
        desk = self._if_open()
        if desk is not None:
            try:
                async with asyncio.timeout(deadline_s):
                    await desk.close()
            except TimeoutError:
                logger.warning("not everything stopped in time")
        elif self._desk is not None:
            self._desk.cancel()

    # Folders

    def _add_folder(self, uri: str) -> None:
        path = self.spellings.learn_folder(uri)
        if path is None:
            logger.warning("the workspace folder %s is no file URI of this machine and is left out", uri)
        else:
            self.folders[path] = uri

    def _folders_changed(self, params: types.DidChangeWorkspaceFoldersParams) -> Any:
        for folder in params.event.removed:
            path = path_of(folder.uri)
            if path is not None:
                self.folders.pop(path, None)
                self.spellings.forget_folder(path)
        for folder in params.event.added:
            self._add_folder(folder.uri)
        return self._with_desk(lambda desk: desk.folders_changed())

    # Documents

    def _did_open(self, params: types.DidOpenTextDocumentParams) -> None:
        item = params.text_document
        document = Document(item.uri, self.spellings.learn(item.uri), item.language_id, item.version, item.text)
        self.documents.open(document)
        if (desk := self._if_open()) is not None:
            desk.document_opened(document)

    def _did_change(self, params: types.DidChangeTextDocumentParams) -> None:
        document = self.documents.get(params.text_document.uri)
        if document is None:
            logger.warning("a change of %s, which is not open, is left out", params.text_document.uri)
            return
        for change in params.content_changes:
            document.apply(_change(change), self.client.encoding)
        document.version = params.text_document.version
        if (desk := self._if_open()) is not None:
            desk.document_changed(document)

    def _did_save(self, params: types.DidSaveTextDocumentParams) -> None:
        document = self.documents.get(params.text_document.uri)
        desk = self._if_open()
        if document is not None and desk is not None:
            desk.document_saved(document)

    def _did_close(self, params: types.DidCloseTextDocumentParams) -> None:
        document = self.documents.close(params.text_document.uri)
        desk = self._if_open()
        if document is not None and desk is not None:
            desk.document_closed(document)


def _change(change: types.TextDocumentContentChangeEvent) -> Change:
    if isinstance(change, types.TextDocumentContentChangePartial):
        start, end = change.range.start, change.range.end
        return Change((start.line, start.character), (end.line, end.character), change.text)
    return Change(None, None, change.text)


def _log_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("the service could not be started", exc_info=error)
