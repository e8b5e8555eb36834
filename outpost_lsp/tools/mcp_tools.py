"""What an agent gets of its servers of the Model Context Protocol: their tools, resources and prompts (MCP-04 to -06, -12).

The invariant: every tool has a name of its own that says which server it is of; what a server says of its input is
passed on to the model and decides nothing here; nothing that a server returns is more than the text of a result.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from outpost_lsp.domain.model import ToolSpec
from outpost_lsp.domain.record import Declaration, changeable
from outpost_lsp.domain.tool import InvalidInputError, Tool, ToolContext, ToolOutput
from outpost_lsp.errors import OutpostError, configuration
from outpost_lsp.tools.mcp_connection import McpConnection, McpProtocolError

_MAX_NAME: Final = 64
_ANY_OBJECT: Final[dict[str, Any]] = {"type": "object"}


class McpTool(Tool):
    """A tool of a server. Its schema is the server's own and may say more than those of other tools."""

    server_schema: Mapping[str, Any]

    def __init__(self, name: str, description: str, schema: Mapping[str, Any], execute: Any) -> None:
        # Not `Tool.__init__`: that would refuse a schema with words which only the server understands.
        Declaration.__init__(
            self,
            name=name,
            description=description,
            input=_ANY_OBJECT,
            execute=execute,
            server_schema=schema if schema.get("type") == "object" else {**schema, "type": "object"},
        )

    @cached_property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, changeable(self.server_schema))

    def validated(self, raw: Any) -> Any:
        if not isinstance(raw, dict):
            raise InvalidInputError("input: an object is expected")
        return raw


class RunningServers:
    """The servers of a turn, all started."""

    def __init__(self, connections: Sequence[McpConnection]) -> None:
        self._connections = {connection.name: connection for connection in connections}
        tools: dict[str, Tool] = {}
        for tool in (*self._server_tools(), *self._resource_tools(), *self._prompt_tools()):
            if tool.name in tools:
                raise configuration(f"mcp_servers: two tools would be named {tool.name}; exclude one of them")
            tools[tool.name] = tool
        self.tools: Mapping[str, Tool] = tools

    async def prompt(self, server: str, name: str, arguments: Mapping[str, str] | None = None) -> str:
        """The text of a server's prompt, for instructions (INSTR-01)."""
        connection = self._connections.get(server)
        if connection is None:
            raise configuration(f"mcp.prompt: there is no server {server!r}")
        try:
            return _messages_text(
                await connection.ask("prompts/get", {"name": name, "arguments": {**(arguments or {})}})
            )
        except McpProtocolError as error:
            raise OutpostError("response", f"The MCP server {server}: prompt {name}: {error}") from error

    def _server_tools(self) -> Iterable[Tool]:
        for name, connection in self._connections.items():
            choice = connection.server.tools
            said = {tool["name"]: tool for tool in connection.tools if isinstance(tool.get("name"), str)}
            if len(said) < len(connection.tools):
                raise OutpostError("response", f"The MCP server {name} lists a tool without a name or one name twice.")
            missing = [tool for tool in (choice.include if choice is not None else None) or () if tool not in said]
            if missing:
                raise configuration(f"mcp_servers: {name}: include: the server has no tool {missing[0]!r}")
            for tool_name, tool in said.items():
                if choice is None or choice.offers(tool_name):
                    yield _tool(connection, tool_name, tool)

    def _resource_tools(self) -> Iterable[Tool]:
        servers = self._having("resources")
        if not servers:
            return
        choice = {"type": "string", "enum": list(servers), "description": "The server."}

        async def entries(value: Any, _context: ToolContext) -> ToolOutput:
            return await _listed(servers, value.get("server"), "resources/list", "resources")

        async def read(value: Any, _context: ToolContext) -> ToolOutput:
            return await _asked(servers[value["server"]], "resources/read", {"uri": value["uri"]}, _contents_text)

        yield Tool("mcp_list_resources", "List the resources of the MCP servers.", _object({"server": choice}), entries)
        yield Tool(
            "mcp_read_resource",
            "Read a resource of an MCP server.",
            _object({"server": choice, "uri": {"type": "string"}}, ["server", "uri"]),
            read,
        )

    def _prompt_tools(self) -> Iterable[Tool]:
        servers = self._having("prompts")
        if not servers:
            return
        choice = {"type": "string", "enum": list(servers), "description": "The server."}

        async def entries(value: Any, _context: ToolContext) -> ToolOutput:
            return await _listed(servers, value.get("server"), "prompts/list", "prompts")

        async def get(value: Any, _context: ToolContext) -> ToolOutput:
            asked = {"name": value["name"], "arguments": value.get("arguments") or {}}
            return await _asked(servers[value["server"]], "prompts/get", asked, _messages_text)

        arguments = {"type": "object", "additionalProperties": {"type": "string"}}
        yield Tool("mcp_list_prompts", "List the prompts of the MCP servers.", _object({"server": choice}), entries)
        yield Tool(
            "mcp_get_prompt",
            "Get a prompt of an MCP server, filled in.",
            _object({"server": choice, "name": {"type": "string"}, "arguments": arguments}, ["server", "name"]),
            get,
        )

    def _having(self, capability: str) -> dict[str, McpConnection]:
        return {name: one for name, one in self._connections.items() if capability in one.capabilities}


