"""Going through a recorded dispatch again (RPL rules)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp import (
    Agent,
    Choice,
    Decision,
    FallbackAgent,
    Harness,
    Journal,
    ModelRouting,
    ObservationHub,
    OutpostError,
    ReplayAgent,
    ScriptedDecisionProvider,
    Steering,
    Subagent,
    Tool,
    read_journal,
)
from tests.harness.stage import Stage, calls, echo, provider, says, usage

ANY: dict[str, Any] = {"type": "object"}


def write_tool() -> Tool:
    async def write(value: Any, context: Any) -> str:
        await context.sandbox.files.write(value["path"], value["text"].encode())
        return "written"

    return Tool("write", "Write.", ANY, write)


def routed(*labels: str) -> ModelRouting:
    return ModelRouting(
        provider=ScriptedDecisionProvider([(label, 0.9) for label in labels]),
        model="auto",
        decision=Decision({"route": Choice("Choose.", {"fast": "a", "deep": "b"})}),
        question="route",
        models={"fast": "small", "deep": "large"},
        fallback="deep",
    )


def story(stage: Stage) -> list[dict[str, Any]]:
    """What happened, without times, run ids of the replay or the dispatch's own events."""
    left_out = {"phase", "prompt", "summary", "text-delta"}
    return [
        {key: value for key, value in event.to_json().items() if key not in ("at", "pass", "durationMs")}
        for event in stage.events
        if event.kind not in left_out
    ]


async def recorded(stage: Stage, tmp_path: Path, *, verbose: bool = False) -> tuple[Path, Any, list[Any]]:
    path = tmp_path / "journal.jsonl"
    seen: list[Any] = []
    child = Agent("c", Harness(provider(says("child"))))
    model = provider(
        calls(("write", {"path": "new.txt", "text": "agent\n"}), ("review", {"prompt": "x"})),
        says("done", tokens=usage(5, 1, 2)),
    )
    subject = Agent(
        "m",
        Harness(model, tools=[write_tool(), Subagent("review", "R.", child)], routing=routed("fast", "deep")),
    )
    result = await stage.run(
        subject,
        journal=Journal(path=path, verbose=verbose),
        observation=ObservationHub([seen.append], verbose=verbose),
    )
    return path, result, seen


async def test_RPL_01_02_a_replay_gives_the_same_events_usage_and_changes(stage: Stage, tmp_path: Path) -> None:
    path, first, _ = await recorded(stage, tmp_path)
    before = story(stage)
    stage.events.clear()
    again = await stage.run(ReplayAgent(path))
    assert story(stage) == before
    assert again.usage == first.usage
    assert again.text == first.text
    assert again.changes.tree == first.changes.tree
    assert again.conversation is None


async def test_RPL_03_ROUTE_62_decisions_are_emitted_at_their_place_and_details_need_a_verbose_hub(
    stage: Stage, tmp_path: Path
) -> None:
    path, _, _ = await recorded(stage, tmp_path, verbose=True)
    for verbose, wanted in ((True, 8), (False, 4)):
        seen: list[Any] = []
        await stage.run(ReplayAgent(path), observation=ObservationHub([seen.append], verbose=verbose))
        decisions = [one for one in seen if one.source == "decision"]
        assert len(decisions) == wanted
        kinds = [one.event.kind for one in seen]
        assert kinds.index("decision") < kinds.index("model-route")


async def test_RPL_05_a_difference_is_a_replay_fault_or_a_warning(stage: Stage, tmp_path: Path) -> None:
    path, _, _ = await recorded(stage, tmp_path)
    with pytest.raises(OutpostError) as caught:
        await stage.run(ReplayAgent(path), "another brief")
    assert (caught.value.code, caught.value.details["kind"]) == ("replay", "prompt")
    stage.events.clear()
    await stage.run(ReplayAgent(path, divergence="warn"), "another brief")
    assert any("prompt" in event.message for event in stage.of("warning"))
    (stage.repository / "more.txt").write_text("meanwhile\n")
    with pytest.raises(OutpostError) as caught:
        await stage.run(ReplayAgent(path))
    assert caught.value.details["kind"] == "baseline"


