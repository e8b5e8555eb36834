"""Messages in a stream: every division of the bytes gives the same messages, and ill bytes cost only themselves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpost_lsp.lsp.framing import MAX_HEADER, FrameFault, FrameReader, frame

_BODIES = st.lists(st.binary(max_size=40), max_size=6)


@given(_BODIES, st.integers(1, 17))
def test_messages_are_the_same_however_the_stream_is_cut(bodies: list[bytes], size: int) -> None:
    stream = b"".join(map(frame, bodies))
    reader = FrameReader()
    found: list[bytes | FrameFault] = []
    for start in range(0, len(stream), size):
        found += reader.feed(stream[start : start + size])
    assert found == bodies


@pytest.mark.parametrize(
    "header",
    [
        b"content-length: 2\r\n\r\n",
        b"Content-Type: application/vscode-jsonrpc; charset=utf-8\r\nContent-Length: 2\r\n\r\n",
        b"Content-Length:2\r\nX-Other: 3\r\n\r\n",
    ],
)
def test_headers_may_be_spelled_in_many_ways(header: bytes) -> None:
    assert FrameReader().feed(header + b"{}") == [b"{}"]


@pytest.mark.parametrize(
    "rubbish",
    [
        b"hello\r\n\r\n",
        b"Content-Length: -3\r\n\r\n",
        b"Content-Length: many\r\n\r\n",
        b"\r\n\r\n",
        b"x" * (MAX_HEADER + 1) + b"\r\n\r\n",
        b"rest of a body that was longer than its header said",
    ],
)
def test_bytes_that_are_no_message_are_told_once_and_passed_over(rubbish: bytes) -> None:
    found = FrameReader().feed(rubbish + frame(b"{}"))
    assert [item for item in found if isinstance(item, bytes)] == [b"{}"]
    assert len([item for item in found if isinstance(item, FrameFault)]) == 1


def test_many_ill_headers_in_a_row_are_told_once() -> None:
    found = FrameReader().feed(b"a\r\n\r\nb\r\n\r\nc\r\n\r\n" + frame(b"{}") + b"d\r\n\r\n")
    assert [type(item) for item in found] == [FrameFault, bytes, FrameFault]


def test_a_message_that_is_too_large_is_passed_over_without_being_kept() -> None:
    reader = FrameReader(max_body=10)
    found = reader.feed(frame(b"x" * 1000) + frame(b"{}"))
    assert isinstance(found[0], FrameFault)
    assert "1000" in found[0].reason
    assert found[1] == b"{}"


def test_an_endless_header_keeps_little_memory() -> None:
    reader = FrameReader()
    for _ in range(100):
        reader.feed(b"x" * 10_000)
    assert len(reader._buffer) <= MAX_HEADER + 10_000


def test_a_request_of_a_browser_is_no_message_where_only_our_headers_count() -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}'
    request = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    found = FrameReader(strict=True).feed(request)
    assert all(isinstance(item, FrameFault) for item in found)
    assert FrameReader(strict=True).feed(frame(body)) == [body]
