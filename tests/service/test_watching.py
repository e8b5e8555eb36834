"""What a server follows by itself, without being told by the editor."""

from __future__ import annotations

import asyncio

import pytest

from outpost_lsp.domain.run import ReviewScope
from outpost_lsp.service import workspace as workspaces
from outpost_lsp.service.signals import FindingsChanged
from tests.service.conftest import Office
from tests.support.repositories import RealRepository


async def test_a_branch_switched_outside_the_editor_is_followed_without_being_told_of_files(
    office: Office, project: RealRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspaces, "_WATCH_S", 0.05)
    project.write("b.py", "print(undefined_name)\n")
    workspace = await office.workspace(project)
    handle = await office.outpost.review(workspace, ReviewScope(scope="uncommitted"), agent="reviewer")
    await handle.wait()

    async def told(text: str) -> list[int]:
        """The lines of the findings of the file, once its new text has been told of; asking would look at the disk."""
        office.signals.clear()
        project.write("b.py", text)
        async with asyncio.timeout(30):
            while not any(isinstance(one, FindingsChanged) and one.path == "b.py" for one in office.signals):
                await asyncio.sleep(0.01)
        return [one.start_line for one in workspace.standing("b.py")]

    assert await told("x = 1\nx = 2\nprint(undefined_name)\n") == [2]
    assert await told("y = 3\n") == []
    assert await told("print(undefined_name)\n") == [0]
