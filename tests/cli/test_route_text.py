"""Why a step took its route, in the same words wherever it is told."""

from __future__ import annotations

import pytest

from outpost_lsp.cli.html import page
from outpost_lsp.cli.progress import route_text
from outpost_lsp.cli.runs import shown_text
from outpost_lsp.cli.terminal import Paint
from outpost_lsp.domain.event import ModelRouteEvent, RoutedModel
from outpost_lsp.domain.run import Cost, Run
from outpost_lsp.service.signals import Routed
from outpost_lsp.service.timeline import timeline
from outpost_lsp.storage.journal import JournalRecord

RUN = Run(
    id="r",
    kind="review",
    agent="coordinator",
    title="Review",
    status="succeeded",
    workspace="/w",
    started_at="2026-01-01T00:00:00.000Z",
)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"reason": "selected", "confidence": 0.9}, "selected, confidence 0.90"),
        ({"reason": "confidence", "confidence": 0.6}, "not sure enough, confidence 0.60"),
        ({"reason": "unavailable"}, "unavailable"),
        ({"reason": "selected", "confidence": 0.8, "rule": "clean-step"}, "selected, confidence 0.80, rule clean-step"),
        (
            {"reason": "selected", "confidence": 0.9, "reported_confidence": 0.7},
            "selected, confidence 0.90, 0.70 reported",
        ),
    ],
)
def test_a_route_is_told_with_its_reason_its_confidence_and_its_rule(more: dict[str, object], why: str) -> None:
    event = ModelRouteEvent(step=1, choice="deep", model=RoutedModel(name="large"), **more)  # type: ignore[arg-type]
    events = [{"kind": "step", "index": 1}, event.to_json()]
    told = timeline(
        [JournalRecord(at, f"2026-01-01T00:00:0{at}.000Z", "harness", {}, one) for at, one in enumerate(events)], None
    )
    shown = "\n".join(shown_text(RUN, told, Paint(colour=False)))
    assert f"step 1, route deep ({why}), large" in shown
    whole = "".join(page(RUN, told))
    assert whole.count(f"route deep ({why})") >= 2, "on the box of the picture, and at the step"
    line = route_text(Routed("r", "coordinator", None, event))
    assert line.endswith(f"({why.removeprefix('selected, ')})")


@pytest.mark.parametrize(
    ("cost", "told"),
    [
        (None, ""),
        (Cost(amount=0.095, currency="USD", complete=True), ", 0.0950 USD"),
        (Cost(amount=0.095, currency="USD", complete=False), ", at least 0.0950 USD"),
        (Cost(amount=0.0, currency="EUR", complete=False), ", cost unknown"),
    ],
)
def test_what_a_run_cost_is_told_as_it_was_recorded_also_when_nothing_has_a_price_now(
    cost: Cost | None, told: str
) -> None:
    _, line, *_ = shown_text(RUN.model_copy(update={"cost": cost}), timeline([], None), Paint(colour=False))
    assert line.endswith(f"0 in, 0 out{told}")
