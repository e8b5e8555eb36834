"""Going through a recorded dispatch again, without model, router or tool (RPL rules).

Replay is not a second engine: the dispatch is the same, and the recorded turns stand in for the loop. Events leave by
the same door, so that readers cannot tell; what the recording says and what is asked for now must agree.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from outpost_lsp.dispatches.observation import DispatchObservation
from outpost_lsp.dispatches.options import DispatchOptions
from outpost_lsp.dispatches.progress import Progress
from outpost_lsp.dispatches.recording import RecordedTurn, ReplayAgent
from outpost_lsp.dispatches.result import Turn
from outpost_lsp.dispatches.sandboxing import OpenedSandbox
from outpost_lsp.dispatches.written_events import DECISIONS, recorded_event
from outpost_lsp.domain.event import Event, SummaryEvent, WarningEvent
from outpost_lsp.domain.markdown import one_line
from outpost_lsp.domain.observation import DecisionEvent
from outpost_lsp.errors import FAULT_CODES, OutpostError, configuration
from outpost_lsp.harness.cancellation import checkpoint
from outpost_lsp.storage.journal import JournalRecord
from outpost_lsp.worktrees.git import run_git

_YIELD_EVERY: Final = 50
_NO_CHANGES_RECORDED: Final = (
    "the recording does not hold what the run changed, so the replay changes nothing: it was made without `replayable`, "
    "or its end is missing"
)


class ReplayedTurns:
    """Carries the turns of a replay."""

    def __init__(
        self, agent: ReplayAgent, options: DispatchOptions, observation: DispatchObservation, progress: Progress
    ) -> None:
        agent.begin()
        self._agent = agent
        self._options = options
        self._observation = observation
        self._progress = progress
        self._number = 0

    async def turn(self, sandbox: OpenedSandbox, prompt: str, *, repair: bool = False) -> str:
        """One recorded turn; a recorded failure is raised again (RPL-06)."""
        del repair
        recorded = self._agent.next_turn()
        self._number += 1
        if recorded.prompt != prompt:
            self._diverged("prompt", recorded.prompt, prompt)
        if recorded.gaps:
            more = f", and {len(recorded.gaps) - 1} more" if len(recorded.gaps) > 1 else ""
            told = f"records are missing from turn {self._number} of the recording: {recorded.gaps[0]}{more}"
            self._observation.emit(WarningEvent(message=told))
        return await self._carried(sandbox, recorded)

    async def close(self) -> None:
        """Nothing of a turn outlives it."""

    async def _carried(self, sandbox: OpenedSandbox, recorded: RecordedTurn) -> str:
        text = await self._replay(recorded)
        last = self._agent.remaining_turns == 0
        self._progress.usage = self._progress.usage + recorded.usage
        self._observation.emit(
            SummaryEvent(duration_ms=recorded.duration_ms, status=0 if text is not None else 1, tokens=recorded.usage)
        )
        if last:
            await self._rebuild(sandbox)
            if self._agent.error is not None:
                raise _replayed_fault(self._agent.error)
        if text is None:
            # A fallback agent handed over: the next candidate's turn follows, its prompt is not compared (RPL-07).
            return await self._carried(sandbox, self._agent.next_turn())
        self._progress.turns.append(Turn(text=text, usage=recorded.usage, duration_ms=recorded.duration_ms))
        return text

    async def _replay(self, recorded: RecordedTurn) -> str | None:
        text = None
        unknown: dict[str, None] = {}
        for number, record in enumerate(recorded.events):
            if number % _YIELD_EVERY == 0:
                await checkpoint()
            event = _event(record, number)
            if event is None:
                unknown[record.kind] = None
            elif record.source == "decision":
                self._observation.emit_decision(event, event.subagent_id or record.scope.get("subagentId"))
            else:
                if record.kind == "result":
                    text = str(record.event.get("text", ""))
                self._observation.emit(event, "agent" if record.source == "agent" else "harness")
        if unknown:
            kinds = ", ".join(one_line(kind, 60) for kind in unknown)
            told = f"events of the recording that this version does not know were left out: {kinds}"
            self._observation.emit(WarningEvent(message=told))
        return text

    def _diverged(self, kind: str, expected: Any, actual: Any, told: str = "") -> None:
        details = {"kind": kind, "turn": self._number, "expected": expected, "actual": actual}
        where = "what is unrecorded" if kind == "unrecorded" else f"the {kind}"
        fault = OutpostError("replay", f"the replay differs from its recording in {where}{told}", details)
        if self._agent.divergence == "fail":
            raise fault
        self._observation.emit(WarningEvent(message=fault.message))

    async def _rebuild(self, sandbox: OpenedSandbox) -> None:
        """Make the recorded changes again in the worktree and compare the tree (RPL-05)."""
        recorded = self._agent.commits
        if recorded is None:
            # Whether the run changed anything is not known either, so it is no divergence.
            if self._agent.error is None and sandbox.worktree is not None:
                self._observation.emit(WarningEvent(message=_NO_CHANGES_RECORDED))
            return
        if recorded.get("unavailable") is not None:
            self._diverged("unrecorded", None, recorded["unavailable"], f": {recorded['unavailable']}")
            return
        if await sandbox.rebuild(recorded, self._diverged):
            return
        snapshot = sandbox.snapshot
        baseline = (recorded.get("baseline") or {}).get("tree")
        if snapshot is not None and baseline is not None and baseline != snapshot.tree:
            self._diverged("baseline", baseline, snapshot.tree)
        if sandbox.worktree is None:
            return
        # The patch is applied beside the lease, which therefore knows nothing of what changes.
        await sandbox.worktree.fill()
        sandbox.is_lazy = False
        for commit in recorded.get("commits") or ():
            await self._apply(sandbox, commit)

    async def _apply(self, sandbox: OpenedSandbox, commit: Mapping[str, Any]) -> None:
        assert sandbox.worktree is not None
        encoded = commit.get("patchBase64")
        data = base64.b64decode(encoded) if encoded is not None else str(commit.get("patch", "")).encode()
        result = await run_git(
            sandbox.worktree.repository, ["apply", "--binary", "--whitespace=nowarn", "-"], stdin=data
        )
        if result.status != 0:
            details = {"kind": "tree", "turn": self._number, "commit": commit.get("tree")}
            raise OutpostError("replay", f"the recorded changes do not apply: {result.stderr.strip()}", details)
        changes = await sandbox.freeze()
        if changes is not None and changes.tree != commit.get("tree"):
            self._diverged("tree", commit.get("tree"), changes.tree)


def _event(record: JournalRecord, index: int) -> Event | None:
    """The event of a record; `None` when a newer version wrote it, which knows more kinds."""
    is_decision = record.source == "decision"
    try:
        event = recorded_event(record.event)
    except (ValidationError, LookupError) as error:
        if is_decision:
            raise configuration(f"journal: the decision event {record.seq} is malformed") from error
        raise configuration(f"journal: event {index} ({record.kind}) is malformed") from error
    if isinstance(event, DecisionEvent) and event.status != "started" and None in (event.duration_ms, event.usage):
        raise configuration(f"journal: the decision event {record.seq} is malformed")
    if event is not None and (event.kind in DECISIONS) != is_decision:
        raise configuration(f"journal: event {index} ({record.kind}) has the wrong source")
    return event


def _replayed_fault(error: Mapping[str, Any]) -> OutpostError:
    code = error.get("code")
    message = str(error.get("message", "the recorded run failed"))
    return OutpostError(code if code in FAULT_CODES else "process", message, {"replayed": True})
