"""Findings that cannot be reported are a fault of the offline review, never a clean result."""

from __future__ import annotations

from pathlib import Path

import pytest

from outpost_lsp import (
    Agent,
    Harness,
    OfflineModelProvider,
    OutpostError,
    PermissionRule,
    Permissions,
    file_tools,
    finding_tools,
    git_tools,
    review,
)
from outpost_lsp.storage.layout import Layout
from tests.harness.stage import make_repository


async def test_a_review_that_may_not_report_fails_and_says_why(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "repo", {"app.py": "x = 1\n"})
    (repository / "app.py").write_text("print(nothing_of_this_name)\n")
    forbidden = Permissions([PermissionRule("deny", tools=["report_finding"], reason="no reports today")])
    with pytest.raises(OutpostError, match="no reports today") as caught:
        await review(
            repository,
            agent=lambda scope: Agent(
                "offline",
                Harness(
                    OfflineModelProvider(),
                    tools=[file_tools(), git_tools(), finding_tools(scope)],
                    permissions=forbidden,
                ),
            ),
            layout=Layout(tmp_path / "state", tmp_path / "cache"),
        )
    assert caught.value.code == "process"
