"""What a dispatch has done so far: its turns, what they used, and what a person should know."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outpost_lsp.dispatches.result import Turn
from outpost_lsp.dispatches.sandboxing import OpenedSandbox
from outpost_lsp.domain.usage import ZERO, Usage
from outpost_lsp.errors import record_recovery, recovery_details
from outpost_lsp.harness.runtime import captured
from outpost_lsp.storage.conversations import ConversationStore


@dataclass(slots=True)
class Progress:
    """The running account of one dispatch. `conversation` is the one to continue, `seen` all that were opened."""

    turns: list[Turn] = field(default_factory=list)
    usage: Usage = ZERO
    notes: list[str] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    conversation: str | None = None
    seen: list[tuple[ConversationStore, str]] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def note(self, text: str) -> None:
        """Put a line on the run for people to read, once."""
        if text not in self.notes:
            self.notes.append(text)

    def answered_by(self, models: list[str]) -> None:
        """Remember which models really answered."""
        self.models.extend(model for model in models if model not in self.models)

    @property
    def duration_ms(self) -> int:
        """How long the dispatch has lasted."""
        return round((time.monotonic() - self.started) * 1000)

    def save_after_failure(
        self, error: BaseException, sandbox: OpenedSandbox, uncollected: Exception | None
    ) -> BaseException:
        """What travels when a run failed, with where its work and its conversations are (DISP-06, DISP-07).

        That is the failure itself. Where saving what it left fails too, it is a group of both, the failure first
        (FAULT-05); a cancellation stays the cancellation that it is (PY-04), and says so in its recovery details.
        `uncollected` is what collecting the changes failed with.
        """
        lost = [] if uncollected is None else [uncollected]
        saved: dict[str, Any] = {}
        for store, conversation in self.seen:
            try:
                saved["transcript"] = str(captured(store, conversation))
            except Exception as fault:  # noqa: BLE001 - a store may be the application's; the failure must still travel
                # A capture that failed when the turn had answered is the failure itself.
                if str(fault) != str(error):
                    lost.append(fault)
        commits = [commit.to_json() for commit in sandbox.commits]
        place = {"branch": sandbox.branch, "directory": str(sandbox.directory), "commits": commits, **saved}
        if lost:
            place["capture"] = "; ".join(str(fault) for fault in lost)
        travels = error
        if lost and isinstance(error, Exception):
            travels = ExceptionGroup("the run failed, and so did saving what it left", [error, *lost])
            record_recovery(travels, recovery_details(error) or {})
        record_recovery(travels, place)
        return travels

    def record(self, error: BaseException, journal: Path | None) -> None:
        """What a caller needs of a dispatch that gave no result."""
        record_recovery(
            error,
            {
                "conversation": self.conversation,
                "usage": self.usage,
                "notes": tuple(self.notes),
                "models": tuple(self.models),
                "journal": journal,
            },
        )
