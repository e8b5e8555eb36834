"""What a server follows by itself, without being told by the editor."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta, tzinfo

import pytest

from outpost_lsp.domain.run import ReviewScope
from outpost_lsp.service import dismissing, watching
from outpost_lsp.service.signals import FindingsChanged
from outpost_lsp.storage.findings import FindingStore
from tests.service.conftest import Office
from tests.support.repositories import RealRepository


async def test_a_branch_switched_outside_the_editor_is_followed_without_being_told_of_files(
    office: Office, project: RealRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_WATCH_S", 0.05)
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


async def test_what_another_process_dismisses_and_a_date_that_passes_are_followed_sooner_than_files(
    office: Office, project: RealRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_WATCH_S", 1_000_000.0)
    monkeypatch.setattr(watching, "_DISMISSALS_S", 0.05)
    project.write("b.py", "print(undefined_name)\n")
    workspace = await office.workspace(project)
    await (await office.outpost.review(workspace, ReviewScope(scope="uncommitted"), agent="reviewer")).wait()
    [finding] = workspace.board.listing("b.py")
    elsewhere = FindingStore(workspace.layout.findings_of(workspace.top)).dismissals

    async def told() -> list[str]:
        async with asyncio.timeout(30):
            while not any(isinstance(one, FindingsChanged) and one.path == "b.py" for one in office.signals):
                await asyncio.sleep(0.01)
        office.signals.clear()
        return [one.status for one in workspace.board.listing("b.py")]

    office.signals.clear()
    elsewhere.dismiss(finding, reason="as intended")
    assert await told() == ["dismissed"]
    elsewhere.restore(finding)
    assert await told() == ["open"]
    until = datetime.now(UTC) + timedelta(days=1)
    elsewhere.dismiss(finding, until=until.isoformat())
    assert await told() == ["dismissed"]

    class InTwoDays(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> InTwoDays:
            return cls.fromtimestamp(time.time() + 2 * 24 * 60 * 60, tz)

    monkeypatch.setattr(dismissing, "datetime", InTwoDays)
    assert await told() == ["open"]
