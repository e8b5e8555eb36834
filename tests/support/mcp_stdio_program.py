"""A server of the Model Context Protocol over standard input and output, made with the official package.

Called with the file to which it writes every line it is sent, and `<closed>` when its input ends.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.stdio import stdio_server
from mcp_types import BlobResourceContents, EmbeddedResource, ImageContent, TextContent, TextResourceContents

LONG_NAME = "long_" + "x" * 75


def make_server() -> MCPServer:
    server: MCPServer = MCPServer("trial")

    @server.tool(structured_output=False)
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    @server.tool(name="say it!", structured_output=False)
    def say(text: str) -> str:
        return text

    @server.tool(name=LONG_NAME, structured_output=False)
    def long() -> str:
        return "long"

    @server.tool(structured_output=False)
    def many() -> Any:
        """Blocks of every kind."""
        data = base64.b64encode(b"12345").decode()
        return [
            TextContent(type="text", text="words"),
            ImageContent(type="image", data=data, mime_type="image/png"),
            EmbeddedResource(type="resource", resource=TextResourceContents(uri="memo://a", text="embedded")),
            EmbeddedResource(
                type="resource", resource=BlobResourceContents(uri="memo://b", blob=data, mime_type="x/y")
            ),
        ]

    @server.tool(structured_output=False)
    def fails() -> str:
        """Fails."""
        raise ToolError("it does not work")

    @server.tool(structured_output=False)
    async def slow() -> str:
        """Takes for ever."""
        await anyio.sleep_forever()
        return ""

    @server.tool(structured_output=False)
    def environment() -> str:
        """What it was started with."""
        return json.dumps(dict(os.environ))

    @server.tool(structured_output=False)
    def write_here(name: str) -> str:
        """Write a file where it runs."""
        Path(name).write_text("by the server")
        return str(Path.cwd())

    @server.tool(structured_output=False)
    def die() -> str:
        """End at once."""
        sys.stderr.write("x" * 10_000 + "last words\n")
        sys.stderr.flush()
        os._exit(7)

    @server.resource("memo://one", name="one", description="A memo.")
    def memo() -> str:
        return "the memo's text"

    @server.prompt()
    def greet(name: str) -> str:
        """Greet somebody."""
        return f"Greet {name} kindly."

    return server


class Logged:
    """Standard input, of which every line is written down."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = anyio.wrap_file(sys.stdin)

    def _note(self, line: str) -> None:
        with self._path.open("a") as file:
            file.write(line)

    async def __aiter__(self) -> AsyncIterator[str]:
        async for line in self._lines:
            self._note(line)
            yield line
        self._note("<closed>\n")


async def main() -> None:
    lowlevel = make_server()._lowlevel_server
    async with stdio_server(stdin=Logged(Path(sys.argv[1]))) as (read, write):  # type: ignore[arg-type]
        await lowlevel.run(read, write, lowlevel.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
