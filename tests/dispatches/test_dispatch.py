"""A dispatch from brief to result: validation, sandbox, order, clean-up, conversations (DISP, EXEC, CONV and BRIEF rules)."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp import (
    Agent,
    Brief,
    Continuation,
    Harness,
    Journal,
    ModelResult,
    ObservationHub,
    OutpostError,
    Tool,
    dispatch,
    read_journal,
    recovery_details,
)
from outpost_lsp.dispatches.sandboxing import WorktreeSandboxProvider
from tests.harness.stage import Stage, calls, echo, provider, says, usage

ANY: dict[str, Any] = {"type": "object"}


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


def write_tool() -> Tool:
    async def write(value: Any, context: Any) -> str:
        await context.sandbox.files.write(value["path"], value["text"].encode())
        return "written"

    return Tool("write", "Write.", ANY, write)


async def test_DISP_04_08_09_WATCH_11_the_agent_works_on_a_snapshot_and_the_users_folder_stays_as_it_is(
    stage: Stage,
) -> None:
    (stage.repository / "readme.md").write_text("unsaved work\n")
    seen: list[str] = []

    async def look(_value: Any, context: Any) -> str:
        seen.append((await context.sandbox.files.read("readme.md", limit=100)).decode())
        return "looked"

    model = provider(calls(("look", {})), calls(("write", {"path": "new.txt", "text": "agent\n"})), says("done"))
    result = await stage.run(Agent("m", Harness(model, tools=[Tool("look", "Look.", ANY, look), write_tool()])))
    assert seen == ["unsaved work\n"]
    assert not (stage.repository / "new.txt").exists()
    assert git(stage.repository, "status", "--short") == " M readme.md\n"
    assert result.changes is not None
    assert [(file.path, file.status) for file in result.changes.files] == [("new.txt", "added")]
    # What holds work stays until somebody applies or discards it.
    assert result.retained_directory is not None
    assert (result.retained_directory / "new.txt").read_text() == "agent\n"


async def test_SNAP_07_a_worktree_without_changes_is_gone_at_the_end(stage: Stage) -> None:
    result = await stage.run(Agent("m", Harness(provider(says("done")))))
    assert result.retained_directory is None
    assert len(git(stage.repository, "worktree", "list").splitlines()) == 1
    assert result.directory is not None
    assert not result.directory.exists()


@pytest.mark.parametrize(
    "options",
    [
        {"passes": 0},
        {"passes": 2, "continuation": "x"},
        {"deadline_s": 0},
        {"idle_s": -1},
        {"until": ""},
        {"observe": 7},
        {"redact": ["("]},
        {"watchdog": {"window": 1}},
        {"budget": {"tokens": 1}},
    ],
)
async def test_DISP_01_02_what_is_wrong_is_said_before_anything_is_allocated(
    stage: Stage, options: dict[str, Any]
) -> None:
    model = provider(says("x"))
    with pytest.raises(OutpostError) as caught:
        await stage.run(Agent("m", Harness(model)), **options)
    assert caught.value.code == "configuration"
    assert model.requests == []
    assert not stage.layout.cache.exists()


async def test_EXEC_09_coroutine_observers_are_refused(stage: Stage) -> None:
    async def observe(_event: Any) -> None:
        raise AssertionError

    with pytest.raises(OutpostError, match="observe"):
        await stage.run(Agent("m", Harness(provider())), observe=observe)


async def test_DISP_03_an_unknown_conversation_is_a_session_fault(stage: Stage) -> None:
    model = provider(says("x"))
    with pytest.raises(OutpostError) as caught:
        await stage.run(Agent("m", Harness(model)), continuation=Continuation("missing"))
    assert caught.value.code == "session"
    assert model.requests == []
    assert list(stage.layout.cache.rglob("worktrees/*/*")) == []


async def test_DISP_06_07_17_BOUND_03_CONV_17_a_failure_keeps_its_identity_and_says_what_was_left(stage: Stage) -> None:
    fault = OutpostError("provider", "HTTP 401")
    model = provider(calls(("write", {"path": "a", "text": "x"})), fault)
    with pytest.raises(OutpostError) as caught:
        await stage.run(Agent("m", Harness(model, tools=[write_tool()])))
    assert caught.value is fault
    details = recovery_details(fault) or {}
    assert Path(details["transcript"]).is_file()
    assert (Path(details["directory"]) / "a").read_text() == "x"
    assert details["usage"].output == 1
    # CONV: it can be continued, and the finished call is not run again.
    again = provider(says("done"))
    result = await stage.run(
        Agent("m", Harness(again, tools=[write_tool()])), "go on", continuation=details["conversation"]
    )
    assert result.conversation == details["conversation"]
    assert len(again.requests[0].messages) == 4


async def test_DISP_14_15_16_cancelling_ends_everything_and_the_repository_is_usable(stage: Stage) -> None:
    asked = asyncio.Event()

    class Waiting:
        name = identity = "waiting"

        async def request(self, _request: Any) -> ModelResult:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

    task = asyncio.ensure_future(stage.run(Agent("m", Harness(Waiting()))))  # type: ignore[arg-type]
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(git(stage.repository, "worktree", "list").splitlines()) == 1
    assert (await stage.run(Agent("m", Harness(provider(says("ok")))))).text == "ok"


async def test_CONV_10_TRANS_06_an_interrupted_call_is_answered_as_such(stage: Stage) -> None:
    started = asyncio.Event()

    async def long(_value: Any, _context: Any) -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    subject = Agent("m", Harness(provider(calls(("long", {}, "c-1"))), tools=[Tool("long", "Long.", ANY, long)]))
    task = asyncio.ensure_future(stage.run(subject))
    await started.wait()
    conversation = stage.of("conversation")[0].id
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    model = provider(says("done"))
    await stage.run(
        Agent("m", Harness(model, tools=[Tool("long", "Long.", ANY, long)])), "go on", continuation=conversation
    )
    messages = model.requests[0].messages
    assert messages[2].results[0].call_id == "c-1"
    assert messages[2].results[0].is_error
    assert "interrupted" in messages[2].results[0].content.lower()


async def test_CONV_06_a_conversation_has_one_writer(stage: Stage) -> None:
    first = await stage.run(Agent("m", Harness(provider(says("one")))))
    inside: list[str] = []

    async def second(_value: Any, _context: Any) -> str:
        with pytest.raises(OutpostError) as caught:
            await stage.run(Agent("m", Harness(provider(says("x")))), continuation=first.conversation)
        inside.append(caught.value.code)
        return "tried"

    model = provider(calls(("second", {})), says("done"))
    await stage.run(
        Agent("m", Harness(model, tools=[Tool("second", "Second.", ANY, second)])), continuation=first.conversation
    )
    assert inside == ["conflict"]


async def test_CONV_15_without_conversations_there_is_no_file_and_no_id(stage: Stage) -> None:
    result = await stage.run(Agent("m", Harness(provider(says("x")), conversations=None)))
    assert result.conversation is None
    assert result.transcript is None
    assert list(stage.layout.state.rglob("conversations/harness/*.jsonl")) == []


async def test_CONV_02_03_five_records_after_a_call_and_an_answer(stage: Stage) -> None:
    model = provider(calls(("echo", {"text": "x"})), says("done"))
    result = await stage.run(Agent("m", Harness(model, tools=[echo])))
    assert result.transcript is not None
    assert len(result.transcript.read_text().splitlines()) == 5
    assert result.transcript.stat().st_mode & 0o777 == 0o600
    assert git(stage.repository, "status", "--short", "--ignored") == ""


async def test_EXEC_02_03_a_marker_in_the_last_answer_is_completion(stage: Stage) -> None:
    result = await stage.run(Agent("m", Harness(provider(says("all <outpost>done</outpost>")))))
    assert (result.completed, result.completion) == (True, "<outpost>done</outpost>")
    result = await stage.run(Agent("m", Harness(provider(says("more to do")))))
    assert (result.completed, result.completion) == (False, None)


async def test_DISP_05_EXEC_01_08_passes_stop_at_the_first_completed_one(stage: Stage) -> None:
    model = provider(says("one"), says("two STOP"), says("three"))
    result = await stage.run(Agent("m", Harness(model)), passes=5, until="STOP")
    assert result.text == "one\ntwo STOP"
    assert len(model.requests) == 2
    assert result.usage.output == 2
    assert {event.pass_ for event in stage.events} == {1, 2}


# Briefs


async def test_BRIEF_01_03_a_brief_has_one_source_and_reserved_names() -> None:
    for build in (
        Brief,
        lambda: Brief("a", file="b"),
        lambda: Brief("a", values={"X": 1}),
        lambda: Brief(" "),
        lambda: Brief(file="b", values={"WORK_BRANCH": "x"}),
        lambda: Brief(file="b", values={"X": [1]}),
    ):
        with pytest.raises(OutpostError) as caught:
            build()
        assert caught.value.code == "configuration"


async def test_BRIEF_02_04_05_06_07_a_template_is_filled_and_its_commands_run(stage: Stage, tmp_path: Path) -> None:
    template = tmp_path / "brief.md"
    template.write_text("Hello {{ NAME }} and {{ ODD }}: !`cat {{ FILE }}` {{WORK_BRANCH}}")
    warned: list[str] = []
    told: list[str] = []
    values = {"NAME": "you", "ODD": "!`touch pwned` {{ NAME }}", "FILE": "readme.md", "SPARE": 1}
    model = provider(says("x"))
    await stage.run(
        Agent("m", Harness(model)), Brief(file=template, values=values), warn=warned.append, diagnostic=told.append
    )
    text = model.requests[0].messages[0].text
    assert text == "Hello you and !`touch pwned` {{ NAME }}: hello HEAD"
    assert warned == ["the brief never uses the value SPARE"]
    assert "tokens" in told[0]


@pytest.mark.parametrize("text", ["{{ NOBODY }}", "!`exit 3`"])
async def test_BRIEF_02_04_an_unknown_name_or_a_failing_command_is_a_prompt_fault(
    stage: Stage, tmp_path: Path, text: str
) -> None:
    template = tmp_path / "brief.md"
    template.write_text(text)
    with pytest.raises(OutpostError) as caught:
        await stage.run(Agent("m", Harness(provider())), Brief(file=template))
    assert caught.value.code == "prompt"


# Observation, journal and report


async def test_OBS_11_a_dispatch_starts_first_and_finishes_last_also_on_failure(stage: Stage) -> None:
    for replies, status in (([says("x")], "done"), ([OutpostError("provider", "HTTP 401")], "failed")):
        seen: list[Any] = []
        hub = ObservationHub([seen.append], scope={"execution_id": "e1"})
        with contextlib.suppress(OutpostError):
            await stage.run(Agent("m", Harness(provider(*replies))), observation=hub)
        assert (seen[0].event.kind, seen[-1].event.kind) == ("dispatch-start", "dispatch-finished")
        assert seen[-1].event.status == status
        assert [one.seq for one in seen] == sorted(one.seq for one in seen)
        assert {one.scope.execution_id for one in seen} == {"e1"}
        assert len({one.scope.dispatch_id for one in seen}) == 1


async def test_JRN_01_02_CONV_14_the_journal_has_a_line_before_anybody_is_told(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    missing: list[str] = []

    def observe(event: Any) -> None:
        if event.kind not in ("text-delta", "reasoning") and f'"kind":"{event.kind}"' not in path.read_text():
            missing.append(event.kind)

    model = provider(calls(("echo", {"text": "x"}), text="hm"), says("done"))
    result = await stage.run(Agent("m", Harness(model, tools=[echo])), observe=observe, journal=Journal(path=path))
    assert missing == []
    assert result.journal == path
    kinds = [record.kind for record in read_journal(path)]
    assert kinds[0] == "dispatch-start"
    assert kinds[-1] == "dispatch-finished"
    assert "workspace-commits" in kinds
    assert "text-delta" not in kinds


async def test_JRN_01_FAULT_07_a_journal_that_cannot_be_written_costs_no_run(stage: Stage, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    result = await stage.run(
        Agent("m", Harness(provider(says("done")))), journal=Journal(path=blocked / "journal.jsonl")
    )
    assert result.text == "done"
    assert any("journal" in note for note in result.notes)


async def test_REPORT_01_04_05_07_a_run_is_told_as_markdown_and_json(stage: Stage) -> None:
    import json

    def broken(_value: Any, _context: Any) -> str:
        raise ValueError("no `luck` <b>secret-token</b>")

    model = provider(
        calls(("broken", {"command": "make `all`"}), ("write", {"path": "a.txt", "text": "one\n"})),
        says("# done *really*", tokens=usage(3, 1, 2)),
    )
    result = await stage.run(
        Agent("m", Harness(model, tools=[Tool("broken", "Broken.", ANY, broken), write_tool()])),
        redact=["secret-[a-z]+"],
    )
    data = json.loads(result.report("json"))
    assert data["version"] == 1
    assert data["diff"]["files"] == [{"paths": ["a.txt"], "added": 1, "removed": 0, "binary": False}]
    assert data["failed_tools"][0]["command"] == "make `all`"
    assert "secret-token" not in result.report("json") + result.report()
    assert "``make `all```" in result.report() or "`` make `all` ``" in result.report()
    assert "\\# done \\*really\\*" in result.report()
    with pytest.raises(OutpostError):
        result.report("html")


async def test_a_dispatch_outside_a_repository_says_what_to_do(tmp_path: Path) -> None:
    from outpost_lsp.storage.layout import Layout

    with pytest.raises(OutpostError) as caught:
        await dispatch(
            tmp_path,
            Agent("m", Harness(provider(says("x")))),
            "go",
            sandbox_provider=WorktreeSandboxProvider(layout=Layout(tmp_path / "s", tmp_path / "c")),
        )
    assert caught.value.code == "workspace"
    assert "git" in caught.value.message
