"""Where spans go: a collector that speaks OTLP over HTTP. Nothing here is global, so that settings may change.

Spans are sent by a thread of their own, in batches; a collector that is away or slow costs spans and nothing else.
"""

from __future__ import annotations

import ssl
from typing import Any, Final
from urllib.parse import urlsplit

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Tracer
from requests.adapters import HTTPAdapter

from outpost_lsp import __version__

_TIMEOUT_S: Final = 3.0
_EVERY_MS: Final = 1_000.0
_LAST_CONNECT_S: Final = 1.0
"""How long a connection may take when the program waits for the last batch."""
_THIS_MACHINE: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class SpanExport:
    """A collector. `endpoint` is its base URL, without `/v1/traces`; `headers` go with every batch.

    No redirect is followed, and no proxy is asked for this machine.
    """

    def __init__(
        self, endpoint: str, headers: dict[str, str], *, ca_file: str | None = None, proxy: str | None = None
    ) -> None:
        self._session = _session(endpoint, ca_file, proxy)
        exporter = OTLPSpanExporter(
            endpoint=f"{endpoint.rstrip('/')}/v1/traces",
            headers=headers,
            timeout=_TIMEOUT_S,
            session=self._session,
        )
        self._provider = TracerProvider(
            resource=Resource.create({"service.name": "outpost-lsp", "service.version": __version__}),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=_EVERY_MS))
        self.tracer: Tracer = self._provider.get_tracer("outpost_lsp", __version__)

    def close(self) -> None:
        """Send what waits and stop. It blocks, about as long as one batch may take at most; call it in a thread.

        A collector that cannot be reached is not tried again and again: it takes a second at most, and up to three where
        it was being tried already.
        """
        self._session.is_last = True
        self._provider.shutdown()


def headers_of(text: str) -> dict[str, str]:
    """The headers in the form that OpenTelemetry's own variables have: `name=value,name=value`."""
    pairs = (part.partition("=") for part in text.split(","))
    return {name.strip(): value.strip() for name, _, value in pairs if name.strip() and value.strip()}


class _Session(requests.Session):
    """What carries batches. Once `is_last` is set, a collector that cannot be reached is given up at once."""

    is_last = False

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        if not self.is_last:
            return super().send(request, **options)
        options["timeout"] = (_LAST_CONNECT_S, _TIMEOUT_S)
        try:
            try:
                return super().send(request, **options)
            except requests.ConnectTimeout:
                raise
            except requests.ConnectionError:
                # It may have closed the connection that was kept for it.
                return super().send(request, **options)
        except requests.ConnectionError as error:
            # The exporter waits before it tries again after what it takes to be an error of the connection.
            raise requests.RequestException(f"the collector cannot be reached: {error}") from error


def _session(endpoint: str, ca_file: str | None, proxy: str | None) -> _Session:
    session = _Session()
    session.max_redirects = 0
    if urlsplit(endpoint).hostname in _THIS_MACHINE:
        session.trust_env = False
    elif proxy:
        session.proxies = {"http": proxy, "https": proxy}
    if ca_file:
        session.mount("https://", _Trusting(ca_file))
    return session


class _Trusting(HTTPAdapter):
    """Trusts the certificates of a file besides the system's."""

    def __init__(self, ca_file: str) -> None:
        self._context = ssl.create_default_context()
        self._context.load_verify_locations(ca_file)
        super().__init__()

    def init_poolmanager(self, *positional: Any, **options: Any) -> None:
        super().init_poolmanager(*positional, **options, ssl_context=self._context)
