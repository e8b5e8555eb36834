"""A server of the Model Context Protocol over HTTP, made with the official package.

Called with the file to which it writes each request (method, headers, body) as a line of JSON, and with `json` or `sse`
for the form of its answers. It prints its port. Without the token `right` it answers 401.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn

from tests.support.mcp_stdio_program import make_server


class Gate:
    """Writes requests down, and lets in who has the token."""

    def __init__(self, app: Any, log: Path) -> None:
        self._app = app
        self._log = log

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}

        async def logged() -> Any:
            message = await receive()
            if message["type"] == "http.request":
                self._note(scope["method"], headers, message.get("body", b""))
            return message

        if scope["method"] == "DELETE":
            self._note("DELETE", headers, b"")
        if headers.get("authorization") != "Bearer right":
            await send({"type": "http.response.start", "status": 401, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": b"no such token here"})
            return
        if headers.get("x-redirect"):
            location = [(b"location", b"/mcp/")]
            await send({"type": "http.response.start", "status": 307, "headers": location})
            await send({"type": "http.response.body", "body": b""})
            return
        await self._app(scope, logged, send)

    def _note(self, method: str, headers: dict[str, str], body: bytes) -> None:
        with self._log.open("a") as file:
            file.write(json.dumps({"method": method, "headers": headers, "body": body.decode()}) + "\n")


def main() -> None:
    app = make_server().streamable_http_app(json_response=sys.argv[2] == "json")
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    # What the tests end with a signal must not wait for a stream that a client left open.
    config = uvicorn.Config(Gate(app, Path(sys.argv[1])), log_level="error", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listening])
    os._exit(0)


if __name__ == "__main__":
    main()
