"""Jobs over HTTP: an `Executor` that speaks to a face, and the events of a job as they come.

The invariant: nothing that comes back is trusted or run: events are JSON of bounded size in the order of their numbers,
packs are bytes for `portable` to judge. A connection that breaks is made anew for a while and goes on after the last
event; a job is taken once, however often it was sent. Imported when a run first goes elsewhere. Rules: SO-02, SO-05, SO-09.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import httpx
from anyio import to_thread
from pydantic import ValidationError

from outpost_lsp.domain.job import LAST_KINDS, MOST_RECORD_BYTES, BasePack, JobEvent, JobRecord
from outpost_lsp.domain.markdown import one_line
from outpost_lsp.errors import OutpostError

logger = logging.getLogger(__name__)

PROTOCOL: Final = "1"
JOB_TYPE: Final = "application/x-outpost-job"
"""A record as one line of JSON, then the bytes of the delta."""

_SUBMIT_S: Final = 5.0
_BASE_S: Final = 600.0
_SILENCE_S: Final = 15.0
"""A face sends a sign of life every 5 s."""
_RECONNECT_S: Final = 60.0
_MOST_RESULT_BYTES: Final = 64 * 1024 * 1024
_MOST_SAID_BYTES: Final = 4096
_PAUSE_S: Final = 1.0
_PASSING: Final = frozenset((502, 503, 504))
_PIECE: Final = 262_144


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
        with self._deadline():
            response = await self.ask("GET", "/v1/health")
        return _object(response, self.name)

    async def submit(self, job: JobRecord, delta: bytes, base: BasePack) -> RemoteJob:
        """Hand a job over. Sent again after a break it is still one job."""
        record = job.to_line()
        if len(record) > MOST_RECORD_BYTES:
            limit = MOST_RECORD_BYTES >> 20
            raise OutpostError("limit", f"The run is too large to be sent: its record has more than {limit} MiB.")
        body = record + b"\n" + delta
        headers = {"Content-Type": JOB_TYPE}
        with self._deadline():
            told = _object(await self.ask("POST", "/v1/jobs", content=body, headers=headers), self.name)
        if told.get("id") != job.id:
            raise OutpostError("response", f"{self.name} did not take the run")
        return RemoteJob(self, job.id, base)

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
    ) -> httpx.Response:
        client = await self._ready()
        try:
            response = await client.request(
                method, self._url + path, content=content, headers=self._headers(headers), timeout=timeout_s
            )
        except httpx.HTTPError as error:
            raise self.unreachable(error) from error
        if response.status_code >= 300:
            raise self.refused(response.status_code, response.content[:_MOST_SAID_BYTES])
        return response

    @asynccontextmanager
    async def connected(self, path: str) -> AsyncIterator[httpx.Response]:
        client = await self._ready()
        timeout = httpx.Timeout(30.0, read=self._silence_s)
        async with client.stream("GET", self._url + path, headers=self._headers(), timeout=timeout) as response:
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
    def _deadline(self) -> Iterator[None]:
        """A bound on handing a job over: an engine that hangs must not hold a run."""
        try:
            with anyio.fail_after(self._submit_s):
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


class RemoteJob:
    """A job that a face took."""

    def __init__(self, executor: RemoteExecutor, id: str, base: BasePack) -> None:
        self._executor = executor
        self._base = base
        self._path = f"/v1/jobs/{id}"

    async def events(self, after: int = 0) -> AsyncGenerator[JobEvent, None]:
        """Every event once, in order, whatever becomes of the connection meanwhile.

        `response` when the numbers do not fit or a line is no event; a face that stays away ends with `lost`.
        """
        away_since: float | None = None
        while True:
            try:
                async with self._executor.connected(f"{self._path}/events?after={after}") as response:
                    if response.status_code >= 300:
                        raise self._executor.refused(response.status_code, await _beginning(response))
                    async for line in _lines(response, self._executor.name):
                        if away_since is not None:
                            away_since = None
                            self._executor.waiting(False)
                        if not line:
                            continue
                        event = _event(line, after + 1, self._executor.name)
                        after = event.seq
                        if event.kind == "base-needed":
                            await self._bring_base()
                        yield event
                        if event.kind in LAST_KINDS:
                            return
            except httpx.HTTPError as error:
                logger.info("%s: the events of %s broke off: %s", self._executor.name, self._path, type(error).__name__)
            except OutpostError as error:
                if error.details.get("status") == 404:
                    yield JobEvent(seq=after + 1, kind="lost", data={"message": error.message})
                    return
                if error.details.get("status") not in _PASSING:
                    raise
            now = asyncio.get_running_loop().time()
            if away_since is None:
                away_since = now
                self._executor.waiting(True)
            if now - away_since > self._executor.reconnect_s:
                message = f"{self._executor.name} was away for more than {self._executor.reconnect_s:g} s"
                yield JobEvent(seq=after + 1, kind="lost", data={"message": message})
                return
            await anyio.sleep(min(_PAUSE_S, self._executor.reconnect_s / 10))

    async def _bring_base(self) -> None:
        pack = await self._base.file()
        await self._executor.ask("PUT", f"{self._path}/base", content=_pieces(pack), timeout_s=_BASE_S)

    async def steer(self, id: str, text: str, subagent: str | None, *, to_anyone: bool) -> None:
        """Send an instruction; what became of it is an event."""
        said = {"id": id, "text": text, "subagent": subagent, "toAnyone": to_anyone}
        await self._executor.ask("POST", f"{self._path}/steer", content=json.dumps(said).encode())

    async def answer(self, question: str, answer: str) -> None:
        """Answer a permission question."""
        said = {"question": question, "answer": answer}
        await self._executor.ask("POST", f"{self._path}/answer", content=json.dumps(said).encode())

    async def result_pack(self) -> bytes:
        """The pack of the result, refused beyond 64 MiB while it is read."""
        data = bytearray()
        try:
            async with self._executor.connected(f"{self._path}/result.pack") as response:
                if response.status_code >= 300:
                    raise self._executor.refused(response.status_code, await _beginning(response))
                async for piece in response.aiter_raw(_PIECE):
                    data += piece
                    if len(data) > _MOST_RESULT_BYTES:
                        limit = _MOST_RESULT_BYTES >> 20
                        raise OutpostError("limit", f"{self._executor.name} sent a result of more than {limit} MiB")
        except httpx.HTTPError as error:
            raise self._executor.unreachable(error) from error
        return bytes(data)

    async def cancel(self) -> None:
        """Ask the job to end; one that is gone already is as good as cancelled."""
        try:
            await self._executor.ask("DELETE", self._path)
        except OutpostError as error:
            logger.info("%s: %s could not be cancelled: %s", self._executor.name, self._path, error)

    async def aclose(self) -> None:
        """Nothing is held between requests."""


def is_loopback(url: str) -> bool:
    """Whether a URL certainly leads to this machine; then no proxy is asked."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


