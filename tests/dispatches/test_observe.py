"""The observation hub (OBS rules)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from outpost_lsp import Agent, Harness, ObservationHub, OutpostError, Subagent
from outpost_lsp.domain.event import StepEvent, TextEvent, ToolEvent
from outpost_lsp.domain.observation import Observation, Scope
from tests.harness.stage import Stage, calls, provider, says


def test_OBS_01_numbers_run_over_a_hub_and_its_children_and_scopes_merge() -> None:
    seen: list[Observation] = []
    root = ObservationHub([seen.append], scope={"execution_id": "e"})
    child = root.child({"dispatch_id": "d"})
    root.emit(StepEvent(index=1))
    child.emit(StepEvent(index=2), scope=Scope(subagent_id="s"))
    root.emit(StepEvent(index=3))
    assert [one.seq for one in seen] == [1, 2, 3]
    assert seen[1].scope.to_json() == {"executionId": "e", "dispatchId": "d", "subagentId": "s"}
    assert seen[2].scope.to_json() == {"executionId": "e"}


async def test_OBS_01_closing_a_child_does_not_close_the_parent() -> None:
    seen: list[Observation] = []
    root = ObservationHub([seen.append])
    child = root.child({"dispatch_id": "d"})
    await child.close()
    child.emit(StepEvent(index=1))
    root.emit(StepEvent(index=2))
    assert [one.event.index for one in seen] == [2]  # type: ignore[attr-defined]


async def test_OBS_04_65_scopes_hold_the_pass_and_the_child(stage: Stage) -> None:
    seen: list[Observation] = []
    child = Agent("c", Harness(provider(says("child"))))
    parent = Agent("p", Harness(provider(calls(("review", {"prompt": "x"})), says("p")), tools=[Subagent("review", "R.", child)]))  # fmt: skip
    await stage.run(parent, observation=ObservationHub([seen.append]))
    run = stage.of("subagent")[0].id
    of_child = [one for one in seen if getattr(one.event, "subagent_id", None) == run]
    assert of_child
    assert all(one.scope.subagent_id == run and one.scope.pass_ == 1 for one in of_child)
    assert all(one.source == "harness" for one in of_child)


async def test_OBS_05_an_asynchronous_sink_gets_events_in_order_and_overflow_drops_the_newest() -> None:
    seen: list[int] = []
    gate = asyncio.Event()

    async def slow(observation: Observation) -> None:
        await gate.wait()
        seen.append(observation.event.index)  # type: ignore[attr-defined]

    hub = ObservationHub([slow], capacity=3)
    for index in range(1, 8):
        hub.emit(StepEvent(index=index))
    assert hub.dropped == 4
    gate.set()
    await hub.flush()
    assert seen == [1, 2, 3]
    assert len(hub.errors) == 1


async def test_OBS_06_a_slow_delivery_disables_its_sink() -> None:
    calls_: list[int] = []

    async def stuck(observation: Observation) -> None:
        calls_.append(observation.seq)
        await asyncio.Event().wait()

    hub = ObservationHub([stuck], delivery_timeout_s=0.05)
    hub.emit(StepEvent(index=1))
    hub.emit(StepEvent(index=2))
    await hub.flush()
    hub.emit(StepEvent(index=3))
    assert calls_ == [1]
    assert hub.dropped == 3
    assert any("too long" in text for text in hub.errors)


async def test_OBS_07_failing_sinks_change_nothing_and_are_told_in_the_result(stage: Stage) -> None:
    def broken(_observation: Observation) -> None:
        raise RuntimeError("sink")

    async def broken_too(_observation: Observation) -> None:
        raise RuntimeError("async sink")

    hub = ObservationHub([broken, broken_too])
    result = await stage.run(Agent("m", Harness(provider(says("done")))), observation=hub)
    assert result.text == "done"
    assert any("sink" in text for text in result.observer_errors)
    for _ in range(200):
        hub.emit(StepEvent(index=1))
    assert len(hub.errors) == 100


def test_OBS_08_an_event_emitted_from_inside_a_sink_is_queued_and_bounded() -> None:
    seen: list[int] = []
    hub = ObservationHub(capacity=5)

    def echoing(observation: Observation) -> None:
        seen.append(observation.event.index)  # type: ignore[attr-defined]
        if len(seen) < 50:
            for _ in range(10):
                hub.emit(StepEvent(index=observation.event.index + 1))  # type: ignore[attr-defined]

    hub.add_sink(echoing)
    hub.emit(StepEvent(index=1))
    assert seen[0] == 1
    assert any("queue is full" in text for text in hub.errors)


async def test_OBS_09_after_close_nothing_is_delivered() -> None:
    seen: list[Any] = []

    async def sink(observation: Observation) -> None:
        await asyncio.sleep(0)
        seen.append(observation.seq)

    hub = ObservationHub([sink])
    child = hub.child({"dispatch_id": "d"})
    child.emit(StepEvent(index=1))
    await hub.close()
    child.emit(StepEvent(index=2))
    hub.emit(StepEvent(index=3))
    assert seen == [1]


def test_OBS_10_patterns_are_masked_in_texts_and_not_in_keys() -> None:
    seen: list[Observation] = []
    hub = ObservationHub([seen.append], redact=["secret-[a-z]+"])
    event = ToolEvent(name="x", input={"secret-key": ["a secret-value", 1]}, call_id="c")
    hub.emit(event)
    hub.emit(TextEvent(text="say secret-word"))
    assert seen[0].event.input == {"secret-key": ["a [redacted]", 1]}  # type: ignore[attr-defined]
    assert seen[1].event.text == "say [redacted]"  # type: ignore[attr-defined]
    # The engine works with what it had.
    assert event.input == {"secret-key": ["a secret-value", 1]}


@pytest.mark.parametrize("options", [{"capacity": 0}, {"delivery_timeout_s": 0}, {"redact": ["("]}])
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(OutpostError) as caught:
        ObservationHub(**options)
    assert caught.value.code == "configuration"
