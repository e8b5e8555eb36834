"""One running external agent: its process, its connection, its session (Agent Client Protocol).

The invariant: the process runs in the sandbox and has ended, with all it started, when `close` returns; every way in
which it can fail is one fault that names the agent. The only module, with `acp_client.py`, that speaks the protocol,
through the official package; `cli_turn.py` imports it when a turn begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, TypeVar

import acp
import anyio
from acp import schema
from acp.client.connection import ClientSideConnection
from anyio import to_thread
from pydantic import ValidationError

from outpost_lsp import __version__
from outpost_lsp.dispatches.acp_client import Client
from outpost_lsp.dispatches.acp_terminals import Terminals
from outpost_lsp.dispatches.cli_agent import CliAgent
from outpost_lsp.domain.sandbox import Channel, Command, Lease, LiveProcess
from outpost_lsp.domain.wording import ended
from outpost_lsp.errors import OutpostError, configuration

_log = logging.getLogger(__name__)

MAX_MESSAGE: Final = 8 * 1024 * 1024
_STDERR_KEPT: Final = 4_096
_LARGE_LINE: Final = 128 * 1024
_DEATH_S: Final = 2.0
_GRACE_S: Final = 2.0
_AUTH_REQUIRED: Final = -32_000
_METHOD_NOT_FOUND: Final = -32_601
_QUOTA: Final = re.compile(r"\b429\b|rate.?limit|quota|usage limit|too many requests", re.IGNORECASE)
_UNAVAILABLE: Final = re.compile(r"\b(?:408|50[0234]|529)\b|overloaded|unavailable|timed? ?out", re.IGNORECASE)
Result = TypeVar("Result")


class AcpSession:
    """An agent that was started for the turns of one dispatch."""

    def __init__(
        self,
        agent: CliAgent,
        process: LiveProcess,
        lease: Lease,
        *,
        failed: Callable[[OutpostError], None],
        touch: Callable[[], None],
    ) -> None:
        self.id = ""
        self.notes: list[str] = []
        self._agent = agent
        self._process = process
        self._lease = lease
        self._failed = failed
        self._terminals = Terminals(lease, touch) if agent.shell else None
        self.client = Client(lease, self._terminals, failed)
        # It has no elicitations: no capability for them is claimed, and they are refused by what is not there.
        answering: Any = self.client
        self._connection = ClientSideConnection(answering, _Pipe(process, self._oversized))
        self._overflow: OutpostError | None = None

    @classmethod
    async def open(
        cls,
        agent: CliAgent,
        lease: Lease,
        *,
        home: Path | None,
        resumed: str | None,
        fork: bool,
        failed: Callable[[OutpostError], None],
        touch: Callable[[], None],
        on_stderr: Callable[[Channel, str], None],
    ) -> AcpSession:
        """Start the agent and begin, or take up, a session. `home` is where it keeps sessions; else the sandbox's."""
        process = await _started(agent, lease, home, on_stderr)
        session = cls(agent, process, lease, failed=failed, touch=touch)
        try:
            async with asyncio.timeout(agent.startup_timeout_s):
                await session._begin(resumed, fork=fork)
        except TimeoutError as error:
            await session.close()
            limit_s = agent.startup_timeout_s
            details = {"unavailable": "it did not start in time"}
            message = f"The agent {agent.name} did not start within {limit_s:g} s. {_how_to_check(agent)}"
            raise OutpostError("timeout", message, details) from error
        except BaseException:
            with anyio.CancelScope(shield=True):
                await session.close()
            raise
        return session

    async def prompt(self, text: str) -> schema.PromptResponse:
        """Send a prompt and give what ended the agent's work on it."""
        return await self._asked(self._connection.prompt(self.id, [acp.text_block(text)]))

    async def cancel(self) -> None:
        """Ask the agent to stop; it still answers the prompt."""
        with contextlib.suppress(ConnectionError, OutpostError):
            await self._connection.cancel(self.id)

    async def close(self) -> None:
        """End the agent and all that it runs here."""
        self.client.end()
        with anyio.CancelScope(shield=True):
            if self._terminals is not None:
                await self._terminals.close()
            await self._connection.close()
            await self._process.end(_GRACE_S)

    async def _begin(self, resumed: str | None, *, fork: bool) -> None:
        capabilities = schema.ClientCapabilities(
            fs=schema.FileSystemCapabilities(read_text_file=True, write_text_file=True),
            terminal=self._terminals is not None,
        )
        try:
            answer = await self._asked(
                self._connection.initialize(
                    protocol_version=acp.PROTOCOL_VERSION,
                    client_capabilities=capabilities,
                    client_info=schema.Implementation(name="outpost", version=__version__),
                )
            )
        except OutpostError as error:
            raise self._no_agent(error) from error
        if answer.protocol_version != acp.PROTOCOL_VERSION:
            spoken = answer.protocol_version
            raise OutpostError(
                "response", f"The agent {self._agent.name} speaks version {spoken} of the protocol, not 1."
            )
        able = answer.agent_capabilities or schema.AgentCapabilities()
        root = str(self._lease.root)
        if resumed is None:
            begun: Any = await self._asked(self._connection.new_session(cwd=root))
            self.id = begun.session_id
        elif fork:
            if able.session_capabilities is None or able.session_capabilities.fork is None:
                raise configuration(f"dispatch: continuation: the agent {self._agent.name} cannot fork a conversation")
            begun = await self._asked(self._connection.fork_session(session_id=resumed, cwd=root))
            self.id = begun.session_id
        else:
            if not able.load_session:
                raise configuration(f"dispatch: continuation: the agent {self._agent.name} cannot go on with one")
            self.id = resumed
            begun = await self._asked(self._connection.load_session(session_id=resumed, cwd=root))
        await self._choose_model(begun.config_options or ())

    async def _choose_model(self, options: Any) -> None:
        model = self._agent.model
        if model is None:
            return
        for option in options:
            if option.type != "select" or option.category != "model":
                continue
            if model.name in _values(option.options):
                if option.current_value != model.name:
                    await self._asked(self._connection.set_config_option(option.id, self.id, model.name))
                return
            raise configuration(
                f"the agent {self._agent.name} has no model {model.name}; it has "
                f"{', '.join(sorted(_values(option.options)))}"
            )
        self.notes.append(f"the agent chooses its model itself; {model.name} only names it")

    # Faults

    def _oversized(self, error: OutpostError) -> None:
        self._overflow = OutpostError(
            "response",
            f"The agent {self._agent.name} sent a message of more than {MAX_MESSAGE} bytes.",
            {"stopReason": "oversized-event", "limit": MAX_MESSAGE},
            error,
        )
        self._failed(self._overflow)

    async def _asked(self, request: Coroutine[Any, Any, Result]) -> Result:
        try:
            return await request
        except acp.RequestError as error:
            raise self._refused(error) from error
        except ConnectionError as error:
            raise (self._overflow or await self._gone()) from error
        except ValidationError as error:
            raise OutpostError(
                "response", f"The agent {self._agent.name} gave an answer that the protocol does not know."
            ) from error

    def _no_agent(self, error: OutpostError) -> OutpostError:
        """What a failed first message means: most programs that fail there are no agents at all."""
        if error is self._overflow:
            return error
        if error.details.get("code") == _METHOD_NOT_FOUND or error.code == "response":
            # A program that gives back what it reads, such as `cat`, sends our own refusal of our own question.
            message = f"The agent {self._agent.name}: {self._agent.command[0]} did not understand the first message."
            return OutpostError("response", f"{message} {_how_to_check(self._agent)}", error.details)
        if error.code != "process":
            return error
        return OutpostError(error.code, f"{ended(error.message.rstrip())} {_how_to_check(self._agent)}", error.details)

    async def _gone(self) -> OutpostError:
        status = await self._process.status(_DEATH_S)
        said = self._process.stderr[-_STDERR_KEPT:].strip()
        end = "closed its output" if status is None else f"ended with status {status}"
        details = {"unavailable": f"the agent {end}", "stderr": said} | ({} if status is None else {"status": status})
        message = f"The agent {self._agent.name} {end} before it answered" + (f": {said}" if said else ".")
        return OutpostError("process", message, details)

    def _refused(self, error: acp.RequestError) -> OutpostError:
        said = _said(error)
        message = f"The agent {self._agent.name}: {said}"
        if error.code == _AUTH_REQUIRED and "auth" in str(error).lower():
            return OutpostError(
                "provider",
                f"{ended(message)} Give it its key in a variable of the sandbox.",
                {"code": error.code},
            )
        if _QUOTA.search(said):
            return OutpostError("quota", message, {"code": error.code})
        details: dict[str, Any] = {"code": error.code}
        if _UNAVAILABLE.search(said):
            details["unavailable"] = said
        return OutpostError("provider", message, details)


