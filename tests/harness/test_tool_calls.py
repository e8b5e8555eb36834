"""Tool calls: preparation, groups, deadlines, errors, permissions and hooks (TOOL, TEXEC, PERM and HOOK rules)."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import pytest

from outpost_lsp import (
    Agent,
    Harness,
    Hook,
    OutpostError,
    PermissionRule,
    Permissions,
    Tool,
    ToolContext,
    ToolExecution,
    tool,
)
from outpost_lsp.domain.event import StepEvent, TextEvent
from tests.harness.stage import Stage, agent, calls, echo, provider, says

ANY: dict[str, Any] = {"type": "object"}


def make(name: str, execute: Any, *, read_only: bool = False, **more: Any) -> Tool:
    return Tool(name, f"The tool {name}.", ANY, execute, read_only, **more)


async def results(stage: Stage, *requests: Any, tools: list[Tool], **harness: Any) -> list[tuple[str, bool]]:
    """The results the model gets for one answer with these calls."""
    model = provider(calls(*requests), says("done"))
    await stage.run(Agent("scripted", Harness(model, tools=tools, **harness)))
    return [(result.content, bool(result.is_error)) for result in model.requests[1].messages[-1].results]


async def test_TEXEC_01_02_TOOL_02_03_errors_of_preparation_tell_the_cases_apart(stage: Stage) -> None:
    got = await results(
        stage,
        ("nothing", {}),
        ("echo", {"words": 1}),
        ("echo", "{broken"),
        ("echo", {"text": "fine"}),
        tools=[echo],
    )
    assert [is_error for _, is_error in got] == [True, True, True, False]
    assert "nothing" in got[0][0]
    assert got[1][0].startswith("Invalid input for echo: ")
    assert "text" in got[1][0]
    # TEXEC-12: broken JSON arrives as text and is answered as invalid input, with the place of the fault.
    assert got[2][0].startswith("Invalid input for echo: the arguments are no JSON")
    assert "line 1, column 2" in got[2][0]
    assert got[3][0] == "echo: fine"


async def test_TOOL_01_TOOL_06_all_tool_events_come_before_all_results(stage: Stage) -> None:
    await results(stage, ("echo", {"text": "a"}), ("nothing", {}), ("echo", {"text": "b"}), tools=[echo])
    kinds = [kind for kind in stage.kinds() if kind in ("tool", "tool-result")]
    assert kinds == ["tool"] * 3 + ["tool-result"] * 3


async def test_TOOL_04_TEXEC_03_consecutive_read_only_calls_run_together(stage: Stage) -> None:
    order: list[str] = []
    running, peak = 0, 0
    fast_done = asyncio.Event()

    async def slow(_value: Any, _context: ToolContext) -> str:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await fast_done.wait()
        running -= 1
        order.append("slow")
        return "slow"

    async def fast(_value: Any, _context: ToolContext) -> str:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0)
        running -= 1
        order.append("fast")
        fast_done.set()
        return "fast"

    async def write(_value: Any, _context: ToolContext) -> str:
        order.append("write")
        return "write"

    got = await results(
        stage,
        ("slow", {}),
        ("fast", {}),
        ("write", {}),
        ("fast", {}),
        tools=[make("slow", slow, read_only=True), make("fast", fast, read_only=True), make("write", write)],
        tool_execution=ToolExecution(concurrency=2),
    )
    assert order == ["fast", "slow", "write", "fast"]
    assert peak == 2
    assert [content for content, _ in got] == ["slow", "fast", "write", "fast"]


async def test_TEXEC_03_no_more_than_the_allowed_number_at_once(stage: Stage) -> None:
    running, peak = 0, 0

    async def look(_value: Any, _context: ToolContext) -> str:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1
        return "seen"

    await results(stage, *[("look", {})] * 7, tools=[make("look", look, read_only=True)])
    assert peak == 4


async def test_TDEF_09_a_plain_function_runs_in_a_worker_thread(stage: Stage) -> None:
    names = []

    def plain(_value: Any, _context: ToolContext) -> str:
        names.append(threading.current_thread() is threading.main_thread())
        return "ok"

    assert await results(stage, ("plain", {}), tools=[make("plain", plain)]) == [("ok", False)]
    assert names == [False]


@pytest.mark.parametrize("value", [None, 7, {"text": "x"}, {"content": 1}, {"content": "x", "extra": 1}, ["x"]])
async def test_TDEF_07_TOOL_07_any_other_output_is_a_tool_error(stage: Stage, value: Any) -> None:
    ((content, is_error),) = await results(stage, ("odd", {}), tools=[make("odd", lambda _v, _c: value)])
    assert is_error
    assert "content" in content


async def test_TEXEC_07_08_an_exception_is_an_error_result_without_traceback(stage: Stage) -> None:
    def broken(_value: Any, _context: ToolContext) -> str:
        raise ValueError("no luck")

    assert await results(stage, ("broken", {}), tools=[make("broken", broken)]) == [("no luck", True)]


@pytest.mark.parametrize("plain", [True, False])
async def test_TEXEC_07_a_tool_that_exits_ends_its_call_and_not_the_program(stage: Stage, plain: bool) -> None:
    def ending(_value: Any, _context: ToolContext) -> str:
        sys.exit(3)

    async def ending_later(_value: Any, _context: ToolContext) -> str:
        await asyncio.sleep(0)
        sys.exit(3)

    tools = [make("ending", ending if plain else ending_later), echo]
    got = await results(stage, ("ending", {}), ("echo", {"text": "a"}), tools=tools)
    assert got == [("the tool ending called for the program's end", True), ("echo: a", False)]


async def test_TOOL_09_on_error_fail_raises_that_very_error(stage: Stage) -> None:
    fault = ValueError("no luck")
    ended = asyncio.Event()

    async def broken(_value: Any, _context: ToolContext) -> str:
        await asyncio.sleep(0)
        raise fault

    async def long(_value: Any, _context: ToolContext) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    subject = agent(
        calls(("long", {}), ("broken", {})),
        tools=[make("broken", broken, read_only=True), make("long", long, read_only=True)],
        tool_execution=ToolExecution(on_error="fail"),
    )
    with pytest.raises(ValueError, match="no luck") as caught:
        await stage.run(subject)
    assert caught.value is fault
    # TOOL-16: the sibling was cancelled and awaited before the error left the engine.
    assert ended.is_set()


async def test_TOOL_10_denials_unknown_tools_and_invalid_input_never_fail_the_turn(stage: Stage) -> None:
    got = await results(
        stage,
        ("nothing", {}),
        ("echo", 3),
        ("echo", {"text": "x"}),
        tools=[echo],
        tool_execution=ToolExecution(on_error="fail"),
        permissions=Permissions([PermissionRule("deny", tools=["echo"], reason="not today")]),
    )
    assert [is_error for _, is_error in got] == [True, True, True]
    assert got[2][0] == "Denied: not today"


async def test_TOOL_11_TEXEC_06_calls_past_their_deadline_are_released_and_answered(stage: Stage) -> None:
    released = asyncio.Event()
    contexts: list[ToolContext] = []

    async def stuck(_value: Any, context: ToolContext) -> str:
        contexts.append(context)
        while not released.is_set():
            try:
                await asyncio.wait_for(released.wait(), 5)
            except (asyncio.CancelledError, TimeoutError):
                continue
        return "late"

    async def quiet(_value: Any, _context: ToolContext) -> str:
        await asyncio.Event().wait()
        return ""

    got = await results(
        stage,
        ("stuck", {}),
        ("quiet", {}),
        tools=[make("stuck", stuck), make("quiet", quiet)],
        tool_execution=ToolExecution(deadline_s=0.05),
    )
    assert [is_error for _, is_error in got] == [True, True]
    assert "stuck" in got[0][0]
    assert "0.05 s" in got[0][0]
    assert "quiet" in got[1][0]
    # TOOL-12: what the call was given died with it.
    with pytest.raises(OutpostError):
        contexts[0].observe(TextEvent(text="late"))
    with pytest.raises(OutpostError):
        await contexts[0].sandbox.git(["status"])
    released.set()
    await asyncio.sleep(0)


async def test_TOOL_13_TDEF_06_a_tool_reports_text_warnings_and_raw_values_only(stage: Stage) -> None:
    async def chatty(_value: Any, context: ToolContext) -> str:
        context.observe(TextEvent(text="half way"))
        context.observe(StepEvent(index=9))
        return ""

    ((content, is_error),) = await results(stage, ("chatty", {}), tools=[make("chatty", chatty)])
    assert is_error
    assert "step" in content
    assert "half way" in [event.text for event in stage.of("text")]


async def test_TOOL_15_SBX_08_a_tool_cannot_release_the_sandbox(stage: Stage) -> None:
    async def greedy(_value: Any, context: ToolContext) -> str:
        await context.sandbox.release()
        return ""

    async def later(_value: Any, context: ToolContext) -> str:
        return (await context.sandbox.git(["rev-parse", "HEAD"])).stdout.decode()

    got = await results(stage, ("greedy", {}), ("later", {}), tools=[make("greedy", greedy), make("later", later)])
    assert got[0][1]
    assert len(got[1][0].strip()) == 40


async def test_TOOL_16_two_calls_with_one_id_do_not_overwrite_each_other(stage: Stage) -> None:
    got = await results(stage, ("echo", {"text": "a"}, "same"), ("echo", {"text": "b"}, "same"), tools=[echo])
    assert [content for content, _ in got] == ["echo: a", "echo: b"]


async def test_TOOL_08_TEXEC_10_long_results_are_cut_and_previewed(stage: Stage) -> None:
    text = "x" * 100_001
    ((content, _),) = await results(stage, ("long", {}), tools=[make("long", lambda _v, _c: text)])
    assert content.startswith("x" * 100_000 + "\n")
    assert "1 characters" in content
    event = stage.of("tool-result")[0]
    assert (len(event.preview), event.characters) == (2_000, 100_001)


async def test_TEXEC_07_cancellation_always_fails_the_turn_and_reaches_the_tool(stage: Stage) -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def long(_value: Any, _context: ToolContext) -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    task = asyncio.ensure_future(stage.run(agent(calls(("long", {})), tools=[make("long", long)])))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_EXEC_04_a_tool_silent_for_longer_than_the_idle_limit_is_bounded_by_its_own_deadline(
    stage: Stage,
) -> None:
    async def slow(_value: Any, _context: ToolContext) -> str:
        await asyncio.sleep(0.6)
        return "done at last"

    model = provider(calls(("slow", {})), says("done"))
    result = await stage.run(Agent("m", Harness(model, tools=[make("slow", slow)])), idle_s=0.3, idle_warning_s=0.1)
    assert result.text == "done"


# Permissions


def write(path: str = "path") -> Tool:
    return Tool(
        "write_file",
        "Write.",
        {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        lambda value, _context: f"wrote {value['path']}",
        resources=lambda value: {"paths": [value[path]]},
    )


async def test_PERM_06_07_denials_are_told_and_never_reach_a_hook(stage: Stage) -> None:
    seen: list[Any] = []
    rules = [PermissionRule("allow", tools=["write_file"], paths=["src/**"])]
    hook = Hook("before-tool", lambda given: seen.append(given.call.input["path"]))
    got = await results(
        stage,
        ("write_file", {"path": "src/a"}),
        ("write_file", {"path": "b"}),
        ("write_file", {"path": "../x"}),
        tools=[write()],
        permissions=Permissions(rules, default="deny"),
        hooks=[hook],
    )
    assert [is_error for _, is_error in got] == [False, True, True]
    assert got[1][0].startswith("Denied: ")
    assert seen == ["src/a"]
    assert [event.name for event in stage.of("tool-denied")] == ["write_file"] * 2


async def test_HOOK_07_TEXEC_09_the_six_calls_of_the_rules(stage: Stage) -> None:
    """One step, six calls, default deny, `src/**` allowed, one before-tool and one after-tool hook."""
    seen: list[str] = []
    rewrites: dict[str, Any] = {
        "src/redirect": {"path": "src/new"},
        "src/bad": {"path": 7},
        "src/out": {"path": "../x"},
    }

    def before(given: Any) -> Any:
        seen.append(given.call.input["path"])
        rewritten = rewrites.get(given.call.input["path"])
        return {"input": rewritten} if rewritten else None

    def after(given: Any) -> Any:
        return {"result": "rewritten"} if given.call.input["path"] == "src/a" else None

    got = await results(
        stage,
        *[("write_file", {"path": path}) for path in ("src/a", "b", "src/redirect", "src/bad", "src/out", "../x")],
        tools=[write()],
        permissions=Permissions([PermissionRule("allow", paths=["src/**"])], default="deny"),
        hooks=[Hook("before-tool", before), Hook("after-tool", after)],
    )
    assert [is_error for _, is_error in got] == [False, True, False, True, True, True]
    assert got[0][0] == "rewritten"
    assert got[2][0] == "wrote src/new"
    assert "hook" in got[3][0]
    assert seen == ["src/a", "src/redirect", "src/bad", "src/out"]
    assert len(stage.of("tool-denied")) == 3


async def test_HOOK_01_the_first_denial_ends_the_phase_and_later_hooks_see_earlier_input(stage: Stage) -> None:
    seen: list[Any] = []

    def first(given: Any) -> Any:
        return {"deny": "no"} if given.call.input["text"] == "stop" else {"input": {"text": "changed"}}

    def second(given: Any) -> None:
        seen.append(given.call.input["text"])

    got = await results(
        stage,
        ("echo", {"text": "stop"}),
        ("echo", {"text": "go"}),
        tools=[Tool("echo", "Echo.", ANY, lambda value, _c: f"echo: {value['text']}")],
        hooks=[Hook("before-tool", first), Hook("before-tool", second)],
    )
    assert got == [("Denied: no", True), ("echo: changed", False)]
    assert seen == ["changed"]


@pytest.mark.parametrize(
    ("phase", "value"),
    [
        ("before-tool", {"deny": " "}),
        ("before-tool", {"allow": True}),
        ("before-tool", "text"),
        ("after-tool", {"result": 3}),
        ("stop", {"continue": ""}),
        ("session-start", {"instructions": None}),
        ("session-start", {"instructions": "a", "continue": "b"}),
    ],
)
async def test_HOOK_04_a_result_of_another_shape_fails_the_turn(stage: Stage, phase: Any, value: Any) -> None:
    subject = agent(
        calls(("echo", {"text": "a"})), says("done"), tools=[echo], hooks=[Hook(phase, lambda _given: value)]
    )
    with pytest.raises(OutpostError) as caught:
        await stage.run(subject)
    assert caught.value.code == "configuration"


async def test_HOOK_04_a_raising_hook_fails_the_turn(stage: Stage) -> None:
    def broken(_given: Any) -> None:
        raise RuntimeError("hook broke")

    with pytest.raises(RuntimeError, match="hook broke"):
        await stage.run(agent(says("x"), hooks=[Hook("before-model", broken)]))


def test_HOOK_08_an_unknown_phase_or_a_raw_object_is_refused() -> None:
    with pytest.raises(OutpostError) as caught:
        Hook("before-lunch", lambda _given: None)  # type: ignore[arg-type]
    assert caught.value.code == "configuration"
    with pytest.raises(OutpostError):
        agent(says("x"), hooks=[{"on": "stop"}])


async def test_PERM_10_ask_is_denied_without_anybody_to_ask(stage: Stage) -> None:
    got = await results(
        stage, ("echo", {"text": "a"}), tools=[echo], permissions=Permissions([PermissionRule("ask", tools=["echo"])])
    )
    assert got[0][1]
    assert got[0][0].startswith("Denied: ")


@pytest.mark.parametrize(("answer", "asked_times", "allowed"), [("allow", 2, True), ("allow-run", 1, True), ("deny", 2, False)])  # fmt: skip
async def test_PERM_10_a_person_is_asked_one_question_at_a_time(
    stage: Stage, answer: Any, asked_times: int, allowed: bool
) -> None:
    asked: list[Any] = []

    async def ask(question: Any) -> Any:
        asked.append(question)
        return answer

    model = provider(calls(("write_file", {"path": "a"}), ("write_file", {"path": "a"})), says("done"))
    subject = Agent(
        "m", Harness(model, tools=[write()], permissions=Permissions([PermissionRule("ask", reason="sure?")]))
    )
    await stage.run(subject, ask=ask)
    assert len(asked) == asked_times
    assert (asked[0].tool, asked[0].input, asked[0].reason) == ("write_file", {"path": "a"}, "sure?")
    results_ = model.requests[1].messages[-1].results
    assert [not result.is_error for result in results_] == [allowed, allowed]


async def test_TOOL_14_TEXEC_11_command_output_streams_in_pieces(stage: Stage) -> None:
    from outpost_lsp.domain.sandbox import Command

    async def run(_value: Any, context: ToolContext) -> str:
        result = await context.sandbox.invoke(
            Command(executable="sh", arguments=["-c", "head -c 20000 /dev/zero | tr '\\0' x; echo err >&2"])
        )
        return str(result.status)

    assert await results(stage, ("run", {}), tools=[make("run", run)]) == [("0", False)]
    output = stage.of("tool-output")
    assert max(len(event.text) for event in output) <= 8_192
    assert sum(len(event.text) for event in output if event.channel == "stdout") == 20_000
    assert "".join(event.text for event in output if event.channel == "stderr") == "err\n"


async def test_the_decorator_makes_a_tool_of_a_function(stage: Stage) -> None:
    @tool(read_only=True)
    async def add(left: int, right: int = 1, *, context: ToolContext) -> str:
        """Add two numbers."""
        return f"{left + right} for {context.call_id}"

    got = await results(stage, ("add", {"left": 2}), ("add", {"left": "x"}), ("add", {"left": 1, "up": 2}), tools=[add])
    assert got[0] == ("3 for call-1", False)
    assert got[1][1]
    assert got[2][1]


async def test_an_answer_with_many_calls_lets_others_run_between_them(stage: Stage) -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    ticking = asyncio.ensure_future(others())
    try:
        await results(stage, *[("nothing", {})] * 60, tools=[echo])
    finally:
        ticking.cancel()
    # Preparing and completing a call wait for nothing by themselves.
    assert turns >= 120
