"""External agents over the Agent Client Protocol, with a real one written with its package."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from outpost_lsp import (
    CliAgent,
    Continuation,
    FallbackAgent,
    JsonResponse,
    ModelSpec,
    OutpostError,
    PermissionRule,
    Permissions,
    ReplayAgent,
    Steering,
    Subagent,
    UsageLimits,
    read_journal,
)
from outpost_lsp.dispatches.sandboxing import WorktreeSandboxProvider
from outpost_lsp.harness.gate import PermissionQuestion
from outpost_lsp.harness.watchdog import Intervention, Watchdog
from tests.harness.stage import Stage, agent, says

PROGRAM = Path(__file__).parents[1] / "support" / "acp_agent_program.py"
WAIT_S = 120


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder


def external(notes: Path, *able: str, **options: Any) -> CliAgent:
    options.setdefault("startup_timeout_s", WAIT_S)
    return CliAgent([sys.executable, str(PROGRAM), str(notes), *able], **options)


def asked(notes: Path, method: str | None = None) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (notes / "asked.jsonl").read_text().splitlines()]
    return [line for line in lines if method is None or line["method"] == method]


async def failure(stage: Stage, subject: Any, brief: str, **options: Any) -> OutpostError:
    with pytest.raises(OutpostError) as caught:
        await stage.run(subject, brief, **options)
    return caught.value


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(WAIT_S):
        while not holds():
            await anyio.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


# Declarations


@pytest.mark.parametrize("command", [[], "", [""], ["x", 3], 3, None, ["x\0"]])
def test_a_command_is_a_program_and_its_arguments(command: Any) -> None:
    with pytest.raises(OutpostError, match="command") as caught:
        CliAgent(command)
    assert caught.value.code == "configuration"


def test_LIM_08_it_needs_no_model_and_is_known_by_its_program() -> None:
    assert CliAgent(["/usr/bin/some-agent", "--acp"]).name == "some-agent"
    assert CliAgent("x", ModelSpec("large")).name == "large"


def test_SUB_02_it_cannot_be_a_subagent() -> None:
    with pytest.raises(OutpostError, match="CliAgent"):
        Subagent("outside", "Works.", CliAgent("x"))  # type: ignore[arg-type]


def test_a_dispatch_of_another_agent_does_not_load_the_package() -> None:
    code = "import sys, outpost_lsp; outpost_lsp.CliAgent('x'); outpost_lsp.dispatch; print('acp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


async def test_without_the_package_the_fault_names_the_extra(
    stage: Stage, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [name for name in sys.modules if name.startswith("outpost_lsp.dispatches.acp_")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "acp", None)
    fault = await failure(stage, external(notes), "hello")
    assert (fault.code, "pip install 'outpost-lsp[acp]'" in fault.message) == ("configuration", True)


# A turn


async def test_it_answers_in_the_worktree_and_has_ended_afterwards(stage: Stage, notes: Path) -> None:
    result = await stage.run(external(notes), "hello")
    assert result.text == "You said hello"
    (begun,) = asked(notes, "initialize")
    (session,) = asked(notes, "new")
    assert begun["client"] == "outpost"
    assert Path(session["cwd"]) == result.directory != stage.repository
    assert result.conversation == session["session"] == result.turns[0].conversation
    assert not alive(begun["pid"])
    assert [event.text for event in stage.of("text-delta")] == ["You ", "said ", "hello"]
    assert stage.kinds()[-3:] == ["result", "finished", "summary"]


async def test_its_updates_are_told_like_those_of_any_agent(stage: Stage, notes: Path) -> None:
    result = await stage.run(external(notes), "do: work")
    assert result.text == "All done."
    assert [event.text for event in stage.of("text")] == ["I look.", "All done."]
    assert [event.text for event in stage.of("reasoning")] == ["hm"]
    read, edit, execute = stage.of("tool")
    assert (read.name, read.call_id, read.input["paths"]) == ("read", "c1", ["src/app.py"])
    assert (read.input["title"], read.input["input"]["path"].endswith("app.py")) == ("Reading app.py", True)
    assert [edit.name, execute.name] == ["edit", "execute"]
    assert [(event.call_id, event.is_error, event.preview) for event in stage.of("tool-result")] == [
        ("c1", False, "print"),
        ("c2", False, "changed src/app.py"),
        ("c3", True, "no"),
    ]
    (change,) = stage.of("file-change")
    assert [dict(one) for one in change.changes] == [{"path": "src/app.py", "kind": "modified"}]
    assert stage.of("raw")[-1].value["sessionUpdate"] == "plan"


async def test_OBS_its_events_have_the_source_agent_in_the_journal(stage: Stage, notes: Path) -> None:
    result = await stage.run(external(notes), "do: work")
    assert result.journal is not None
    sources = {record.kind: record.source for record in read_journal(result.journal)}
    assert (sources["text"], sources["tool"], sources["summary"]) == ("agent", "agent", "agent")
    assert sources["dispatch-finished"] == "harness"


async def test_RPL_06_its_run_can_be_gone_through_again_without_it(stage: Stage, notes: Path) -> None:
    first = await stage.run(external(notes, "usage"), "do: write src/new.py text")
    assert first.journal is not None
    started = len(asked(notes, "initialize"))
    again = await stage.run(ReplayAgent(first.journal), "do: write src/new.py text")
    assert (again.text, again.usage) == (first.text, first.usage)
    assert again.changes is not None
    assert [file.path for file in again.changes.files] == ["src/new.py"]
    assert len(asked(notes, "initialize")) == started
    assert again.journal is not None
    assert {record.source for record in read_journal(again.journal) if record.kind == "text"} == {"agent"}


async def test_USE_06_unknown_usage_is_a_lower_bound_and_known_usage_is_counted(stage: Stage, notes: Path) -> None:
    unknown = await stage.run(external(notes), "hello")
    assert (unknown.usage.output, unknown.usage.complete) == (0, False)
    known = await stage.run(external(notes, "usage", model="large"), "hello")
    assert known.usage.model_dump(exclude_none=True) == {"input": 15, "cached": 4, "cache_created": 1, "output": 5}
    assert stage.receipts[-1].model == "large"


async def test_EXEC_07_token_limits_need_usage(stage: Stage, notes: Path) -> None:
    fault = await failure(stage, external(notes), "hello", budget=UsageLimits(output=1_000))
    assert fault.code == "configuration"
    over = await failure(stage, external(notes, "usage"), "hello", budget=UsageLimits(output=4))
    assert (over.code, over.details["limit"]) == ("limit", "usage")


async def test_a_model_is_chosen_where_the_agent_offers_it(stage: Stage, notes: Path) -> None:
    await stage.run(external(notes, "models", model="large"), "hello")
    assert asked(notes, "set") == [{"method": "set", "option": "model", "value": "large"}]
    fault = await failure(stage, external(notes, "models", model="absent"), "hello")
    assert (fault.code, "small" in fault.message) == ("configuration", True)
    plain = await stage.run(external(notes, model="large"), "hello")
    assert any("large" in note for note in plain.notes)


async def test_what_it_writes_to_its_error_output_is_told(stage: Stage, notes: Path) -> None:
    await stage.run(external(notes), "do: shout")
    assert "a warning" in "".join(event.text for event in stage.of("stderr"))


async def test_SEC_13_it_gets_the_sandbox_s_environment_and_what_was_named(
    stage: Stage, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary-key")
    sandboxes = WorktreeSandboxProvider(layout=stage.layout, environment={"PATH": os.environ["PATH"], "TOKEN": "t"})
    subject = external(notes, environment={"MINE": "1"}, variables=["TOKEN"])
    result = await stage.run(subject, "do: environment", sandbox_provider=sandboxes)
    environment = json.loads(result.text)
    assert (environment["MINE"], environment["TOKEN"]) == ("1", "t")
    assert "canary-key" not in result.text
    fault = await failure(stage, external(notes, variables=["ABSENT"]), "hello")
    assert (fault.code, "ABSENT" in fault.message) == ("configuration", True)


# Permissions


class Person:
    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.questions: list[PermissionQuestion] = []

    async def __call__(self, question: PermissionQuestion) -> Any:
        self.questions.append(question)
        return self.answers.pop(0)


async def test_PERM_10_a_person_is_asked_and_a_yes_is_for_this_once(stage: Stage, notes: Path) -> None:
    person = Person("allow")
    result = await stage.run(external(notes), "do: permission execute rm -rf build", ask=person)
    assert result.text == "once"
    (question,) = person.questions
    assert (question.tool, question.resources.command) == ("execute", "rm -rf build")
    assert question.input["input"] == {"command": "rm -rf build"}


async def test_PERM_10_a_no_is_told_to_the_agent_and_to_people(stage: Stage, notes: Path) -> None:
    result = await stage.run(external(notes), "do: permission execute make", ask=Person("deny"))
    assert result.text == "no"
    (denied,) = stage.of("tool-denied")
    assert (denied.call_id, denied.name) == ("p1", "execute")


async def test_PERM_10_where_nobody_can_be_asked_the_answer_is_no(stage: Stage, notes: Path) -> None:
    assert (await stage.run(external(notes), "do: permission execute make")).text == "no"


async def test_PERM_01_edits_inside_the_worktree_need_no_question_and_others_do(stage: Stage, notes: Path) -> None:
    assert (await stage.run(external(notes), "do: permission edit src/app.py")).text == "once"
    assert (await stage.run(external(notes), "do: permission edit ../outside")).text == "no"


async def test_PERM_01_its_own_rules_decide(stage: Stage, notes: Path) -> None:
    rules = Permissions(
        [
            PermissionRule("deny", tools=["edit"], paths=["**/.env", ".env"], reason="secrets stay"),
            PermissionRule("allow", tools=["execute"], commands=["make *"]),
        ],
        "allow",
    )
    subject = external(notes, permissions=rules)
    assert (await stage.run(subject, "do: permission execute make test")).text == "once"
    assert (await stage.run(subject, "do: permission edit .env")).text == "no"
    assert stage.of("tool-denied")[0].reason == "secrets stay"
    refused = await stage.run(subject, "do: write .env")
    assert refused.text == "error -32001: Denied: secrets stay"


# Files and commands


async def test_SEC_07_it_writes_inside_the_worktree_only(stage: Stage, notes: Path, tmp_path: Path) -> None:
    result = await stage.run(external(notes), "do: write src/new.py text")
    assert result.text == "ok"
    assert result.changes is not None
    assert [file.path for file in result.changes.files] == ["src/new.py"]
    assert not (stage.repository / "src" / "new.py").exists()
    assert [dict(one) for one in stage.of("file-change")[0].changes] == [{"path": "src/new.py", "kind": "added"}]
    for place in (f"{tmp_path}/out.txt", "../../out.txt", ".git/config"):
        person = Person("allow")
        outside = await stage.run(external(notes), f"do: write {place}", ask=person)
        assert outside.text.startswith("error -32602"), place
    assert not (tmp_path / "out.txt").exists()


async def test_SEC_07_it_reads_inside_the_worktree_only(stage: Stage, notes: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    assert (await stage.run(external(notes), "do: read readme.md")).text == "hello\n"
    assert (await stage.run(external(notes), "do: read readme.md 2 1")).text == "ok"
    assert (await stage.run(external(notes), "do: read absent.md")).text.startswith("error -32002")
    outside = await stage.run(external(notes), f"do: read {tmp_path}/secret", ask=Person("allow"))
    assert outside.text.startswith("error -32602")


async def test_commands_are_refused_without_a_shell_and_run_in_the_sandbox_with_one(stage: Stage, notes: Path) -> None:
    refused = await stage.run(external(notes), "do: terminal pwd", ask=Person("allow"))
    assert refused.text.startswith("error -32001: Denied")
    assert not asked(notes, "initialize")[0]["terminal"]
    allowed = await stage.run(external(notes, shell=True), "do: terminal pwd; exit 3", ask=Person("allow"))
    assert allowed.text == f"3: {allowed.directory}\n"
    denied = await stage.run(external(notes, shell=True), "do: terminal pwd")
    assert denied.text.startswith("error -32001: Denied")
    killed = await stage.run(external(notes, shell=True), "do: terminal-kill", ask=Person("allow"))
    assert killed.text == "killed 137"


async def test_SEC_14_a_command_it_leaves_behind_ends_with_it(stage: Stage, notes: Path) -> None:
    await stage.run(external(notes, shell=True), "do: terminal-leave", ask=Person("allow"))
    assert not alive(int((notes / "left").read_text()))


# Ends


async def test_PY_04_a_cancelled_dispatch_reaches_it(stage: Stage, notes: Path) -> None:
    running = asyncio.ensure_future(stage.run(external(notes), "do: wait"))
    await until(lambda: bool(stage.of("text-delta")))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert asked(notes, "cancel")
    assert not alive(asked(notes, "initialize")[0]["pid"])
    assert [event.reason for event in stage.of("stopped")] == ["aborted"]


async def test_SEC_14_one_that_heeds_nothing_is_ended(stage: Stage, notes: Path) -> None:
    running = asyncio.ensure_future(stage.run(external(notes), "do: ignore"))
    await until(lambda: bool(stage.of("text-delta")))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not alive(asked(notes, "initialize")[0]["pid"])


async def test_LOOP_21_the_deadline_of_a_turn_holds_for_it(stage: Stage, notes: Path) -> None:
    fault = await failure(stage, external(notes), "do: wait", deadline_s=10)
    assert fault.code == "timeout"
    assert [event.reason for event in stage.of("stopped")] == ["deadline"]
    assert asked(notes, "cancel")


async def test_EXEC_04_silence_ends_it_unless_it_runs_a_tool(stage: Stage, notes: Path) -> None:
    fault = await failure(stage, external(notes), "do: wait", idle_s=10, deadline_s=WAIT_S)
    assert (fault.code, fault.details["stopReason"]) == ("timeout", "idle-timeout")
    held = await failure(stage, external(notes), "do: call-and-wait", idle_s=10, deadline_s=15)
    assert (held.code, "stopReason" in held.details) == ("timeout", False)


async def test_a_crash_is_a_process_fault_with_its_last_words(stage: Stage, notes: Path) -> None:
    fault = await failure(stage, external(notes), "do: crash")
    assert (fault.code, fault.details["status"], "out of luck" in fault.message) == ("process", 9, True)
    start = await failure(stage, external(notes, "crash"), "hello")
    assert (start.code, "cannot begin" in start.message) == ("process", True)
    unknown = await failure(stage, CliAgent("no-such-agent-here"), "hello")
    assert (unknown.code, unknown.details["status"]) == ("process", 127)


async def test_a_start_that_takes_too_long_or_speaks_otherwise_is_a_fault(stage: Stage, notes: Path) -> None:
    slow = await failure(stage, external(notes, "slow-start", startup_timeout_s=3), "hello")
    assert slow.code == "timeout"
    old = await failure(stage, external(notes, "old"), "hello")
    assert (old.code, "version 7" in old.message) == ("response", True)
    locked = await failure(stage, external(notes, "sign-in"), "hello")
    assert (locked.code, "variable" in locked.message) == ("provider", True)


@pytest.mark.parametrize(
    ("command", "code", "told"),
    [
        ("cat", "response", "cat did not understand the first message"),
        (
            ["sh", "-c", 'read -r line; echo \'{"jsonrpc":"2.0","id":0,"result":{}}\''],
            "response",
            "sh did not understand",
        ),
        ("true", "process", "before it answered"),
        (["sh", "-c", "echo usage: agent >&2; exit 2"], "process", "usage: agent"),
    ],
    ids=["gives back", "answers otherwise", "says nothing", "wants arguments"],
)
async def test_a_program_that_is_no_agent_is_named_with_what_it_must_speak(
    stage: Stage, command: Any, code: str, told: str
) -> None:
    fault = await failure(stage, CliAgent(command, startup_timeout_s=WAIT_S), "hello")
    assert (fault.code, told in fault.message) == (code, True)
    assert "speaks the Agent Client Protocol (ACP) over standard input and output" in fault.message
    assert "To check, start the command" in fault.message


async def test_EXEC_06_an_oversized_message_stops_it(stage: Stage, notes: Path) -> None:
    fault = await failure(stage, external(notes), "do: oversized")
    assert (fault.code, fault.details["stopReason"]) == ("response", "oversized-event")
    assert [event.reason for event in stage.of("stopped")] == ["oversized-event"]


@pytest.mark.parametrize(
    ("reason", "code"),
    [("max_tokens", "limit"), ("max_turn_requests", "limit"), ("refusal", "response"), ("cancelled", "aborted")],
)
async def test_an_end_without_an_answer_is_a_fault(stage: Stage, notes: Path, reason: str, code: str) -> None:
    assert (await failure(stage, external(notes), f"do: stop-reason {reason}")).code == code


async def test_EXEC_06_after_its_marker_it_has_a_time_to_settle(stage: Stage, notes: Path) -> None:
    result = await stage.run(external(notes), "do: marker", settle_s=0.5)
    assert (result.completed, result.completion) == (True, "<outpost>done</outpost>")
    assert [event.reason for event in stage.of("stopped")] == ["completion"]
    assert asked(notes, "cancel")


# Going on


async def test_CONV_a_conversation_is_its_session_and_goes_on_where_it_can_load_one(stage: Stage, notes: Path) -> None:
    first = await stage.run(external(notes, "load"), "first")
    stage.events.clear()
    second = await stage.run(external(notes, "load"), "second", continuation=first.conversation)
    assert (second.text, second.conversation) == ("You said second", first.conversation)
    assert "old answer" not in "".join(event.text for event in stage.of("text-delta"))
    assert [line["session"] for line in asked(notes, "load")] == [first.conversation]
    cannot = await failure(stage, external(notes), "third", continuation=first.conversation)
    assert cannot.code == "configuration"
    unknown = await failure(stage, external(notes, "load"), "third", continuation="absent")
    assert unknown.code == "provider"


async def test_CONV_its_home_outlives_the_run_so_that_it_finds_its_conversations_again(
    stage: Stage, notes: Path, tmp_path: Path
) -> None:
    first = await stage.run(external(notes), "do: environment")
    second = await stage.run(external(notes), "do: environment")
    home = Path(json.loads(first.text)["HOME"])
    assert Path(json.loads(second.text)["HOME"]) == home
    assert home.is_relative_to(stage.layout.state)
    assert home.stat().st_mode & 0o777 == 0o700
    mine = tmp_path / "of" / "mine"
    third = await stage.run(external(notes), "do: environment", conversation_home=mine)
    assert (Path(json.loads(third.text)["HOME"]), mine.is_dir()) == (mine, True)


async def test_CONV_it_is_forked_where_it_can_be(stage: Stage, notes: Path) -> None:
    first = await stage.run(external(notes, "fork"), "first")
    second = await stage.run(external(notes, "fork"), "second", continuation=Continuation(first.conversation or "", fork=True))  # fmt: skip
    assert second.conversation != first.conversation
    cannot = await failure(stage, external(notes), "third", continuation=Continuation(first.conversation or "", fork=True))  # fmt: skip
    assert (cannot.code, "fork" in cannot.message) == ("configuration", True)


async def test_RESP_07_a_typed_answer_is_repaired_in_the_same_session(stage: Stage, notes: Path) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    fault = await failure(stage, external(notes), "hello", response=JsonResponse(schema, repairs=1))
    assert fault.code == "response"
    assert len(asked(notes, "initialize")) == 1
    assert len(asked(notes, "prompt")) == 2


async def test_STEER_14_a_text_stops_it_and_its_conversation_goes_on(stage: Stage, notes: Path) -> None:
    steering = Steering()
    running = asyncio.ensure_future(stage.run(external(notes, "usage"), "do: wait", steering=steering))
    await until(lambda: bool(stage.of("text-delta")))
    delivery = await steering.send("rather say this")
    result = await running
    assert delivery.mode == "resumed"
    assert result.turns[-1].text == "You said rather say this"
    assert [turn.interrupted for turn in result.turns] == ["steering", None]
    assert [event.reason for event in stage.of("stopped")] == ["steered"]
    assert [(event.text, event.mode) for event in stage.of("steer")] == [("rather say this", "resumed")]
    assert len(stage.of("summary")) == 1
    assert result.usage.output == 10
    assert len(asked(notes, "initialize")) == 1


async def test_STEER_14_one_that_heeds_nothing_is_started_anew_where_it_can_load(stage: Stage, notes: Path) -> None:
    steering = Steering()
    running = asyncio.ensure_future(stage.run(external(notes, "load"), "do: ignore", steering=steering))
    await until(lambda: bool(stage.of("text-delta")))
    await steering.send("say this")
    result = await running
    assert result.turns[-1].text == "You said say this"
    assert len(asked(notes, "initialize")) == 2


async def test_STEER_12_a_text_for_one_of_its_runs_is_rejected(stage: Stage, notes: Path) -> None:
    steering = Steering()
    running = asyncio.ensure_future(stage.run(external(notes), "do: wait", steering=steering))
    await until(lambda: bool(stage.of("text-delta")))
    with pytest.raises(OutpostError) as caught:
        await steering.send("for a child", subagent="run-1")
    assert caught.value.code == "steering"
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_WATCH_05_one_that_repeats_itself_is_stopped_or_told(stage: Stage, notes: Path) -> None:
    fault = await failure(stage, external(notes), "do: repeat", watchdog=Watchdog(max_repeats=3))
    assert fault.code == "stuck"
    assert [event.reason for event in stage.of("stopped")] == ["stuck"]
    told = Watchdog(max_repeats=3, on_stuck=Intervention(instruction="Say something else."))
    result = await stage.run(external(notes), "do: repeat", watchdog=told)
    assert result.turns[-1].text == "You said Say something else."


# Fallback


@pytest.mark.parametrize(
    ("brief", "kind"),
    [
        ("do: fail 429 rate limit reached", "quota"),
        ("do: fail 503 overloaded", "unavailable"),
        ("do: crash", "unavailable"),
    ],
)
async def test_FALL_02_03_a_built_in_agent_takes_over_in_the_same_sandbox(
    stage: Stage, notes: Path, brief: str, kind: str
) -> None:
    built_in = agent(says("from inside"))
    result = await stage.run(FallbackAgent([external(notes), built_in], ["quota", "unavailable"]), brief)
    assert result.turns[-1].text == "from inside"
    assert result.fallback is not None
    assert [attempt.failure for attempt in result.fallback.attempts] == [kind]
    assert (result.fallback.attempts[0].model, result.fallback.selected.name) == (None, "scripted")
    assert not alive(asked(notes, "initialize")[0]["pid"])


async def test_FALL_02_another_failure_is_raised_at_once(stage: Stage, notes: Path) -> None:
    subject = FallbackAgent([external(notes), agent(says("never"))], ["quota", "unavailable"])
    assert (await failure(stage, subject, "do: stop-reason refusal")).code == "response"
    assert (await failure(stage, subject, "do: fail nobody knows why")).code == "provider"