class _Pipe:
    """The messages of the protocol over the process's pipes, a line each."""

    def __init__(self, process: LiveProcess, oversized: Callable[[OutpostError], None]) -> None:
        self._process = process
        self._oversized = oversized

    async def send(self, message: dict[str, Any]) -> None:
        try:
            await self._process.send(json.dumps(message).encode() + b"\n")
        except OutpostError as error:
            raise ConnectionError(error.message) from error

    async def receive(self) -> dict[str, Any] | None:
        while True:
            # One message is dealt with before the next is read, so that updates keep their order.
            await asyncio.sleep(0)
            try:
                line = await self._process.line(MAX_MESSAGE)
            except OutpostError as error:
                self._oversized(error)
                return None
            if line is None:
                return None
            message = await to_thread.run_sync(_parsed, line) if len(line) > _LARGE_LINE else _parsed(line)
            if message is not None:
                return message
            _log.debug("an external agent wrote a line that is no message")

    async def close(self) -> None:
        """The process is ended by whoever started it."""


async def _started(
    agent: CliAgent, lease: Lease, home: Path | None, on_stderr: Callable[[Channel, str], None]
) -> LiveProcess:
    variables = {}
    if home is not None:
        await to_thread.run_sync(lambda: home.mkdir(mode=0o700, parents=True, exist_ok=True))
        variables["HOME"] = str(home)
    for name in agent.variables:
        value = lease.variable(name)
        if value is None:
            raise configuration(f"the agent {agent.name} needs the variable {name}, which the sandbox does not have")
        variables[name] = value
    program, *arguments = agent.command
    if not lease.live_input:
        raise configuration(f"the agent {agent.name} needs a sandbox with live input, which this one has not")
    try:
        return await lease.spawn(
            Command(
                executable=program,
                arguments=arguments,
                variables={**variables, **agent.environment},
                retain=_STDERR_KEPT,
                observe=on_stderr,
            )
        )
    except OutpostError as error:
        if error.code != "process":
            raise
        details = {**error.details, "unavailable": "it cannot be started", "status": 127}
        raise OutpostError("process", f"The agent {agent.name}: {error.message}", details) from error


def _how_to_check(agent: CliAgent) -> str:
    program = agent.command[0]
    asked = '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{}}}'
    return (
        f"`command` must start a program that speaks the Agent Client Protocol (ACP) over standard input and output; "
        f"does {program} do that, with these arguments? Many agents need one, such as --acp. To check, start the command "
        f"in a terminal and give it this line; an agent answers with a line that holds protocolVersion: {asked}"
    )


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def _said(error: acp.RequestError) -> str:
    said = str(error)
    data = error.data
    more = data.get("details") or data.get("message") if isinstance(data, dict) else data
    return f"{said}: {more[:2_000]}" if isinstance(more, str) and more.strip() else said


def _values(options: Any) -> set[str]:
    found: set[str] = set()
    for option in options:
        found |= _values(option.options) if hasattr(option, "options") else {option.value}
    return found
