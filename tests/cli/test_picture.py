"""The timeline drawn: lanes, boxes, branches, colours, heights and findings, on a page and on a terminal."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from outpost_lsp.cli.html import page
from outpost_lsp.cli.lane_text import lane_rows
from outpost_lsp.cli.lanes import lanes_of
from outpost_lsp.cli.picture import cost_text, duration_text
from outpost_lsp.cli.runs import shown_json, shown_text
from outpost_lsp.cli.terminal import Paint
from outpost_lsp.domain.price import ModelPriceTable
from outpost_lsp.domain.run import Cost, Run
from outpost_lsp.domain.usage import Usage
from outpost_lsp.service.timeline import timeline
from outpost_lsp.service.timeline_shape import Timeline
from outpost_lsp.storage.journal import JournalRecord

PRICES = ModelPriceTable("USD", {"small": {"input": 1.0, "output": 2.0}})
VOID = {"meta"}


class Page(HTMLParser):
    """A page taken apart: every element with its attributes, and whether all that was opened was closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        assert self.open == [], "everything is closed"

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def of(self, tag: str, kind: str = "") -> list[dict[str, str]]:
        return [given for name, given in self.elements if name == tag and kind in [*given.get("class", "").split(), ""]]


def records(*events: dict[str, Any]) -> list[JournalRecord]:
    return [
        JournalRecord(number, f"2026-01-01T00:00:{number:02d}.000Z", "harness", {}, event)
        for number, event in enumerate(events, 1)
    ]


def step(index: int, input: int, output: int, *, owner: str | None = None, route: str = "", **more: Any) -> list[Any]:
    mark = {} if owner is None else {"subagentId": owner}
    events: list[dict[str, Any]] = [{"kind": "step", "index": index, **mark}]
    if route:
        reason = more.pop("reason", "selected")
        model = {"name": "small" if route == "fast" else "large"}
        events.append({"kind": "model-route", "step": index, "choice": route, "model": model, "reason": reason, **mark})
    tokens = {"input": input, "output": output, **more}
    return [*events, {"kind": "usage", "tokens": tokens, "model": "small", "source": "model", **mark}]


def finding(id: str, severity: str, owner: str) -> dict[str, Any]:
    return {
        "kind": "finding",
        "callId": "c",
        "subagentId": owner,
        "finding": {
            "id": id,
            "runId": "r",
            "agent": "reviewer",
            "path": "src/<b>.py",
            "span": {"startLine": 3, "startCharacter": 0, "endLine": 3, "endCharacter": 1},
            "severity": severity,
            "code": "x",
            "title": f"<i>{id}</i>",
            "detail": "",
            "quote": "q",
            "fingerprint": id,
        },
    }


def child(id: str, status: str) -> dict[str, Any]:
    return {"kind": "subagent", "id": id, "callId": "c", "name": "reviewer", "status": status}


TOLD = timeline(
    records(
        *step(1, 90, 10, route="deep"),
        child("s1", "started"),
        *step(1, 40, 10, owner="s1", route="fast"),
        finding("f1", "error", "s1"),
        finding("f2", "error", "s1"),
        finding("f3", "hint", "s1"),
        child("s1", "finished"),
        child("s2", "started"),
        *step(1, 0, 0, owner="s2", route="deep", reason="unavailable", complete=False),
        {"kind": "tool", "name": "grep", "input": {}, "callId": "g", "subagentId": "s2"},
        {
            "kind": "tool-result",
            "callId": "g",
            "name": "grep",
            "isError": True,
            "preview": "no",
            "characters": 2,
            "durationMs": 1_500,
            "subagentId": "s2",
        },
        child("s2", "failed"),
        *step(2, 190, 10),
    ),
    PRICES,
)


def run(**changes: Any) -> Run:
    fields: dict[str, Any] = {
        "id": "20260101-000000-000000-abcdef",
        "kind": "dispatch",
        "agent": "coordinator",
        "title": "coordinator: <script>alert(1)</script>",
        "status": "succeeded",
        "workspace": "/home/me/project",
        "started_at": "2026-01-01T00:00:00.000Z",
        "finished_at": "2026-01-01T00:01:05.000Z",
        "usage": Usage(input=320, output=30, complete=False),
        "cost": Cost(amount=0.0004, currency="USD", complete=False),
        "findings": 3,
    }
    return Run.model_validate(fields | changes)


def shown(told: Timeline = TOLD, **changes: Any) -> Page:
    return Page("\n".join(page(run(**changes), told)))


