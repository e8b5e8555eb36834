"""Commands that an external agent runs through the product, where it may (ACP terminals).

The invariant: every command passed the permissions before it started, runs in the sandbox like a shell tool's, and has
ended when the turn has. Called by the client side of the protocol.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from outpost_lsp.domain.sandbox import Channel, Command, CommandResult, Lease
from outpost_lsp.errors import OutpostError

_KEPT: Final = 262_144
_MOST: Final = 32


@dataclass(slots=True)
class Terminal:
    """One command: what it wrote, cut at the beginning, and how it ended."""

    limit: int
    running: asyncio.Task[CommandResult] | None = None
    truncated: bool = False
    fault: str = ""
    _pieces: list[str] = field(default_factory=list)

    @property
    def output(self) -> str:
        """What is kept of the output."""
        text = "".join(self._pieces)
        if len(text) > self.limit:
            self.truncated = True
            text = text[len(text) - self.limit :]
            self._pieces[:] = [text]
        return text + self.fault

    @property
    def status(self) -> int | None:
        """The exit status, `None` while it runs; 137 when it was killed."""
        running = self.running
        if running is None or not running.done():
            return None
        if running.cancelled() or running.exception() is not None:
            return 137
        return running.result().status

    def take(self, _channel: Channel, text: str) -> None:
        """Keep a piece of output."""
        self._pieces.append(text)
        if len(self._pieces) > 1_024:
            _ = self.output


class Terminals:
    """The commands of one agent."""

    def __init__(self, lease: Lease, touch: Callable[[], None]) -> None:
        self._lease = lease
        self._touch = touch
        self._terminals: dict[str, Terminal] = {}

    def start(
        self,
        command: str,
        arguments: list[str],
        *,
        directory: str | None,
        variables: Mapping[str, str],
        limit: int | None,
    ) -> str:
        """Start a command and give its terminal's id."""
        if len(self._terminals) >= _MOST:
            raise OutpostError("limit", f"there are {_MOST} terminals already; release one first")
        terminal = Terminal(min(_KEPT if limit is None else limit, _KEPT))

        def observe(channel: Channel, text: str) -> None:
            self._touch()
            terminal.take(channel, text)

        asked = Command(
            executable=command,
            arguments=arguments,
            directory=directory,
            variables=variables,
            deadline_s=86_400,
            retain=0,
            observe=observe,
        )
        terminal.running = asyncio.create_task(self._run(terminal, asked))
        name = uuid.uuid4().hex
        self._terminals[name] = terminal
        return name

    def terminal(self, name: str) -> Terminal:
        """The terminal of an id."""
        found = self._terminals.get(name)
        if found is None:
            raise OutpostError("configuration", f"there is no terminal {name}")
        return found

    async def wait(self, name: str) -> int:
        """The exit status, once there is one."""
        terminal = self.terminal(name)
        assert terminal.running is not None
        await asyncio.wait((terminal.running,))
        return terminal.status or 0

    async def kill(self, name: str) -> None:
        """End the command; its output stays."""
        terminal = self.terminal(name)
        assert terminal.running is not None
        terminal.running.cancel()
        await asyncio.wait((terminal.running,))

    async def release(self, name: str) -> None:
        """End the command and forget it."""
        await self.kill(name)
        del self._terminals[name]

    async def close(self) -> None:
        """End all commands."""
        for name in tuple(self._terminals):
            await self.release(name)

    async def _run(self, terminal: Terminal, command: Command) -> CommandResult:
        try:
            return await self._lease.invoke(command)
        except OutpostError as error:
            terminal.fault = error.message
            return CommandResult(127, "", error.message)
