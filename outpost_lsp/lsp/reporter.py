"""From the service's news to what the editor is sent: notifications, progress, one closing message per run.

Everything a run has to say is sent before the `$/outpost/run` that ends it. Called by the service, synchronously; it
only writes to the connection and starts timers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from outpost_lsp.domain.event import Event, FindingEvent, ModelRetryEvent, StepEvent, ToolEvent
from outpost_lsp.domain.finding import Severity
from outpost_lsp.domain.markdown import one_line
from outpost_lsp.domain.run import Run
from outpost_lsp.domain.wording import wait_text
from outpost_lsp.lsp.events import EventStream
from outpost_lsp.lsp.outcome import MESSAGE_TYPES, count, outcome, without_links
from outpost_lsp.lsp.payloads import route_json, subagent_json, usage_event_json
from outpost_lsp.lsp.progress import ProgressBoard, Token
from outpost_lsp.lsp.short_details import short_details
from outpost_lsp.protocol.records import run_json
from outpost_lsp.service.signals import (
    FindingsChanged,
    Notice,
    Question,
    Routed,
    RunChanged,
    RunEvent,
    Signal,
    SubagentChanged,
    Used,
)

if TYPE_CHECKING:
    from outpost_lsp.lsp.client import EventLevel
    from outpost_lsp.lsp.diagnostics import DiagnosticPublisher
    from outpost_lsp.lsp.places import Places
    from outpost_lsp.lsp.protocol import OutpostProtocol
    from outpost_lsp.lsp.questions import Questions

logger = logging.getLogger(__name__)

_PHASES: Final = {"preparing": "taking the snapshot", "waiting": "waiting for the service"}
_KEPT_SCOPES: Final = 1_000
"""For how many runs the client's own words are kept; those of older runs are told in the record's."""


@dataclass(frozen=True, slots=True)
class Request:
    """What the request that starts a run brought along: its progress token, and the scope in the client's words."""

    token: Token | None = None
    scope: dict[str, Any] | None = None


REQUEST: Final[ContextVar[Request | None]] = ContextVar("request", default=None)
"""Set by a command while it starts a run, so that the very first news of the run knows of it."""


@dataclass(slots=True)
class _Live:
    """A run that has not ended, as far as its progress shows it."""

    request: Request
    step: int = 0
    tokens: int = 0
    activity: str = ""
    severities: dict[str, Severity] = field(default_factory=dict)
    """By finding that is shown: one that is told again, because another agent saw it too, is still one."""


class Reporter:
    """Listens to the service for one client."""

    def __init__(
        self,
        protocol: OutpostProtocol,
        places: Places,
        publisher: DiagnosticPublisher,
        progress: ProgressBoard,
        questions: Questions,
        level_of: Callable[[str], EventLevel],
    ) -> None:
        self._protocol = protocol
        self._places = places
        self._publisher = publisher
        self._progress = progress
        self._questions = questions
        self._level_of = level_of
        self._events = EventStream(self._send_event, lambda: protocol.is_congested)
        self._live: dict[str, _Live] = {}
        self._scopes: dict[str, dict[str, Any]] = {}

    def __call__(self, signal: Signal) -> None:
        """Take one piece of news."""
        match signal:
            case RunChanged():
                self._run_changed(signal.run)
            case RunEvent():
                event = signal.observation.event
                self._follow(signal.run_id, event)
                self._events.take(signal.run_id, event, self._level_of(signal.run_id))
            case Routed():
                self._notify("route", route_json(signal))
            case Used():
                self._used(signal)
            case SubagentChanged():
                self._notify("subagent", subagent_json(signal))
            case FindingsChanged():
                self._publisher.changed(signal.workspace, signal.path)
            case Notice():
                self.message(MESSAGE_TYPES[signal.level], one_line(signal.message, 1000))
            case Question():
                self._questions.take(signal)

    def run(self, run: Run) -> dict[str, Any]:
        """A run as the client sees it."""
        if run.error is not None and run.error.details is not None:
            error = run.error.model_copy(update={"details": short_details(run.error.details)})
            run = run.model_copy(update={"error": error})
        return run_json(run, self._places.folder_uri, self._scopes.get(run.id))

    def message(self, kind: int, text: str) -> None:
        """Show a sentence to the person."""
        self._protocol.notify("window/showMessage", {"type": kind, "message": without_links(text)})

    def _run_changed(self, run: Run) -> None:
        live = self._live.get(run.id)
        if live is None and not run.is_finished:
            live = self._begin(run)
        if run.is_finished and live is not None:
            self._finish(run, live)
        elif live is not None:
            live.activity = _PHASES.get(run.status, run.status)
            self._progress.report(run.id, self._progress_text(live, run.findings))
        self._notify("run", {"run": self.run(run)})

    def _begin(self, run: Run) -> _Live:
        live = self._live[run.id] = _Live(REQUEST.get() or Request())
        if live.request.scope is not None:
            self._scopes[run.id] = live.request.scope
            if len(self._scopes) > _KEPT_SCOPES:
                del self._scopes[next(iter(self._scopes))]
        self._progress.open(run.id, live.request.token, self._title(run), run.status)
        return live

    def _title(self, run: Run) -> str:
        """The run in one line; with several folders open it says in which (U-29)."""
        folder = f" ({one_line(Path(run.workspace).name)})" if self._places.are_many else ""
        return f"Outpost{folder}: {one_line(run.title, 80).removesuffix('.')}"

    def _finish(self, run: Run, live: _Live) -> None:
        """Say everything that is left to be said, and last how it ended."""
        del self._live[run.id]
        self._events.forget(run.id)
        self._publisher.flush()
        level, text = outcome(run, live.severities.values())
        self._progress.close(run.id, text)
        self.message(MESSAGE_TYPES[level], f"Outpost: {text}")

    def _follow(self, run_id: str, event: Event) -> None:
        live = self._live.get(run_id)
        if live is None:
            return
        match event:
            case StepEvent():
                live.step, live.activity = event.index, "asking the model"
            case ToolEvent():
                live.activity = f"tool {event.name}"
            case FindingEvent(finding=finding) if finding is not None and finding.status != "dismissed":
                live.severities[finding.id] = finding.severity
            case ModelRetryEvent():
                live.activity = (
                    f"trying again{wait_text(event.wait_s)}: {one_line(event.message or 'the service failed', 120)}"
                )
            case _:
                return
        self._progress.report(run_id, self._progress_text(live, len(live.severities)))

    def _progress_text(self, live: _Live, findings: int) -> str:
        parts = [live.activity]
        if live.step:
            parts.append(f"step {live.step}")
        if live.tokens:
            parts.append(f"{live.tokens:,} tokens")
        if findings:
            parts.append(count(findings, "finding"))
        return " · ".join(parts)

    def _used(self, signal: Used) -> None:
        live = self._live.get(signal.run_id)
        if live is not None:
            live.tokens = signal.total.input + signal.total.output
            self._progress.report(signal.run_id, self._progress_text(live, len(live.severities)))
        self._notify("usage", usage_event_json(signal))

    def _send_event(self, run_id: str, event: dict[str, Any]) -> None:
        self._notify("event", {"runId": run_id, "event": event})

    def _notify(self, name: str, params: dict[str, Any]) -> None:
        self._protocol.notify(f"$/outpost/{name}", params)
