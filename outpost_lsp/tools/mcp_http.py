"""HTTP for servers of the Model Context Protocol: whatever goes wrong becomes an answer that says so.

The invariant: no failure of a single exchange ends the connection, no redirect is followed (SEC-18), and no answer of
unlimited size is read. The protocol's own client carries the exchanges; this is what it sends them with.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import httpx2

MAX_ANSWER: Final = 16 * 1024 * 1024
HTTP_STATUS: Final = "outpostHttpStatus"
"""The key of an error's data under which a failed exchange tells its status; 0 when there was none."""

_TEXT_KEPT: Final = 2_000
_CONNECT_S: Final = 10.0


class HttpClient(httpx2.AsyncClient):
    """A client for one server."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        # How long a call may take is the caller's business: a server may say nothing while it works.
        super().__init__(headers=dict(headers), timeout=httpx2.Timeout(None, connect=_CONNECT_S), max_redirects=0)

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        try:
            response = await super().send(request, **options)
        except httpx2.TransportError as error:
            return _refusal(request, 0, f"the server cannot be reached: {str(error) or type(error).__name__}")
        if response.status_code >= 400:
            text = await _beginning(response)
            await response.aclose()
            return _refusal(request, response.status_code, f"HTTP {response.status_code}: {text}".rstrip(": "))
        if response.headers.get("content-type", "").lower().startswith("application/json"):
            response.stream = _Bounded(response.stream)
        return response


class _Bounded(httpx2.AsyncByteStream):
    """A body of which no more than `MAX_ANSWER` bytes are read."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        taken = 0
        try:
            async for piece in self._stream:
                taken += len(piece)
                if taken > MAX_ANSWER:
                    raise httpx2.StreamError(f"the answer exceeds {MAX_ANSWER} bytes")
                yield piece
        except httpx2.TransportError as error:
            raise httpx2.StreamError(f"the answer was cut off: {error}") from error

    async def aclose(self) -> None:
        await self._stream.aclose()


def _refusal(request: httpx2.Request, status: int, message: str) -> httpx2.Response:
    """A failed exchange as the answer with an error that the protocol has for it."""
    error = {"code": -32603, "message": message, "data": {HTTP_STATUS: status}}
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
    headers = {"content-type": "application/json"}
    return httpx2.Response(status or 503, headers=headers, content=body, request=request)


async def _beginning(response: httpx2.Response) -> str:
    taken = bytearray()
    try:
        async for piece in response.aiter_bytes():
            taken += piece
            if len(taken) > _TEXT_KEPT:
                break
    except (httpx2.TransportError, httpx2.StreamError):
        pass
    text = taken[:_TEXT_KEPT].decode("utf-8", "replace").strip()
    try:
        said = json.loads(text)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return text
    return said if isinstance(said, str) else text
