"""Records on the wire: the models say what is sent, and what is sent is valid by them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from outpost_lsp.domain import finding as found
from outpost_lsp.domain import run as ran
from outpost_lsp.domain.usage import Usage as Counted
from outpost_lsp.lsp.payloads import usage_event_json
from outpost_lsp.protocol.positions import split_lines
from outpost_lsp.protocol.records import Finding, Run, Usage, finding_json, run_json, usage_json
from outpost_lsp.protocol.uris import uri_of
from outpost_lsp.service.signals import Used


def _run(**changes: object) -> ran.Run:
    known = {
        "id": "r1",
        "kind": "review",
        "agent": "reviewer",
        "title": "Review of uncommitted changes",
        "status": "running",
        "workspace": "/work space",
        "started_at": "2026-01-01T00:00:00.000Z",
    }
    return ran.Run.model_validate(known | changes)


def test_a_usage_always_says_whether_it_is_complete() -> None:
    assert usage_json(Counted(input=3, output=1)) == {"input": 3, "cached": 0, "output": 1, "complete": True}
    partial = usage_json(Counted(input=3, cached=1, cache_created=1, output=1, complete=False))
    assert partial == {"input": 3, "cached": 1, "cacheCreated": 1, "output": 1, "complete": False}
    Usage.model_validate(partial)


def test_the_table_of_models_stays_inside() -> None:
    assert "models" not in usage_json(Counted(input=1, output=1).attributed("m"))


def test_a_run_is_sent_with_a_uri_and_without_absent_fields() -> None:
    body = run_json(_run(scope=ran.ReviewScope(scope="branch", base="main", paths=("a",))), uri_of)
    assert body["workspace"] == "file:///work%20space"
    assert body["scope"] == {"scope": "branch", "base": "main", "paths": ["a"]}
    assert body["base"] == ""
    assert body["disposition"] == "none"
    assert "finishedAt" not in body
    assert "text" not in body
    Run.model_validate(body)


def test_a_scope_is_sent_in_the_words_of_the_client_when_they_are_known() -> None:
    asked = {"scope": "file", "uri": "file:///work%20space/a.py"}
    body = run_json(_run(scope=ran.ReviewScope(scope="file", paths=("a.py",))), uri_of, asked)
    assert body["scope"] == asked
    Run.model_validate(body)


def test_a_finished_run_carries_its_error_cost_and_changes() -> None:
    body = run_json(
        _run(
            status="failed",
            finished_at="2026-01-01T00:00:01.000Z",
            error=ran.RunError(code="limit", message="too much", details={"counter": "output"}),
            cost=ran.Cost(amount=0.5, currency="USD", complete=False),
            changes=ran.ChangeCount(files=1, insertions=2, deletions=3),
            notes=("a note",),
            models=("m",),
        ),
        uri_of,
    )
    assert body["error"] == {"code": "limit", "message": "too much", "details": {"counter": "output"}}
    assert body["cost"] == {"amount": 0.5, "currency": "USD", "complete": False}
    assert body["changes"] == {"files": 1, "insertions": 2, "deletions": 3}
    Run.model_validate(body)


def test_PRICE_04_a_cost_of_which_nothing_is_known_is_left_out_and_never_sent_as_zero() -> None:
    unknown = ran.Cost(amount=0, currency="USD", complete=False)
    tokens = Counted(input=1, output=1)
    used = Used("r", "reviewer", None, 1, "model", "unpriced", tokens, tokens, (), unknown)
    free = ran.Cost(amount=0, currency="USD", complete=True)
    assert "cost" not in run_json(_run(cost=unknown), uri_of)
    assert "cost" not in usage_event_json(used)
    assert run_json(_run(cost=free), uri_of)["cost"]["complete"] is True
    assert usage_event_json(replace(used, cost=free))["cost"]["amount"] == 0


def test_a_finding_is_placed_in_the_encoding_of_the_reader() -> None:
    span = found.Span(start_line=0, start_character=2, end_line=0, end_character=3)
    finding = found.Finding(
        id="f1",
        run_id="r1",
        agent="reviewer",
        path="a.py",
        span=span,
        severity="warning",
        code="c",
        title="t",
        detail="d",
        quote="x",
        suggestion=found.Suggestion(title="s", edits=(found.TextReplacement(span=span, text="y"),)),
        in_diff=True,
        confidence=0.5,
        dismissal=found.Dismissal(at="2026-01-01T00:00:00Z"),
        fingerprint="0" * 32,
    )
    lines = split_lines("\U0001f600 x")
    body = finding_json(finding, uri_of(Path("/a.py")), lines, "utf-16")
    assert body["range"]["start"] == {"line": 0, "character": 3}
    assert body["suggestion"]["edits"][0] == {"range": body["range"], "newText": "y"}
    Finding.model_validate(body)
    assert finding_json(finding, "u", lines, "utf-8")["range"]["start"]["character"] == 5
    assert finding_json(finding, "u", lines, "utf-32")["range"]["start"]["character"] == 2