async def _lines(response: httpx.Response, name: str) -> AsyncIterator[bytes]:
    """The lines of a stream, each bounded; an empty one is a sign of life."""
    kept = bytearray()
    async for piece in response.aiter_raw():
        kept += piece
        while (end := kept.find(b"\n")) >= 0:
            yield bytes(kept[:end]).strip()
            del kept[: end + 1]
        if len(kept) > MOST_RECORD_BYTES:
            raise OutpostError("response", f"{name} sent an event of more than {MOST_RECORD_BYTES >> 20} MiB")


def _event(line: bytes, seq: int, name: str) -> JobEvent:
    try:
        event = JobEvent.model_validate_json(line)
    except ValidationError as error:
        raise OutpostError("response", f"{name} sent something that is no event of a run") from error
    if event.seq != seq:
        raise OutpostError("response", f"{name} sent event {event.seq} where {seq} was due")
    return event


async def _beginning(response: httpx.Response) -> bytes:
    data = b""
    async for piece in response.aiter_raw():
        data += piece
        if len(data) >= _MOST_SAID_BYTES:
            break
    return data[:_MOST_SAID_BYTES]


async def _pieces(file: Path) -> AsyncIterator[bytes]:
    async with await anyio.open_file(file, "rb") as opened:
        while piece := await opened.read(_PIECE):
            yield piece


def _object(response: httpx.Response, name: str) -> Mapping[str, Any]:
    try:
        value = json.loads(response.content)
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
