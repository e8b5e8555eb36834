"""What a person is told when a run has ended (U-15)."""

from __future__ import annotations

import pytest

from outpost_lsp.domain.run import Disposition, Run, RunStatus
from outpost_lsp.lsp.outcome import outcome


@pytest.mark.parametrize(
    ("status", "title", "said"),
    [
        ("succeeded", "coordinator: Have it looked at.", "coordinator: Have it looked at: done"),
        ("cancelled", "writer: Wait for me", "writer: Wait for me: cancelled"),
        ("failed", "writer: Try.", "writer: Try failed: no reason is known"),
        ("interrupted", "writer: Try…", "writer: Try…: interrupted; the conversation can be continued"),
    ],
)
def test_U_15_an_end_is_told_in_one_sentence_also_of_a_task_that_was_one(
    status: RunStatus, title: str, said: str
) -> None:
    at = "2026-01-01T00:00:00Z"
    run = Run(id="r", kind="dispatch", agent="writer", title=title, status=status, workspace="/w", started_at=at)
    assert outcome(run)[1] == said


@pytest.mark.parametrize(
    ("disposition", "said"), [("none", "Fix it: nothing was changed"), ("applied", "Fix it: done")]
)
def test_a_fix_that_changed_nothing_is_not_told_as_done(disposition: Disposition, said: str) -> None:
    run = Run(
        id="r",
        kind="fix",
        agent="fixer",
        title="Fix it",
        status="succeeded",
        workspace="/w",
        started_at="2026-01-01T00:00:00Z",
        disposition=disposition,
    )
    assert outcome(run)[1] == said
