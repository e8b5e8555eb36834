"""Messages in a stream of bytes: a `Content-Length` header, an empty line, a body.

Total: whatever bytes come, the reader goes on with the next thing that looks like a header, says once what was wrong,
and holds no more than one message in memory. Used by the transports.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

MAX_BODY: Final = 256 * 1024 * 1024
MAX_HEADER: Final = 16 * 1024
_END: Final = b"\r\n\r\n"
_LENGTH: Final = re.compile(rb"(?i)(?:^|\r\n)content-length:[ \t]*(\d{1,18})[ \t]*(?=\r\n|$)")
_LATE_LENGTH: Final = re.compile(rb"(?i)content-length:[ \t]*(\d{1,18})[ \t]*$")
_FIELD: Final = re.compile(rb"(?i)content-(?:length|type):[^\r\n]*")


@dataclass(frozen=True, slots=True)
class FrameFault:
    """Bytes that are no message; the sentence says why."""

    reason: str


class FrameReader:
    """Turns pieces of a stream into message bodies and faults, in order.

    `strict` admits the two headers of the protocol and nothing else, so that what a browser sends is no message.
    """

    def __init__(self, *, max_body: int = MAX_BODY, strict: bool = False) -> None:
        self._buffer = bytearray()
        self._needed: int | None = None
        self._skip = 0
        self.max_body = max_body
        self._strict = strict
        self._is_lost = False

    def feed(self, data: bytes) -> list[bytes | FrameFault]:
        """What became complete with these bytes."""
        self._buffer += data
        found: list[bytes | FrameFault] = []
        while self._advance(found):
            pass
        return found

    def _advance(self, found: list[bytes | FrameFault]) -> bool:
        """Take one header, body or ill part off the buffer; `False` when more bytes are needed."""
        if self._skip:
            dropped = min(self._skip, len(self._buffer))
            del self._buffer[:dropped]
            self._skip -= dropped
            return self._skip == 0
        if self._needed is None:
            return self._take_header(found)
        if len(self._buffer) < self._needed:
            return False
        found.append(bytes(self._buffer[: self._needed]))
        del self._buffer[: self._needed]
        self._needed = None
        return True

    def _take_header(self, found: list[bytes | FrameFault]) -> bool:
        end = self._buffer.find(_END)
        if end < 0:
            if len(self._buffer) > MAX_HEADER:
                # No header is that long; its last bytes may be the beginning of one.
                del self._buffer[:-64]
                self._lose("a header without an end", found)
            return False
        header = bytes(self._buffer[:end])
        del self._buffer[: end + len(_END)]
        length = _LENGTH.search(header)
        if self._strict and not all(_FIELD.fullmatch(line) for line in header.split(b"\r\n")):
            length = None
        elif length is None and (length := _LATE_LENGTH.search(header)) is not None:
            # After a message whose length was wrong, the next header follows the rest of it without a line break.
            self._lose("bytes that belong to no message", found)
        if length is None:
            self._lose("a header that is not Content-Length", found)
            return True
        self._is_lost = False
        size = int(length[1])
        if size > self.max_body:
            self._skip = size
            found.append(FrameFault(f"a message of {size} bytes; at most {self.max_body} are accepted"))
        else:
            self._needed = size
        return True

    def _lose(self, reason: str, found: list[bytes | FrameFault]) -> None:
        """Say it once, until a header is found again."""
        if not self._is_lost:
            found.append(FrameFault(reason))
        self._is_lost = True


def frame(body: bytes) -> bytes:
    """A body with its header."""
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
