"""One HTTP exchange with a decision service: client, deadline, size, status.

Exactly one request goes out per call: no retry, no redirect, no cookie, nothing from the environment. The deadline
covers connecting and the whole body; the body is counted while it is read; the body of a failed answer is never read.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from outpost_lsp.domain.retry_after import retry_after_ms
from outpost_lsp.errors import OutpostError, configuration

if TYPE_CHECKING:
    import httpx

_CONNECT_S: Final = 10.0
_IDLE_S: Final = 60.0
_TIMEOUTS: Final = {"connect": _CONNECT_S, "read": None, "write": None, "pool": None}
_HEADERS: Final = {
    b"Content-Type": b"application/json",
    b"Accept": b"application/json",
    b"Accept-Encoding": b"identity",
    b"User-Agent": b"outpost-lsp",
}
_UNAVAILABLE: Final = frozenset({408, 500, 502, 503, 504, 529})


class Exchange:
    """A kept connection to one endpoint.

    The transport is made at the first request and again when another event loop asks; `aclose` ends it. There is no
    client around it: what that adds is for cookies, redirects and the environment, none of which count here.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        timeout_s: float,
        max_response_bytes: int,
        ca_file: str | None,
        proxy: str | None,
        remedy: Callable[[int], str],
    ) -> None:
        self._endpoint = endpoint
        self._timeout_s = timeout_s
        self._max_response_bytes = max_response_bytes
        self._ca_file = ca_file
        self._proxy = proxy
        self._remedy = remedy
        self._is_plain = endpoint.lower().startswith("http://") and proxy is None
        self._transport: httpx.AsyncHTTPTransport | None = None
        self._url: httpx.URL | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def post(self, body: bytes, key: str | None) -> bytes:
        """Send `body` and return the body of a 2xx answer."""
        import httpx  # Costs a tenth of a second, which a start without a decision must not pay.

        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._post(httpx, body, key)
        except TimeoutError:
            raise OutpostError(
                "timeout", f"the decision service did not answer within {self._timeout_s:g} s (timeout_s)"
            ) from None
        except httpx.ConnectTimeout:
            raise OutpostError(
                "timeout", f"the decision service did not accept the connection within {_CONNECT_S:g} s"
            ) from None
        except (httpx.LocalProtocolError, httpx.InvalidURL, UnicodeError):
            # Not chained: the error may quote the header that holds the key.
            raise configuration("decision service: the request cannot be sent as HTTP: check the key") from None
        except httpx.TransportError as error:
            sentence = _transport_sentence(error, httpx)
            # What broke the protocol is quoted by the error, so that one is not chained either.
            cause = None if isinstance(error, httpx.RemoteProtocolError) else error
            raise OutpostError("provider", f"the decision service {sentence}", {"unavailable": sentence}) from cause

    async def aclose(self) -> None:
        """Close the connections; a later request opens new ones."""
        transport, loop = self._transport, self._loop
        self._transport = self._loop = None
        # The connections of an event loop that has ended cannot be closed any more.
        if transport is not None and loop is asyncio.get_running_loop():
            await transport.aclose()

    async def _post(self, httpx: Any, body: bytes, key: str | None) -> bytes:
        transport = await self._ready_transport(httpx)
        if self._url is None:
            self._url = httpx.URL(self._endpoint)
        headers = dict(_HEADERS)
        if key is not None:
            headers[b"Authorization"] = b"Bearer " + key.encode()
        request = httpx.Request("POST", self._url, headers=headers, content=body, extensions={"timeout": _TIMEOUTS})
        response = await transport.handle_async_request(request)
        try:
            if not 200 <= response.status_code <= 299:
                raise _status_fault(response.status_code, response.headers, self._remedy)
            return await self._read(response)
        finally:
            await response.aclose()

    async def _read(self, response: httpx.Response) -> bytes:
        if response.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
            raise OutpostError("response", "the decision service sent a compressed answer, though none was asked for")
        chunks: list[bytes] = []
        size = 0
        async for chunk in response.aiter_raw():
            size += len(chunk)
            if size > self._max_response_bytes:
                raise OutpostError(
                    "response",
                    f"the decision service sent more than {self._max_response_bytes} bytes (max_response_bytes)",
                )
            chunks.append(chunk)
        return b"".join(chunks)

    async def _ready_transport(self, httpx: Any) -> httpx.AsyncHTTPTransport:
        loop = asyncio.get_running_loop()
        if self._transport is None or self._loop is not loop:
            # The connections of an earlier event loop died with it.
            verify = self._tls() if self._is_plain else await asyncio.to_thread(self._tls)
            if self._transport is None or self._loop is not loop:
                limits = httpx.Limits(max_connections=None, max_keepalive_connections=8, keepalive_expiry=_IDLE_S)
                try:
                    self._transport = httpx.AsyncHTTPTransport(
                        verify=verify, proxy=self._proxy, trust_env=False, limits=limits
                    )
                except ImportError:
                    raise configuration(
                        "decision service: proxy: a SOCKS proxy needs one more package: pip install 'httpx[socks]'"
                    ) from None
                except ValueError as error:
                    raise configuration(
                        f"decision service: proxy: not the URL of a proxy: {type(error).__name__}"
                    ) from None
                self._loop = loop
        return self._transport

    def _tls(self) -> ssl.SSLContext:
        if self._is_plain:
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # Trusts nobody, and is never used.
        context = ssl.create_default_context()
        if self._ca_file is not None:
            try:
                context.load_verify_locations(cafile=self._ca_file)
            except (OSError, ssl.SSLError) as error:
                raise configuration(f"decision service: ca_file: no certificates could be read: {error}") from error
        return context


def _status_fault(status: int, headers: Mapping[str, str], remedy: Callable[[int], str]) -> OutpostError:
    details: dict[str, Any] = {"status": status}
    if 300 <= status <= 399:
        sentence = f"redirects elsewhere (HTTP {status}), and redirects are not followed"
        details["unavailable"] = sentence
        return OutpostError("provider", f"the decision service {sentence}: check base_url", details)
    now = datetime.now(UTC)
    wait_ms = retry_after_ms(headers.get("Retry-After"), now)
    if wait_ms is not None:
        details["retryAfterMs"] = wait_ms
    if status == 429:
        if (reset_at := _later(now, wait_ms)) is not None:
            details["resetAt"] = reset_at
        return OutpostError("quota", "the decision service refuses further requests for now (HTTP 429)", details)
    if status in _UNAVAILABLE:
        details["unavailable"] = f"HTTP {status}"
    return OutpostError("provider", f"the decision service answered HTTP {status}{remedy(status)}", details)


def _later(now: datetime, wait_ms: int | None) -> str | None:
    try:
        return None if wait_ms is None else (now + timedelta(milliseconds=wait_ms)).isoformat(timespec="milliseconds")
    except OverflowError:
        return None


def _transport_sentence(error: Exception, httpx: Any) -> str:
    cause: BaseException | None = error
    for _ in range(8):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return "has a certificate that is not trusted (a private authority goes into ca_file)"
        if isinstance(cause, ssl.SSLError):
            return "could not agree on TLS"
        cause = None if cause is None else cause.__cause__ or cause.__context__
    if isinstance(error, httpx.ProxyError):
        return "could not be reached through the proxy"
    if isinstance(error, httpx.ConnectError):
        return "could not be reached: the connection was refused or the host is unknown"
    if isinstance(error, httpx.RemoteProtocolError):
        return "closed the connection early, or does not speak HTTP"
    return "broke the connection"
