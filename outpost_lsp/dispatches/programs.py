"""The programs that an agent starts, so that somebody can look whether they are there."""

from __future__ import annotations

from outpost_lsp.dispatches.cli_agent import CliAgent
from outpost_lsp.dispatches.fallback import FallbackAgent
from outpost_lsp.dispatches.options import AnyAgent
from outpost_lsp.harness.agent import Agent
from outpost_lsp.harness.subagent import Subagent


def programs_of(agent: AnyAgent | None) -> tuple[str, ...]:
    """The program of an external agent and those of MCP servers, of candidates and subagents too, each once."""
    found: dict[str, None] = {}
    waiting: list[object] = [agent]
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, FallbackAgent):
            waiting += one.candidates
        elif isinstance(one, CliAgent):
            found[one.command[0]] = None
        elif isinstance(one, Agent):
            servers = (one.harness.mcp_servers or {}).values()
            found.update((server.command, None) for server in servers if server.command is not None)
            waiting += [tool.agent for tool in one.harness.tool_table.values() if isinstance(tool, Subagent)]
    return tuple(found)
