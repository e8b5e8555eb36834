"""The surroundings of a turn, made out of its dispatch: the same for an agent here, elsewhere or of another program."""

from __future__ import annotations

from collections.abc import Callable

from outpost_lsp.dispatches.observation import DispatchObservation
from outpost_lsp.dispatches.options import DispatchOptions
from outpost_lsp.dispatches.progress import Progress
from outpost_lsp.dispatches.sandboxing import OpenedSandbox
from outpost_lsp.domain.event import Event
from outpost_lsp.harness.gate import Asking
from outpost_lsp.harness.runtime import Activity, TurnRuntime


def turn_runtime(
    sandbox: OpenedSandbox,
    options: DispatchOptions,
    observation: DispatchObservation,
    progress: Progress,
    *,
    repair: bool,
    observe: Callable[[Event], None] | None = None,
) -> TurnRuntime:
    """What a turn works in. `observe` is the door of its events where it is not the dispatch's own."""
    activity = Activity()
    return TurnRuntime(
        lease=sandbox.lease,
        observe=observation.emit if observe is None else observe,
        observe_decision=observation.emit_decision,
        asking=Asking(options.ask, activity.hold),
        activity=activity,
        note=progress.note,
        steering=observation.steering,
        on_receipt=options.on_receipt,
        spent=progress.usage,
        verbose=observation.verbose,
        attribute_usage=options.prices is not None or options.shared is not None,
        read_only=repair,
    )
