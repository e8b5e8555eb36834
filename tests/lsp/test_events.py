"""The stream of an agent's events as a client subscribed to it (section 4 of the protocol)."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from outpost_lsp.domain.event import (
    Event,
    ModelRouteEvent,
    RawEvent,
    ReasoningEvent,
    RoutedModel,
    StderrEvent,
    StepEvent,
    TextDeltaEvent,
    ToolOutputEvent,
)
from outpost_lsp.lsp.events import INTERVAL_S, EventStream
from outpost_lsp.lsp.payloads import route_json
from outpost_lsp.protocol.notifications import NOTIFICATIONS
from outpost_lsp.service.signals import Routed

LEFT_OUT: tuple[Event, ...] = (
    TextDeltaEvent(text="t"),
    ReasoningEvent(text="r"),
    ToolOutputEvent(call_id="c", channel="stdout", text="o"),
    StderrEvent(text="s"),
    RawEvent(value={"v": 1}),
)


class Client:
    """What was sent, and whether it is read."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.is_congested = False
        self.stream = EventStream(lambda run, event: self.sent.append((run, event)), lambda: self.is_congested)

    def kinds(self) -> list[str]:
        return [event["kind"] for _, event in self.sent]


async def test_a_summary_leaves_the_pieces_and_what_programs_say_out() -> None:
    for level, kinds in (
        ("off", []),
        ("summary", ["step"]),
        ("all", [*(event.kind for event in LEFT_OUT), "step"]),
    ):
        client = Client()
        for event in (*LEFT_OUT, StepEvent(index=1)):
            client.stream.take("run", event, level)
        client.stream.forget("run")
        assert client.kinds() == kinds


async def test_pieces_of_one_text_are_joined_to_at_most_twenty_a_second_and_run() -> None:
    client = Client()
    start = time.monotonic()
    for number in range(2_000):
        for run in ("first", "second"):
            client.stream.take(run, TextDeltaEvent(text=f"{number} "), "all")
        if number % 100 == 0:
            await asyncio.sleep(0)
    for run in ("first", "second"):
        client.stream.forget(run)
    most = 2 + (time.monotonic() - start) / INTERVAL_S
    for run in ("first", "second"):
        texts = [event["text"] for one, event in client.sent if one == run]
        assert "".join(texts) == "".join(f"{number} " for number in range(2_000))
        assert len(texts) <= most


async def test_what_comes_after_a_piece_is_sent_after_it_and_pieces_of_two_streams_stay_apart() -> None:
    client = Client()
    for text in ("a", "b"):
        client.stream.take("run", TextDeltaEvent(text=text), "all")
    client.stream.take("run", ReasoningEvent(text="hm"), "all")
    client.stream.take("run", TextDeltaEvent(text="c", subagent_id="child"), "all")
    client.stream.take("run", StepEvent(index=2), "all")
    assert client.kinds()[-1] == "step"
    texts = [(event["kind"], event.get("subagentId"), event["text"]) for _, event in client.sent[:-1]]
    assert "".join(text for kind, child, text in texts if kind == "text-delta" and child is None) == "ab"
    assert texts[-2:] == [("reasoning", None, "hm"), ("text-delta", "child", "c")]


async def test_a_client_that_does_not_keep_up_misses_pieces_and_nothing_else() -> None:
    client = Client()
    client.is_congested = True
    client.stream.take("run", TextDeltaEvent(text="a"), "all")
    client.stream.take("run", StepEvent(index=1), "all")
    client.stream.take("run", StderrEvent(text="s"), "all")
    assert client.kinds() == ["step", "stderr"]


def test_a_route_says_which_number_was_compared_when_it_is_another_and_which_rule_it_was() -> None:
    event = ModelRouteEvent(
        step=3,
        choice="deep",
        model=RoutedModel(name="large-1"),
        reason="confidence",
        confidence=0.4,
        reported_confidence=0.9,
        rule="R4",
    )
    sent = route_json(Routed("run", "reviewer", "child", event))
    NOTIFICATIONS["$/outpost/route"].params.model_validate(sent)
    assert sent == {
        "runId": "run",
        "agent": "reviewer",
        "subagentId": "child",
        "step": 3,
        "choice": "deep",
        "model": "large-1",
        "reason": "confidence",
        "confidence": 0.4,
        "reportedConfidence": 0.9,
        "rule": "R4",
    }