def test_agents_have_lanes_and_delegations_are_branches_between_them() -> None:
    lanes = lanes_of(run(), TOLD)
    assert [(lane.name, lane.depth, [box.column for box in lane.boxes]) for lane in lanes.lanes] == [
        ("coordinator", 0, [0, 3]),
        ("reviewer", 1, [1, 2]),
    ]
    assert [(branch.leaves, branch.first, branch.last, branch.returns) for branch in lanes.branches] == [
        (0, 1, 1, 3),
        (0, 2, 2, 3),
    ]
    drawn = shown()
    assert [given["class"] for given in drawn.of("path", "branch")] == ["branch finished", "branch failed"]


def test_a_child_of_a_child_has_a_lane_of_its_own_and_circles_in_a_journal_end() -> None:
    nested = timeline(
        records(
            *step(1, 1, 1),
            child("s1", "started"),
            *step(1, 1, 1, owner="s1"),
            child("s2", "started") | {"subagentId": "s1"},
            *step(1, 1, 1, owner="s2"),
            child("s3", "started") | {"subagentId": "s3"},
            *step(1, 1, 1, owner="s3"),
        )
    )
    lanes = lanes_of(run(), nested)
    assert [lane.depth for lane in lanes.lanes][:3] == [0, 1, 2]
    assert sum(len(lane.boxes) for lane in lanes.lanes) == 4
    shown(nested)


def test_routes_are_colours_with_a_legend_and_doubt_is_marked() -> None:
    drawn = shown()
    groups = [given["class"] for given in drawn.of("g")]
    assert sorted(groups) == sorted(["route0", "route1", "route0 unsure second", "plain"])
    legend = "".join(drawn.texts)
    assert "deep: large, 2 steps" in legend
    assert "fast: small, 1 step" in legend
    assert "not routed" in legend
    assert "taken on doubt or outage" in legend


def test_tokens_are_heights_and_the_output_is_a_part_of_them() -> None:
    heights = {given["x"]: int(given["height"]) for given in shown().of("rect", "input")}
    first, second, third, fourth = (heights[x] for x in sorted(heights, key=float))
    assert fourth > first > second > third > 0
    output = [int(given["height"]) for given in shown().of("rect", "output")]
    assert len(output) == 3, "nothing was said where nothing was told"


def test_findings_stand_where_they_were_reported_and_lead_to_their_step() -> None:
    drawn = shown()
    assert [given["class"] for given in drawn.of("path", "finding")] == ["finding error", "finding hint"]
    assert "2 error" in drawn.texts
    anchors = {given["href"] for given in drawn.of("a")}
    places = {f"#{given['id']}" for given in drawn.of("section")}
    assert anchors == places == {"#step1", "#step2", "#step3", "#step4"}
    assert "src/<b>.py:4" in "".join(drawn.texts)


def test_the_page_needs_nothing_and_does_nothing() -> None:
    text = "\n".join(page(run(), TOLD))
    assert "<script" not in text
    assert not re.search(r"https?:|url\(|@import| on[a-z]+=", text)
    assert "default-src 'none'" in text
    assert "prefers-color-scheme:dark" in text
    assert {tag for tag, _ in Page(text).elements}.isdisjoint({"script", "img", "link", "iframe", "object"})


def test_PRICE_04_what_is_unknown_is_never_shown_as_zero() -> None:
    [unknown] = [one for one in TOLD.steps if not one.usage.is_complete]
    assert unknown.cost == Cost(amount=0, currency="USD", complete=False)
    assert cost_text(unknown.cost) == "cost unknown"
    assert cost_text(unknown.cost, short=True) == "?"
    assert cost_text(Cost(amount=0.5, currency="USD", complete=False)) == "at least 0.5000 USD"
    assert cost_text(Cost(amount=0, currency="EUR", complete=True), short=True) == "€0.0000"
    assert "$0.0000" not in "".join(shown().texts)
    told = shown_json(run(cost=unknown.cost), TOLD)
    costs = [one.get("cost") for key in ("steps", "usage") for one in told[key]]
    assert all(cost is None or cost["amount"] for cost in costs), costs
    assert any(costs)
    assert "cost" not in told["run"]


