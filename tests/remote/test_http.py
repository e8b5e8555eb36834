"""The door to faces, against a scripted one: what lies, breaks, hangs or is somebody else (SO-02, SO-05, SO-06, SO-09, SO-10)."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from outpost_lsp.domain.job import JobEvent, JobRecord
from outpost_lsp.errors import OutpostError
from outpost_lsp.remote.http import RemoteExecutor
from tests.support.system_one_server import CERTIFICATE

JOB = JobRecord(id="run-1", kind="review", agent="reviewer", brief="Look.", snapshot="a" * 40)
Reply = Callable[[asyncio.StreamWriter], Awaitable[None]]


def said(body: bytes, status: int = 200, headers: str = "") -> Reply:
    async def reply(writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 {status} Said\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{headers}\r\n"
        writer.write(head.encode() + body)

    return reply


def streamed(*pieces: bytes, then_hang: bool = False, is_cut: bool = False) -> Reply:
    async def reply(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in pieces:
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
        if then_hang:
            await asyncio.sleep(3600)
        if not is_cut:
            writer.write(b"0\r\n\r\n")

    return reply


def line(seq: int, kind: str = "observation") -> bytes:
    return JobEvent.model_validate({"seq": seq, "kind": kind}).to_line() + b"\n"


class ScriptedFace:
    """Answers each path with the replies given for it, the last one again and again."""

    def __init__(self, **replies: list[Reply]) -> None:
        self.replies = replies
        self.requests: list[str] = []
        self.bodies: list[bytes] = []
        self.url = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                (int(one.split(b":")[1]) for one in head.split(b"\r\n") if one.lower().startswith(b"content-length")), 0
            )
            self.bodies.append(await reader.readexactly(length))
            target = head.split(b" ")[1].decode()
            self.requests.append(target)
            name = target.split("?")[0].rsplit("/", 1)[1].replace(".", "_")
            replies = self.replies[name]
            reply = replies.pop(0) if len(replies) > 1 else replies[0]
            await reply(writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()


@asynccontextmanager
async def scripted(*, tls: bool = False, **replies: list[Reply]) -> AsyncIterator[ScriptedFace]:
    face = ScriptedFace(**replies)
    context = None
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE, CERTIFICATE.with_suffix(".key"))
    tasks: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        await face.answer(reader, writer)

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    face.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield face
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class NoBase:
    """The base of a job that needs none."""

    async def file(self) -> Path:
        raise AssertionError("nobody asked for it")


@asynccontextmanager
async def connected(face: ScriptedFace, **options: object) -> AsyncIterator[RemoteExecutor]:
    executor = RemoteExecutor(face.url, lambda: "token", **options)  # type: ignore[arg-type]
    try:
        yield executor
    finally:
        await executor.aclose()


async def events(face: ScriptedFace, **options: object) -> list[JobEvent]:
    face.replies.setdefault("jobs", [said(json.dumps({"id": JOB.id}).encode())])
    async with connected(face, **options) as executor:
        job = await executor.submit(JOB, b"delta", NoBase())
        return [event async for event in job.events()]


async def test_a_job_is_its_record_in_a_line_and_the_delta_behind_it() -> None:
    async with scripted(events=[streamed(line(1, "result"))]) as face:
        await events(face)
    record, _, delta = face.bodies[0].partition(b"\n")
    assert JobRecord.model_validate_json(record) == JOB
    assert delta == b"delta"


async def test_SO_02_events_come_in_order_however_they_were_cut() -> None:
    whole = b"".join(line(number) for number in range(1, 400)) + line(400, "result")
    pieces = [whole[start : start + 37] for start in range(0, len(whole), 37)]
    async with scripted(events=[streamed(*pieces)]) as face:
        found = await events(face)
    assert [event.seq for event in found] == list(range(1, 401))


async def test_SO_05_a_connection_that_breaks_goes_on_after_the_last_event() -> None:
    replies = [
        streamed(line(1), b"\n", line(2), line(3)[:10], is_cut=True),
        streamed(line(3), then_hang=True),
        said(b"", 503),
        streamed(line(4, "result")),
    ]
    told: list[bool] = []
    async with scripted(events=replies) as face:
        found = await events(face, silence_s=0.5, reconnect_s=20.0, waiting=told.append)
    assert [event.seq for event in found] == [1, 2, 3, 4]
    asked = [target for target in face.requests if "after" in target]
    assert [target.split("=")[1] for target in asked] == ["0", "2", "3", "3"]
    assert told[0] is True
    assert told[-1] is False


async def test_SO_06_a_face_that_stays_away_ends_the_run_as_lost() -> None:
    async with scripted(events=[said(b"", 503)]) as face:
        found = await events(face, reconnect_s=0.3)
    assert [event.kind for event in found] == ["lost"]


async def test_a_run_that_the_face_does_not_know_any_more_is_lost() -> None:
    async with scripted(events=[said(b'{"message": "there is no such run"}', 404)]) as face:
        found = await events(face)
    assert [event.kind for event in found] == ["lost"]


@pytest.mark.parametrize(
    "pieces",
    [
        [line(2)],
        [line(1), line(1)],
        [line(1), line(3)],
        [b'{"seq": 1, "kind": "unheard-of"}\n'],
        [b"\x80\x04\x95pickle\n"],
        [b"[1]\n"],
        [b"x" * 9_000_000],
    ],
    ids=["late", "again", "gap", "kind", "pickle", "list", "endless"],
)
async def test_SO_09_what_is_no_event_in_order_is_one_fault(pieces: list[bytes]) -> None:
    async with scripted(events=[streamed(*pieces)]) as face:
        with pytest.raises(OutpostError) as fault:
            await events(face)
    assert fault.value.code == "response"


async def test_SO_09_a_result_of_a_gigabyte_is_cut_while_it_is_read() -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n")
        while True:
            writer.write(b"\0" * 1_000_000)
            await writer.drain()

    async with (
        scripted(jobs=[said(b'{"id": "run-1"}')], result_pack=[endless]) as face,
        connected(face) as executor,
    ):
        job = await executor.submit(JOB, b"", NoBase())
        with pytest.raises(OutpostError, match="64 MiB") as fault:
            await job.result_pack()
    assert fault.value.code == "limit"


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (said(b"", 401), r"runs\.ray\.token_env"),
        (said(b"", 426), "version"),
        (said(b'{"message": "all is taken"}', 503), "all is taken"),
        (said(b"", 302, "Location: http://127.0.0.1:1/\r\n"), "302"),
        (said(b"hello"), "does not speak the protocol"),
        (said(b'{"id": "another"}'), "did not take"),
    ],
)
async def test_a_refusal_says_what_to_look_at(reply: Reply, says: str) -> None:
    async with scripted(jobs=[reply]) as face, connected(face) as executor:
        with pytest.raises(OutpostError, match=says):
            await executor.submit(JOB, b"", NoBase())


async def test_SO_06_a_face_that_hangs_is_given_up_in_time() -> None:
    async def hang(_writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(3600)

    async with scripted(jobs=[hang]) as face, connected(face, submit_s=0.2) as executor:
        with pytest.raises(OutpostError, match="cannot be reached") as fault:
            await executor.submit(JOB, b"", NoBase())
    assert fault.value.details["away"] is True


async def test_SO_10_an_authority_that_nobody_named_is_refused_and_one_that_was_is_not() -> None:
    health = b'{"version": "1", "slots": 1, "free": 1}'
    async with scripted(tls=True, health=[said(health)]) as face:
        async with connected(face) as executor:
            with pytest.raises(OutpostError, match=r"runs\.ray\.ca_file"):
                await executor.check()
        async with connected(face, ca_file=CERTIFICATE) as executor:
            assert (await executor.check())["slots"] == 1
        async with connected(face, ca_file=Path("/no/such/file")) as executor:
            with pytest.raises(OutpostError, match=r"runs\.ray\.ca_file") as fault:
                await executor.check()
            assert fault.value.code == "configuration"


async def test_a_record_beyond_its_bound_is_not_sent() -> None:
    large = JOB.model_copy(update={"brief": "x" * 9_000_000})
    async with scripted(jobs=[said(b"{}")]) as face, connected(face) as executor:
        with pytest.raises(OutpostError, match="8 MiB"):
            await executor.submit(large, b"", NoBase())
    assert face.requests == []


async def test_SO_05_what_may_be_sent_twice_is_sent_again_while_the_face_is_away() -> None:
    away = said(b"", 503)
    async with (
        scripted(
            jobs=[said(b'{"id": "run-1"}')],
            answer=[away, said(b"")],
            steer=[away, away, said(b"")],
            result_pack=[away, said(b"PACK")],
        ) as face,
        connected(face, reconnect_s=20.0) as executor,
    ):
        job = await executor.submit(JOB, b"", NoBase())
        await job.answer("question", "allow")
        await job.steer("id", "text", None, to_anyone=False)
        assert await job.result_pack() == b"PACK"
    assert [target.rsplit("/", 1)[1] for target in face.requests[1:]] == [
        *["answer"] * 2, *["steer"] * 3, *["result.pack"] * 2,
    ]  # fmt: skip


async def test_a_run_whose_end_was_told_is_collected_and_one_that_goes_on_is_not() -> None:
    job_path = {"run_1": [said(b"", 204)]}
    async with (
        scripted(jobs=[said(b'{"id": "run_1"}')], events=[streamed(line(1), line(2, "result"))], **job_path) as face,
        connected(face) as executor,
    ):
        job = await executor.submit(JOB.model_copy(update={"id": "run_1"}), b"", NoBase())
        events = job.events()
        await anext(events)
        await job.aclose()
        assert face.requests[-1].endswith("after=0")
        await anext(events)
        await job.aclose()
        assert face.requests[-1] == "/v1/jobs/run_1"
        await events.aclose()


async def test_SO_09_an_answer_that_never_ends_is_not_read() -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n")
        while True:
            writer.write(b"\0" * 1_000_000)
            await writer.drain()

    async with scripted(jobs=[endless]) as face, connected(face) as executor:
        with pytest.raises(OutpostError, match="more than 64 KiB"):
            await executor.submit(JOB, b"", NoBase())


async def test_a_face_of_another_version_is_refused() -> None:
    async with scripted(health=[said(b'{"version": "2", "slots": 1, "free": 1}')]) as face, connected(face) as executor:
        with pytest.raises(OutpostError, match="another version"):
            await executor.check()
