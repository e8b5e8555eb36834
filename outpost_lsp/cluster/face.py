"""The face of a cluster: jobs over HTTP, whoever carries them out.

The invariant: no request passes without a token, and a token sees its own jobs only; bodies are bounded while they are
read; the face keeps nothing, so that another one can take its place in the middle of a job. Wire: `remote/http.py`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any, Final, Protocol

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from outpost_lsp.cluster.tokens import owner_of
from outpost_lsp.domain.job import LAST_KINDS, MOST_RECORD_BYTES, JobEvent, JobRecord
from outpost_lsp.errors import OutpostError

logger = logging.getLogger(__name__)

PROTOCOL: Final = "1"
_MOST_DELTA_BYTES: Final = 64 * 1024 * 1024
_MOST_BASE_BYTES: Final = 512 * 1024 * 1024
_KEEP_ALIVE_S: Final = 5.0
_SILENT_S: Final = 30.0
"""A job that has begun answers within the time between two signs of life; one that is silent so long is lost."""
_LAST: Final = re.compile(rb'\{"seq":\d+,"kind":"(%s)"' % "|".join(LAST_KINDS).encode())


class Placed(Protocol):
    """A job on its worker."""

    async def take_base(self, pack: bytes) -> None: ...

    async def events(self, after: int, wait_s: float) -> list[bytes]:
        """Lines after the event of that number. `LostJobError` when the job's process is gone."""
        ...

    async def steer(self, id: str, text: str, subagent: str | None, to_anyone: bool) -> None: ...

    async def answer(self, question: str, answer: str) -> None: ...

    async def result_pack(self) -> bytes: ...

    async def cancel(self) -> None: ...


class Engine(Protocol):
    """Whoever places jobs on machines."""

    async def place(self, record: bytes, job: JobRecord, delta: bytes, owner: str) -> None:
        """Place a job, once however often it is asked; it begins when there is a place for it."""
        ...

    async def find(self, id: str, owner: str) -> Placed | None:
        """A job of this owner; `None` when there is none (any more)."""
        ...

    async def capacity(self) -> tuple[int, int]:
        """How many places there are, and how many are free."""
        ...


class LostJobError(Exception):
    """The process of a job is gone."""


