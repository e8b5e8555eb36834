"""A worktree that tools act in: a real repository behind a real lease."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp.domain.event import Event, FindingEvent
from outpost_lsp.domain.model import ModelSpec
from outpost_lsp.domain.tool import Tool, ToolContext, ToolOutput, Toolset, flatten
from outpost_lsp.sandbox.lease import HostLease
from outpost_lsp.worktrees.git import find_repository, run_git
from tests.real_repository import RealRepository


class Workplace:
    """Calls tools as the loop does: input validated, a context for each call, plain texts taken as outputs."""

    def __init__(self, repository: RealRepository, lease: HostLease) -> None:
        self.repository = repository
        self.lease = lease
        self.observed: list[Event] = []
        self.reported: list[FindingEvent] = []

    def write(self, path: str, content: str | bytes) -> Path:
        return self.repository.write(path, content)

    def read(self, path: str) -> bytes:
        return (self.repository.top / path).read_bytes()

    async def call(self, tools: Toolset, name: str, **fields: Any) -> ToolOutput:
        tool = by_name(tools, name)
        context = ToolContext(
            sandbox=self.lease,
            call_id="call",
            model=ModelSpec("model"),
            observe=self.observed.append,
            report=self.reported.append,
            route="deep",
        )
        output = await tool.execute(tool.validated(fields), context)
        return output if isinstance(output, ToolOutput) else ToolOutput(output)


def by_name(tools: Toolset, name: str) -> Tool:
    return next(tool for tool in flatten([tools]) if tool.name == name)


@pytest.fixture
async def workplace(tmp_path: Path) -> Workplace:
    repository = RealRepository(tmp_path / "repository")
    home = tmp_path / "home"
    home.mkdir()
    found = await find_repository(repository.top)
    environment = {"PATH": os.environ["PATH"]}
    return Workplace(repository, HostLease(found.top, home, functools.partial(run_git, found), environment))
