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
        if self._after_return or b"\r" in data:
            data = self._with_line_feeds(data)
        rest = self._rest
        if not rest and data.endswith(b"\n\n") and data.startswith(b"data: ") and data.count(b"\n") == 2:
            # What most services send: one event of one line in each piece.
            self._refuse_above_limit(len(data) - 8)
            return [data[6:-2]] if len(data) > 8 else []
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
            payload = frame[6:] if frame.startswith(b"data: ") and b"\n" not in frame else _data_of(frame)
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


def _data_of(frame: bytes) -> bytes:
    lines = []
    # A byte order mark may stand before the first event, and only there; no field begins with one, so looking is safe.
    for line in frame.removeprefix(_BYTE_ORDER_MARK).split(b"\n"):
        if line.startswith(b"data:"):
            value = line[5:]
            lines.append(value[1:] if value.startswith(b" ") else value)
    return b"\n".join(lines)
