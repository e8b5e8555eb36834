"""The first to meet a client: answers `initialize` at once, then has the server loaded.

Most of a start is the import of the protocol's types, and the answer needs none of them. Whatever is not a sound
`initialize` as the first message is the loaded server's to answer. Used by `serve` and the transports.
"""

from __future__ import annotations

import asyncio
import gc
import json
import linecache
import logging
import sys
from typing import TYPE_CHECKING, Final

from outpost_lsp.lsp.capabilities import initialize_result
from outpost_lsp.lsp.client import Session, read_session
from outpost_lsp.lsp.connection import Connection, dump
from outpost_lsp.lsp.framing import FrameFault
from outpost_lsp.lsp.parent import watch_process

if TYPE_CHECKING:
    from outpost_lsp.lsp.server import OutpostServer

logger = logging.getLogger(__name__)

_COLLECTED_AFTER: Final = (400, 4, 50)
"""Objects made before the youngest are looked at, and how often that is before older ones are."""


class FrontDoor:
    """One client's server, loaded when it has to be. `ended` is set when the process should go."""

    def __init__(self, client_process_id: int | None = None) -> None:
        self.ended = asyncio.Event()
        self._client_process_id = client_process_id
        self._connection: Connection | None = None
        self._session: Session | None = None
        self._server: OutpostServer | None = None

    @property
    def status(self) -> int:
        """The exit status: 0 only after `shutdown`."""
        return 0 if self._server is not None and self._server.protocol.is_shut_down else 1

    def attach(self, connection: Connection) -> None:
        """Speak to this client from now on."""
        self._connection = connection

    def receive(self, item: bytes | FrameFault) -> None:
        """Take one message."""
        if self._server is None:
            if self._session is None and isinstance(item, bytes) and self._greet(item):
                # The answer goes out before the import begins.
                asyncio.get_running_loop().call_soon(self._load)
                return
            self._load()
        if self._server is not None:
            self._server.protocol.receive(item)

    async def close(self, deadline_s: float) -> None:
        """Cancel what runs and let go of everything, within the time given."""
        if self._server is not None:
            await self._server.close(deadline_s)

    def _greet(self, item: bytes) -> bool:
        """Answer the message if it is a sound `initialize`."""
        try:
            message = json.loads(item)
        except (ValueError, RecursionError):
            return False
        if not isinstance(message, dict) or message.get("method") != "initialize" or self._connection is None:
            return False
        message_id = message.get("id")
        if type(message_id) not in (int, str) or not isinstance(message.get("params"), dict):
            return False
        self._session = read_session(message["params"])
        self._settle(self._session)
        result = initialize_result(self._session.client)
        self._connection.send(dump({"jsonrpc": "2.0", "id": message_id, "result": result}))
        return True

    def _settle(self, session: Session) -> None:
        """Watch the client before it can die unseen."""
        process_id = session.process_id or self._client_process_id
        if process_id is not None and process_id > 0:
            watch_process(process_id, self.ended.set)

    def _load(self) -> None:
        if self._server is not None or self._connection is None:
            return
        from outpost_lsp.lsp.server import OutpostServer
        from outpost_lsp.sandbox.process import forbid_inspection

        # Before the first child can exist: the environment of this process may hold keys (SEC-13).
        forbid_inspection()
        server = OutpostServer(self.ended, self._settle)
        server.protocol.attach(self._connection)
        if self._session is not None:
            server.begin(self._session)
        self._server = server
        _drop_generated_sources()
        calm_the_collector()


def calm_the_collector() -> None:
    """Let the collector come more often and stay shorter: 12 to 23 ms at a time became 1, for the same work in all."""
    # What was imported stays; the collector need not look at it again and again.
    gc.freeze()
    # From 3.14 on it works in small pieces of its own accord.
    if sys.version_info < (3, 14):
        gc.set_threshold(*_COLLECTED_AFTER)


def _drop_generated_sources() -> None:
    """Let go of the texts of generated methods, which the protocol's types keep for debuggers."""
    for name in [name for name in linecache.cache if name.startswith("<attrs generated")]:
        del linecache.cache[name]
