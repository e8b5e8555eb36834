"""A quick, synchronous LSP client for benchmarks: it reads whole messages and decodes only those that it waits for."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from pathlib import Path
from typing import Any


class EditorClient:
    """One server process and the talk with it."""

    def __init__(self, command: list[str], environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **(environment or {})},
        )
        assert self.process.stdout is not None
        self._output = self.process.stdout.fileno()
        os.set_blocking(self._output, False)
        self._buffer = bytearray()
        self._next = 0

    def send(self, method: str, params: Any, message_id: int | None = None) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        if message_id is not None:
            message["id"] = message_id
        body = json.dumps(message).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        self.process.stdin.flush()

    def read(self, deadline_s: float = 60.0) -> bytes:
        """The next message's body."""
        end = time.monotonic() + deadline_s
        while True:
            head = self._buffer.find(b"\r\n\r\n")
            if head >= 0:
                fields = (line.split(b":") for line in bytes(self._buffer[:head]).split(b"\r\n"))
                size = next(int(value) for name, value in fields if name == b"Content-Length")
                if len(self._buffer) >= head + 4 + size:
                    body = bytes(self._buffer[head + 4 : head + 4 + size])
                    del self._buffer[: head + 4 + size]
                    return body
            ready, _, _ = select.select([self._output], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise SystemExit("the server did not answer in time")
            data = os.read(self._output, 1 << 20)
            if not data:
                raise SystemExit("the server ended")
            self._buffer += data

    def read_waiting(self) -> list[bytes]:
        """Whatever has come so far."""
        found = []
        while select.select([self._output], [], [], 0)[0] or b"\r\n\r\n" in self._buffer:
            found.append(self.read())
        return found

    def until(self, mark: bytes) -> bytes:
        """The first message from now on that holds these bytes."""
        while mark not in (body := self.read()):
            pass
        return body

    def request(self, method: str, params: Any) -> Any:
        """The result of a request; what comes in between is passed over."""
        self._next += 1
        self.send(method, params, self._next)
        while True:
            body = self.read()
            if b'"id":' in body[-40:] or b'"result":' in body or b'"error":' in body:
                message = json.loads(body)
                if message.get("id") == self._next and "method" not in message:
                    return message.get("result")

    def command(self, name: str, argument: Any = None) -> Any:
        return self.request("workspace/executeCommand", {"command": name, "arguments": [argument or {}]})

    def initialize(self, folder: Path, settings: dict[str, Any] | None = None, **options: Any) -> None:
        uri = folder.as_uri()
        parameters = {
            "processId": os.getpid(),
            "rootUri": uri,
            "workspaceFolders": [{"uri": uri, "name": "folder"}],
            "capabilities": {},
            "initializationOptions": {"settings": settings or {}, **options},
        }
        self.request("initialize", parameters)
        self.send("initialized", {})

    def cpu_ms(self) -> float:
        """Processor time of the server so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        self.request("shutdown", None)
        self.send("exit", None)
        self.process.wait(30)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
