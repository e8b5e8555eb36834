"""Wire messages kept as files, which the tests of other clients read too.

python -m tests.protocol.test_golden      writes them anew
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp.domain import finding as found
from outpost_lsp.domain import run as ran
from outpost_lsp.domain.event import ModelRouteEvent, RoutedModel, SubagentEvent, TextEvent
from outpost_lsp.domain.usage import Usage, UsageLimits
from outpost_lsp.lsp.capabilities import server_capabilities
from outpost_lsp.lsp.client import Client
from outpost_lsp.lsp.encoding import diagnostic
from outpost_lsp.lsp.payloads import route_json, subagent_json, usage_event_json
from outpost_lsp.protocol.notifications import NOTIFICATIONS
from outpost_lsp.protocol.positions import split_lines
from outpost_lsp.protocol.records import finding_json, run_json
from outpost_lsp.protocol.uris import uri_of
from outpost_lsp.service.signals import BudgetState, Routed, SubagentChanged, Used

_FOLDER = Path(__file__).parent.parent / "golden"

_RUN = ran.Run(
    id="20260101-000000-000001-abcdef",
    kind="review",
    agent="reviewer",
    title="Review of the uncommitted changes",
    status="succeeded",
    workspace="/home/person/my project",
    started_at="2026-01-01T00:00:00.000Z",
    finished_at="2026-01-01T00:00:09.000Z",
    base="0123456789abcdef0123456789abcdef01234567",
    scope=ran.ReviewScope(scope="branch", base="main"),
    conversation="c-42",
    text="One thing is wrong.",
    usage=Usage(input=120, cached=20, cache_created=5, output=30, complete=False),
    cost=ran.Cost(amount=0.0125, currency="USD", complete=False),
    models=("small", "large"),
    findings=1,
    rejected=2,
    notes=("AGENTS.md was used",),
    changes=ran.ChangeCount(files=1, insertions=2, deletions=3),
    disposition="pending",
)
_SPAN = found.Span(start_line=0, start_character=2, end_line=0, end_character=11)
_FINDING = found.Finding(
    id="20260101-000000-000001-abcdef-1",
    run_id=_RUN.id,
    agent="reviewer",
    path="src/main.py",
    span=_SPAN,
    severity="error",
    code="undefined-name",
    title="count is not defined",
    detail="It raises `NameError`.",
    quote="x = count",
    suggestion=found.Suggestion(title="Define it", edits=(found.TextReplacement(span=_SPAN, text="x = 1"),)),
    in_diff=True,
    confidence=0.9,
    status="stale",
    fingerprint="0123456789abcdef0123456789abcdef",
)
_LINES = split_lines("\U0001f600 x = count\n")
_URI = "file:///home/person/my%20project/src/main.py"


def _messages() -> dict[str, Any]:
    finding = finding_json(_FINDING, _URI, _LINES, "utf-16")
    route = ModelRouteEvent(
        step=2, choice="deep", model=RoutedModel(name="large", reasoning="high"), reason="confidence", confidence=0.5
    )
    started = SubagentEvent(id="child-1", call_id="call-1", name="review", status="started", conversation="c-43")
    tokens = Usage(input=10, cached=4, output=5)
    used = Used(
        run_id=_RUN.id,
        agent="review",
        subagent_id="child-1",
        step=3,
        source="model",
        model="small",
        delta=tokens,
        total=tokens + tokens,
        budgets=(BudgetState("reviewer", UsageLimits(output=2000, cache_created=9), tokens),),
        cost=_RUN.cost,
    )
    params = {
        "$/outpost/run": {"run": run_json(_RUN, uri_of)},
        "$/outpost/route": route_json(Routed(_RUN.id, "reviewer", None, route)),
        "$/outpost/usage": usage_event_json(used),
        "$/outpost/subagent": subagent_json(SubagentChanged(_RUN.id, "parent-1", started)),
        "$/outpost/findings": {"uri": _URI, "findings": [finding]},
        "$/outpost/event": {"runId": _RUN.id, "event": TextEvent(text="Looking.", pass_=1, at="2026-01-01").to_json()},
        "textDocument/publishDiagnostics": {
            "uri": _URI,
            "version": 7,
            "diagnostics": [diagnostic(_FINDING, finding["range"])],
        },
    }
    notifications = {
        method.removeprefix("$/outpost/").replace("textDocument/", ""): {"method": method, "params": value}
        for method, value in params.items()
    }
    return notifications | {"capabilities": server_capabilities(Client())}


@pytest.mark.parametrize("name", sorted(_messages()))
def test_a_message_is_what_its_file_says(name: str) -> None:
    message = _messages()[name]
    kept = json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    assert kept == message
    shape = NOTIFICATIONS.get(message.get("method", ""))
    if shape is not None:
        shape.params.model_validate(message["params"])


def test_every_notification_of_ours_has_a_file() -> None:
    assert {name.removeprefix("$/outpost/") for name in NOTIFICATIONS} <= {path.stem for path in _FOLDER.glob("*.json")}


if __name__ == "__main__":
    for name, message in _messages().items():
        text = json.dumps(message, indent=2, ensure_ascii=False)
        (_FOLDER / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")
