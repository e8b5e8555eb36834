"""10,000 mutations of the stream cases end in an answer or a fault, whatever they are (REL-07)."""

from __future__ import annotations

import asyncio
import random
import re

import pytest

from outpost_lsp.domain.message import ToolCallBlock
from outpost_lsp.domain.model import Completed, ModelResult
from outpost_lsp.errors import OutpostError
from tests.models.stream_cases import CASES, REQUEST, StreamCase, outcome, reader_for

MUTATIONS = 10_000
OTHER_FORMS = 1_400
ON_THE_WIRE = 280
DIALECTS = ("openai-chat", "openai-responses", "anthropic-messages")
_FRAGMENTS = (
    b"null", b"[]", b"{}", b"-1", b"1e999", b"true", b'"', b"\\", b"\\ud83d", b"\r", b"\n", b"\r\n\r\n", b"\n\n",
    b"data: ", b"data: [DONE]\n\n", b"\x00", b"\xff", b"\xe2\x80\xa8", b"[" * 300, b"9" * 400, b"data: {}\n\n", b": c\n",
    b'"index":7', b'"finish_reason":"stop"', b"99999999999999999999", b'data: {"error":{"code":"x"}}\n\n',
)  # fmt: skip


def _mutated(chance: random.Random, body: bytes) -> bytes:
    data = bytearray(body)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        at = chance.randrange(len(data) + 1)
        length = chance.choice((1, 1, 2, 5, 20, 200))
        match chance.randrange(7):
            case 0:
                data[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del data[at : at + length]
            case 2:
                data[at:at] = chance.choice(_FRAGMENTS)
            case 3:
                data[at : at + length] = chance.choice(_FRAGMENTS)
            case 4:
                data[at:at] = data[at : at + length]
            case 5:
                del data[at:]
            case _:
                frames = bytes(data).split(b"\n\n")
                chance.shuffle(frames) if chance.random() < 0.3 else frames.pop(chance.randrange(len(frames)))
                data = bytearray(b"\n\n".join(frames))
        if not data:
            break
    return bytes(data)


def _pieces(chance: random.Random, body: bytes) -> list[bytes]:
    places = sorted(chance.randrange(len(body) + 1) for _ in range(chance.randrange(6)))
    return [body[start:end] for start, end in zip([0, *places], [*places, len(body)], strict=True)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_mutation_ends_in_an_answer_or_a_fault(case: StreamCase) -> None:
    chance = random.Random(case.name)
    is_json = case.name == "s07-error-as-200"
    ends = set()
    for _ in range(-(-MUTATIONS // len(CASES))):
        body = _mutated(chance, case.body)
        ends.add(checked(outcome(case.reader(), _pieces(chance, body), json_body=is_json)))
    assert len(ends) > 1, "the mutations are too tame to show anything"


def checked(got: ModelResult | OutpostError) -> str:
    """How it ended: a fault of the right kind, or an answer that can be stored and whose calls are fit to run."""
    if isinstance(got, OutpostError):
        assert got.code in {"provider", "response", "quota"}
        return got.code
    calls = [block for block in got.blocks if isinstance(block, ToolCallBlock)]
    assert len({call.id for call in calls}) == len(calls)
    assert all(call.name for call in calls)
    assert (got.reason == "tool-calls") == bool(calls and got.reason not in {"max-tokens", "refusal"})
    if got.reason != "tool-calls":
        assert not any(isinstance(call.input, dict) for call in calls)
    for block in got.blocks:
        block.to_line()  # What cannot be stored must not get this far.
    return got.reason


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_speaks_another_form_ends_in_an_answer_or_a_fault(dialect: str) -> None:
    chance = random.Random(dialect)
    for number in range(OTHER_FORMS):
        case = CASES[number % len(CASES)]
        body = _mutated(chance, case.body) if number >= len(CASES) else case.body
        checked(outcome(reader_for(dialect), _pieces(chance, body), json_body=chance.random() < 0.2))


class Wire:
    """A service that answers each connection with bytes of no care: head, chunk sizes and all."""

    def __init__(self, answers: list[bytes]) -> None:
        self._answers = iter(answers)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
            await reader.readexactly(int(length.group(1)) if length else 0)
            answer = next(self._answers)
            for at in range(0, len(answer), 700):
                writer.write(answer[at : at + 700])
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


async def test_mutated_answers_on_a_connection_end_in_an_answer_or_a_fault() -> None:
    chance = random.Random("on the wire")
    told = set()
    for case in CASES:
        answers = [_mutated(chance, case.http) for _ in range(ON_THE_WIRE // len(CASES))]
        server = await asyncio.start_server(Wire(answers).serve, "127.0.0.1", 0)
        base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        provider = case.provider(base_url, max_retries=0, timeout_s=20)
        async with asyncio.timeout(60):
            for _ in answers:
                got: ModelResult | OutpostError | None = None
                try:
                    async for event in provider.stream(REQUEST):
                        got = event.result if isinstance(event, Completed) else got
                except OutpostError as fault:
                    got = fault
                assert got is not None
                told.add(checked(got))
            await provider.aclose()
        server.close()
        await server.wait_closed()
    assert {"provider", "response"} < told
