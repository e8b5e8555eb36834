"""The progress of runs in the editor: begin, reports, end, and the way back by which a person cancels.

A token comes with the request, or is created where the client supports it; a run never waits for the client to agree.
Tokens are used once and forgotten with their run.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from outpost_lsp.lsp.protocol import RequestFault

if TYPE_CHECKING:
    from outpost_lsp.lsp.client import Client
    from outpost_lsp.lsp.protocol import OutpostProtocol

logger = logging.getLogger(__name__)

Token = int | str
_INTERVAL_S: Final = 0.1
_CREATE_S: Final = 30.0


class Progress:
    """The progress of one run."""

    def __init__(
        self, protocol: OutpostProtocol, token: Token, title: str, message: str, *, cancellable: bool = True
    ) -> None:
        self._protocol = protocol
        self._cancellable = cancellable
        self.token = token
        self._title = title
        self._message = message
        self._sent = ""
        self._last = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._has_begun = False
        self._is_over = False

    def begin(self) -> None:
        """Show it, with the latest message."""
        if self._has_begun or self._is_over:
            return
        self._has_begun = True
        self._sent = self._message
        self._send({"kind": "begin", "title": self._title, "cancellable": self._cancellable, "message": self._message})

    def report(self, message: str) -> None:
        """Show what is going on; at most ten times a second, the last message always."""
        self._message = message
        if not self._has_begun or self._is_over or self._timer is not None or message == self._sent:
            return
        wait = self._last + _INTERVAL_S - time.monotonic()
        if wait <= 0:
            self._report()
        else:
            self._timer = asyncio.get_running_loop().call_later(wait, self._report)

    def end(self, message: str) -> None:
        """Take it away with a last message."""
        if self._timer is not None:
            self._timer.cancel()
        if self._has_begun and not self._is_over:
            self._send({"kind": "end", "message": message})
        self._is_over = True

    def _report(self) -> None:
        self._timer = None
        self._last = time.monotonic()
        if self._message != self._sent and not self._is_over:
            self._sent = self._message
            self._send({"kind": "report", "message": self._message, "cancellable": self._cancellable})

    def _send(self, value: dict[str, Any]) -> None:
        self._protocol.notify("$/progress", {"token": self.token, "value": value})


class ProgressBoard:
    """The progress of every live run."""

    def __init__(self, protocol: OutpostProtocol, client: Client, cancel: Callable[[str], None]) -> None:
        self._protocol = protocol
        self._client = client
        self._cancel = cancel
        self._by_run: dict[str, Progress] = {}
        self._runs: dict[Token, str] = {}
        self._creating: dict[str, asyncio.Task[None]] = {}

    def open(self, run_id: str, token: Token | None, title: str, message: str) -> None:
        """Begin to show a run: under the token of the request, else under one of ours."""
        if token in self._runs:
            # A run that another began, as a fix begins its review: a second `begin` would leave the first without an end.
            token = None
        if token is None and not self._client.can("window.workDoneProgress"):
            return
        progress = Progress(self._protocol, uuid.uuid4().hex if token is None else token, title, message)
        self._by_run[run_id] = progress
        self._runs[progress.token] = run_id
        if token is not None:
            progress.begin()
        else:
            task = asyncio.get_running_loop().create_task(self._create(progress), name=f"progress of {run_id}")
            self._creating[run_id] = task
            task.add_done_callback(lambda _: self._creating.pop(run_id, None))

    @contextmanager
    def during(self, token: Token | None, title: str, message: str) -> Iterator[Callable[[str], None]]:
        """Show a piece of work that is no run, under the token of its request; nothing without one.

        What is given says how it ended; unless it is called that is "failed", or "cancelled".
        """
        progress = None if token is None else Progress(self._protocol, token, title, message, cancellable=False)
        ends = ["failed"]
        if progress is not None:
            progress.begin()
        try:
            yield ends.append
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise
        finally:
            if progress is not None:
                progress.end(ends[-1])

    def report(self, run_id: str, message: str) -> None:
        """Show what a run does."""
        progress = self._by_run.get(run_id)
        if progress is not None:
            progress.report(message)

    def close(self, run_id: str, message: str) -> None:
        """The run has ended."""
        if (creating := self._creating.get(run_id)) is not None:
            creating.cancel()
        progress = self._by_run.pop(run_id, None)
        if progress is not None:
            self._runs.pop(progress.token, None)
            progress.end(message)

    def cancelled(self, token: Token) -> None:
        """A person pressed cancel."""
        run_id = self._runs.get(token)
        if run_id is not None:
            self._cancel(run_id)

    async def _create(self, progress: Progress) -> None:
        try:
            await self._protocol.ask("window/workDoneProgress/create", {"token": progress.token}, _CREATE_S)
        except (RequestFault, TimeoutError) as error:
            logger.info("the client shows no progress: %s", error)
        else:
            progress.begin()
