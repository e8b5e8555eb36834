"""Jobs over HTTP: an `Executor` that speaks to a face.

The invariant: nothing that comes back is trusted or run, and no answer is read beyond its bound; a job is taken once,
however often it was sent, and handing it over is bounded in time. Imported when a run first goes elsewhere; the jobs
themselves are in `jobs.py`. Rules: SO-06, SO-09, SO-10.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import httpx
from anyio import to_thread

from outpost_lsp.domain.job import MOST_RECORD_BYTES, BasePack, JobRecord
from outpost_lsp.domain.markdown import one_line
from outpost_lsp.errors import OutpostError
from outpost_lsp.remote.jobs import RemoteJob, beginning

PROTOCOL: Final = "1"
JOB_TYPE: Final = "application/x-outpost-job"
"""A record as one line of JSON, then the bytes of the delta."""

_SUBMIT_S: Final = 5.0
_SILENCE_S: Final = 15.0
"""A face sends a sign of life every 5 s."""
_RECONNECT_S: Final = 60.0
_MOST_SAID_BYTES: Final = 65_536
"""Of an answer that is no stream of events and no pack."""
_BYTES_A_SECOND: Final = 1_000_000
"""A line that is slower than this is as good as none."""


class RemoteExecutor:
    """A face at a URL, for one run. `token` is asked for at each request; `waiting` is told when the face is away or back."""

    def __init__(
        self,
        url: str,
        token: Callable[[], str],
        *,
        ca_file: Path | None = None,
        reconnect_s: float = _RECONNECT_S,
        silence_s: float = _SILENCE_S,
        submit_s: float = _SUBMIT_S,
        waiting: Callable[[bool], None] = lambda _is_away: None,
    ) -> None:
        self._url = url.rstrip("/")
        self._token = token
        self._ca_file = ca_file
        self.reconnect_s = reconnect_s
        self.waiting = waiting
        self._silence_s = silence_s
        self._submit_s = submit_s
        self._client: httpx.AsyncClient | None = None

    @property
    def name(self) -> str:
        """The host, for people."""
        return urlsplit(self._url).netloc

    async def check(self) -> Mapping[str, Any]:
        """What the face says of itself: `version`, `slots`, `free`. Raises the fault that says what is wrong."""
        with self._deadline(0):
            told = _object(await self.ask("GET", "/v1/health"), self.name)
        if told.get("version") != PROTOCOL:
            raise self.refused(426, b"")
        return told

    async def submit(self, job: JobRecord, delta: bytes, base: BasePack) -> RemoteJob:
        """Hand a job over. Sent again after a break it is still one job."""
        record = job.to_line()
        if len(record) > MOST_RECORD_BYTES:
            limit = MOST_RECORD_BYTES >> 20
            raise OutpostError("limit", f"The run is too large to be sent: its record has more than {limit} MiB.")
        body = record + b"\n" + delta
        headers = {"Content-Type": JOB_TYPE}
        with self._deadline(len(body)):
            told = _object(await self.ask("POST", "/v1/jobs", content=body, headers=headers), self.name)
        if told.get("id") != job.id:
            raise OutpostError("response", f"{self.name} did not take the run")
        return RemoteJob(self, job.id, base)

    def taken(self, id: str) -> RemoteJob:
        """A job that was taken and has its base; whether it is there yet, its events tell."""
        return RemoteJob(self, id, None)

    async def aclose(self) -> None:
        """Close all connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    # For its jobs

    async def ask(
        self,
        method: str,
        path: str,
        *,
        content: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
    ) -> bytes:
        """Send one request and read the whole answer, which is short; a fault for one that is no success."""
        client = await self._ready()
        try:
            async with client.stream(
                method, self._url + path, content=content, headers=self._headers(headers), timeout=timeout_s
            ) as response:
                body = await beginning(response, _MOST_SAID_BYTES + 1)
        except httpx.HTTPError as error:
            raise self.unreachable(error) from error
        if response.status_code >= 300:
            raise self.refused(response.status_code, body)
        if len(body) > _MOST_SAID_BYTES:
            raise OutpostError("response", f"{self.name} answered with more than {_MOST_SAID_BYTES >> 10} KiB")
        return body

    @asynccontextmanager
    async def connected(self, path: str) -> AsyncIterator[httpx.Response]:
        """An answer that is a stream; `httpx.HTTPError` when it breaks off, a fault for one that is no success."""
        client = await self._ready()
        timeout = httpx.Timeout(30.0, read=self._silence_s)
        async with client.stream("GET", self._url + path, headers=self._headers(), timeout=timeout) as response:
            if response.status_code >= 300:
                raise self.refused(response.status_code, await beginning(response, _MOST_SAID_BYTES))
            yield response

    def _headers(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        return {
            "Authorization": f"Bearer {self._token()}",
            "Outpost-Protocol": PROTOCOL,
            "Accept-Encoding": "identity",
            **(more or {}),
        }

    async def _ready(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = await to_thread.run_sync(self._made)
        return self._client

    def _made(self) -> httpx.AsyncClient:
        context = ssl.create_default_context()
        if self._ca_file is not None:
            try:
                context.load_verify_locations(self._ca_file)
            except OSError as error:
                raise OutpostError(
                    "configuration", f"runs.ray.ca_file: {self._ca_file} holds no certificates: {error}"
                ) from error
        return httpx.AsyncClient(
            verify=context,
            follow_redirects=False,
            trust_env=not is_loopback(self._url),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=16),
        )

    @contextmanager
    def _deadline(self, size: int) -> Iterator[None]:
        """A bound on handing so many bytes over: an engine that hangs must not hold a run."""
        try:
            with anyio.fail_after(self._submit_s + size / _BYTES_A_SECOND):
                yield
        except TimeoutError as error:
            raise self.unreachable(error) from None

    def unreachable(self, error: BaseException) -> OutpostError:
        """The fault of a face that cannot be reached."""
        name = type(error).__name__
        details = {"executor": "ray", "away": True, "cause": name}
        if isinstance(error, httpx.ConnectError) and "CERTIFICATE" in str(error).upper():
            message = f"{self.name}: its certificate is not trusted; name the authority with runs.ray.ca_file"
            return OutpostError("provider", message, details)
        message = f"{self.name} cannot be reached ({name}); look at runs.ray.url, and whether the face is running"
        return OutpostError("provider", message, details)

    def refused(self, status: int, body: bytes) -> OutpostError:
        """The fault of an answer that is no success."""
        details: dict[str, Any] = {"executor": "ray", "status": status}
        said = _said(body)
        match status:
            case 401:
                message = "the token was not accepted; look at the variable that runs.ray.token_env names"
                details["away"] = True
            case 404:
                message = "there is no such run (any more)"
            case 409:
                message = "another run has this id"
            case 413:
                message = "the run is too large"
            case 426:
                message = f"it speaks another version of the protocol than this one ({PROTOCOL}); update the older side"
            case 503:
                message = "it has no place for runs now"
                details["away"] = True
            case _:
                message = f"it answered with status {status}"
        return OutpostError("provider", f"{self.name}: {message}{f' ({said})' if said else ''}", details)


def is_loopback(url: str) -> bool:
    """Whether a URL certainly leads to this machine; then no proxy is asked."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _object(body: bytes, name: str) -> Mapping[str, Any]:
    try:
        value = json.loads(body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise OutpostError("response", f"{name} does not speak the protocol of runs elsewhere")
    return value


def _said(body: bytes) -> str:
    try:
        value = json.loads(body)
    except ValueError:
        return ""
    message = value.get("message") if isinstance(value, dict) else None
    return one_line(message) if isinstance(message, str) else ""
