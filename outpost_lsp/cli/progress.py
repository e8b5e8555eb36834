"""What is seen on standard error while a run works: plain lines, for logs and for terminals without a live view.

Every piece of news becomes at most one line, so that a log stays readable: who, what. `--quiet` shows nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TextIO

from outpost_lsp.cli.route_text import route_facts
from outpost_lsp.domain.event import (
    CompactionEvent,
    Event,
    FallbackEvent,
    FindingEvent,
    ModelRetryEvent,
    SteerEvent,
    StuckEvent,
    SubagentEvent,
    ToolDeniedEvent,
    ToolEvent,
    ToolResultEvent,
    WarningEvent,
)
from outpost_lsp.domain.finding import Finding
from outpost_lsp.domain.markdown import one_line
from outpost_lsp.domain.observation import Observation
from outpost_lsp.domain.run import Run
from outpost_lsp.domain.usage import COUNTERS, Usage
from outpost_lsp.domain.wording import wait_text
from outpost_lsp.service.signals import Notice, Routed, RunChanged, RunEvent, Signal, SubagentChanged, Used

_WIDTH: Final = 160


class SeenFindings:
    """Which findings were told: what is merged into one, or said again, is told only when it became worse."""

    def __init__(self) -> None:
        self._severities: dict[str, str] = {}

    def is_news(self, event: Event) -> bool:
        """Whether an event is worth telling; any but that of a finding is."""
        if not isinstance(event, FindingEvent) or event.finding is None:
            return True
        before = self._severities.get(event.finding.id)
        self._severities[event.finding.id] = event.finding.severity
        return before != event.finding.severity


class PlainProgress:
    """A listener that writes lines."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._status: dict[str, str] = {}
        self._notes: set[str] = set()
        self._names: dict[str, str] = {}
        self._agent = ""
        self._seen = SeenFindings()

    def __call__(self, signal: Signal) -> None:
        match signal:
            case RunChanged(run=run):
                self._run(run)
            case Notice(level=level, message=message):
                self._line(f"{level}: {message}")
            case Routed():
                self._say(signal.subagent_id, route_text(signal))
            case Used(delta=delta) if delta.input or delta.output or not delta.is_complete:
                self._say(signal.subagent_id, usage_text(signal))
            case SubagentChanged(event=event):
                self._delegation(signal.parent_id, event)
            case RunEvent(observation=Observation(event=WarningEvent(message=message))) if message in self._notes:
                pass  # A warning becomes a note of its run, and that was said.
            case RunEvent(observation=observation):
                text = event_text(observation.event)
                if text is not None and self._seen.is_news(observation.event):
                    self._say(observation.event.subagent_id, text)

    def _run(self, run: Run) -> None:
        self._agent = run.agent
        if self._status.get(run.id) != run.status:
            self._status[run.id] = run.status
            self._line(f"{run.title}: {status_text(run)}")
        for note in run.notes:
            if note not in self._notes:
                self._notes.add(note)
                self._line(f"note: {note}")

    def _delegation(self, parent: str | None, event: SubagentEvent) -> None:
        self._names[event.id] = event.name
        self._say(parent, f"{event.name} {event.status}")

    def _say(self, subagent_id: str | None, text: str) -> None:
        who = self._agent if subagent_id is None else self._names.get(subagent_id, subagent_id)
        self._line(f"{who}: {text}")

    def _line(self, text: str) -> None:
        self._stream.write(one_line(text, _WIDTH) + "\n")
        self._stream.flush()


def status_text(run: Run) -> str:
    """A run's status in a few words."""
    if run.error is not None:
        return f"{run.status}: {run.error.message}"
    if run.status == "succeeded" and run.rejected:
        return f"succeeded, {run.rejected} reported {_findings(run.rejected)} refused"
    return run.status


def route_text(routed: Routed) -> str:
    """A routing selection: label, model, why."""
    event = routed.event
    facts = route_facts(event)[1 if event.reason == "selected" else 0 :]
    told = f" ({', '.join(facts)})" if facts else ""
    return f"step {event.step}: route {event.choice}, model {event.model.name}{told}"


def usage_text(used: Used) -> str:
    """What one request used."""
    source = "" if used.source == "model" else f" for the {used.source}"
    return f"{used.model}{source}: {tokens_text(used.delta)}"


def tokens_text(usage: Usage, unknown: str = "tokens unknown") -> str:
    """Token counts in a few words; says when they are a lower bound, and `unknown` when nothing is known of them."""
    if not usage.is_complete and not any(usage.count(name) for name in COUNTERS):
        return unknown
    cached = f" ({usage.cached:,} cached)" if usage.cached else ""
    text = f"{usage.input:,}{cached} in, {usage.output:,} out"
    return text if usage.is_complete else f"at least {text}"


def finding_text(finding: Finding) -> str:
    """A finding in one line."""
    return f"{finding.path}:{finding.span.start_line + 1}: {finding.severity}: {finding.title}"


def event_text(event: Event) -> str | None:
    """An event in one line; `None` for those that are not worth one."""
    match event:
        case ToolEvent(name=name) if name != "report_finding":
            return f"{name} {call_text(event.input)}".rstrip()
        case FindingEvent(finding=Finding() as finding):
            return f"finding {finding_text(finding)}"
        case FindingEvent(rejected=str(reason)):
            return f"finding refused: {reason}"
        case ToolResultEvent(is_error=True):
            return f"{event.name} failed: {event.preview}"
        case ToolDeniedEvent():
            return f"{event.name} denied: {event.reason}"
        case _:
            return _rarer_text(event)


def _rarer_text(event: Event) -> str | None:
    match event:
        case ModelRetryEvent():
            return f"the model is asked again{wait_text(event.wait_s)}: {event.message or 'no reason given'}"
        case CompactionEvent():
            return f"history shortened by {event.strategy}, {event.messages} messages left"
        case FallbackEvent():
            return f"{event.from_.name} failed ({event.failure}), going on with {event.to.name}"
        case SteerEvent():
            return f"instruction {event.mode}: {event.text}"
        case StuckEvent():
            return f"the same {event.activity} {event.repeats} times: {event.action}"
        case WarningEvent():
            return f"warning: {event.message}"
        case _:
            return None


def call_text(value: object) -> str:
    """A tool's input in a few words: the values, the longest cut."""
    if not isinstance(value, dict):
        return "" if value is None else one_line(str(value), 80)
    shown = (one_line(str(part), 60) for part in value.values() if isinstance(part, str | int | float) and part != "")
    return " ".join(list(shown)[:3])


def _findings(count: int) -> str:
    return "finding was" if count == 1 else "findings were"


Progress = Callable[[Signal], None]
