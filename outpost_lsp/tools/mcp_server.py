"""Servers of the Model Context Protocol as an agent declares them, and their life during one turn (MCP rules).

The invariant: every server that was started is stopped, in whatever way the turn or another server's start ends. A
server is a program in the sandbox, or an address. The `mcp` package is needed only when there are servers.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from outpost_lsp.domain.record import Declaration, NonBlank
from outpost_lsp.domain.sandbox import Lease
from outpost_lsp.errors import OutpostError, configuration

if TYPE_CHECKING:
    from outpost_lsp.tools.mcp_tools import RunningServers

_SERVER_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

_Names = Annotated[tuple[NonBlank, ...], Field(min_length=1)]


class McpTools(Declaration):
    """Which tools of a server are offered: those of `include`, or all, but none of `exclude`."""

    include: _Names | None = None
    exclude: _Names | None = None

    @model_validator(mode="after")
    def _says_something(self) -> McpTools:
        if self.include is None and self.exclude is None:
            raise ValueError("include, exclude or both are expected")
        for field, names in (("include", self.include or ()), ("exclude", self.exclude or ())):
            if len(set(names)) != len(names):
                raise ValueError(f"{field}: a name stands there twice")
        return self

    def offers(self, tool: str) -> bool:
        """Whether an agent gets this tool."""
        return (self.include is None or tool in self.include) and tool not in (self.exclude or ())


class McpServer(Declaration):
    """A server: a program with `command`, or one that is reached at `url`.

    `environment` and `headers` are literal. `variables` and `bearer_token_variable` name variables of the sandbox, so
    that no secret stands in a declaration.
    """

    command: NonBlank | None = None
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = MappingProxyType({})
    variables: tuple[str, ...] = ()
    url: NonBlank | None = None
    headers: Mapping[str, str] = MappingProxyType({})
    bearer_token_variable: str | None = None
    tools: McpTools | None = None
    startup_timeout_s: Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)] = 60

    def __init__(
        self,
        command: str | None = None,
        arguments: Sequence[str] = (),
        *,
        environment: Mapping[str, str] | None = None,
        variables: Sequence[str] = (),
        url: str | None = None,
        headers: Mapping[str, str] | None = None,
        bearer_token_variable: str | None = None,
        tools: McpTools | Mapping[str, Any] | None = None,
        startup_timeout_s: float = 60,
    ) -> None:
        for name, value in (("arguments", arguments), ("variables", variables)):
            if isinstance(value, str):
                raise configuration(f"McpServer: {name}: a list is expected")
        super().__init__(
            command=command,
            arguments=tuple(arguments),
            environment=MappingProxyType(dict(environment or {})),
            variables=tuple(variables),
            url=url,
            headers=MappingProxyType(dict(headers or {})),
            bearer_token_variable=bearer_token_variable,
            tools=McpTools(**tools) if isinstance(tools, Mapping) else tools,
            startup_timeout_s=startup_timeout_s,
        )

    @field_validator("url")
    @classmethod
    def _is_plain_address(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("an http or https URL is expected")
        if "@" in parts.netloc:
            raise ValueError("a URL without user name and password is expected")
        return value

    @model_validator(mode="after")
    def _is_one_of_two(self) -> McpServer:
        if (self.command is None) == (self.url is None):
            raise ValueError("either command or url is expected")
        foreign = (
            ("headers", "bearer_token_variable") if self.url is None else ("arguments", "environment", "variables")
        )
        if given := next((name for name in foreign if getattr(self, name)), None):
            raise ValueError(f"{given}: a server with a {'command' if self.url is None else 'url'} has none")
        if self.bearer_token_variable is not None and any(name.lower() == "authorization" for name in self.headers):
            raise ValueError("headers: either an Authorization header or bearer_token_variable is expected")
        self._check_literals()
        return self

    def _check_literals(self) -> None:
        texts = [("command", self.command or ""), ("url", self.url or "")]
        texts += [("arguments", text) for text in self.arguments]
        texts += [("environment", name + text) for name, text in self.environment.items()]
        texts += [("headers", name + text) for name, text in self.headers.items()]
        for field, text in texts:
            if "${" in text or "\0" in text:
                raise ValueError(f"{field}: a literal value without ${{ and NUL is expected")
            if field == "headers" and ("\n" in text or "\r" in text):
                raise ValueError("headers: a value without line breaks is expected")
        for name in self.headers:
            if not _HEADER_NAME.fullmatch(name):
                raise ValueError(f"headers: {name!r} is no name of a header")
        for field, names in (
            ("environment", self.environment),
            ("variables", self.variables),
            ("bearer_token_variable", () if self.bearer_token_variable is None else (self.bearer_token_variable,)),
        ):
            if wrong := next((name for name in names if not _VARIABLE.fullmatch(name)), None):
                raise ValueError(f"{field}: {wrong!r} is no name of a variable")


def checked_servers(servers: Mapping[str, Any] | None) -> Mapping[str, McpServer] | None:
    """The servers of a harness by name; `configuration` for a name that cannot be part of a tool's."""
    if servers is None:
        return None
    if not isinstance(servers, Mapping):
        raise configuration("mcp_servers: a mapping of names to servers is expected")
    for name, server in servers.items():
        if not isinstance(name, str) or not _SERVER_NAME.fullmatch(name):
            raise configuration(f"mcp_servers: {name!r}: 1 to 32 letters, digits, _ or - are expected")
        if not isinstance(server, McpServer):
            raise configuration(f"mcp_servers: {name}: an McpServer is expected, not {type(server).__name__}")
    return MappingProxyType(dict(servers))


@asynccontextmanager
async def running_servers(servers: Mapping[str, McpServer], lease: Lease) -> AsyncIterator[RunningServers]:
    """The servers of one turn, started together; leaving the context stops them all (MCP-02, MCP-10)."""
    try:
        from outpost_lsp.tools.mcp_connection import McpConnection
        from outpost_lsp.tools.mcp_tools import RunningServers
    except ImportError as error:
        raise OutpostError(
            "configuration",
            "mcp_servers: the package mcp is not installed; install it with: pip install 'outpost-lsp[mcp]'",
            {"extra": "mcp", "missing": error.name},
            error,
        ) from error
    connections = [McpConnection(name, server, lease) for name, server in servers.items()]
    try:
        starting = [asyncio.ensure_future(connection.start()) for connection in connections]
        try:
            await asyncio.wait(starting, return_when=asyncio.FIRST_EXCEPTION)
            # Several may fail at once; the first in the order of declaration is told.
            for task in starting:
                if task.done():
                    task.result()
        finally:
            for task in starting:
                task.cancel()
            await asyncio.gather(*starting, return_exceptions=True)
        yield RunningServers(connections)
    finally:
        await asyncio.gather(*(connection.stop() for connection in connections))
