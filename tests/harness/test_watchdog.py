"""Agents that repeat themselves (WATCH rules)."""

from __future__ import annotations

from typing import Any

import pytest

from outpost_lsp import (
    Agent,
    Harness,
    Intervention,
    OutpostError,
    Steering,
    Subagent,
    Tool,
    ToolExecution,
    Watchdog,
)
from outpost_lsp.domain.event import Event, ToolEvent
from outpost_lsp.harness.watchdog import Repetition
from tests.harness.stage import Stage, calls, echo, provider, says


def again(times: int, **given: Any) -> list[Any]:
    return [calls(("echo", {"text": "x", **given}, f"c{number}")) for number in range(times)]


async def test_WATCH_05_06_stop_ends_the_turn_before_the_third_call(stage: Stage) -> None:
    model = provider(*again(5))
    with pytest.raises(OutpostError) as caught:
        await stage.run(Agent("m", Harness(model, tools=[echo])), watchdog=Watchdog(window=10, max_repeats=3))
    assert (caught.value.code, caught.value.details["stopReason"]) == ("stuck", "stuck")
    assert len(stage.of("tool-result")) == 2
    (alert,) = stage.of("stuck")
    assert (alert.activity, alert.name, alert.repeats, alert.action) == ("tool", "echo", 3, "stop")
    assert "input" not in alert.to_json()
    assert stage.of("stopped")[0].reason == "stuck"


async def test_WATCH_05_a_childs_repetition_stops_the_whole_turn(stage: Stage) -> None:
    child = Agent("c", Harness(provider(*again(5)), tools=[echo]))
    parent = Agent(
        "p", Harness(provider(calls(("review", {"prompt": "x"})), says("p")), tools=[Subagent("review", "R.", child)])
    )
    with pytest.raises(OutpostError) as caught:
        await stage.run(parent, watchdog=Watchdog(max_repeats=3))
    assert caught.value.code == "stuck"


async def test_WATCH_05_warn_goes_on(stage: Stage) -> None:
    subject = Agent("m", Harness(provider(*again(4), says("done")), tools=[echo]))
    result = await stage.run(subject, watchdog=Watchdog(max_repeats=2, on_stuck="warn"))
    assert result.text == "done"
    # WATCH-03: the window empties at each alert.
    assert len(stage.of("stuck")) == 2
    assert len(stage.of("warning")) == 2


async def test_WATCH_05_07_09_11_an_instruction_is_given_once_and_then_it_stops(stage: Stage) -> None:
    steering = Steering()
    model = provider(*again(9))
    policy = Watchdog(max_repeats=2, on_stuck=Intervention(instruction="try something else"))
    with pytest.raises(OutpostError) as caught:
        await stage.run(Agent("m", Harness(model, tools=[echo])), watchdog=policy, steering=steering)
    assert caught.value.code == "stuck"
    assert [event.action for event in stage.of("stuck")] == ["steer", "stop"]
    assert any(message.text == "try something else" for request in model.requests for message in request.messages)
    assert steering.state == "idle"


async def test_WATCH_09_without_a_controller_a_private_one_is_used(stage: Stage) -> None:
    model = provider(*again(2), says("done"))
    policy = {"repetition": {"window": 5, "max_repeats": 2}, "on_stuck": {"instruction": "stop that"}}
    result = await stage.run(Agent("m", Harness(model, tools=[echo])), watchdog=policy)
    assert result.text == "done"
    assert stage.of("steer")[0].text == "stop that"