async def test_RPL_05_a_recording_without_the_changes_says_so(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    model = provider(calls(("write", {"path": "new.txt", "text": "agent\n"})), says("done"))
    subject = Agent("m", Harness(model, tools=[write_tool()]))
    first = await stage.run(subject, journal=Journal(path=path, replayable=False))
    assert first.changes.files
    stage.events.clear()
    again = await stage.run(ReplayAgent(path))
    assert not again.changes.files
    [told] = stage.of("warning")
    assert "does not hold what the run changed" in told.message


async def test_RPL_06_a_recorded_failure_is_raised_again_after_its_events(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    model = provider(calls(("echo", {"text": "x"})), OutpostError("quota", "HTTP 429"))
    with pytest.raises(OutpostError):
        await stage.run(Agent("m", Harness(model, tools=[echo])), journal=Journal(path=path))
    stage.events.clear()
    with pytest.raises(OutpostError) as caught:
        await stage.run(ReplayAgent(path))
    assert (caught.value.code, caught.value.message, caught.value.details["replayed"]) == ("quota", "HTTP 429", True)
    assert len(stage.of("tool-result")) == 1


async def test_RPL_06_a_cancelled_run_is_recorded_and_replayed_as_such(stage: Stage, tmp_path: Path) -> None:
    import asyncio

    path = tmp_path / "journal.jsonl"
    began = asyncio.Event()

    async def hang(_value: Any, _context: Any) -> str:
        began.set()
        await asyncio.Event().wait()
        return ""

    subject = Agent("m", Harness(provider(calls(("hang", {}))), tools=[Tool("hang", "Hang.", ANY, hang)]))
    running = asyncio.ensure_future(stage.run(subject, journal=Journal(path=path)))
    await began.wait()
    running.cancel("by a task of this process")
    with pytest.raises(asyncio.CancelledError):
        await running
    assert "of this process" not in path.read_text("utf-8")
    with pytest.raises(OutpostError) as caught:
        await stage.run(ReplayAgent(path))
    assert (caught.value.code, caught.value.message) == ("aborted", "the dispatch was cancelled")
    assert caught.value.details["replayed"] is True


async def test_RPL_07_a_handover_is_replayed_within_one_turn(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    first = Agent(
        "one", Harness(provider(calls(("echo", {"text": "x"})), OutpostError("quota", "HTTP 429")), tools=[echo])
    )
    second = Agent("two", Harness(provider(says("done", tokens=usage(5, 1, 2)))))
    recorded = await stage.run(FallbackAgent([first, second], ["quota"]), "the brief", journal=Journal(path=path))
    assert recorded.fallback is not None
    lines = path.read_text().splitlines()
    # What the second candidate was asked is not compared.
    later = [number for number, line in enumerate(lines) if '"kind":"prompt"' in line][1]
    lines[later] = lines[later].replace("the brief", "another brief")
    path.write_text("\n".join(lines) + "\n")
    before = [event for event in story(stage) if event["kind"] != "fallback"]
    stage.events.clear()
    again = await stage.run(ReplayAgent(path), "the brief")
    assert story(stage) == before
    assert (again.text, again.fallback, len(again.turns)) == ("done", None, 1)
    assert again.usage == recorded.usage
    assert again.usage.input == 7
    assert stage.of("fallback") == []


@pytest.mark.parametrize(("hub", "journal"), [(True, True), (True, False), (False, True), (False, False)])
async def test_JRN_03_requests_and_answers_are_in_a_journal_only_when_hub_and_journal_are_verbose(
    stage: Stage, tmp_path: Path, hub: bool, journal: bool
) -> None:
    path = tmp_path / "journal.jsonl"
    await stage.run(
        Agent("m", Harness(provider(says("done")), routing=routed("fast"))),
        journal=Journal(path=path, verbose=journal),
        observation=ObservationHub(verbose=hub),
    )
    full = {"model-request", "model-response", "decision-request", "decision-response"}
    kinds = {record.kind for record in read_journal(path)}
    assert kinds & full == (full if hub and journal else set())
    assert "decision" in kinds


async def test_RPL_08_steered_runs_replay_turn_by_turn(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    steering = Steering()

    def observe(event: Any) -> None:
        stage.events.append(event)

    import asyncio

    sent = asyncio.ensure_future(steering.send("mind the tests"))
    await asyncio.sleep(0)
    await stage.run(
        Agent("m", Harness(provider(says("one")))), steering=steering, observe=observe, journal=Journal(path=path)
    )
    await sent
    before = story(stage)
    stage.events.clear()
    await stage.run(ReplayAgent(path))
    assert story(stage) == before


async def test_RPL_09_a_recording_is_replayed_once_and_can_do_nothing_else(stage: Stage, tmp_path: Path) -> None:
    path, _, _ = await recorded(stage, tmp_path)
    replay = ReplayAgent(path)
    assert replay.remaining_turns == 1
    for options in ({"continuation": "x"}, {"steering": Steering()}, {"watchdog": {"max_repeats": 2}}):
        with pytest.raises(OutpostError) as caught:
            await stage.run(replay, **options)
        assert caught.value.code == "configuration"
    await stage.run(replay)
    assert replay.remaining_turns == 0
    with pytest.raises(OutpostError) as caught:
        await stage.run(replay)
    assert caught.value.code == "configuration"
    with pytest.raises(OutpostError):
        Subagent("replay", "R.", replay)  # type: ignore[arg-type]


def test_RPL_04_what_is_no_journal_at_all_is_refused() -> None:
    with pytest.raises(OutpostError) as caught:
        ReplayAgent(3)  # type: ignore[arg-type]
    assert caught.value.code == "configuration"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "configuration"),
        ('{"seq": 1}\n', "configuration"),
    ],
)
def test_RPL_04_a_journal_without_turns_is_refused(tmp_path: Path, text: str, code: str) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(text)
    with pytest.raises(OutpostError) as caught:
        ReplayAgent(path)
    assert caught.value.code == code
    with pytest.raises(OutpostError):
        ReplayAgent(tmp_path / "missing.jsonl")


async def test_RPL_04_a_malformed_decision_names_itself(stage: Stage, tmp_path: Path) -> None:
    path, _, _ = await recorded(stage, tmp_path)
    lines = path.read_text().splitlines()
    index = next(number for number, line in enumerate(lines) if '"kind":"decision"' in line)
    lines[index] = lines[index].replace('"status":"started"', '"status":"napping"')
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(OutpostError) as caught:
        await stage.run(ReplayAgent(path))
    assert caught.value.code == "configuration"
    assert "decision" in caught.value.message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("durationMs", value) for value in (-4, "4", True, 1.5, None)),
        *((name, value) for name in ("provider", "model") for value in ("", " \t", 7, None)),
        *(("usage", value) for value in (None, 7, {}, {"input": -1, "output": 0}, {"input": True, "output": 0})),
        *(("truncated", value) for value in (1, "true")),
        *(("code", value) for value in ("", 7)),
        *(("status", value) for value in ("", "napping", None)),
    ],
)
async def test_RPL_04_a_field_of_a_recorded_decision_that_cannot_be_is_refused(
    stage: Stage, tmp_path: Path, field: str, value: object
) -> None:
    path, _, _ = await recorded(stage, tmp_path)
    written = [json.loads(line) for line in path.read_text().splitlines()]
    ended = next(one for one in written if one["event"].get("status") == "finished")
    ended["event"][field] = value
    path.write_text("".join(f"{json.dumps(one)}\n" for one in written))
    with pytest.raises(OutpostError) as caught:
        await stage.run(ReplayAgent(path))
    assert (caught.value.code, caught.value.message) == (
        "configuration",
        f"journal: the decision event {ended['seq']} is malformed",
    )


