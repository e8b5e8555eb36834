"""The server's log: standard error and, when asked for, a file, written by a thread of its own.

Nobody promises to read a server's standard error, and a full pipe must not stop the event loop: lines wait in memory,
and when too many do, new ones are left out. Set up by `serve`.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
import time
from pathlib import Path
from typing import Final, TextIO

_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_MOST_LINES: Final = 10_000
_NOISY: Final = ("pygls", "httpx", "httpcore", "asyncio")
_FLUSH_S: Final = 0.2


class BackgroundHandler(logging.Handler):
    """Writes lines to a stream from a thread, in order."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._is_idle = threading.Event()
        self._is_idle.set()
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if self._lines.qsize() >= _MOST_LINES:
            return
        self._is_idle.clear()
        self._lines.put(self.format(record) + "\n")
        if self._thread is None:
            self._thread = threading.Thread(target=self._write, name="log", daemon=True)
            self._thread.start()

    def flush(self) -> None:
        """Give the thread a moment to write what waits."""
        self._is_idle.wait(_FLUSH_S)

    def _write(self) -> None:
        while True:
            line = self._lines.get()
            try:
                self._stream.write(line)
                self._stream.flush()
            except (OSError, ValueError):
                # Nobody reads any more; the log is no reason to stop serving.
                time.sleep(_FLUSH_S)
            if self._lines.empty():
                self._is_idle.set()


def start_log(level: str, file: Path | None) -> None:
    """Log to standard error, and to a file of the user's own when one is named."""
    streams: list[TextIO] = [sys.stderr]
    if file is not None:
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        streams.append(os.fdopen(descriptor, "a", encoding="utf-8"))
    logging.basicConfig(
        level=level.upper(), handlers=[BackgroundHandler(stream) for stream in streams], format=_FORMAT, force=True
    )
    for name in _NOISY:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
    logging.raiseExceptions = False
