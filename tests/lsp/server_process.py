"""A language server in a process of its own, and a bare client that sees every byte of it.

Any byte on standard output that is no message fails the test (REL-22).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

PATIENCE_S = 60.0
KEY = "canary-key-of-the-service"
"""What services are opened with; it must never be seen anywhere else (SEC-16)."""
Message = dict[str, Any]


class ServerProcess:
    """The process and the conversation with it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.received: list[Message] = []
        self.answers: dict[str, Callable[[Any], Any]] = {}
        """What is answered to the server's requests, by method; `null` where nothing is set."""
        self.stray: bytes | None = None
        self.log = b""
        self._next = 0
        self._news = asyncio.Condition()
        self._reading = [asyncio.create_task(self._read()), asyncio.create_task(self._read_log())]

    async def _read(self) -> None:
        assert self.process.stdout is not None
        output = self.process.stdout
        try:
            while True:
                head = await output.readuntil(b"\r\n\r\n")
                name, _, size = head.strip().partition(b": ")
                if name != b"Content-Length":
                    self.stray = head
                    break
                await self._take(json.loads(await output.readexactly(int(size))))
        except asyncio.IncompleteReadError as error:
            self.stray = error.partial or None
        async with self._news:
            self._news.notify_all()

    async def _take(self, message: Message) -> None:
        if "method" in message and "id" in message:
            answer = self.answers.get(message["method"], lambda params: None)
            result = answer(message.get("params"))
            if result is not NotImplemented:
                self.send({"jsonrpc": "2.0", "id": message["id"], "result": result})
        async with self._news:
            self.received.append(message)
            self._news.notify_all()

    async def _read_log(self) -> None:
        assert self.process.stderr is not None
        while data := await self.process.stderr.read(65536):
            self.log += data

    # Sending

    def send_bytes(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    def send(self, message: Any) -> None:
        body = json.dumps(message).encode()
        self.send_bytes(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    def notify(self, method: str, params: Any = None) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def begin(self, method: str, params: Any = None) -> int:
        """Send a request; the result is its id."""
        self._next += 1
        self.send({"jsonrpc": "2.0", "id": self._next, "method": method, "params": params})
        return self._next

    async def answer_to(self, message_id: int | str | None) -> Message:
        return await self.wait_for(lambda one: one.get("id") == message_id and "method" not in one)

    async def request(self, method: str, params: Any = None) -> Any:
        """The result of a request; an error fails the test."""
        answer = await self.answer_to(self.begin(method, params))
        assert "error" not in answer, answer
        return answer["result"]

    async def fault(self, method: str, params: Any = None) -> Any:
        """The error of a request; a result fails the test."""
        answer = await self.answer_to(self.begin(method, params))
        assert "error" in answer, answer
        return answer["error"]

    async def command(self, name: str, argument: Any = None, **more: Any) -> Any:
        return await self.request("workspace/executeCommand", _call(name, argument, more))

    async def command_fault(self, name: str, argument: Any = None, **more: Any) -> Any:
        return await self.fault("workspace/executeCommand", _call(name, argument, more))

    def begin_command(self, name: str, argument: Any = None, **more: Any) -> int:
        return self.begin("workspace/executeCommand", _call(name, argument, more))

    async def initialize(
        self,
        folder: Path | str | None = None,
        *,
        capabilities: Any = None,
        options: Any = None,
        process_id: int | None = None,
    ) -> Any:
        uri = folder.as_uri() if isinstance(folder, Path) else folder
        params = {
            "processId": os.getpid() if process_id is None else process_id,
            "rootUri": uri,
            "workspaceFolders": [{"uri": uri, "name": "folder"}] if uri else None,
            "capabilities": capabilities or {},
            "initializationOptions": options,
        }
        result = await self.request("initialize", params)
        self.notify("initialized", {})
        return result

    def open(self, uri: str, text: str, version: int = 1) -> None:
        document = {"uri": uri, "languageId": "python", "version": version, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": document})

    def change(self, uri: str, version: int, start: tuple[int, int], end: tuple[int, int], text: str) -> None:
        place = {
            "start": {"line": start[0], "character": start[1]},
            "end": {"line": end[0], "character": end[1]},
        }
        document = {"uri": uri, "version": version}
        self.notify(
            "textDocument/didChange", {"textDocument": document, "contentChanges": [{"range": place, "text": text}]}
        )

    def close(self, uri: str) -> None:
        self.notify("textDocument/didClose", {"textDocument": {"uri": uri}})

    # Waiting

    async def wait_for(self, is_it: Callable[[Message], bool]) -> Message:
        """The first message, received or still to come, of which this holds."""
        seen = 0
        async with asyncio.timeout(PATIENCE_S):
            async with self._news:
                while True:
                    for message in self.received[seen:]:
                        if is_it(message):
                            return message
                    seen = len(self.received)
                    assert self.stray is None, f"stray bytes on standard output: {self.stray!r}"
                    assert not self._reading[0].done(), f"the server is gone: {self.log.decode()}"
                    await self._news.wait()

    async def notification(self, method: str, is_it: Callable[[Any], bool] = lambda params: True) -> Any:
        """The parameters of the first notification or request of this kind of which this holds."""
        message = await self.wait_for(lambda one: one.get("method") == method and is_it(one["params"]))
        return message["params"]

    def all(self, method: str) -> list[Any]:
        """The parameters of every notification of this kind so far."""
        return [one["params"] for one in self.received if one.get("method") == method]

    async def ended(self) -> int:
        """The exit status."""
        async with asyncio.timeout(PATIENCE_S):
            status = await self.process.wait()
            await asyncio.wait(self._reading)
        assert self.stray is None, f"stray bytes on standard output: {self.stray!r}"
        return status

    async def shut_down(self) -> int:
        """The polite end."""
        await self.request("shutdown")
        self.notify("exit")
        return await self.ended()


def _call(name: str, argument: Any, more: dict[str, Any]) -> dict[str, Any]:
    return {"command": name, "arguments": [] if argument is None else [argument], **more}


@asynccontextmanager
async def running_server(*arguments: str, environment: dict[str, str] | None = None) -> AsyncIterator[ServerProcess]:
    """A server process; it is gone when the block ends, and said nothing that is no message."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "outpost_lsp",
        "serve",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=64 * 1024 * 1024,
        env={**os.environ, "SERVICE_KEY": KEY, **(environment or {})},
    )
    server = ServerProcess(process)
    try:
        yield server
        assert server.stray is None, f"stray bytes on standard output: {server.stray!r}"
        assert KEY not in json.dumps(server.received)
        assert KEY.encode() not in server.log
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        for task in server._reading:
            await asyncio.wait([task])
        process._transport.close()  # type: ignore[attr-defined]
