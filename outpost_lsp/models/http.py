"""The one door to model services: kept connections, and one exchange over them.

The transport is made at the first request, in a worker thread, because importing the HTTP library and reading
certificates takes longer than the event loop may stand still. There is no client around it: what that adds is for
cookies, redirects and authentication schemes, none of which count here. An exchange never outlives its caller: when its task is cancelled the
connection is closed at once. Transport failures leave this module as faults (HTTP-01 to HTTP-03, HTTP-09, SEC-18).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Final, cast

from outpost_lsp.errors import OutpostError, configuration
from outpost_lsp.models.endpoint import Endpoint, proxy_of_the_environment
from outpost_lsp.models.faults import Faults, Way
from outpost_lsp.models.retry import wait_before_retry
from outpost_lsp.models.sse import EventSplitter, EventTooLargeError

if TYPE_CHECKING:
    import httpx

    from outpost_lsp.models.answer import AnswerReader

logger = logging.getLogger(__name__)

WHOLE_STREAM_FACTOR: Final = 8
"""A whole stream may have this many times the bytes of one event (REL-08)."""

_EVENTS_PER_TURN = 32
_DRAIN_S = 0.25
_DRAIN_BYTES = 64 * 1024
_ERROR_BODY_BYTES = 16 * 1024
_ERROR_BODY_S = 2.0
_BLANK = b" \t\r\n\xef\xbb\xbf"
_NOT_JSON = b"deir:<"
_USUAL_KINDS = frozenset({"text/html", "text/xml", "application/xml", "application/xhtml+xml"})
_IDLE_CONNECTIONS = 64
_IDLE_S = 30.0

Headers = Sequence[tuple[bytes, bytes]]
Wake = Callable[[], None]


class HttpDoor:
    """The connections to one service."""

    def __init__(self, endpoint: Endpoint, path: str) -> None:
        self._endpoint = endpoint
        self._url = endpoint.base_url + path
        self._target: httpx.URL | None = None
        """The address, taken apart once: that takes longer than all else of making a request."""
        self._faults = Faults(endpoint.name, self._url)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._transport: httpx.AsyncHTTPTransport | None = None
        self._making: asyncio.Future[httpx.AsyncHTTPTransport] | None = None

    @property
    def _way(self) -> Way:
        if self._endpoint.is_loopback:
            return "local"
        if self._endpoint.proxy is not None:
            return "proxy"
        return "environment" if proxy_of_the_environment(self._url) else "direct"

    @property
    def faults(self) -> Faults:
        """What names the faults of this service."""
        return self._faults

    async def exchange(self, headers: Headers, body: bytes, silence_s: float, reader: AnswerReader, wake: Wake) -> None:
        """Send one request and feed its answer to `reader` until it is done or the answer ends.

        `wake` is called whenever the reader holds pieces to show. Raises the fault of whatever went wrong.
        """
        transport = await self._ready()
        import httpx  # Loaded by now.

        if self._target is None:
            self._target = httpx.URL(self._url)
        connect_s = self._endpoint.connect_timeout_s
        request = httpx.Request(
            "POST",
            self._target,
            headers=list(headers),
            content=body,
            extensions={"timeout": {"connect": connect_s, "read": silence_s, "write": silence_s, "pool": silence_s}},
        )
        try:
            response = await transport.handle_async_request(request)
            try:
                # The head was one piece of work; what came with it is another.
                await asyncio.sleep(0)
                await self._receive(response, reader, wake)
            finally:
                await response.aclose()
            return
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            # What the library says may name what was sent, so the log gets the kind of failure only.
            logger.debug("%s: %s", self._faults.name, type(error).__name__)
            fault = self._faults.of_transport(error, connect_s=connect_s, silence_s=silence_s, way=self._way)
        raise fault

    async def aclose(self) -> None:
        """Close all connections; the next request opens new ones."""
        transport, self._transport = self._transport, None
        making, self._making = self._making, None
        if self._loop is not asyncio.get_running_loop():
            return
        if transport is None and making is not None:
            transport = await making
        if transport is not None:
            await transport.aclose()

    async def _ready(self) -> httpx.AsyncHTTPTransport:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            # Connections belong to the loop they were opened in; one that has ended took them along.
            self._loop, self._transport, self._making = loop, None, None
        if self._transport is not None:
            return self._transport
        if self._making is None:
            self._making = asyncio.ensure_future(asyncio.to_thread(_make_transport, self._endpoint))
        try:
            transport = await asyncio.shield(self._making)
        except Exception:
            # The next request tries anew: a file may be there by then.
            self._making = None
            raise
        self._transport = transport
        return transport

    async def _receive(self, response: httpx.Response, reader: AnswerReader, wake: Wake) -> None:
        if not response.is_success:
            raise await self._refusal(response)
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind.endswith("json") or kind in {"text/event-stream", "text/plain", "application/octet-stream", ""}:
            await self._read(response, reader, wake, is_json=kind.endswith("json"))
        else:
            raise self._faults.malformed(f"neither a stream of events nor JSON came but {_shown(kind)}")

    async def _read(self, response: httpx.Response, reader: AnswerReader, wake: Wake, *, is_json: bool) -> None:
        """Read a stream of events, or JSON in one piece; local servers send either under the name of the other.

        The first byte that is not blank tells them apart: no field of an event begins like an object, no JSON like a field.
        """
        most = self._endpoint.max_response_bytes
        splitter = EventSplitter(most)
        left = most * WHOLE_STREAM_FACTOR
        turn = _EVENTS_PER_TURN
        compressed = "content-encoding" in response.headers
        # Both are generators, though declared as less; closing them lets go of the connection here and now.
        source = cast("AsyncGenerator[bytes, None]", response.aiter_bytes() if compressed else response.aiter_raw())
        beginning = b""
        try:
            async for piece in source:
                data = piece
                left -= len(data)
                if left < 0:
                    raise self._faults.too_large("the answer", _size(most * WHOLE_STREAM_FACTOR))
                turn -= 1
                if not beginning:
                    data = data.lstrip(_BLANK)
                    beginning = data[:1]
                    if beginning == b"{" or (is_json and beginning and beginning not in _NOT_JSON):
                        reader.read_whole(await self._whole(data, source))
                        wake()
                        return
                for payload in splitter.feed(data):
                    reader.read(payload)
                    turn -= 1
                    if turn <= 0:
                        turn = _EVENTS_PER_TURN
                        wake()
                        await asyncio.sleep(0)
                    if reader.done:
                        wake()
                        await _drain(source)
                        return
                if reader.fresh:
                    wake()
                if turn <= 0:
                    turn = _EVENTS_PER_TURN
                    await asyncio.sleep(0)
        except EventTooLargeError:
            raise self._faults.too_large("one event of the answer", _size(most)) from None
        finally:
            await source.aclose()
        if not beginning:
            raise self._faults.empty(response.status_code)
        read_remainder(splitter.remainder(), reader)
        if beginning == b"<" and not reader.events:
            raise self._faults.malformed("it looks like HTML, neither JSON nor a stream of events")

    async def _whole(self, begun: bytes, source: AsyncIterator[bytes]) -> bytes:
        most = self._endpoint.max_response_bytes
        body = bytearray(begun)
        async for data in source:
            body += data
            if len(body) > most:
                break
        if len(body) > most:
            raise self._faults.too_large("the answer", _size(most))
        return bytes(body)

    async def _refusal(self, response: httpx.Response) -> OutpostError:
        status, retry_after = response.status_code, response.headers.get("retry-after")
        fault = self._faults.of_status(status, retry_after)
        # The bodies of other statuses stay unread (HTTP-01). 400 alone may say that the context is full (CTX-11), and
        # 429 that the quota is used up, which no waiting mends (HTTP-06); where the wait is too long it is final anyway.
        if status == 400 or (status == 429 and wait_before_retry(fault, 0, 0) is not None):
            return self._faults.of_status(status, retry_after, await _beginning(response))
        return fault


def read_remainder(payload: bytes, reader: AnswerReader) -> None:
    """Feed the last event of a stream that ended without ending it; what is not whole is what a cut leaves."""
    if payload and (payload == b"[DONE]" or payload.rstrip().endswith(b"}")):
        try:
            reader.read(payload)
        except OutpostError as fault:
            if fault.code != "response":
                raise


def _make_transport(endpoint: Endpoint) -> httpx.AsyncHTTPTransport:
    import httpx  # Takes 60 ms; nothing that starts needs it.

    # The proxy variables are for the way out; a key in plain text must not leave this machine through them.
    proxy = None if endpoint.is_loopback else endpoint.proxy or proxy_of_the_environment(endpoint.base_url)
    try:
        return httpx.AsyncHTTPTransport(
            verify=_certificates(endpoint),
            http2=False,
            proxy=proxy,
            trust_env=False,
            limits=httpx.Limits(
                max_connections=None, max_keepalive_connections=_IDLE_CONNECTIONS, keepalive_expiry=_IDLE_S
            ),
        )
    except (ValueError, httpx.InvalidURL) as error:
        raise configuration(f"proxy: not the URL of a proxy: {type(error).__name__}") from None
    except ImportError:
        # Also named by the environment, as ALL_PROXY often does.
        raise configuration(
            "proxy: a SOCKS proxy needs one more package: pip install 'httpx[socks]', or name an HTTP proxy"
        ) from None


def _certificates(endpoint: Endpoint) -> ssl.SSLContext:
    if endpoint.is_plain:
        # No certificate will be looked at; this context trusts none.
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context = ssl.create_default_context()
    if not context.cert_store_stats()["x509_ca"]:
        import certifi

        context.load_verify_locations(cafile=certifi.where())
    if endpoint.ca_file is not None:
        try:
            context.load_verify_locations(cafile=endpoint.ca_file)
        except (OSError, ssl.SSLError) as error:
            reason = error.strerror if type(error) is not ssl.SSLError else "it holds no certificate in PEM form"
            raise configuration(f"ca_file: {endpoint.ca_file} cannot be used: {reason}") from None
    return context


async def _beginning(response: httpx.Response) -> bytes:
    import httpx

    body = bytearray()
    try:
        async with asyncio.timeout(_ERROR_BODY_S):
            async for data in response.aiter_bytes():
                body += data
                if len(body) >= _ERROR_BODY_BYTES:
                    break
    except (TimeoutError, httpx.HTTPError):
        pass  # What came by then is enough to look at.
    return bytes(body[:_ERROR_BODY_BYTES])


async def _drain(source: AsyncIterator[bytes]) -> None:
    """Read what follows the last event, so that the connection can be used again; one that stays open is given up."""
    import httpx

    left = _DRAIN_BYTES
    try:
        async with asyncio.timeout(_DRAIN_S):
            async for data in source:
                left -= len(data)
                if left < 0:
                    return
    except (TimeoutError, httpx.HTTPError):
        return


def _size(size: int) -> str:
    return f"{size // 1024 // 1024} MiB" if size >= 1024 * 1024 else f"{size} bytes"


def _shown(kind: str) -> str:
    # What a service sends is not quoted unless it is one of the things that usually stand in the way.
    return kind if kind in _USUAL_KINDS else "something else"
