"""What the providers of all HTTP services share: one stream of events per request, with retries inside it.

Each attempt runs in a task of its own that reads the network and fills a reader; the stream hands on what the reader
has whenever the network pauses, so that the pieces of one read are one event. The task never outlives the attempt.
A provider can be used for any number of requests at once and after any failure (MODEL-01, HTTP-06).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from itertools import count
from typing import Any, Final, Protocol

from anyio import CancelScope, to_thread

from outpost_lsp.domain.message import History, Message
from outpost_lsp.domain.model import Completed, ModelRequest, ModelSpec, Retry, StreamEvent
from outpost_lsp.domain.usage import Usage
from outpost_lsp.errors import OutpostError
from outpost_lsp.models.answer import AnswerReader
from outpost_lsp.models.encoding import Encoder
from outpost_lsp.models.endpoint import Endpoint, Key
from outpost_lsp.models.faults import Faults
from outpost_lsp.models.http import Headers, HttpDoor
from outpost_lsp.models.retry import Draw, uniform, wait_before_retry

logger = logging.getLogger(__name__)

_ENCODED_AT_ONCE: Final = 32
"""Messages between two pauses, so that a long conversation that goes on does not hold up others."""

_LARGE: Final = 500_000
"""Characters or bytes from which on they are encoded and put together beside the event loop."""

_COMMON_HEADERS: Headers = (
    (b"Content-Type", b"application/json"),
    (b"Accept", b"text/event-stream, application/json"),
    (b"Accept-Encoding", b"identity"),
    (b"User-Agent", b"outpost-lsp"),
)


class Wire(Protocol):
    """How one service wants to be asked, and how its answers are read."""

    @property
    def path(self) -> str:
        """The path below the base URL."""

    def body(self, request: ModelRequest) -> bytes:
        """The body of a request; `configuration` when the service cannot be asked that."""

    def encoder(self, model: str, /) -> Encoder:
        """How the messages for a model are encoded."""

    def reader(self, request: ModelRequest, body: bytes, faults: Faults) -> AnswerReader:
        """A reader for one attempt."""


class ServiceProvider:
    """A model provider over HTTP. The public providers put a wire form and their headers to it."""

    def __init__(
        self,
        endpoint: Endpoint,
        key: Key,
        wire_of: Callable[[str], Wire],
        path: str,
        key_headers: Callable[[str | None], Headers],
        draw: Draw = uniform,
    ) -> None:
        self._endpoint = endpoint
        self._key = key
        self._key_headers = key_headers
        self._draw = draw
        self._identity = f"{endpoint.name}:{path}:{endpoint.base_url}"
        self._wire = wire_of(self._identity)
        self._door = HttpDoor(endpoint, path)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._identity}>"

    @property
    def name(self) -> str:
        """What faults and events call this provider."""
        return self._endpoint.name

    @property
    def identity(self) -> str:
        """Name, path and place: the same service elsewhere is another one (MODEL-09)."""
        return self._identity

    def validate(self, model: ModelSpec) -> None:
        """Refuse a model that this service cannot serve; the services of this form take any."""

    async def aclose(self) -> None:
        """Close the connections. The provider stays usable; the next request opens new ones."""
        await self._door.aclose()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        """The answer as it arrives: pieces, retries and one `Completed`, last.

        Whoever stops before the end closes the generator (`contextlib.aclosing`); a cancelled task does so by itself.
        """
        body = await self._body(request)
        silence_s = self._endpoint.silence_s(request.reasoning)
        for attempt in count(1):
            headers = (*_COMMON_HEADERS, *self._key_headers(await self._key()))
            reader = self._wire.reader(request, body, self._door.faults)
            bell = _Bell()
            task = asyncio.create_task(self._door.exchange(headers, body, silence_s, reader, bell.ring))
            task.add_done_callback(bell.ended)
            try:
                while not task.done():
                    await bell.rung()
                    for piece in reader.take():
                        yield piece
                for piece in reader.take():
                    yield piece
            finally:
                if not task.done():
                    await _stopped(task)
            fault: OutpostError
            try:
                task.result()
                result = reader.result()
            except OutpostError as error:
                fault = error
            else:
                yield Completed(result)
                return
            receipt = reader.receipt()
            wait_s = wait_before_retry(fault, attempt, self._endpoint.max_retries, self._draw)
            if wait_s is None:
                raise _last(fault, attempt, receipt)
            logger.info("%s; trying again in %.1f s", fault.message, wait_s)
            yield Retry(attempt=attempt, message=fault.message, wait_s=wait_s, usage=receipt)
            await asyncio.sleep(wait_s)

    async def _body(self, request: ModelRequest) -> bytes:
        history = request.messages
        if not isinstance(history, History):
            return self._wire.body(request)
        form, encode = self._wire.encoder(request.model)
        # A cancelled caller waits for the threads, which keep what they encode with the history.
        if _characters(history[-1:]) > _LARGE:
            await to_thread.run_sync(history.encode_some, form, encode, len(history))
        while history.encode_some(form, encode, _ENCODED_AT_ONCE):  # noqa: ASYNC110 - it works meanwhile
            await asyncio.sleep(0)
        if sum(map(len, history.encoded(form, encode))) > _LARGE:
            return await to_thread.run_sync(self._wire.body, request)
        return self._wire.body(request)


def _characters(messages: Sequence[Message]) -> int:
    return sum(len(result.content) for message in messages for result in message.results)


class _Bell:
    """Wakes the one stream that waits for its task; an event of `asyncio`, made for many, takes twice as long."""

    __slots__ = ("_rings", "_waiting")

    def __init__(self) -> None:
        self._rings = False
        self._waiting: asyncio.Future[None] | None = None

    def ring(self) -> None:
        self._rings = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def ended(self, _task: asyncio.Task[None]) -> None:
        self.ring()

    async def rung(self) -> None:
        if not self._rings:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        self._rings = False


async def _stopped(task: asyncio.Task[None]) -> None:
    task.cancel()
    # Closing the connection takes no waiting for the other side; a cancelled caller must not leave the task behind.
    with CancelScope(shield=True):
        await asyncio.wait([task])
    if not task.cancelled():
        # It ended by itself just then; whatever came of it, nobody waits for it any more.
        task.exception()


def _last(fault: OutpostError, attempts: int, receipt: Usage | None) -> OutpostError:
    """The fault that ends the request, with what its last attempt spent and how often it was tried."""
    if attempts == 1 and receipt is None:
        return fault
    details: dict[str, Any] = dict(fault.details)
    if receipt is not None:
        details["usage"] = receipt.to_json()
    message = fault.message if attempts == 1 else f"{fault.message} (tried {attempts} times)"
    return OutpostError(fault.code, message, details)