def tool_name(server: str, tool: str) -> str:
    """The name that agents and permissions know a server's tool by (MCP-04)."""
    name = f"mcp__{server}__{re.sub(r'[^A-Za-z0-9_-]', '_', tool)}"
    if len(name) <= _MAX_NAME:
        return name
    mark = hashlib.sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name[: _MAX_NAME - 9]}_{mark}"


def result_text(result: Mapping[str, Any]) -> str:
    """The text of a call's result (MCP-06)."""
    content = result.get("content")
    blocks = content if isinstance(content, list) else []
    if not blocks and result.get("structuredContent") is not None:
        return _json(result["structuredContent"])
    return "\n".join(_block_text(block) for block in blocks)


def _tool(connection: McpConnection, name: str, said: Mapping[str, Any]) -> Tool:
    async def execute(value: Any, _context: ToolContext) -> ToolOutput:
        try:
            result = await connection.ask("tools/call", {"name": name, "arguments": value})
        except McpProtocolError as error:
            return ToolOutput(str(error) or "the server gave no reason", True)
        if not isinstance(result.get("content", []), list):
            return ToolOutput("the server's answer is malformed: its content is no list", True)
        return ToolOutput(result_text(result), result.get("isError") is True)

    schema = said.get("inputSchema")
    texts = (said.get("description"), said.get("title"), f"The tool {name} of the MCP server {connection.name}.")
    description = next(text for text in texts if isinstance(text, str) and text.strip())
    return McpTool(
        tool_name(connection.name, name), description, schema if isinstance(schema, dict) else _ANY_OBJECT, execute
    )


async def _listed(servers: Mapping[str, McpConnection], only: str | None, method: str, field: str) -> ToolOutput:
    lines = []
    for name in servers if only is None else (only,):
        try:
            entries = await servers[name].all_pages(method, field)
        except McpProtocolError as error:
            return ToolOutput(f"{name}: {error}", True)
        lines += [_json({"server": name, **entry}) for entry in entries]
    return ToolOutput("\n".join(lines) or f"There are no {field}.")


async def _asked(connection: McpConnection, method: str, params: Mapping[str, Any], render: Any) -> ToolOutput:
    try:
        return ToolOutput(render(await connection.ask(method, params)))
    except McpProtocolError as error:
        return ToolOutput(str(error) or "the server gave no reason", True)


def _contents_text(answer: Mapping[str, Any]) -> str:
    contents = answer.get("contents")
    return "\n".join(_resource_text(item) for item in contents) if isinstance(contents, list) else ""


def _messages_text(answer: Mapping[str, Any]) -> str:
    messages = answer.get("messages")
    found = messages if isinstance(messages, list) else []
    return "\n\n".join(_block_text(message.get("content")) for message in found if isinstance(message, dict))


def _block_text(block: Any) -> str:
    if not isinstance(block, dict):
        return _json(block)
    match block.get("type"):
        case "text" if isinstance(block.get("text"), str):
            return str(block["text"])
        case "image" | "audio" as kind:
            return f"[{kind} {block.get('mimeType', 'of unknown type')}, {_size(block.get('data'))} bytes]"
        case "resource":
            return _resource_text(block.get("resource"))
        case _:
            return _json(block)


def _resource_text(resource: Any) -> str:
    if not isinstance(resource, dict):
        return _json(resource)
    if isinstance(resource.get("text"), str):
        return str(resource["text"])
    if "blob" in resource:
        kind = resource.get("mimeType", "of unknown type")
        return f"[resource {resource.get('uri', '')} {kind}, {_size(resource['blob'])} bytes]"
    return _json(resource)


def _size(encoded: Any) -> int:
    if not isinstance(encoded, str):
        return 0
    return len(encoded) * 3 // 4 - encoded[-2:].count("=")


def _object(properties: Mapping[str, Any], required: Sequence[str] = ()) -> dict[str, Any]:
    return {"type": "object", "properties": {**properties}, "required": [*required], "additionalProperties": False}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
