"""The face alone: who may ask, what it bounds, and a machine that says nothing any more (SO-04, SO-10)."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from starlette.requests import Request
from starlette.responses import StreamingResponse

from outpost_lsp.cluster.face import Engine, Face, Placed
from outpost_lsp.cluster.tokens import owner_of, token_digest
from outpost_lsp.domain.job import JobEvent, JobRecord
from outpost_lsp.errors import OutpostError
from tests.support.hosted_face import OTHER_TOKEN, TOKEN


class FrozenMachine:
    """A job that tells so many events, and then nothing, as when its machine freezes."""

    def __init__(self, told: int) -> None:
        self._told = told

    async def events(self, after: int, wait_s: float) -> list[bytes]:
        if after < self._told:
            return [JobEvent(seq=number, kind="observation").to_line() for number in range(after + 1, self._told + 1)]
        await asyncio.Event().wait()
        raise AssertionError

    async def answer(self, question: str, answer: str) -> None:
        raise AssertionError


class OneJob:
    """An engine with one job."""

    def __init__(self, placed: FrozenMachine) -> None:
        self._placed = placed

    async def find(self, id: str, owner: str) -> Placed | None:
        return cast("Placed", self._placed)

    async def place(self, record: bytes, job: JobRecord, delta: bytes, owner: str) -> None:
        raise AssertionError

    async def capacity(self) -> tuple[int, int]:
        return 1, 1


def request(path: str, query: str = "", *, method: str = "GET", body: bytes = b"") -> Request:
    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": body, "more_body": False}

    headers = [(b"authorization", f"Bearer {TOKEN}".encode()), (b"outpost-protocol", b"1")]
    scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(), "headers": headers}
    return Request(scope, receive)


def face(told: int = 0, silent_s: float = 0.3) -> Face:
    return Face(cast("Engine", OneJob(FrozenMachine(told))), [token_digest(TOKEN)], silent_s=silent_s)


async def lines(told: int, after: int = 0) -> list[bytes]:
    answer = await face(told)(request("/v1/jobs/one/events", f"after={after}"))
    assert isinstance(answer, StreamingResponse)
    return [line async for line in answer.body_iterator]  # type: ignore[misc]


@pytest.mark.parametrize("after", [0, 2])
async def test_SO_04_a_machine_that_freezes_is_lost_in_time(after: int) -> None:
    found = await lines(3, after)
    last = JobEvent.model_validate_json(found[-1])
    assert (last.seq, last.kind) == (4, "lost")


async def test_a_job_that_waits_for_its_place_is_not_lost_however_long_it_waits() -> None:
    answer = await face(0, silent_s=0.05)(request("/v1/jobs/one/events"))
    assert isinstance(answer, StreamingResponse)
    stream = answer.body_iterator.__aiter__()
    assert [await anext(stream) for _ in range(5)] == [b"\n"] * 5
    await stream.aclose()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("method", "path", "query", "body", "status"),
    [
        ("GET", "/v1/jobs/one/events", "after=-1", b"", 422),
        ("GET", "/v1/jobs/one/events", "after=9999999999999999", b"", 422),
        ("POST", "/v1/jobs", "", b"no separator", 413),
        ("POST", "/v1/jobs", "", b"{}\n", 422),
        ("POST", "/v1/jobs", "", b"\x80\x04\x95pickle\n", 422),
        ("POST", "/v1/jobs/one/steer", "", b"[]", 422),
        ("POST", "/v1/jobs/one/answer", "", b'{"question": 1}', 422),
        ("PATCH", "/v1/jobs/one", "", b"", 404),
        ("GET", "/", "", b"", 404),
    ],
)
async def test_what_is_malformed_is_refused_with_one_sentence(
    method: str, path: str, query: str, body: bytes, status: int
) -> None:
    answer = await face()(request(path, query, method=method, body=body))
    assert answer.status_code == status
    assert b"message" in answer.body


def test_SO_10_a_token_is_told_by_its_digest_and_short_ones_are_refused() -> None:
    digests = [token_digest(TOKEN), token_digest(OTHER_TOKEN)]
    owners = {owner_of(token, digests) for token in (TOKEN, OTHER_TOKEN)}
    assert len(owners) == 2
    assert None not in owners
    assert owner_of("a-token-that-nobody-gave", digests) is None
    # Who reads a digest in the cluster cannot use it.
    assert owner_of(digests[0], digests) is None
    with pytest.raises(OutpostError, match="16"):
        token_digest("short")
    with pytest.raises(OutpostError, match="needs a token"):
        Face(cast("Engine", OneJob(FrozenMachine(0))), [])
