"""JSON-RPC between the server and one client, on top of pygls' protocol class.

What pygls does otherwise and why it is done here: a request, a command above all, is cancelled for real (its coroutine
is); every malformed message is answered; nothing is served before `initialize` or after `shutdown`; questions to the
client can be given up without an error; payloads are plain dictionaries. Handlers come from pygls' feature table, their
parameters are lsprotocol's types.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.protocol import LanguageServerProtocol

from outpost_lsp.lsp.connection import Connection, dump, encoded
from outpost_lsp.lsp.framing import FrameFault
from outpost_lsp.lsp.incoming import converter_faults, faults_of

if TYPE_CHECKING:
    from cattrs import Converter
    from pygls.lsp.server import LanguageServer

logger = logging.getLogger(__name__)

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
NOT_INITIALIZED: Final = -32002
REQUEST_FAILED: Final = -32803
REQUEST_CANCELLED: Final = -32800

MessageId = int | str
_LAST_ANSWERS_S: Final = 0.2


class RequestFault(JsonRpcException):
    """An error to answer a request with."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message=message, code=code, data=data)


class OutpostProtocol(LanguageServerProtocol):
    """One client's side of the conversation."""

    def __init__(self, server: LanguageServer, converter: Converter) -> None:
        # pygls looks at every attribute while it sets itself up, so these come first.
        self.mask: Callable[[str], str] | None = None
        """Takes keys of services out of every text that is sent."""
        self._connection: Connection | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: dict[MessageId, asyncio.Task[Any]] = {}
        self._asked: dict[MessageId, asyncio.Future[Any]] = {}
        self._next_id = 0
        self._is_initialized = False
        self._shutdown = False
        super().__init__(server, converter)

    # What is used by the server

    def attach(self, connection: Connection) -> None:
        """Speak to this client from now on."""
        self._connection = connection
        self._loop = asyncio.get_running_loop()

    def on_relief(self, call: Callable[[], None]) -> None:
        """Call `call` whenever the client keeps up again."""
        if self._connection is not None:
            self._connection.on_relief(call)

    def call_soon(self, call: Callable[..., None], *arguments: Any) -> None:
        """Call on the event loop, from any thread; nothing happens when it is closed."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *arguments)

    @property
    def is_shut_down(self) -> bool:
        """Whether the client sent `shutdown`."""
        return bool(self._shutdown)

    @property
    def is_congested(self) -> bool:
        """Whether the client does not keep up with what it is sent."""
        return self._connection is not None and self._connection.is_congested

    def notify(self, method: str, params: Any | None = None) -> None:
        """Send a notification."""
        self._send_data({"jsonrpc": "2.0", "method": method, "params": params})

    def notify_encoded(self, method: str, params: str) -> None:
        """Send a notification whose parameters are JSON already, in ASCII."""
        if self._connection is not None:
            self._connection.send(encoded(f'{{"jsonrpc":"2.0","method":"{method}","params":{params}}}', self.mask))

    async def ask(self, method: str, params: Any, timeout_s: float | None = None) -> Any:
        """Send a request and wait for the client's answer; `RequestFault` when it answers with an error.

        Giving up, by cancellation or for lack of time (`TimeoutError`), withdraws the question; a late answer is ignored.
        """
        self._next_id += 1
        message_id = f"outpost-{self._next_id}"
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[message_id] = answer
        self._send_data({"jsonrpc": "2.0", "id": message_id, "method": method, "params": params})
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except (asyncio.CancelledError, TimeoutError):
            self.notify(types.CANCEL_REQUEST, {"id": message_id})
            raise
        finally:
            self._asked.pop(message_id, None)

    def begin(self) -> None:
        """Serve requests: `initialize` was answered."""
        self._is_initialized = True

    def stop_serving(self) -> None:
        """Refuse every further request: `shutdown` came."""
        self._shutdown = True

    async def abandon(self) -> None:
        """The client is gone: cancel what it asked for, and give up what was asked of it."""
        running = list(self._running.values())
        for task in running:
            _cancel(task)
        for answer in list(self._asked.values()):
            if not answer.done():
                answer.set_exception(RequestFault(REQUEST_CANCELLED, "the client is gone"))
                answer.exception()
        if running:
            # Should it still be there after all, it gets its answers.
            await asyncio.wait(running, timeout=_LAST_ANSWERS_S)

    # Incoming

    def receive(self, item: bytes | FrameFault) -> None:
        """Handle one message, or answer for bytes that are none."""
        if isinstance(item, FrameFault):
            self._refuse(None, PARSE_ERROR, item.reason)
            return
        try:
            message = json.loads(item)
        except ValueError as error:
            self._refuse(None, PARSE_ERROR, f"the message is not JSON: {error}")
            return
        except RecursionError:
            self._refuse(None, PARSE_ERROR, "the message is nested too deeply")
            return
        if not isinstance(message, dict):
            self._refuse(None, INVALID_REQUEST, "a message is an object; batches are not part of the protocol")
            return
        self.dispatch(message)

    def dispatch(self, message: dict[str, Any]) -> None:
        """Handle one decoded message."""
        method, message_id = message.get("method"), message.get("id")
        if isinstance(method, str) and "id" in message:
            if not isinstance(message_id, int | str) or isinstance(message_id, bool):
                self._refuse(None, INVALID_REQUEST, "id: a number or a string is expected")
            else:
                self._handle_incoming_request(message_id, method, message.get("params"))
        elif isinstance(method, str):
            self._handle_incoming_notification(method, message.get("params"))
        elif "id" in message and ("result" in message or "error" in message):
            self._handle_answer(message_id, message)
        else:
            known = message_id if isinstance(message_id, int | str) else None
            self._refuse(known, INVALID_REQUEST, "neither a request, nor a notification, nor an answer")

    def _handle_incoming_request(self, message_id: MessageId, method: str, params: Any) -> None:
        if fault := self._untimely(method, message_id):
            self._refuse(message_id, *fault)
            return
        try:
            handler = self._handler(method)
            result = handler(self._structured(method, params))
        except Exception as error:  # noqa: BLE001 - it is logged where it is answered
            self._answer_fault(message_id, method, error)
            return
        if inspect.isawaitable(result):
            self._run(message_id, method, result)
        else:
            self._answer(message_id, result)

    def _untimely(self, method: str, message_id: MessageId) -> tuple[int, str] | None:
        if self._shutdown:
            return INVALID_REQUEST, "the server is shutting down"
        if method == types.INITIALIZE:
            return (INVALID_REQUEST, "initialize came twice") if self._is_initialized else None
        if not self._is_initialized:
            return NOT_INITIALIZED, "initialize has to come first"
        if message_id in self._running:
            return INVALID_REQUEST, f"id: {message_id!r} is in use by a request that is not answered yet"
        return None

    def _run(self, message_id: MessageId, method: str, work: Awaitable[Any]) -> None:
        async def carry() -> Any:
            return await work

        task = asyncio.get_running_loop().create_task(carry(), name=f"{method} {message_id}")
        self._running[message_id] = task
        task.add_done_callback(lambda done: self._finish(message_id, method, done))

    def _finish(self, message_id: MessageId, method: str, task: asyncio.Task[Any]) -> None:
        self._running.pop(message_id, None)
        if task.cancelled():
            self._refuse(message_id, REQUEST_CANCELLED, "the request was cancelled")
        elif (error := task.exception()) is not None:
            self._answer_fault(message_id, method, error)
        else:
            self._answer(message_id, task.result())

    def _answer(self, message_id: MessageId, result: Any) -> None:
        self._send_data({"jsonrpc": "2.0", "id": message_id, "result": result})

    def _answer_fault(self, message_id: MessageId, method: str, error: BaseException) -> None:
        if isinstance(error, JsonRpcException):
            self._refuse(message_id, error.code or INTERNAL_ERROR, error.message, error.data)
            return
        logger.error("%s failed in an unforeseen way", method, exc_info=error)
        self._refuse(
            message_id, INTERNAL_ERROR, f"{method} failed in an unforeseen way; the log of the server has more"
        )

    def _refuse(self, message_id: MessageId | None, code: int, message: str, data: Any = None) -> None:
        error = {"code": code, "message": message} | ({} if data is None else {"data": data})
        self._send_data({"jsonrpc": "2.0", "id": message_id, "error": error})

    def _handle_incoming_notification(self, method: str, params: Any) -> None:
        if method == types.CANCEL_REQUEST:
            target = params.get("id") if isinstance(params, dict) else None
            task = self._running.get(target) if isinstance(target, int | str) else None
            if task is not None:
                _cancel(task)
            return
        if method != types.EXIT and (self._shutdown or not self._is_initialized):
            return
        try:
            handler = self._handler(method)
        except RequestFault:
            if not method.startswith("$/"):
                logger.info("the notification %s is not known", method)
            return
        try:
            result = handler(self._structured(method, params))
        except RequestFault as error:
            logger.warning("%s", error.message)
            return
        except Exception:
            logger.exception("the notification %s failed", method)
            return
        if inspect.isawaitable(result):
            task = asyncio.ensure_future(result)
            task.add_done_callback(lambda done: _log_failure(method, done))

    def _handler(self, method: str) -> Callable[[Any], Any]:
        handler = self.fm.features.get(method)
        if handler is None:
            raise RequestFault(METHOD_NOT_FOUND, f"there is no method {method!r}")
        return handler  # type: ignore[no-any-return]

    def _structured(self, method: str, params: Any) -> Any:
        shape: Any = types.METHOD_TO_TYPES.get(method)
        if shape is None or shape[2] is None or method == types.INITIALIZE:
            # What a client says of itself is read leniently, as it is.
            return params
        if faults := faults_of(method, params):
            raise RequestFault(INVALID_PARAMS, f"{method}: {faults}")
        try:
            return self._converter.structure(params, shape[2])
        except Exception as error:  # noqa: BLE001 - whatever the converter dislikes is the client's fault
            raise RequestFault(INVALID_PARAMS, f"{method}: {converter_faults(error)}") from None

    def _handle_answer(self, message_id: Any, message: dict[str, Any]) -> None:
        future = self._asked.get(message_id) if isinstance(message_id, int | str) else None
        if future is None:
            self._handle_pygls_answer(message_id, message)
        elif not future.done():
            error = message.get("error")
            if error is None:
                future.set_result(message.get("result"))
            else:
                code, text = (error.get("code"), error.get("message")) if isinstance(error, dict) else (None, None)
                future.set_exception(RequestFault(code if isinstance(code, int) else INTERNAL_ERROR, str(text)))

    def _handle_pygls_answer(self, message_id: Any, message: dict[str, Any]) -> None:
        """An answer to a request that was sent with pygls' own methods."""
        waiting: Future[Any] | None = self._request_futures.pop(message_id, None)
        self._result_types.pop(message_id, None)
        if waiting is None or not waiting.set_running_or_notify_cancel():
            logger.debug("an answer came to nothing that was asked: %r", message_id)
        elif message.get("error") is not None:
            waiting.set_exception(RequestFault(INTERNAL_ERROR, str(message["error"])))
        else:
            waiting.set_result(message.get("result"))

    # Outgoing

    def _send_data(self, data: Any) -> None:
        if self._connection is None:
            return
        try:
            body = dump(data, self._serialize_message, self.mask)
        except Exception:
            logger.exception("a message could not be written as JSON")
            if isinstance(data, dict) and data.get("id") is not None and "method" not in data:
                self._refuse(data["id"], INTERNAL_ERROR, "the answer could not be written as JSON")
            return
        self._connection.send(body)


def _cancel(task: asyncio.Task[Any]) -> None:
    """Cancel the work of a request, behind its first step: coroutines inside one that never began would be left over."""
    asyncio.get_running_loop().call_soon(task.cancel)


def _log_failure(method: str, task: asyncio.Future[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("the notification %s failed", method, exc_info=error)
