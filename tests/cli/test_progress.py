"""Progress on a terminal: each piece of news once, in words that fit."""

from __future__ import annotations

import io

from rich.console import Console

from outpost_lsp.cli.live import LiveProgress
from outpost_lsp.cli.progress import PlainProgress, event_text
from outpost_lsp.domain.event import Event, FindingEvent, ModelRetryEvent, WarningEvent
from outpost_lsp.domain.finding import Severity
from outpost_lsp.domain.observation import Observation, Scope
from outpost_lsp.domain.run import Run
from outpost_lsp.service.signals import RunChanged, RunEvent, Signal
from tests.cli.test_formats import finding

RUN = Run(
    id="r",
    kind="review",
    agent="coordinator",
    title="Review",
    status="running",
    workspace="/w",
    started_at="2026-01-01T00:00:00Z",
)


def told(id: str, severity: Severity, subagent_id: str | None = None) -> Event:
    return FindingEvent(finding=finding(id=id, severity=severity), subagent_id=subagent_id, call_id="c")


def signals(*events: Event) -> list[Signal]:
    news = (
        Observation(seq=number, at=RUN.started_at, source="harness", scope=Scope(), event=event)
        for number, event in enumerate(events)
    )
    return [RunChanged(RUN), *(RunEvent("r", observation) for observation in news)]


def test_a_finding_that_is_merged_or_confirmed_is_listed_once_and_again_only_when_it_became_worse() -> None:
    stream = io.StringIO()
    progress = PlainProgress(stream)
    for signal in signals(told("1", "warning"), told("1", "warning"), told("2", "error"), told("1", "error", "s1")):
        progress(signal)
    lines = [line for line in stream.getvalue().splitlines() if "finding" in line]
    assert [line.split(": ", 1)[1].split(":")[2].strip() for line in lines] == ["warning", "error", "error"]


def test_the_live_tree_counts_a_finding_for_the_agent_that_found_it_and_lists_it_once() -> None:
    progress = LiveProgress(io.StringIO())
    for signal in signals(told("1", "error"), told("1", "error"), told("1", "error", "s1"), told("2", "error", "s1")):
        progress(signal)
    stream = io.StringIO()
    Console(file=stream, width=200).print(progress.picture())
    main, first, child, second = stream.getvalue().splitlines()[1:]
    assert ("1 finding" in main, "1 finding" in child) == (True, True)
    assert ("finding src/app.py:3" in first, "finding src/app.py:3" in second) == (True, True)


def test_a_retry_within_the_second_is_not_said_to_come_in_0_s() -> None:
    assert event_text(ModelRetryEvent(attempt=1, message="HTTP 503", wait_s=0.31)) == (
        "the model is asked again in 0.3 s: HTTP 503"
    )


def test_a_warning_that_became_a_note_of_the_run_is_one_line() -> None:
    stream = io.StringIO()
    progress = PlainProgress(stream)
    _, warning = signals(WarningEvent(message="nothing has happened for 60 s"))
    progress(RunChanged(RUN.model_copy(update={"notes": ("nothing has happened for 60 s",)})))
    progress(warning)
    assert stream.getvalue().splitlines()[1:] == ["note: nothing has happened for 60 s"]