async def test_REL_21_kinds_and_fields_of_a_newer_version_cost_only_themselves(stage: Stage, tmp_path: Path) -> None:
    path, first, _ = await recorded(stage, tmp_path)
    before = story(stage)
    written = [json.loads(line) for line in path.read_text().splitlines()]
    for one in written:
        if one["event"]["kind"] in ("model-route", "decision", "usage"):
            one["event"]["later"] = {"a": 1}
    at = next(number for number, one in enumerate(written) if one["event"]["kind"] == "model-route")
    for source in ("harness", "decision"):
        written.insert(at, {**written[at], "source": source, "event": {"kind": f"later-{source}", "text": "x"}})
    path.write_text("".join(f"{json.dumps(one)}\n" for one in written))
    stage.events.clear()
    again = await stage.run(ReplayAgent(path))
    assert again.usage == first.usage
    [warning] = stage.of("warning")
    assert warning.message.endswith("does not know were left out: later-decision, later-harness")
    assert [one for one in story(stage) if one["kind"] != "warning"] == before


async def test_REL_21_a_torn_last_line_and_a_foreign_one_cost_only_themselves(stage: Stage, tmp_path: Path) -> None:
    path, first, _ = await recorded(stage, tmp_path)
    lines = path.read_text().splitlines()
    lines.insert(3, "not json")
    path.write_text("\n".join(lines) + '\n{"seq": 99, "at"')
    again = await stage.run(ReplayAgent(path))
    assert again.usage == first.usage


async def test_a_recording_that_is_whole_has_no_gaps(stage: Stage, tmp_path: Path) -> None:
    path, _, _ = await recorded(stage, tmp_path)
    stage.events.clear()
    await stage.run(ReplayAgent(path))
    assert stage.of("warning") == []


def without(path: Path, *kinds: str, step: int | None = None) -> None:
    """Cut the main agent's records of these kinds out of a journal; of one step or of all."""
    kept, at = [], 0
    for line in path.read_text().splitlines(keepends=True):
        event = json.loads(line)["event"]
        name = f"{event['source']} usage" if event["kind"] == "usage" else event["kind"]
        at = event["index"] if event["kind"] == "step" and "subagentId" not in event else at
        if name not in kinds or step not in (None, at) or "subagentId" in event:
            kept.append(line)
    path.write_text("".join(kept))


