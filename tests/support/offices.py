"""An `Outpost` over real repositories, with its news recorded."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from outpost_lsp.service.outpost import Outpost
from outpost_lsp.service.signals import RunChanged, Signal
from outpost_lsp.service.workspace import Workspace
from outpost_lsp.storage.layout import Layout
from tests.support.repositories import RealRepository, make_repository

PATIENCE_S = 60.0


class Office:
    """A service, and everything it told."""

    def __init__(self, outpost: Outpost, environment: dict[str, str] | None = None) -> None:
        self.outpost = outpost
        self.environment = environment if environment is not None else {}
        self.signals: list[Signal] = []
        outpost.subscribe(self.signals.append)

    async def workspace(self, repository: RealRepository, settings: Mapping[str, Any] | None = None) -> Workspace:
        workspace = self.outpost.add_workspace(repository.path, client_settings=settings, trusted=True)
        await workspace.ready()
        return workspace

    def statuses(self, run_id: str) -> list[str]:
        """The statuses a run went through, each once in a row."""
        found: list[str] = []
        for signal in self.signals:
            if isinstance(signal, RunChanged) and signal.run.id == run_id and found[-1:] != [signal.run.status]:
                found.append(signal.run.status)
        return found


Open = Callable[[], contextlib.AbstractAsyncContextManager[Office]]


@pytest.fixture
def folders(tmp_path: Path) -> Layout:
    return Layout(state=tmp_path / "state", cache=tmp_path / "cache")


@pytest.fixture
def environment(private_home: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(private_home), "OUTPOST_CONFIG": os.devnull}


@pytest.fixture
def open_office(folders: Layout, environment: dict[str, str]) -> Open:
    """Opens a service; more than once, to see what a restart finds."""

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[Office]:
        async with Outpost(folders, environment) as outpost:
            yield Office(outpost, environment)

    return opened


@pytest.fixture
async def office(open_office: Open) -> AsyncIterator[Office]:
    async with open_office() as opened:
        yield opened


@pytest.fixture
def project(tmp_path: Path) -> RealRepository:
    """A repository with a clean commit and one slip that is not committed."""
    repository = make_repository(tmp_path / "project", {"a.py": "import math\n\nprint(math.pi)\n", "b.py": "x = 1\n"})
    repository.write("a.py", "\nprint(math.pi)\n")
    return repository


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    with anyio.fail_after(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)
