"""Warnings of the product in the client's log window, besides standard error."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from outpost_lsp.domain.markdown import visible

if TYPE_CHECKING:
    from outpost_lsp.lsp.protocol import OutpostProtocol

_ERROR: Final = 1
_WARNING: Final = 2


class ClientLog(logging.Handler):
    """Sends `window/logMessage` for warnings and worse."""

    def __init__(self, protocol: OutpostProtocol) -> None:
        super().__init__(logging.WARNING)
        self._protocol = protocol

    def emit(self, record: logging.LogRecord) -> None:
        # Logging may come from worker threads; sending belongs to the event loop.
        self._protocol.call_soon(self._send, record.levelno, visible(record.getMessage()))

    def _send(self, level: int, text: str) -> None:
        kind = _ERROR if level >= logging.ERROR else _WARNING
        self._protocol.notify("window/logMessage", {"type": kind, "message": text})
