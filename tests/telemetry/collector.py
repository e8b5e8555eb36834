"""A collector on loopback that takes OTLP over HTTP and keeps what came."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """Enter it to start it. `status` is what every batch is answered with."""

    def __init__(self, status: int = 200, location: str | None = None) -> None:
        self.status = status
        self.location = location
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.bodies: list[bytes] = []

    def __enter__(self) -> Collector:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.paths.append(self.path)
                collector.headers.append({name.lower(): value for name, value in self.headers.items()})
                collector.bodies.append(body)
                self.send_response(collector.status)
                if collector.location is not None:
                    self.send_header("Location", collector.location)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def resources(self) -> list[dict[str, str]]:
        """What each batch says of its sender."""
        return [
            {pair.key: pair.value.string_value for pair in batch.resource.attributes}
            for body in self.bodies
            for batch in ExportTraceServiceRequest.FromString(body).resource_spans
        ]

    @property
    def names(self) -> list[str]:
        """The names of all spans that came."""
        return [
            span.name
            for body in self.bodies
            for batch in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in batch.scope_spans
            for span in scope.spans
        ]
