"""The one door through which a dispatch's events leave: watched, written to the journal, shown (OBS-11, JRN, WATCH)."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from outpost_lsp.dispatches.observe import ObservationHub, now_text
from outpost_lsp.dispatches.options import DispatchOptions
from outpost_lsp.dispatches.redaction import journal_mask
from outpost_lsp.dispatches.report import ReportCollector, ReportData
from outpost_lsp.dispatches.sandboxing import OpenedSandbox
from outpost_lsp.domain.event import Event, StuckEvent, WarningEvent
from outpost_lsp.domain.observation import (
    DispatchFinishedEvent,
    DispatchStartEvent,
    Observation,
    Scope,
    Source,
    WorkspaceCommitsEvent,
)
from outpost_lsp.domain.usage import Usage
from outpost_lsp.errors import OutpostError, leading_failure
from outpost_lsp.harness.runtime import TurnRuntime
from outpost_lsp.harness.steering import Steering
from outpost_lsp.harness.watchdog import Intervention, Repetition
from outpost_lsp.storage.journal import JournalWriter
from outpost_lsp.worktrees.changes import ChangeSet, patch

_log = logging.getLogger(__name__)
MAX_REPLAY_PATCH: Final = 8 * 1024 * 1024


class DispatchObservation:
    """The events of one dispatch on their way out."""

    def __init__(self, options: DispatchOptions, note: Callable[[str], None]) -> None:
        self._options = options
        self._note = note
        parent = options.observation
        scope = {"dispatch_id": options.dispatch_id}
        self._hub = ObservationHub(scope=Scope(**scope)) if parent is None else parent.child(scope)
        self._collector = ReportCollector()
        self._journal: JournalWriter | None = None
        self._pending: list[Observation] = []
        self.pass_number = 1
        self._scopes: dict[tuple[int, str | None], Scope] = {}
        self.runtime: TurnRuntime | None = None
        self._sandbox: OpenedSandbox | None = None
        self._observer_errors: list[str] = []
        self._private_steering = options.steering is None and _intervenes(options)
        self.steering: Steering | None = Steering() if self._private_steering else options.steering
        self._interventions: set[asyncio.Future[Any]] = set()
        self._repetition: Repetition | None = None
        if options.watchdog is not None:
            self._repetition = Repetition(options.watchdog, lambda: bool(self._interventions))
        if options.journal is not None:
            self._hub.add_sink(self._write)

    @property
    def verbose(self) -> bool:
        """Whether requests and answers are events too."""
        return self._hub.verbose

    @property
    def journal_path(self) -> Path | None:
        """Where the journal is, once it has one."""
        return None if self._journal is None else self._journal.path

    @property
    def errors(self) -> tuple[str, ...]:
        """What observers did wrong (FAULT-07)."""
        return (*self._observer_errors, *self._hub.errors)

    def start(self) -> None:
        """The first observation of a dispatch."""
        self._hub.emit(DispatchStartEvent(), "harness")

    async def opened(self, sandbox: OpenedSandbox) -> None:
        """The sandbox is there, and with it the folder the journal goes to."""
        self._sandbox = sandbox
        journal = self._options.journal
        if journal is None or self._journal is not None:
            return
        path = journal.path
        if path is None and sandbox.layout is not None:
            path = sandbox.layout.journals / f"{self._options.dispatch_id}.jsonl"
        if path is None:
            return
        self._journal = JournalWriter(
            path,
            verbose=journal.verbose,
            replayable=journal.replayable,
            note_cut=self._note,
            mask=journal_mask(self._options.redact),
        )
        for observation in self._pending:
            self._journal(observation)
        self._pending.clear()

    def emit(self, event: Event, source: Source = "harness") -> None:
        """Let an agent event out. Only a watchdog that gives up raises."""
        event = event.with_values(pass_=self.pass_number, at=now_text())
        self._collector.see(event)
        self._send(event, source, event.subagent_id)
        observe = self._options.observe
        if observe is not None:
            try:
                observe(event)
            except Exception as error:  # noqa: BLE001 - an observer never changes the outcome (EVT-01)
                if len(self._observer_errors) < 100:
                    self._observer_errors.append(f"an observer failed: {error}")
        self._watch(event)

    def emit_decision(self, event: Event, subagent_id: str | None) -> None:
        """Let a decision observation out; it is no agent event (OBS-04)."""
        if event.kind != "decision" and not self._hub.verbose:
            return
        self._send(event, "decision", subagent_id)

    def _send(self, event: Event, source: Source, subagent_id: str | None) -> None:
        place = (self.pass_number, subagent_id)
        scope = self._scopes.get(place)
        if scope is None:
            scope = self._scopes[place] = Scope(pass_=self.pass_number, subagent_id=subagent_id)
        self._hub.emit(event, source, scope)

    def _write(self, observation: Observation) -> None:
        if self._journal is None:
            self._pending.append(observation)
        else:
            self._journal(observation)

    # Watchdog

    def _watch(self, event: Event) -> None:
        if self._repetition is None or isinstance(event, StuckEvent):
            return
        alert = self._repetition.saw(event)
        if alert is None:
            return
        self.emit(alert)
        what = f"{alert.name} was called {alert.repeats} times with the same input"
        if alert.action == "stop":
            fault = OutpostError(
                "stuck",
                f"the agent repeats itself: {what}",
                {**alert.model_dump(exclude_none=True, exclude={"kind", "subagent_id"}), "stopReason": "stuck"},
            )
            if self.runtime is not None:
                self.runtime.fatal = fault
        elif alert.action == "warn":
            self.emit(WarningEvent(message=f"the agent repeats itself: {what}"))
        else:
            self._intervene(alert)

    def _intervene(self, alert: StuckEvent) -> None:
        policy = self._options.watchdog.on_stuck if self._options.watchdog is not None else None
        assert isinstance(policy, Intervention)
        assert self.steering is not None
        sent = asyncio.ensure_future(self.steering.send(policy.instruction, subagent=alert.subagent_id))
        self._interventions.add(sent)
        sent.add_done_callback(self._interventions.discard)
        sent.add_done_callback(self._intervention_ended)

    def _intervention_ended(self, sent: asyncio.Future[Any]) -> None:
        if not sent.cancelled() and (error := sent.exception()) is not None and self.runtime is not None:
            self.runtime.fatal = error if isinstance(error, OutpostError) else None

    async def watchdog_settled(self) -> None:
        """An instruction that is still waiting when the agent has ended fails the dispatch (WATCH-08)."""
        if self._interventions:
            raise OutpostError("steering", "the watchdog's instruction reached no agent before the run ended")

    @contextmanager
    def attached_steering(self) -> Iterator[None]:
        """Hold the controller for the whole dispatch (STEER-10)."""
        if self.steering is None:
            yield
            return
        self.steering.attach()
        try:
            yield
        finally:
            self.steering.detach()
            if self._private_steering:
                self.steering.close()

    # The end

    async def commits(self, sandbox: OpenedSandbox, changes: ChangeSet) -> None:
        """What a replay of the changes needs: the frozen result as one commit on the snapshot (JRN-04)."""
        journal = self._options.journal
        snapshot, repository = sandbox.snapshot, sandbox.repository
        if journal is None or not journal.replayable:
            return
        if (recorded := await sandbox.recorded()) is not None:
            self._hub.emit(recorded, "git")
        if snapshot is None or repository is None:
            return
        baseline = {"commit": snapshot.commit, "tree": snapshot.tree}
        if not changes.files:
            self._hub.emit(WorkspaceCommitsEvent(baseline=baseline, commits=()), "git")
            return
        try:
            data = await patch(repository, changes.base, changes.commit, max_output=MAX_REPLAY_PATCH)
        except OutpostError as error:
            self._hub.emit(WorkspaceCommitsEvent(baseline=baseline, unavailable=error.message), "git")
            return
        commit = {"tree": changes.tree, "message": "Outpost result", **_patch_json(data)}
        self._hub.emit(WorkspaceCommitsEvent(baseline=baseline, commits=(commit,)), "git")

    async def finish(self, status: Any, *, completed: bool, usage: Usage, failure: BaseException | None) -> None:
        """The last observation, after the clean-up, also on failure (OBS-11)."""
        error: Mapping[str, Any] | None = None
        if failure is not None:
            first = leading_failure(failure)
            if isinstance(first, asyncio.CancelledError):
                # Its own text names scopes and tasks of this process; a replay raises what stands here.
                first = OutpostError("aborted", "the dispatch was cancelled")
            code = first.code if isinstance(first, OutpostError) else None
            error = {"message": str(first) or type(first).__name__} | ({"code": code} if code else {})
        sandbox = self._sandbox
        place = sandbox if sandbox is not None and sandbox.snapshot is None else None
        finished = DispatchFinishedEvent(
            status=status,
            completed=completed,
            branch=None if place is None else place.branch,
            commits=None if place is None else tuple(commit.to_json() for commit in place.commits),
            usage=usage,
            error=error,
        )
        self._hub.emit(finished, "harness")
        await self._hub.close()
        if self._journal is not None:
            self._journal.close()

    def report(self, fields: Mapping[str, Any]) -> ReportData:
        """The report as of now."""
        return self._collector.data(fields, self._options.redact)


def _intervenes(options: DispatchOptions) -> bool:
    return options.watchdog is not None and isinstance(options.watchdog.on_stuck, Intervention)


def _patch_json(data: bytes) -> dict[str, str]:
    try:
        return {"patch": data.decode()}
    except UnicodeDecodeError:
        return {"patchBase64": base64.b64encode(data).decode("ascii")}
