"""What travels when a run fails and saving what it left fails too (FAULT-05, DISP-07)."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from outpost_lsp import Agent, Harness, OutpostError, ToolContext, quota_fault, read_journal, recovery_details, tool
from outpost_lsp.errors import leading_failure
from outpost_lsp.service.handle import run_error
from outpost_lsp.storage.conversations import ConversationStore
from tests.harness.stage import Stage, calls, provider, says

DOWN = OutpostError("quota", "the service has had enough", {"resetAt": "2030-01-01T00:00:00Z"})


class Unwilling(ConversationStore):
    """A store of an application that cannot keep anything."""

    def capture(self, id: str) -> Path:
        raise OSError("the archive took no conversation")


@tool
async def wreck(context: ToolContext) -> str:
    """Make it impossible to tell what was changed."""
    (context.sandbox.root / "new.txt").write_text("something\n")
    pointer = (context.sandbox.root / ".git").read_text()
    shutil.rmtree(pointer.removeprefix("gitdir:").strip())
    return "done"


def unwilling(stage: Stage) -> Unwilling:
    return Unwilling(stage.layout.state / "mine", stage.layout.state / "locks")


async def test_FAULT_05_both_failures_travel_the_run_s_own_first(stage: Stage) -> None:
    subject = Agent("m", Harness(provider(DOWN), conversations=unwilling(stage)))
    with pytest.raises(ExceptionGroup) as caught:
        await stage.run(subject)
    failure, saving = caught.value.exceptions
    assert failure is DOWN
    assert isinstance(saving, OSError)
    details = recovery_details(caught.value) or {}
    assert details["conversation"]
    assert details["directory"]
    assert details["capture"] == "the archive took no conversation"
    # Whoever classifies a failure looks at the first one.
    assert leading_failure(caught.value) is DOWN
    assert (quota_fault(caught.value) or DOWN).message == DOWN.message
    (journal,) = stage.layout.state.rglob("journals/*.jsonl")
    last = list(read_journal(journal))[-1].event
    assert last["error"] == {"message": DOWN.message, "code": "quota"}


async def test_FAULT_05_changes_that_could_not_be_collected_are_such_a_failure_too(stage: Stage) -> None:
    subject = Agent("m", Harness(provider(calls(("wreck", {})), DOWN), tools=[wreck]))
    with pytest.raises(ExceptionGroup) as caught:
        await stage.run(subject)
    assert caught.value.exceptions[0] is DOWN
    assert isinstance(caught.value.exceptions[1], OutpostError)
    # The worktree stays, since nobody can tell what is in it (REL-20).
    directory = Path((recovery_details(caught.value) or {})["directory"])
    assert (directory / "new.txt").read_text() == "something\n"


async def test_a_run_that_answered_only_notes_that_its_changes_were_not_collected(stage: Stage) -> None:
    result = await stage.run(Agent("m", Harness(provider(calls(("wreck", {})), says("done")), tools=[wreck])))
    assert (result.text, result.changes) == ("done", None)
    assert [note for note in result.notes if "could not be collected" in note]
    assert result.retained_directory


async def test_CONV_17_a_capture_that_fails_fails_a_run_that_answered(stage: Stage) -> None:
    subject = Agent("m", Harness(provider(says("done")), conversations=unwilling(stage)))
    with pytest.raises(OSError, match="the archive took no conversation"):
        await stage.run(subject)


async def test_PY_04_a_cancellation_stays_one_and_says_what_was_not_saved(stage: Stage) -> None:
    reached = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait for ever."""
        reached.set()
        await asyncio.Event().wait()
        return ""

    subject = Agent("m", Harness(provider(calls(("wait", {}))), tools=[wait], conversations=unwilling(stage)))
    task = asyncio.ensure_future(stage.run(subject))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert (recovery_details(caught.value) or {})["capture"] == "the archive took no conversation"


def test_the_record_of_a_run_keeps_the_code_of_the_first_failure_and_tells_the_others() -> None:
    group = ExceptionGroup("both", [DOWN, OSError(28, "No space left on device", "/state")])
    error = run_error(group)
    assert error.code == "quota"
    assert error.message.startswith("the service has had enough (what it left could not all be saved: /state")
    assert error.details == {"resetAt": "2030-01-01T00:00:00Z"}
