"""The side of the Agent Client Protocol that answers an external agent: its questions, and its access to files.

The invariant: an agent gets through here nothing that the permissions in force deny, no file outside the worktree
(SEC-07), and no command unless it may have a shell. Whatever it does wrong is an error for it, never for the product.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import acp
from acp import schema

from outpost_lsp.dispatches.acp_terminals import Terminals
from outpost_lsp.dispatches.acp_updates import AgentCall, Updates, relative
from outpost_lsp.domain.event import Event, FileChangeEvent, ToolDeniedEvent
from outpost_lsp.domain.permission import Resources
from outpost_lsp.domain.sandbox import Lease
from outpost_lsp.errors import OutpostError
from outpost_lsp.harness.gate import Gate, inside

_MAX_FILE: Final = 16 * 1024 * 1024
_READING: Final = frozenset({"read", "search", "think", "fetch"})
_DENIED: Final = -32_001
Result = TypeVar("Result")


class Client:
    """What the protocol's own client calls. One for each agent process; `begin` says whose prompt is being answered."""

    def __init__(self, lease: Lease, terminals: Terminals | None, failed: Callable[[OutpostError], None]) -> None:
        self._lease = lease
        self._terminals = terminals
        self._failed = failed
        self._updates: Updates | None = None
        self._gate: Gate | None = None
        self._emit: Callable[[Event], None] = lambda _event: None
        self._session = ""
        self._reads_only = False

    def begin(
        self, session: str, updates: Updates, gate: Gate, emit: Callable[[Event], None], *, reads_only: bool
    ) -> None:
        """A prompt is about to be sent."""
        self._session, self._updates, self._gate, self._emit = session, updates, gate, emit
        self._reads_only = reads_only

    def end(self) -> None:
        """The prompt has ended: what still comes is nobody's, and nothing is allowed any more."""
        self._updates = self._gate = None

    def on_connect(self, conn: Any) -> None:
        """Nothing is asked of the agent from here."""

    async def session_update(self, session_id: str, update: Any, **_more: Any) -> None:
        # No wait before the update is taken, so that updates keep their order.
        if self._updates is None or session_id != self._session:
            return
        try:
            self._updates.take(update)
        except OutpostError as error:
            self._failed(error)

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **_more: Any
    ) -> schema.RequestPermissionResponse:
        if self._updates is None or session_id != self._session:
            return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
        call = self._updates.call(tool_call.tool_call_id)
        call.learn(tool_call, self._lease)
        denial = await self._denial(call.kind, call.shown_input, call.resources)
        if denial is not None:
            self._tell_denied(call, denial)
        # A yes is for this once: what an agent remembers for itself would be asked of nobody again (SEC-20).
        wanted = ("allow_once",) if denial is None else ("reject_once", "reject_always")
        chosen = next((option for kind in wanted for option in options if option.kind == kind), None)
        if chosen is None:
            return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
        outcome = schema.AllowedOutcome(outcome="selected", option_id=chosen.option_id)
        return schema.RequestPermissionResponse(outcome=outcome)

    # Files

    async def read_text_file(
        self, session_id: str, path: str, line: int | None = None, limit: int | None = None, **_more: Any
    ) -> schema.ReadTextFileResponse:
        await self._need(session_id, "read", {"path": path}, Resources((path,)))
        data = await self._answered(self._lease.files.read(path, limit=_MAX_FILE))
        text = data.decode("utf-8", "replace")
        if line is not None or limit is not None:
            lines = text.splitlines(keepends=True)
            first = max(line or 1, 1) - 1
            text = "".join(lines[first:] if limit is None else lines[first : first + limit])
        return schema.ReadTextFileResponse(content=text)

    async def write_text_file(
        self, session_id: str, path: str, content: str, **_more: Any
    ) -> schema.WriteTextFileResponse:
        await self._need(session_id, "edit", {"path": path, "characters": len(content)}, Resources((path,)))
        existed = await self._answered(self._lease.files.kind(path)) is not None
        await self._answered(self._lease.files.write(path, content.encode("utf-8", "replace")))
        change = {"path": relative(self._lease, path), "kind": "modified" if existed else "added"}
        self._out(FileChangeEvent(changes=(change,)))
        return schema.WriteTextFileResponse()

    # Commands

    async def create_terminal(
        self,
        session_id: str,
        command: str,
        args: list[str] | None = None,
        env: list[Any] | None = None,
        cwd: str | None = None,
        output_byte_limit: int | None = None,
        **_more: Any,
    ) -> schema.CreateTerminalResponse:
        terminals = self._shell(session_id)
        whole = shlex.join([command, *(args or ())]) if args else command
        await self._need(session_id, "execute", {"command": whole}, Resources((), whole))
        if not args and any(character.isspace() for character in command):
            # Agents write whole command lines here; a program's name holds no blank.
            command, args = "sh", ["-c", command]
        try:
            name = terminals.start(
                command,
                list(args or ()),
                directory=None if cwd is None else self._lease.files.normalise(cwd),
                variables={variable.name: variable.value for variable in env or ()},
                limit=output_byte_limit,
            )
        except OutpostError as error:
            raise acp.RequestError(-32_602, error.message) from error
        return schema.CreateTerminalResponse(terminal_id=name)

    async def terminal_output(self, session_id: str, terminal_id: str, **_more: Any) -> schema.TerminalOutputResponse:
        terminal = await self._answered(_now(lambda: self._shell(session_id).terminal(terminal_id)))
        output, status = terminal.output, terminal.status
        ended = None if status is None else schema.TerminalExitStatus(exit_code=status)
        return schema.TerminalOutputResponse(output=output, truncated=terminal.truncated, exit_status=ended)

    async def wait_for_terminal_exit(
        self, session_id: str, terminal_id: str, **_more: Any
    ) -> schema.WaitForTerminalExitResponse:
        status = await self._answered(self._shell(session_id).wait(terminal_id))
        return schema.WaitForTerminalExitResponse(exit_code=status)

    async def kill_terminal(self, session_id: str, terminal_id: str, **_more: Any) -> schema.KillTerminalResponse:
        await self._answered(self._shell(session_id).kill(terminal_id))
        return schema.KillTerminalResponse()

    async def release_terminal(self, session_id: str, terminal_id: str, **_more: Any) -> schema.ReleaseTerminalResponse:
        await self._answered(self._shell(session_id).release(terminal_id))
        return schema.ReleaseTerminalResponse()

    # What is not for agents

    async def ext_method(self, method: str, _params: dict[str, Any]) -> dict[str, Any]:
        raise acp.RequestError.method_not_found(method)

    async def ext_notification(self, _method: str, _params: dict[str, Any]) -> None:
        """Extensions tell us nothing."""

    # Permissions

    async def _denial(self, tool: str, shown: Any, resources: Resources) -> str | None:
        gate = self._gate
        if gate is None:
            return "the turn is over"
        if self._reads_only and tool not in _READING:
            return "an answer is only put into its form now"
        return await gate.denial(tool, shown, inside(self._lease, resources), set(), None)

    async def _need(self, session_id: str, tool: str, shown: Any, resources: Resources) -> None:
        denial = await self._denial(tool, shown, resources) if session_id == self._session else "another session"
        if denial is not None:
            raise acp.RequestError(_DENIED, f"Denied: {denial}")

    def _shell(self, session_id: str) -> Terminals:
        if self._terminals is None or session_id != self._session:
            raise acp.RequestError(_DENIED, "Denied: this agent has no shell here")
        return self._terminals

    def _tell_denied(self, call: AgentCall, reason: str) -> None:
        self._out(ToolDeniedEvent(call_id=call.id, name=call.kind, reason=reason))

    def _out(self, event: Event) -> None:
        try:
            self._emit(event)
        except OutpostError as error:
            self._failed(error)

    async def _answered(self, asked: Coroutine[Any, Any, Result]) -> Result:
        """What was asked for; a fault becomes the error that the agent is told."""
        try:
            return await asked
        except OutpostError as error:
            if error.details.get("reason") == "missing":
                raise acp.RequestError(-32_002, error.message) from error
            raise acp.RequestError(-32_602, error.message) from error


async def _now(give: Callable[[], Result]) -> Result:
    return give()