async def told(stage: Stage, path: Path) -> list[str]:
    stage.events.clear()
    await stage.run(ReplayAgent(path))
    return [event.message for event in stage.of("warning")]


@pytest.mark.parametrize(
    ("kind", "at", "told"),
    [
        ("step", 0, "step 2 follows nothing"),
        ("tool", 0, "the call of a result of write is missing"),
        ("tool-result", 0, "a result that step 2 was given is missing"),
        ("usage", -1, "the receipts do not add up to what the turn used"),
        ("decision", 0, "the beginning of a decision is missing"),
    ],
)
async def test_records_that_were_cut_out_of_the_middle_are_told(
    stage: Stage, tmp_path: Path, kind: str, at: int, told: str
) -> None:
    path, _, _ = await recorded(stage, tmp_path)
    lines = path.read_text().splitlines(keepends=True)
    lines.remove([line for line in lines if json.loads(line)["event"]["kind"] == kind][at])
    path.write_text("".join(lines))
    stage.events.clear()
    await stage.run(ReplayAgent(path))
    [warning] = stage.of("warning")
    assert warning.message.startswith("records are missing from turn 1 of the recording: ")
    assert told in warning.message


@pytest.mark.parametrize(
    ("kinds", "step", "gap"),
    [
        (("decision",), 1, "the decision of step 1 is missing"),
        (("decision",), 2, "the decision of step 2 is missing"),
        (("decision",), None, "the decision of step 1 is missing, and 1 more"),
        (("model-route",), 1, "the route of step 1 is missing"),
        (("model-route",), 2, "the route of step 2 is missing"),
        (("decision", "model-route"), 2, "the decision and the route of step 2 are missing"),
        # The receipts of a decider without tokens add up without it.
        (("decision", "model-route", "decision usage"), 1, "the decision and the route of step 1 are missing"),
        (("decision", "model-route", "decision usage"), 2, "the decision and the route of step 2 are missing"),
        (("decision", "model-route"), None, "the decision and the route of step 1 are missing, and 1 more"),
    ],
)
async def test_RPL_01_decisions_and_routes_that_were_cut_out_are_told_by_their_step(
    stage: Stage, tmp_path: Path, kinds: tuple[str, ...], step: int | None, gap: str
) -> None:
    path, _, _ = await recorded(stage, tmp_path)
    without(path, *kinds, step=step)
    assert await told(stage, path) == [f"records are missing from turn 1 of the recording: {gap}"]


@pytest.mark.parametrize("ended", ["finished", "failed"])
async def test_RPL_01_the_end_of_a_decision_that_was_cut_out_is_told(stage: Stage, tmp_path: Path, ended: str) -> None:
    path = tmp_path / "journal.jsonl"
    outage = OutpostError("timeout", "too slow")
    answers = [("fast", 0.9) if ended == "finished" else outage]
    routing = routed().replace(provider=ScriptedDecisionProvider(answers))
    await stage.run(Agent("m", Harness(provider(says("done")), routing=routing)), journal=Journal(path=path))
    assert await told(stage, path) == []
    path.write_text("".join(line for line in path.read_text().splitlines(True) if f'"status":"{ended}"' not in line))
    assert await told(stage, path) == [
        "records are missing from turn 1 of the recording: the end of a decision is missing"
    ]


async def test_RPL_01_the_routes_of_a_child_are_looked_at_apart_from_its_parents(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    child = Agent("c", Harness(provider(says("child")), routing=routed("fast")))
    model = provider(calls(("review", {"prompt": "x"})), says("done"))
    await stage.run(Agent("m", Harness(model, tools=[Subagent("review", "R.", child)])), journal=Journal(path=path))
    assert await told(stage, path) == []
    path.write_text("".join(line for line in path.read_text().splitlines(True) if '"kind":"model-route"' not in line))
    assert await told(stage, path) == [
        "records are missing from turn 1 of the recording: the route of step 1 is missing"
    ]


async def test_RPL_06_a_decision_that_ended_its_run_needs_no_route(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    routing = routed().replace(provider=ScriptedDecisionProvider([("fast", 0.9), OutpostError("quota", "HTTP 429")]))
    model = provider(calls(("echo", {"text": "x"})))
    with pytest.raises(OutpostError):
        await stage.run(Agent("m", Harness(model, tools=[echo], routing=routing)), journal=Journal(path=path))
    stage.events.clear()
    with pytest.raises(OutpostError) as caught:
        await stage.run(ReplayAgent(path))
    assert caught.value.code == "quota"
    assert stage.of("warning") == []
