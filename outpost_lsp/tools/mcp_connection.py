"""One connection to a server of the Model Context Protocol, from its start to its end.

The invariant: all of it lives in one task of its own, so that neither a failing server nor its end can disturb the turn
that uses it; every request ends in an answer, a tool error or a fault that names the server. Made by `mcp_server.py`;
the only module, with `mcp_http.py`, that speaks the protocol, through the official client.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import mcp_types as types
from anyio import to_thread
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import ValidationError

from outpost_lsp import __version__
from outpost_lsp.domain.sandbox import Command, Lease, LiveProcess
from outpost_lsp.domain.wording import ended
from outpost_lsp.errors import OutpostError, configuration
from outpost_lsp.tools.mcp_http import HTTP_STATUS, MAX_ANSWER, HttpClient
from outpost_lsp.tools.mcp_server import McpServer

_log = logging.getLogger(__name__)

PROTOCOL_VERSION: Final = "2025-06-18"
_STDERR_KEPT: Final = 4_096
_FLUSH_S: Final = 0.5
_DEATH_S: Final = 2.0
_MAX_ENTRIES: Final = 10_000
_LARGE_LINE: Final = 128 * 1024
_NOT_FOUND: Final = -32601
_VERSION_HEADER: Final = "mcp-protocol-version"

_Incoming = SessionMessage | Exception


class McpProtocolError(Exception):
    """The server answered a request with an error."""


class McpConnection:
    """A server while it runs. `start` and `stop` are each called once."""

    def __init__(self, name: str, server: McpServer, lease: Lease) -> None:
        self.name = name
        self.server = server
        self.tools: list[Mapping[str, Any]] = []
        """What the server said of its tools, all pages."""
        self.capabilities: Mapping[str, Any] = {}
        self._lease = lease
        self._process: LiveProcess | None = None
        self._dispatcher: JSONRPCDispatcher[Any] | None = None
        self._version = PROTOCOL_VERSION
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stopping = asyncio.Event()
        self._is_deaf = False
        self._failure: OutpostError | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the server and learn its tools; a fault that says why not (MCP-10)."""
        self._task = asyncio.create_task(self._live())
        limit_s = self.server.startup_timeout_s
        await asyncio.wait((self._ready,), timeout=limit_s)
        if not self._ready.done():
            raise OutpostError(
                "timeout", f"The MCP server {self.name} did not start within {limit_s:g} s.", {"server": self.name}
            )
        self._ready.result()

    async def stop(self) -> None:
        """End the server; what is still asked of it is answered with a fault."""
        if self._task is None:
            return
        if self._ready.done() and not self._ready.cancelled() and self._ready.exception() is None:
            self._stopping.set()
        else:
            self._task.cancel()
        await asyncio.wait((self._task,))

    async def ask(self, method: str, params: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """One request. `McpProtocolError` for an error answer; a fault when the server is gone (MCP-07).

        Cancelling it tells the server so (MCP-08).
        """
        dispatcher = self._dispatcher
        if dispatcher is None or self._failure is not None:
            raise self._failure or await self._gone()
        try:
            answer: Mapping[str, Any] = await dispatcher.send_raw_request(
                method, params, {"headers": {_VERSION_HEADER: self._version}}
            )
        except MCPError as error:
            if _status_of(error) is not None:
                raise self._refused(error) from error
            if error.code == types.CONNECTION_CLOSED and self._is_over():
                raise (self._failure or await self._gone()) from error
            raise McpProtocolError(error.message) from error
        return answer

    async def all_pages(self, method: str, field: str) -> list[Mapping[str, Any]]:
        """The entries of a list that comes in pages; `response` when it is none of objects."""
        found: list[Mapping[str, Any]] = []
        cursor: Any = None
        while True:
            answer = await self.ask(method, None if cursor is None else {"cursor": cursor})
            entries = answer.get(field)
            if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
                raise self._fault("response", f"answered {method} with no list of {field}")
            found += entries
            following = answer.get("nextCursor")
            if following is None or following == cursor:
                return found
            if len(found) > _MAX_ENTRIES:
                raise self._fault("response", f"lists more than {_MAX_ENTRIES} {field}")
            cursor = following

    # The life of the connection, in a task of its own

    async def _live(self) -> None:
        try:
            transport = self._stdio() if self.server.command is not None else self._http()
            async with transport as (read, write):
                dispatcher: JSONRPCDispatcher[Any] = JSONRPCDispatcher(read, write)
                async with ClientSession(
                    dispatcher=dispatcher,
                    sampling_callback=_refuse,
                    elicitation_callback=_refuse,
                    list_roots_callback=_refuse,
                    client_info=types.Implementation(name="outpost", version=__version__),
                ) as session:
                    self._dispatcher = dispatcher
                    await self._shake_hands(session)
                    if "tools" in self.capabilities:
                        self.tools = await self.all_pages("tools/list", "tools")
                    self._ready.set_result(None)
                    await self._stopping.wait()
        except BaseException as error:
            self._failure = self._told(error)
            if not self._ready.done():
                self._ready.set_exception(self._failure)
                # Whoever waits is told; nobody may be left to ask.
                self._ready.exception()
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            self._failure = self._failure or self._fault("aborted", "was stopped")

    async def _shake_hands(self, session: ClientSession) -> None:
        # Written out, so that the version asked for is ours and no capability is claimed that is refused (MCP-03).
        asked = types.InitializeRequest(
            params=types.InitializeRequestParams(
                protocol_version=PROTOCOL_VERSION,
                capabilities=types.ClientCapabilities(),
                client_info=types.Implementation(name="outpost", version=__version__),
            )
        )
        try:
            answer = await session.send_request(asked, types.InitializeResult)
        except MCPError as error:
            if _status_of(error) is not None:
                raise self._refused(error) from error
            if error.code == types.CONNECTION_CLOSED and self._is_over():
                raise (self._failure or await self._gone()) from error
            raise self._fault("response", f"refused to begin: {error.message}") from error
        if answer.protocol_version not in HANDSHAKE_PROTOCOL_VERSIONS:
            raise self._fault("response", f"speaks another version of the protocol: {answer.protocol_version}")
        session.adopt(answer)
        self._version = answer.protocol_version
        self.capabilities = answer.capabilities.model_dump(by_alias=True, exclude_none=True)
        await session.send_notification(types.InitializedNotification())

    @asynccontextmanager
    async def _http(self) -> AsyncIterator[Any]:
        assert self.server.url is not None
        headers = dict(self.server.headers)
        if (variable := self.server.bearer_token_variable) is not None:
            headers["Authorization"] = f"Bearer {self._variable(variable)}"
        async with (
            HttpClient(headers) as client,
            streamable_http_client(self.server.url, http_client=client, max_sse_event_size=MAX_ANSWER) as streams,
        ):
            yield streams

    @asynccontextmanager
    async def _stdio(self) -> AsyncIterator[Any]:
        assert self.server.command is not None
        if not self._lease.live_input:
            raise self._fault("configuration", "needs a sandbox with live input, which this one has not")
        variables = {name: self._variable(name) for name in self.server.variables}
        try:
            process = await self._lease.spawn(
                Command(
                    executable=self.server.command,
                    arguments=self.server.arguments,
                    variables={**variables, **self.server.environment},
                    retain=_STDERR_KEPT,
                )
            )
        except OutpostError as error:
            if error.code != "process":
                raise
            raise OutpostError(
                "process", f"The MCP server {self.name}: {error.message}", {"server": self.name, "status": 127}, error
            ) from error
        self._process = process
        incoming, read = anyio.create_memory_object_stream[_Incoming](0)
        write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        flushed = anyio.Event()
        try:
            async with anyio.create_task_group() as pumps:
                pumps.start_soon(self._listen, process, incoming)
                pumps.start_soon(self._speak, process, outgoing, incoming, flushed)
                try:
                    yield read, write
                finally:
                    write.close()
                    with anyio.move_on_after(_FLUSH_S, shield=True):
                        await flushed.wait()
                    pumps.cancel_scope.cancel()
        finally:
            for stream in (incoming, read, write, outgoing):
                stream.close()
            await process.end()

    async def _listen(self, process: LiveProcess, incoming: MemoryObjectSendStream[_Incoming]) -> None:
        async with incoming:
            while True:
                try:
                    line = await process.line(MAX_ANSWER)
                except OutpostError as error:
                    self._failure = self._fault(error.code, f"cannot be understood: {error.message}")
                    line = None
                if line is None:
                    self._is_deaf = True
                    return
                message = await to_thread.run_sync(_parsed, line) if len(line) > _LARGE_LINE else _parsed(line)
                if message is None:
                    _log.debug("the MCP server %s wrote a line that is no message", self.name)
                    continue
                try:
                    await incoming.send(message)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return

    async def _speak(
        self,
        process: LiveProcess,
        outgoing: MemoryObjectReceiveStream[SessionMessage],
        incoming: MemoryObjectSendStream[_Incoming],
        flushed: anyio.Event,
    ) -> None:
        try:
            async with outgoing:
                async for message in outgoing:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await process.send(text.encode() + b"\n")
        except OutpostError:
            # It no longer reads: to everybody who waits for it that is its end.
            self._is_deaf = True
            incoming.close()
        finally:
            flushed.set()

    # What is said when something goes wrong

    def _variable(self, name: str) -> str:
        value = self._lease.variable(name)
        if value is None:
            raise self._fault("configuration", f"needs the variable {name}, which the sandbox does not have")
        if not value.isprintable() and name == self.server.bearer_token_variable:
            raise self._fault("configuration", f"has a token in {name} with a character that no header may hold")
        return value

    def _is_over(self) -> bool:
        return self._is_deaf or self._failure is not None

    async def _gone(self) -> OutpostError:
        process = self._process
        if process is None:
            return self._fault("response", "has ended the connection")
        status = await process.status(_DEATH_S)
        said = process.stderr[-_STDERR_KEPT:].strip()
        end = "has closed its output" if status is None else f"has ended with status {status}"
        fault = self._fault("process", end + (f": {said}" if said else ""))
        details = {**fault.details, "stderr": said} | ({} if status is None else {"status": status})
        return OutpostError("process", fault.message, details)

    def _refused(self, error: MCPError) -> OutpostError:
        status = _status_of(error)
        details = {"server": self.name} | ({"status": status} if status else {})
        return OutpostError("response", f"The MCP server {self.name}: {error.message}", details)

    def _told(self, error: BaseException) -> OutpostError:
        """The fault for whatever ended the connection."""
        while isinstance(error, BaseExceptionGroup):
            inner = error.exceptions
            error = next((one for one in inner if not isinstance(one, asyncio.CancelledError)), inner[0])
        if isinstance(error, OutpostError):
            return error
        if isinstance(error, McpProtocolError):
            return self._fault("response", f"refused a request while it started: {error}")
        if isinstance(error, asyncio.CancelledError):
            return self._fault("aborted", "was stopped while it started")
        if isinstance(error, ValidationError):
            return self._fault("response", "gave an answer that the protocol does not know")
        return self._fault("response", f"cannot be used: {error}")

    def _fault(self, code: Any, what: str) -> OutpostError:
        message = ended(f"The MCP server {self.name} {what}")
        if code == "configuration":
            return configuration(message, server=self.name)
        return OutpostError(code, message, {"server": self.name})


async def _refuse(*_asked: Any, **_more: Any) -> Any:
    """Servers ask nothing of us but whether we are there (MCP-09)."""
    return types.ErrorData(code=_NOT_FOUND, message="Method not found")


def _parsed(line: bytes) -> SessionMessage | None:
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        return None


def _status_of(error: MCPError) -> int | None:
    status = error.data.get(HTTP_STATUS) if isinstance(error.data, dict) else None
    return status if isinstance(status, int) else None
