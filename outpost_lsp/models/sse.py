"""Server-sent events out of bytes that arrive in any pieces.

The bytes are cut at line ends only (CRLF, LF or CR; never at U+2028 and its like), so that a cut inside a character or
inside a line end changes nothing: for every way of cutting a stream the events are the same. Work is proportional to
what arrives, however long a line grows. The readers of the wire forms are the only callers (HTTP-08, REL-08).
"""

from __future__ import annotations

from typing import Final

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class EventTooLargeError(Exception):
    """One event is longer than was agreed."""


class EventSplitter:
    """Turns bytes into the data of events; names, ids and comments are passed over."""

    __slots__ = ("_after_return", "_limit", "_rest")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._after_return = False

    def feed(self, data: bytes) -> list[bytes]:
        """The data of every event that `data` completes, in order."""
        if self._after_return or data.find(b"\r") >= 0:  # `in` takes twice as long for bytes.
            data = self._with_line_feeds(data)
        rest = self._rest
        if not rest and data[-1:] == b"\n":
            # What most services send: one event in each piece, one line of data with its name before it or without.
            start = 6 if data[:6] == b"data: " else _after_name(data)
            if start and data.find(b"\n", start) == len(data) - 2:
                self._refuse_above_limit(len(data) - 2 - start)
                return [data[start:-2]] if len(data) - 2 > start else []
        if rest:
            # Only the seam and the new bytes can hold the end of an event; what was searched is not searched again.
            seam = len(rest) - 1
            rest += data
            end = rest.rfind(b"\n\n", seam)
            if end < 0:
                self._refuse_above_limit(len(rest))
                return []
            frames = bytes(rest[:end]).split(b"\n\n")
            del rest[: end + 2]
        else:
            end = data.rfind(b"\n\n")
            if end < 0:
                rest += data
                self._refuse_above_limit(len(rest))
                return []
            frames = data[:end].split(b"\n\n")
            if end + 2 != len(data):
                rest += data[end + 2 :]
        self._refuse_above_limit(len(rest))
        events = []
        for frame in frames:
            start = 6 if frame[:6] == b"data: " else _after_name(frame)
            payload = frame[start:] if start and frame.find(b"\n", start) < 0 else _data_of(frame)
            if payload:
                self._refuse_above_limit(len(payload))
                events.append(payload)
        return events

    def remainder(self) -> bytes:
        """The data of the event that was begun and not ended, for the end of the stream."""
        return _data_of(bytes(self._rest))

    @property
    def rest(self) -> bytes:
        """The bytes that belong to no event that was ended."""
        return bytes(self._rest)

    def _with_line_feeds(self, data: bytes) -> bytes:
        if self._after_return and data:
            # The return ended its line when it came; a line feed after it belongs to the same line end.
            self._after_return = False
            data = data.removeprefix(b"\n")
        if data.endswith(b"\r"):
            self._after_return = True
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _refuse_above_limit(self, size: int) -> None:
        if size > self._limit:
            raise EventTooLargeError


def _after_name(frame: bytes) -> int:
    """Where the data begins whose line follows the line of the event's name; 0 for anything else."""
    if frame[:6] != b"event:":
        return 0
    start = frame.find(b"\n") + 7
    return start if frame[start - 7 : start] == b"\ndata: " else 0


def _data_of(frame: bytes) -> bytes:
    lines = []
    # A byte order mark may stand before the first event, and only there; no field begins with one, so looking is safe.
    for line in frame.removeprefix(_BYTE_ORDER_MARK).split(b"\n"):
        if line.startswith(b"data:"):
            value = line[5:]
            lines.append(value[1:] if value.startswith(b" ") else value)
    return b"\n".join(lines)