async def test_WATCH_01_key_order_does_not_matter_but_values_and_scopes_do(stage: Stage) -> None:
    free = Tool("free", "Free.", {"type": "object"}, lambda _value, _context: "ok")
    model = provider(calls(("free", {"a": 1, "b": 2}, "1")), calls(("free", {"b": 2, "a": 1}, "2")), says("done"))
    await stage.run(Agent("m", Harness(model, tools=[free])), watchdog=Watchdog(max_repeats=2, on_stuck="warn"))
    assert len(stage.of("stuck")) == 1
    stage.events.clear()
    model = provider(calls(("free", {"a": [1, 2]}, "1")), calls(("free", {"a": [2, 1]}, "2")), says("done"))
    await stage.run(Agent("m", Harness(model, tools=[free])), watchdog=Watchdog(max_repeats=2, on_stuck="warn"))
    assert stage.of("stuck") == []


async def test_WATCH_02_one_call_id_counts_once(stage: Stage) -> None:
    model = provider(*[calls(("echo", {"text": "x"}, "same"))] * 3, says("done"))
    await stage.run(Agent("m", Harness(model, tools=[echo])), watchdog=Watchdog(max_repeats=2, on_stuck="warn"))
    assert stage.of("stuck") == []


@pytest.mark.parametrize(
    "policy",
    [
        {"window": 1},
        {"window": 10_001},
        {"max_repeats": 1},
        {"window": 3, "max_repeats": 4},
        {"on_stuck": "shout"},
        {"on_stuck": {"instruction": " "}},
        {"on_stuck": {"instruction": "x", "max_interventions": 0}},
        {"unknown": 1},
    ],
)
async def test_WATCH_10_wrong_settings_are_refused_before_running(stage: Stage, policy: dict[str, Any]) -> None:
    model = provider(says("x"))
    with pytest.raises(OutpostError) as caught:
        await stage.run(Agent("m", Harness(model)), watchdog=policy)
    assert caught.value.code == "configuration"
    assert model.requests == []


def _alerts(*events: Event, max_repeats: int = 2) -> list[int]:
    """Which events of a pass raised an alert."""
    window = Repetition(Watchdog(max_repeats=max_repeats), lambda: False)
    return [number for number, event in enumerate(events) if window.saw(event) is not None]


def test_WATCH_04_a_missing_payload_matches_a_missing_one_and_no_null() -> None:
    missing, null = ToolEvent(name="a"), ToolEvent(name="a", input=None)
    assert _alerts(missing, null, ToolEvent(name="a", input="missing")) == []
    assert _alerts(missing, null, missing) == [2]
    assert _alerts(null, missing, null) == [2]


def test_WATCH_04_a_payload_that_is_no_lossless_json_advances_the_window_and_never_matches() -> None:
    odd = ToolEvent(name="a", input={"when": float("nan")})
    assert _alerts(odd, odd, odd) == []
    like = ToolEvent(name="a", input={"x": 1})
    window = Repetition(Watchdog(window=2, max_repeats=2), lambda: False)
    assert [window.saw(event) is not None for event in (like, odd, like, like)] == [False, False, False, True]
    assert [window.saw(event) is not None for event in (like, odd, odd, like)] == [False] * 4


async def test_WATCH_08_an_instruction_that_cannot_be_delivered_fails_the_dispatch(stage: Stage) -> None:
    def broken(_value: Any, _context: Any) -> str:
        raise ValueError("broken")

    # The child is told, and ends before it comes to the next boundary.
    model = provider(calls(("echo", {"text": "x"}, "1")), calls(("echo", {"text": "x"}, "2"), ("broken", {}, "3")))
    harness = Harness(
        model,
        tools=[echo, Tool("broken", "B.", {"type": "object"}, broken)],
        tool_execution=ToolExecution(on_error="fail"),
    )
    parent = provider(calls(("review", {"prompt": "x"})), says("done"))
    policy = Watchdog(max_repeats=2, on_stuck=Intervention(instruction="try something else"))
    with pytest.raises(OutpostError) as caught:
        await stage.run(
            Agent("p", Harness(parent, tools=[Subagent("review", "R.", Agent("c", harness))])), watchdog=policy
        )
    assert caught.value.code == "steering"
    assert caught.value.details["text"] == "try something else"
    assert len(parent.requests) == 1
