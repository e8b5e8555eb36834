"""A loopback System One service that answers whatever a test wants, well or badly, on a plain socket."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class SeenRequest:
    """A request as it came over the wire."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Connection:
    """One accepted connection, for a reply that plays with the socket itself."""

    socket: socket.socket
    request: SeenRequest
    stopping: threading.Event

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def wait(self) -> None:
        """Hold the connection until the client goes away or the server stops."""
        self.socket.settimeout(0.05)
        while not self.stopping.is_set():
            try:
                if not self.socket.recv(1):
                    return
            except TimeoutError:
                continue
            except OSError:
                return

    def reset(self) -> None:
        """Close with a reset instead of an orderly end."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


CERTIFICATE = Path(__file__).with_name("tls") / "loopback.pem"
"""Made for 127.0.0.1 and localhost, signed by itself, worth nothing anywhere else."""

Reply = bytes | Callable[[Connection], None]
Answering = Callable[[SeenRequest], Reply]


def http(body: bytes = b"", status: int = 200, headers: Mapping[str, str] | None = None) -> bytes:
    """A whole HTTP answer that keeps the connection."""
    given = {"Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"HTTP/1.1 {status} Status\r\n{head}\r\n".encode("latin-1") + body


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> bytes:
    """A JSON answer."""
    return http(json.dumps(value, ensure_ascii=False).encode(), status, headers)


def choice(label: str, confidence: float, labels: Sequence[str] = ("fast", "deep")) -> dict[str, Any]:
    """A valid answer to a choice question, by the documented formula of confidence."""
    even = 1 / len(labels)
    chosen = even + confidence * (1 - even)
    rest = (1 - chosen) / (len(labels) - 1)
    return {
        "type": "choice",
        "choice": label,
        "probabilities": {name: chosen if name == label else rest for name in labels},
        "confidence": confidence,
    }


def routed(label: str, confidence: float = 0.9, **more: Any) -> dict[str, Any]:
    """A whole answer to the question `route`."""
    return {
        "model": "router-checkpoint",
        "answers": {"route": choice(label, confidence)},
        "usage": {"input_tokens": 12, "output_tokens": 3},
        **more,
    }


@dataclass
class SystemOneServer:
    """Answers requests with `replies` in order, the last one again and again; a reply may be a function of the request."""

    replies: Sequence[Reply | Answering] = field(default_factory=lambda: [answer(routed("fast"))])
    requests: list[SeenRequest] = field(default_factory=list)
    connections: int = 0
    tls: bool = False

    def __enter__(self) -> SystemOneServer:
        self._stopping = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.05)
        self._lock = threading.Lock()
        if self.tls:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(CERTIFICATE, CERTIFICATE.with_suffix(".key"))
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stopping.set()
        self._listener.close()
        for thread in self._threads:
            thread.join(20)

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def base_url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}/v1"

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                accepted, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            self.connections += 1
            thread = threading.Thread(target=self._serve, args=(accepted,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, accepted: socket.socket) -> None:
        if self.tls:
            try:
                accepted = self._tls.wrap_socket(accepted, server_side=True)
            except OSError:
                accepted.close()
                return
        with accepted:
            while (request := self._read(accepted)) is not None:
                with self._lock:
                    self.requests.append(request)
                    reply = self.replies[min(len(self.requests), len(self.replies)) - 1]
                if not isinstance(reply, bytes) and _takes_request(reply):
                    reply = reply(request)  # type: ignore[arg-type]
                try:
                    if isinstance(reply, bytes):
                        accepted.sendall(reply)
                    else:
                        reply(Connection(accepted, request, self._stopping))  # type: ignore[arg-type]
                        return
                except OSError:
                    return

    def _read(self, accepted: socket.socket) -> SeenRequest | None:
        accepted.settimeout(0.05)
        data = b""
        length: int | None = None
        while length is None or len(data) < length:
            try:
                piece = accepted.recv(65536)
            except TimeoutError:
                if self._stopping.is_set():
                    return None
                continue
            except OSError:
                return None
            if not piece:
                return None
            data += piece
            if length is None and b"\r\n\r\n" in data:
                head, _, _ = data.partition(b"\r\n\r\n")
                length = len(head) + 4 + int(_headers(head).get("content-length", "0"))
        accepted.settimeout(None)
        head, _, body = data.partition(b"\r\n\r\n")
        method, path, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
        return SeenRequest(method, path, _headers(head), body)


def by_request(function: Callable[[SeenRequest], Reply]) -> Answering:
    """Marks a function that makes the reply from the request, rather than playing with the connection."""
    function.takes_request = True  # type: ignore[attr-defined]
    return function


def _takes_request(reply: object) -> bool:
    return bool(getattr(reply, "takes_request", False))


def _headers(head: bytes) -> dict[str, str]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    return {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