@pytest.mark.parametrize("usage", [Usage(input=320, output=30, complete=False), Usage(input=320, output=30)])
def test_PRICE_04_where_money_is_counted_no_cost_is_left_blank(usage: Usage) -> None:
    """The record has a cost, and the settings of today have no prices."""
    unpriced = timeline(records(*step(1, 90, 10), *step(2, 0, 0)), None)
    drawn = shown(unpriced, usage=usage)
    table = [text for text in drawn.texts if text.strip()]
    at = table.index("together")
    assert table[at - 3 : at] == ["coordinator", "90 in, 10 out", "unknown"]
    assert "$0.0000" in drawn.texts, "what used nothing costs nothing, whatever the prices"
    assert "?" in drawn.texts, "on the box of the picture"
    lines = list(shown_text(run(usage=usage), unpriced, Paint(colour=False)))
    assert [line.rpartition(", ")[2] for line in lines if " step " in line] == ["cost unknown", "0.0000 USD"]


def test_a_run_of_a_day_without_prices_costs_what_its_steps_do_today() -> None:
    priced = timeline(records(*step(1, 500_000, 0)), PRICES)
    drawn = shown(priced, cost=None, usage=Usage(input=500_000, output=0))
    assert drawn.texts.count("0.5000 USD") == 3, "the whole, the agent, and all agents together"
    assert "together" not in shown(Timeline(untold="x"), cost=None).texts


def test_tokens_of_which_nothing_is_known_are_unknown_and_not_zero() -> None:
    killed = timeline(records(*step(1, 7, 1), {"kind": "step", "index": 2}))
    told = "\n".join(shown_text(run(usage=Usage(input=0, output=0, complete=False)), killed, Paint(colour=False)))
    assert "coordinator step 2, tokens unknown" in told
    assert "interrupted" not in told
    assert " 0 in, 0 out" not in told
    drawn = shown(killed, usage=Usage(input=0, output=0, complete=False))
    assert " 0 in, 0 out" not in "".join(drawn.texts)
    assert "unknown" in drawn.texts
    assert [given["class"] for given in drawn.of("g")] == ["plain", "plain unsure"]


def test_delegations_to_one_agent_are_told_apart_and_findings_name_who_reported_them() -> None:
    texts = shown().texts
    assert [text for text in texts if text.startswith("reviewer, delegation")] == [
        "reviewer, delegation 1",
        "reviewer, delegation 2",
    ]
    links = [text for text in texts if text == "reviewer, step 1"]
    assert len(links) == 3 + 2, "three findings, and the headings of two steps"


def test_a_run_without_steps_says_why_on_the_page_and_on_the_terminal() -> None:
    empty = timeline([])
    assert empty.untold is not None
    assert f"No steps to show: {empty.untold}." in "".join(shown(empty).texts)
    assert f"no steps to show: {empty.untold}" in list(shown_text(run(), empty, Paint(colour=False)))
    assert "No steps to show" not in "".join(shown().texts)


def test_steps_and_calls_have_durations() -> None:
    assert [one.duration_ms for one in TOLD.steps] == [17_000, 5_000, 4_000, 1_000], (
        "a delegation is a part of its step"
    )
    assert TOLD.steps[2].tools[0].duration_ms == 1_500
    assert [duration_text(value) for value in (0, 999, 1_000, 59_940, 65_000)] == [
        "0 ms",
        "999 ms",
        "1.0 s",
        "59.9 s",
        "1 min 5 s",
    ]


@pytest.mark.parametrize("told", [Timeline(), timeline(records(*step(1, 0, 0)))])
def test_a_run_without_a_journal_and_one_without_tokens_have_a_page_too(told: Timeline) -> None:
    assert "coordinator" in "".join(shown(told, cost=None, text="<b>done</b>").texts)


def test_many_labels_share_colours() -> None:
    events = [event for number in range(11) for event in step(number + 1, 1, 1, route=f"label{number}")]
    drawn = shown(timeline(records(*events)))
    assert len(drawn.of("g")) == 11


def test_on_a_terminal_a_row_of_boxes_for_each_agent_goes_on_below_where_it_is_wide() -> None:
    lanes = lanes_of(run(), TOLD)
    assert list(lane_rows(lanes, Paint(colour=False), 100)) == [
        "coordinator  [1 deep]    ·           ·           [2]",
        "  reviewer   ·           [1 fast *3] [1 deep?]   ·",
    ]
    assert list(lane_rows(lanes, Paint(colour=False), 40)) == [
        "coordinator  [1 deep]    ·",
        "  reviewer   ·           [1 fast *3]",
        "coordinator  ·           [2]",
        "  reviewer   [1 deep?]   ·",
    ]
    coloured = list(lane_rows(lanes, Paint(colour=True), 100))
    assert "\x1b[34m[1 deep]" in coloured[0]
    assert "\x1b[33m[1 fast *3]" in coloured[1]
    assert list(lane_rows(lanes_of(run(), Timeline()), Paint(colour=False), 80)) == []
