"""From settings to what is a program of somebody else's: MCP servers and external agents.

The invariant: nothing of this is built for a folder that is not trusted (MCP-13), nor when nobody may be reached.
Called by `build.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from outpost_lsp.config.agents import AgentSettings
from outpost_lsp.config.schema import Settings
from outpost_lsp.config.services import McpServerSettings
from outpost_lsp.dispatches.cli_agent import CliAgent
from outpost_lsp.domain.model import ModelSpec
from outpost_lsp.domain.permission import Permissions
from outpost_lsp.errors import OutpostError, configuration
from outpost_lsp.tools.mcp_server import McpServer

WhyNot = Literal["the folder is not trusted", "nothing is reached offline"]
_THEN: Final[Mapping[WhyNot, str]] = {
    "the folder is not trusted": "so the folder has to be trusted first",
    "nothing is reached offline": "which is not done offline",
}


def why_not(*, is_trusted: bool, offline: bool) -> WhyNot | None:
    """Why programs of others are not started here; `None` when they are."""
    if not is_trusted:
        return "the folder is not trusted"
    return "nothing is reached offline" if offline else None


def mcp_server(name: str, settings: McpServerSettings) -> McpServer:
    """The server under `[mcp]`."""
    tools = None if settings.tools is None else settings.tools.model_dump(exclude_none=True)
    try:
        return McpServer(
            settings.command,
            settings.arguments,
            environment=settings.environment,
            variables=settings.variables,
            url=settings.url,
            headers=settings.headers,
            bearer_token_variable=settings.bearer_token_variable,
            tools=tools,
            startup_timeout_s=settings.startup_timeout_s,
        )
    except OutpostError as error:
        raise configuration(f"mcp.{name}: {error.message}", server=name) from error


def external_agent(
    name: str,
    settings: AgentSettings,
    whole: Settings,
    permissions: Permissions | None,
    *,
    why: WhyNot | None,
    shell: bool,
) -> CliAgent:
    """The agent with a `command`; `configuration` where programs are not started."""
    assert settings.command is not None
    if why is not None:
        raise configuration(f"agent {name}: it starts a program, {_THEN[why]}", agent=name)
    model = whole.models.get(settings.model or "")
    spec = None if settings.model is None else ModelSpec(settings.model if model is None else model.name)
    return CliAgent(settings.command, spec, permissions=permissions, shell=shell)
