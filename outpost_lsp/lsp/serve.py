"""From options to a served client, and to the exit status of the process.

Whatever ends the server (`exit`, the end of the input, the client's death, a signal), the way out is the same: runs are
cancelled, what they made is kept, children are gone, and the process ends within two seconds, by force if need be
(REL-03). Called by the command line.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NoReturn

from outpost_lsp.lsp.front import FrontDoor
from outpost_lsp.lsp.log import start_log

if TYPE_CHECKING:
    from outpost_lsp.lsp.network import Door

logger = logging.getLogger(__name__)

_CLOSE_S: Final = 1.2
_FORCE_S: Final = 1.8
"""Two seconds are promised; the rest is for the system to take the process down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """How to serve.

    `address` is `[HOST:]PORT` for `tcp` and `ws`; `token` is what a client of these has to show, `None` for a random
    one, the empty string for none. `allow_remote` permits a host that is not loopback.
    """

    transport: Literal["stdio", "tcp", "ws"] = "stdio"
    address: str = ""
    token: str | None = None
    allow_remote: bool = False
    client_process_id: int | None = None
    log_file: Path | None = None
    log_level: str = "info"


def run_server(options: ServeOptions) -> NoReturn:
    """Serve one client, then end the process: with 0 after `shutdown` and `exit`, with 1 otherwise."""
    loop = asyncio.new_event_loop()
    try:
        start_log(options.log_level, options.log_file)
        status = loop.run_until_complete(_serve(options))
    except OSError as error:
        logger.error("the server could not start: %s", error)  # noqa: TRY400 - the sentence says it all
        status = 2
    _leave(status)


def _leave(status: int) -> NoReturn:
    """End at once: the interpreter would wait for worker threads, and nothing of ours is left to be done."""
    logging.shutdown()
    os._exit(status)


async def _serve(options: ServeOptions) -> int:
    match options.transport:
        case "stdio":
            from outpost_lsp.lsp.stdio import connect_stdio

            async def connect(front: FrontDoor) -> Callable[[], Awaitable[None]]:
                connection = await connect_stdio(front.receive, front.ended.set, front.attach)
                return connection.close

            return await _serve_one(options, connect)
        case "tcp":
            from outpost_lsp.lsp.network import listen_tcp

            return await _serve_one(options, lambda front: listen_tcp(front, door(options)))
        case "ws":
            from outpost_lsp.lsp.websocket import listen_websocket

            return await _serve_one(options, lambda front: listen_websocket(front, door(options)))


async def _serve_one(
    options: ServeOptions, connect: Callable[[FrontDoor], Awaitable[Callable[[], Awaitable[None]]]]
) -> int:
    front = FrontDoor(options.client_process_id)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, front.ended.set)
    disconnect = await connect(front)
    await front.ended.wait()
    _force_exit(front.status)
    await front.close(_CLOSE_S)
    await disconnect()
    return front.status


def _force_exit(status: int) -> None:
    """Make sure that the process ends, also when something blocks the event loop."""
    timer = threading.Timer(_FORCE_S, os._exit, [status])
    timer.daemon = True
    timer.start()


def door(options: ServeOptions) -> Door:
    """Where to listen, and what a client has to show; a token that nobody chose is made and told once."""
    from outpost_lsp.lsp.network import Door, host_and_port, is_loopback

    host, port = host_and_port(options.address)
    if not is_loopback(host):
        if not options.allow_remote:
            raise OSError(f"{host} is not a loopback address; --allow-remote permits to listen there")
        if options.token == "":
            raise OSError("--no-token is for loopback addresses only")
    token = options.token
    if token is None:
        import secrets

        token = secrets.token_urlsafe(24)
        print(f"token: {token}", file=sys.stderr, flush=True)  # noqa: T201 - told to the starter once, never logged
    return Door(host, port, token)
