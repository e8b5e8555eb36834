"""A job that a face took: its events as they come, and what is said to it meanwhile.

The invariant: events are JSON of bounded size in the order of their numbers, each given once; packs are bytes for
`portable` to judge. A connection that breaks is made anew for a while, and goes on after the last event. Rules: SO-02,
SO-05, SO-09.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import httpx
from pydantic import ValidationError

from outpost_lsp.domain.job import LAST_KINDS, MOST_RECORD_BYTES, BasePack, JobEvent
from outpost_lsp.errors import OutpostError

if TYPE_CHECKING:
    from outpost_lsp.remote.http import RemoteExecutor

logger = logging.getLogger(__name__)

_ASKING_S: Final = 30.0
_BASE_S: Final = 600.0
_MOST_RESULT_BYTES: Final = 64 * 1024 * 1024
_PAUSE_S: Final = 1.0
_PASSING: Final = frozenset((500, 502, 503, 504))
"""What whoever stands before a face says while it is started again."""
_PIECE: Final = 262_144


class RemoteJob:
    """A job that a face took."""

    def __init__(self, executor: RemoteExecutor, id: str, base: BasePack | None) -> None:
        self._executor = executor
        self._base = base
        self._path = f"/v1/jobs/{id}"
        self._is_to_collect = False

    async def events(self, after: int = 0) -> AsyncGenerator[JobEvent, None]:
        """Every event once, in order, whatever becomes of the connection meanwhile.

        `response` when the numbers do not fit or a line is no event; a face that stays away ends with `lost`.
        """
        away_since: float | None = None
        while True:
            try:
                async with self._executor.connected(f"{self._path}/events?after={after}") as response:
                    async for line in _lines(response, self._executor.name):
                        if away_since is not None:
                            away_since = None
                            self._executor.waiting(False)
                        if not line:
                            continue
                        event = _event(line, after + 1, self._executor.name)
                        after = event.seq
                        self._is_to_collect = event.kind in LAST_KINDS
                        if event.kind == "base-needed":
                            await self._bring_base()
                        yield event
                        if event.kind in LAST_KINDS:
                            return
            except httpx.HTTPError as error:
                logger.info("%s: the events of %s broke off: %s", self._executor.name, self._path, type(error).__name__)
            except OutpostError as error:
                if error.details.get("status") == 404:
                    yield JobEvent(seq=after + 1, kind="lost", data={"message": error.message, "gone": True})
                    return
                if not _passes(error):
                    raise
            now = asyncio.get_running_loop().time()
            if away_since is None:
                away_since = now
                self._executor.waiting(True)
            if now - away_since > self._executor.reconnect_s:
                message = f"{self._executor.name} was away for more than {self._executor.reconnect_s:g} s"
                yield JobEvent(seq=after + 1, kind="lost", data={"message": message, "away": True})
                return
            await anyio.sleep(min(_PAUSE_S, self._executor.reconnect_s / 10))

    async def _bring_base(self) -> None:
        if self._base is None:
            return
        pack = await self._base.file()
        await self._surely("PUT", f"{self._path}/base", lambda: _pieces(pack), timeout_s=_BASE_S)

    async def steer(self, id: str, text: str, subagent: str | None, *, to_anyone: bool) -> None:
        """Send an instruction; what became of it is an event."""
        said = {"id": id, "text": text, "subagent": subagent, "toAnyone": to_anyone}
        await self._surely("POST", f"{self._path}/steer", json.dumps(said).encode)

    async def answer(self, question: str, answer: str) -> None:
        """Answer a permission question."""
        said = {"question": question, "answer": answer}
        await self._surely("POST", f"{self._path}/answer", json.dumps(said).encode)

    async def result_pack(self) -> bytes:
        """The pack of the result, refused beyond 64 MiB while it is read."""
        return await self._while_away(self._pack)

    async def _pack(self) -> bytes:
        data = bytearray()
        try:
            async with self._executor.connected(f"{self._path}/result.pack") as response:
                async for piece in response.aiter_raw(_PIECE):
                    data += piece
                    if len(data) > _MOST_RESULT_BYTES:
                        limit = _MOST_RESULT_BYTES >> 20
                        raise OutpostError("limit", f"{self._executor.name} sent a result of more than {limit} MiB")
        except httpx.HTTPError as error:
            raise self._executor.unreachable(error) from error
        return bytes(data)

    async def _surely(
        self, method: str, path: str, content: Callable[[], Any], *, timeout_s: float = _ASKING_S
    ) -> None:
        """Send what does the same when it arrives twice."""
        await self._while_away(lambda: self._executor.ask(method, path, content=content(), timeout_s=timeout_s))

    async def _while_away(self, ask: Callable[[], Awaitable[bytes]]) -> bytes:
        """Ask again while the face is away, as long as events are waited for."""
        ends_at = asyncio.get_running_loop().time() + self._executor.reconnect_s
        while True:
            try:
                return await ask()
            except OutpostError as error:
                if not _passes(error) or asyncio.get_running_loop().time() > ends_at:
                    raise
            await anyio.sleep(min(_PAUSE_S, self._executor.reconnect_s / 10))

    async def cancel(self) -> None:
        """Ask the job to end; one that is gone already is as good as cancelled."""
        self._is_to_collect = False
        try:
            await self._executor.ask("DELETE", self._path)
        except OutpostError as error:
            logger.info("%s: %s could not be cancelled: %s", self._executor.name, self._path, error)

    async def aclose(self) -> None:
        """Let a job whose end was told go, so that its place is free at once."""
        if self._is_to_collect:
            await self.cancel()


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


async def beginning(response: httpx.Response, size: int) -> bytes:
    """So much of an answer at most."""
    data = b""
    async for piece in response.aiter_raw():
        data += piece
        if len(data) >= size:
            break
    return data[:size]


async def _pieces(file: Path) -> AsyncIterator[bytes]:
    async with await anyio.open_file(file, "rb") as opened:
        while piece := await opened.read(_PIECE):
            yield piece


def _passes(error: OutpostError) -> bool:
    """Whether a fault may be over in a while: the face is away, or being started again."""
    status = error.details.get("status")
    return status in _PASSING or (status is None and error.details.get("away") is True)
