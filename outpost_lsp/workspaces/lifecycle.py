"""Running lifecycle hooks: on the host one after another, in the sandbox all at once (LIFE rules).

The invariant: when a call here returns or raises, no hook of it runs any more, and the first failure is what is raised.
Called when a workspace or a sandbox opens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from outpost_lsp.domain.sandbox import Command, Lease
from outpost_lsp.sandbox.process import run_process
from outpost_lsp.workspaces.policy import LifecycleHooks
from outpost_lsp.workspaces.reading import process_fault
from outpost_lsp.worktrees.git import Repository
from outpost_lsp.worktrees.identity import commit_identity


async def workspace_ready(hooks: LifecycleHooks, repository: Repository, directory: Path) -> None:
    """Run the hooks of a workspace that has just been opened (LIFE-01)."""
    await _on_host(hooks.workspace_ready, "workspace_ready", repository, directory)


async def sandbox_started(hooks: LifecycleHooks, repository: Repository, directory: Path, lease: Lease) -> None:
    """Run both groups of a sandbox that has just started, at the same time; one failure ends all others (LIFE-02)."""
    groups = [_in_sandbox(command, lease) for command in hooks.sandbox_ready]
    if hooks.host_ready:
        groups.append(_on_host(hooks.host_ready, "host_ready", repository, directory))
    await _together(groups)


async def _on_host(commands: Sequence[Command], phase: str, repository: Repository, directory: Path) -> None:
    environment: Mapping[str, str] = {**repository.environment, **commit_identity(repository)}
    for command in commands:
        result = await run_process(
            [command.executable, *command.arguments],
            cwd=directory / (command.directory or ""),
            environment={**environment, **(command.variables or {})},
            stdin=None if command.stdin is None else command.stdin.encode("utf-8", "surrogatepass"),
            deadline_s=command.deadline_s,
            retain=command.retain,
            observe=command.observe,
        )
        if result.status != 0:
            raise process_fault(f"the {phase} hook {command.executable}", result.status, result.stdout, result.stderr)


async def _in_sandbox(command: Command, lease: Lease) -> None:
    result = await lease.invoke(command)
    if result.status != 0:
        raise process_fault(f"the sandbox_ready hook {command.executable}", result.status, result.stdout, result.stderr)


async def _together(groups: Sequence[Coroutine[Any, Any, None]]) -> None:
    tasks = [asyncio.ensure_future(group) for group in groups]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
