"""However a stream of events is cut and however its lines end, the events are the same (HTTP-08)."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from outpost_lsp.models.sse import EventSplitter, EventTooLargeError

MIB = 1024 * 1024

visible = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=12)
fields = st.one_of(
    visible.map(lambda text: f"data:{text}"),
    visible.map(lambda text: f"data: {text}"),
    visible.map(lambda text: f": {text}"),
    visible.map(lambda text: f"event: {text}"),
    visible.map(lambda text: f"id:{text}"),
    st.sampled_from(["data", "retry: 5", "dataset: x", " data: x", "\u2028data: x"]),
)
frames = st.lists(st.lists(fields, max_size=4), max_size=6)
line_end = st.sampled_from(["\n", "\r\n", "\r"])


def wanted(frame: list[str]) -> str:
    """What the standard says an event's data is."""
    values = [line.partition(":")[2] for line in frame if line.partition(":")[0] == "data" and ":" in line]
    return "\n".join(value.removeprefix(" ") for value in values)


def split(data: bytes, places: list[int] = []) -> list[bytes]:  # noqa: B006 - it is read only
    splitter = EventSplitter(MIB)
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [event for start, end in pairwise(edges) for event in splitter.feed(data[start:end])]


@settings(max_examples=300, deadline=None)
@given(frames=frames, end=line_end, places=st.lists(st.integers(min_value=0), max_size=8), mark=st.booleans())
def test_events_are_what_the_standard_says_for_every_line_end_and_every_cut(
    frames: list[list[str]], end: str, places: list[int], mark: bool
) -> None:
    text = ("\ufeff" if mark else "") + "".join("".join(line + end for line in frame) + end for frame in frames)
    assert split(text.encode(), places) == [data.encode() for frame in frames if (data := wanted(frame))]


@settings(max_examples=300, deadline=None)
@given(frames=frames, end=line_end)
@example(frames=[["event: x", "data: a"], ["event:x", "data:"], ["event: x", "data: a", "data: b"]], end="\n")
@example(frames=[["event: x"], ["data: a"], ["data: "], ["data: a", "event: x"], ["event", "data: a"]], end="\n")
def test_events_that_come_one_by_one_are_the_same(frames: list[list[str]], end: str) -> None:
    # Whole events in a piece of their own are split by a shorter way.
    splitter = EventSplitter(MIB)
    for frame in frames:
        data = wanted(frame).encode()
        piece = "".join(line + end for line in [*frame, ""])
        assert splitter.feed(piece.encode()) == ([data] if data else [])


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=200), places=st.lists(st.integers(min_value=0), max_size=8))
def test_any_bytes_cut_anywhere_give_the_same_events(data: bytes, places: list[int]) -> None:
    assert split(data, places) == split(data)


def test_every_single_cut_of_a_tricky_stream_gives_the_same_events() -> None:
    data = ": hi\r\n\r\ndata: a\r\ndata:b\r\r\ndata: na\u2028ïve 🌍\n\n\n\nevent: x\ndata: c\r\n\r\n".encode()
    for place in range(len(data)):
        assert split(data, [place]) == [b"a\nb", "na\u2028ïve 🌍".encode(), b"c"]
    assert split(data, list(range(len(data)))) == split(data)


def test_an_event_that_was_not_ended_is_the_remainder() -> None:
    splitter = EventSplitter(MIB)
    assert splitter.feed(b"data: a\n\ndata: b") == [b"a"]
    assert splitter.remainder() == b"b"


@pytest.mark.parametrize(
    "pieces", [[b"data: " + b"x" * 2000], [b"data: "] + [b"x"] * 2000, [b"data: " + b"x" * 2000 + b"\n\n"]]
)
def test_REL_08_an_event_beyond_the_bound_is_refused(pieces: list[bytes]) -> None:
    splitter = EventSplitter(1000)
    with pytest.raises(EventTooLargeError):
        list(map(splitter.feed, pieces))


def test_many_events_in_one_piece_may_be_longer_than_the_bound() -> None:
    assert len(EventSplitter(1000).feed(b"data: 1234567890\n\n" * 1000)) == 1000


def test_a_line_of_4_mib_in_small_pieces_takes_time_in_proportion() -> None:
    splitter = EventSplitter(8 * MIB)
    began = time.process_time()
    for _ in range(4 * MIB // 64):
        splitter.feed(b"x" * 64)
    assert splitter.feed(b"\n\ndata: y\n\n") == [b"y"]
    # Copying what was held for each piece would take minutes.
    assert time.process_time() - began < 20
