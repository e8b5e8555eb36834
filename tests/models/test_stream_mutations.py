"""10,000 mutations of the stream cases end in an answer or a fault, whatever they are (REL-07)."""

from __future__ import annotations

import random

import pytest

from outpost_lsp.domain.message import ToolCallBlock
from outpost_lsp.errors import OutpostError
from tests.models.stream_cases import CASES, StreamCase, outcome

MUTATIONS = 10_000
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
        got = outcome(case.reader(), _pieces(chance, body), json_body=is_json)
        if isinstance(got, OutpostError):
            ends.add(got.code)
            assert got.code in {"provider", "response", "quota"}
            continue
        ends.add(got.reason)
        calls = [block for block in got.blocks if isinstance(block, ToolCallBlock)]
        assert len({call.id for call in calls}) == len(calls)
        assert all(call.name for call in calls)
        assert (got.reason == "tool-calls") == bool(calls and got.reason not in {"max-tokens", "refusal"})
        if got.reason != "tool-calls":
            assert not any(isinstance(call.input, dict) for call in calls)
        for block in got.blocks:
            block.to_line()  # What cannot be stored must not get this far.
    assert len(ends) > 1, "the mutations are too tame to show anything"
