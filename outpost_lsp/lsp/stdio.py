"""Standard input and output as the client's connection.

The protocol gets private copies of both, and the well-known ones are pointed elsewhere, so that neither a stray print
nor a child process can write among the messages or eat from the input (REL-22). Called by `serve`.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import threading
from collections.abc import Callable
from typing import BinaryIO, cast

from outpost_lsp.lsp.connection import OutputProtocol, Received, StreamConnection


async def connect_stdio(
    received: Received, ended: Callable[[], None], made: Callable[[StreamConnection], None]
) -> StreamConnection:
    """The connection to the process that started this one; `made` is told of it before anything is read."""
    source, sink = _take_standard_streams()
    loop = asyncio.get_running_loop()
    connection = StreamConnection(received, ended)
    if _is_pollable(sink):
        transport, _ = await loop.connect_write_pipe(lambda: OutputProtocol(connection), sink)
        connection.write_to(transport)
    else:
        connection.write_to(cast("asyncio.WriteTransport", _FileTransport(sink)))
    made(connection)
    if _is_pollable(source):
        await loop.connect_read_pipe(lambda: connection, source)
    else:
        _read_file(source, connection, loop)
    return connection


def _take_standard_streams() -> tuple[BinaryIO, BinaryIO]:
    _ensure_standard_error()
    sys.stdout.flush()
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return os.fdopen(source, "rb", buffering=0), os.fdopen(sink, "wb", buffering=0)


def _ensure_standard_error() -> None:
    try:
        os.fstat(2)
    except OSError:
        # Started without one: what belongs there goes nowhere, rather than into a file that happens to get the number.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        os.close(nowhere)
        sys.stderr = os.fdopen(2, "w", closefd=False)


def _is_pollable(stream: BinaryIO) -> bool:
    mode = os.fstat(stream.fileno()).st_mode
    if stat.S_ISCHR(mode):
        return os.isatty(stream.fileno())
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _read_file(source: BinaryIO, connection: StreamConnection, loop: asyncio.AbstractEventLoop) -> None:
    """Read a file or device that cannot be polled, in a thread of its own."""

    def read() -> None:
        while data := source.read(1 << 16):
            loop.call_soon_threadsafe(connection.data_received, data)
        loop.call_soon_threadsafe(connection.eof_received)

    threading.Thread(target=read, name="input", daemon=True).start()


class _FileTransport(asyncio.WriteTransport):
    """Output to a file or device that is always ready."""

    def __init__(self, sink: BinaryIO) -> None:
        super().__init__()
        self._sink = sink

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._sink.closed

    def write(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data)
        while view:
            view = view[self._sink.write(view) :]

    def abort(self) -> None:
        self._sink.close()

    def close(self) -> None:
        self._sink.close()
