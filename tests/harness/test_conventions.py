"""What holds for all callbacks, deadlines and clocks (PY-05, PY-06, TDEF-08, REL-23)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from outpost_lsp import (
    Agent,
    Choice,
    ContextStrategy,
    Decision,
    Harness,
    Hook,
    Instructions,
    ModelResult,
    ModelRouting,
    OutpostError,
    ScriptedDecisionProvider,
    Tool,
    ToolExecution,
)
from tests.harness.stage import Stage, calls, provider, says

ANY: dict[str, Any] = {"type": "object"}


class Silent:
    """A service that never answers."""

    name = identity = "silent"

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def request(self, _request: object) -> ModelResult:
        self.asked.set()
        await asyncio.Event().wait()
        raise AssertionError


async def test_PY_05_the_own_deadline_is_a_timeout_and_the_callers_cancellation_is_none(stage: Stage) -> None:
    with pytest.raises(OutpostError) as caught:
        await stage.run(Agent("m", Harness(Silent())), deadline_s=0.2)  # type: ignore[arg-type]
    assert caught.value.code == "timeout"
    service = Silent()
    task = asyncio.ensure_future(stage.run(Agent("m", Harness(service)), deadline_s=600))  # type: ignore[arg-type]
    await service.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [event.reason for event in stage.of("stopped")] == ["deadline", "aborted"]


async def test_PY_05_a_tool_whose_deadline_passed_timed_out_and_one_that_was_cancelled_did_not(stage: Stage) -> None:
    started = asyncio.Event()

    async def wait(_value: Any, _context: Any) -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    def subject(deadline_s: float) -> Agent:
        limits = ToolExecution(deadline_s=deadline_s, on_error="fail")
        return Agent(
            "m", Harness(provider(calls(("wait", {}))), tools=[Tool("wait", "W.", ANY, wait)], tool_execution=limits)
        )

    with pytest.raises(OutpostError) as caught:
        await stage.run(subject(0.05))
    assert (caught.value.code, caught.value.details["tool"]) == ("timeout", "wait")
    started.clear()
    task = asyncio.ensure_future(stage.run(subject(600)))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def _plain(answer: Any) -> Callable[..., Any]:
    return lambda *_given: answer


def _awaited(answer: Any) -> Callable[..., Any]:
    async def callback(*_given: Any) -> Any:
        await asyncio.sleep(0)
        return answer

    return callback


@pytest.mark.parametrize("made", [_plain, _awaited])
async def test_PY_06_callbacks_may_be_plain_functions_or_coroutines(
    stage: Stage, made: Callable[[Any], Callable[..., Any]]
) -> None:
    decider = ScriptedDecisionProvider([("fast", 0.9), ("fast", 0.9)])
    routing = ModelRouting(
        provider=decider,
        model="auto",
        decision=Decision({"route": Choice("Choose.", {"fast": "a", "deep": "b"})}),
        question="route",
        models={"fast": "small", "deep": "large"},
        fallback="deep",
        state=made({"of": "mine"}),
    )
    model = provider(calls(("look", {})), says("done"))
    harness = Harness(
        model,
        instructions=Instructions(made("From a callback.")),
        tools=[Tool("look", "L.", ANY, made("seen"))],
        hooks=[
            Hook("session-start", made({"instructions": "From a hook."})),
            Hook("before-model", made(None)),
            Hook("before-tool", made({"input": {"by": "hook"}})),
            Hook("after-tool", made({"result": "changed"})),
            Hook("stop", made(None)),
        ],
        context=ContextStrategy("none", made(None)),
        routing=routing,
    )
    result = await stage.run(Agent("m", harness))
    assert result.text == "done"
    assert model.requests[0].system == "From a callback.\n\nFrom a hook."
    assert model.requests[1].messages[-1].results[0].content == "changed"
    assert [request.state for request in decider.requests] == [{"of": "mine"}] * 2


@pytest.mark.parametrize("name", ["observe", "warn", "diagnostic", "on_receipt"])
async def test_PY_06_EXEC_09_but_observers_are_called_in_the_middle_of_a_step(stage: Stage, name: str) -> None:
    model = provider(says("never"))
    with pytest.raises(OutpostError, match=name) as caught:
        await stage.run(Agent("m", Harness(model)), **{name: _awaited(None)})
    assert (caught.value.code, model.requests) == ("configuration", [])


async def test_TDEF_08_read_only_is_no_isolation(stage: Stage) -> None:
    async def write(_value: Any, context: Any) -> str:
        await context.sandbox.files.write("a.txt", b"by a tool that calls itself read-only\n")
        return "written"

    tool = Tool("look", "L.", ANY, write, read_only=True)
    result = await stage.run(Agent("m", Harness(provider(calls(("look", {})), says("done")), tools=[tool])))
    assert result.changes is not None
    assert [file.path for file in result.changes.files] == ["a.txt"]


async def test_REL_23_a_wall_clock_that_jumps_ends_nothing_and_holds_nothing_up(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, jump = time.time, 0.0
    monkeypatch.setattr(time, "time", lambda: real() + jump)

    async def leap(_value: Any, _context: Any) -> str:
        nonlocal jump
        jump = 86_400.0 - jump
        await asyncio.sleep(0)
        return "it is another day"

    model = provider(calls(("leap", {})), calls(("leap", {})), says("done"))
    execution = ToolExecution(deadline_s=600)
    subject = Agent("m", Harness(model, tools=[Tool("leap", "L.", ANY, leap)], tool_execution=execution))
    result = await stage.run(subject, deadline_s=600, idle_s=600)
    assert (result.text, stage.of("stopped"), stage.of("warning")) == ("done", [], [])
    assert all(0 <= turn.duration_ms < 600_000 for turn in result.turns)
    jump = -86_400.0
    with pytest.raises(OutpostError) as caught:
        await stage.run(Agent("m", Harness(Silent())), idle_s=0.2)  # type: ignore[arg-type]
    assert caught.value.details["stopReason"] == "idle-timeout"
