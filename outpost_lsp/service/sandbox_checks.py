"""The doctor's look into a sandbox of the workspace: a worktree made as for a run, probed, and taken away again.

Nothing that a repository or a setting names is started: set-up commands are left out, and the programs of external agents
and MCP servers are looked up, not run. Called by the doctor.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from anyio import to_thread

from outpost_lsp.config.schema import Settings
from outpost_lsp.dispatches.diagnosis import ProbeResult, ProbeStatus, diagnose_sandbox
from outpost_lsp.service.carrying import sandbox_provider
from outpost_lsp.storage.identifiers import new_run_id

if TYPE_CHECKING:
    from outpost_lsp.service.outpost import Outpost
    from outpost_lsp.service.workspace import Workspace

_STATUS: Final[Mapping[ProbeStatus, Literal["ok", "warn", "fail"]]] = {
    "pass": "ok",
    "warn": "warn",
    "fail": "fail",
    "skipped": "ok",
}


async def sandbox_checks(
    outpost: Outpost, workspace: Workspace
) -> AsyncIterator[tuple[str, Literal["ok", "warn", "fail"], str]]:
    """Name, status and detail of the worktree itself and of each probe in it (DOC-04)."""
    provider = sandbox_provider(outpost, workspace, keep="never")
    provider.furnishing = replace(provider.furnishing, setup=(), copy_ignored=(), with_include_file=False)
    async with provider.open(workspace.top, f"doctor-{new_run_id()}") as sandbox:
        programs = programs_of(workspace.settings) if workspace.is_trusted else ()
        try:
            found = await diagnose_sandbox(sandbox.lease, needed=programs, transfers=True)
        finally:
            await to_thread.run_sync(shutil.rmtree, sandbox.lease.home, True)
    yield "worktree", "ok", f"made and removed in {workspace.layout.worktrees}"
    for check in found.checks:
        yield f"sandbox: {check.name}", _STATUS[check.status], _told(check)


def programs_of(settings: Settings) -> tuple[str, ...]:
    """The programs that agents of the configuration start, each once."""
    agents = (agent.command[0] for agent in settings.agents.values() if agent.command)
    servers = (server.command for server in settings.mcp.values() if server.command)
    return tuple(dict.fromkeys((*agents, *servers)))


def _told(check: ProbeResult) -> str:
    return f"{check.message}. {check.remedy}" if check.remedy else check.message