class Face:
    """Answers requests. `digests` are those of the tokens that are accepted, each for its own jobs."""

    def __init__(self, engine: Engine, digests: Collection[str], *, silent_s: float = _SILENT_S) -> None:
        if not digests:
            raise OutpostError("configuration", "a face needs a token")
        self._engine = engine
        self._digests = tuple(digests)
        self._silent_s = silent_s

    async def __call__(self, request: Request) -> Response:
        """Answer one request."""
        owner = self._owner(request.headers.get("authorization", ""))
        if owner is None:
            return _refusal(401, "a token is needed")
        if request.headers.get("outpost-protocol") != PROTOCOL:
            return _refusal(426, f"this face speaks version {PROTOCOL}")
        try:
            return await self._answer(request, owner)
        except _RefusedError as refused:
            return _refusal(refused.status, str(refused))
        except OutpostError as error:
            return _refusal(422, error.message)

    def _owner(self, header: str) -> str | None:
        kind, _, given = header.partition(" ")
        return owner_of(given, self._digests) if kind.lower() == "bearer" else None

    async def _answer(self, request: Request, owner: str) -> Response:
        match request.method, *request.url.path.strip("/").split("/"):
            case "GET", "v1", "health":
                slots, free = await self._engine.capacity()
                return JSONResponse({"version": PROTOCOL, "slots": slots, "free": free})
            case "POST", "v1", "jobs":
                return await self._submit(request, owner)
            case "GET", "v1", "jobs", id, "events":
                placed = await self._found(id, owner)
                after = _number(request.query_params.get("after", "0"))
                return StreamingResponse(_events(placed, after, self._silent_s), media_type="application/x-ndjson")
            case "GET", "v1", "jobs", id, "result.pack":
                pack = await (await self._found(id, owner)).result_pack()
                return Response(pack, media_type="application/octet-stream")
            case "PUT", "v1", "jobs", id, "base":
                placed = await self._found(id, owner)
                await placed.take_base(await _body(request, _MOST_BASE_BYTES))
                return Response(status_code=204)
            case "POST", "v1", "jobs", id, "steer":
                placed = await self._found(id, owner)
                said = await _json(request)
                target = said.get("subagent")
                await placed.steer(
                    _text(said, "id"),
                    _text(said, "text"),
                    target if isinstance(target, str) else None,
                    said.get("toAnyone") is True,
                )
                return Response(status_code=204)
            case "POST", "v1", "jobs", id, "answer":
                placed = await self._found(id, owner)
                said = await _json(request)
                await placed.answer(_text(said, "question"), _text(said, "answer"))
                return Response(status_code=204)
            case "DELETE", "v1", "jobs", id:
                await (await self._found(id, owner)).cancel()
                return Response(status_code=204)
        raise _RefusedError(404, "there is nothing here")

    async def _submit(self, request: Request, owner: str) -> Response:
        body = await _body(request, MOST_RECORD_BYTES + _MOST_DELTA_BYTES + 1)
        record, separator, delta = body.partition(b"\n")
        if not separator or len(record) > MOST_RECORD_BYTES:
            raise _RefusedError(413, "the record is too large, or there is none")
        try:
            job = JobRecord.model_validate_json(record)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise _RefusedError(422, f"the record is malformed: {place}: {first['msg']}") from error
        await self._engine.place(record, job, delta, owner)
        return JSONResponse({"id": job.id})

    async def _found(self, id: str, owner: str) -> Placed:
        placed = await self._engine.find(id, owner)
        if placed is None:
            raise _RefusedError(404, "there is no such run")
        return placed


async def _events(placed: Placed, after: int, silent_s: float) -> AsyncIterator[bytes]:
    """Lines until the last event; an empty one is a sign of life, also while the job waits for a place."""
    has_begun = after > 0
    asked: asyncio.Future[list[bytes]] | None = None
    asked_at = 0.0
    try:
        while True:
            if asked is None:
                asked, asked_at = asyncio.ensure_future(placed.events(after, _KEEP_ALIVE_S)), _now()
            await asyncio.wait((asked,), timeout=min(_KEEP_ALIVE_S, silent_s))
            if not asked.done():
                if has_begun and _now() - asked_at > silent_s:
                    yield _lost(after, "the machine that carried the run out does not answer")
                    return
                yield b"\n"
                continue
            try:
                lines, asked = asked.result(), None
            except LostJobError as lost:
                yield _lost(after, str(lost) or "the process that carried the run out is gone")
                return
            has_begun = True
            after += len(lines)
            yield b"\n".join(lines) + b"\n"
            if lines and _LAST.match(lines[-1]):
                return
    finally:
        if asked is not None:
            asked.cancel()


def _lost(after: int, message: str) -> bytes:
    return JobEvent(seq=after + 1, kind="lost", data={"message": message}).to_line() + b"\n"


def _now() -> float:
    return asyncio.get_running_loop().time()


class _RefusedError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def _refusal(status: int, message: str) -> Response:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return JSONResponse({"message": message}, status, headers=headers)


async def _body(request: Request, limit: int) -> bytes:
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > limit:
            raise _RefusedError(413, f"more than {limit >> 20} MiB")
    return bytes(data)


async def _json(request: Request) -> Mapping[str, Any]:
    try:
        value = json.loads(await _body(request, MOST_RECORD_BYTES))
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise _RefusedError(422, "a JSON object is expected")
    return value


def _text(said: Mapping[str, Any], name: str) -> str:
    value = said.get(name)
    if not isinstance(value, str) or not value:
        raise _RefusedError(422, f"{name}: text is expected")
    return value


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise _RefusedError(422, "after: a number is expected")
    return int(text)
