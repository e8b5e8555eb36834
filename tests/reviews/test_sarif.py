"""The SARIF log fits the standard's own schema and says what the findings say."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from outpost_lsp.domain.finding import Dismissal, Finding, Span, Suggestion, TextReplacement
from outpost_lsp.domain.run import ReviewScope, Run, RunError
from outpost_lsp.reviews.sarif import FINGERPRINT, relative_uri, sarif_log

SCHEMA = json.loads((Path(__file__).parents[1] / "data" / "sarif-2.1.0.schema.json").read_text())
VALIDATOR = jsonschema.Draft4Validator(SCHEMA, format_checker=jsonschema.Draft4Validator.FORMAT_CHECKER)
SPAN = Span(start_line=2, start_character=4, end_line=3, end_character=0)


def run(**changes) -> Run:
    values = {
        "id": "run",
        "kind": "review",
        "agent": "reviewer",
        "title": "t",
        "status": "succeeded",
        "workspace": "/w",
    }
    return Run(**{**values, "started_at": "2030-01-01T00:00:00Z", "finished_at": "2030-01-01T00:00:05Z", **changes})


def finding(**changes) -> Finding:
    values = {
        "id": "run-1",
        "run_id": "run",
        "agent": "reviewer",
        "path": "src/a.py",
        "span": SPAN,
        "severity": "error",
        "code": "unchecked-input",
        "title": "It *fails*",
        "detail": "When `x` is 0.",
        "quote": "x / 0",
        "fingerprint": "f" * 32,
    }
    return Finding(**{**values, **changes})


def log(*findings: Finding, **changes) -> dict:
    value = sarif_log(run(**changes), findings, version="1.2.3")
    VALIDATOR.validate(value)
    return json.loads(json.dumps(value))["runs"][0]


def test_a_finding_becomes_a_result_with_its_place_and_words():
    value = log(finding(confidence=0.8, in_diff=True, model="large", route="deep"))
    [result] = value["results"]
    assert (result["ruleId"], result["ruleIndex"], result["level"]) == ("unchecked-input", 0, "error")
    assert result["message"] == {
        "text": "It *fails*\n\nWhen `x` is 0.",
        "markdown": "**It \\*fails\\***\n\nWhen `x` is 0.",
    }
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "src/a.py", "uriBaseId": "%SRCROOT%"}
    assert place["region"] == {
        "startLine": 3, "startColumn": 5, "endLine": 4, "endColumn": 1, "snippet": {"text": "x / 0"}
    }  # fmt: skip
    assert result["partialFingerprints"] == {FINGERPRINT: "f" * 32}
    assert result["properties"]["confidence"] == 0.8
    assert result["suppressions"] == []
    assert value["columnKind"] == "unicodeCodePoints"
    assert value["tool"]["driver"]["version"] == "1.2.3"


@pytest.mark.parametrize(
    ("severity", "level"), [("error", "error"), ("warning", "warning"), ("information", "note"), ("hint", "note")]
)
def test_severities_become_levels(severity, level):
    [result] = log(finding(severity=severity))["results"]
    assert (result["level"], result["properties"]["severity"]) == (level, severity)


def test_U_09_a_dismissed_finding_is_a_suppressed_result_with_the_reason():
    dismissal = Dismissal(reason="Known.", at="2030-01-01T00:00:00Z", until="2031-01-01")
    [result] = log(finding(status="dismissed", dismissal=dismissal))["results"]
    [suppression] = result["suppressions"]
    assert (suppression["kind"], suppression["status"], suppression["justification"]) == (
        "external",
        "accepted",
        "Known.",
    )
    [bare] = log(finding(status="dismissed"))["results"]
    assert bare["suppressions"] == [{"kind": "external", "status": "accepted"}]
    [expired] = log(finding(dismissal=dismissal))["results"]
    assert expired["suppressions"] == []


def test_a_suggestion_becomes_a_fix():
    edit = TextReplacement(span=SPAN, text="x / 1\r\n")
    [result] = log(finding(suggestion=Suggestion(title="Fix: it", edits=(edit,))))["results"]
    [change] = result["fixes"][0]["artifactChanges"]
    assert change["replacements"] == [
        {
            "deletedRegion": {"startLine": 3, "startColumn": 5, "endLine": 4, "endColumn": 1},
            "insertedContent": {"text": "x / 1\r\n"},
        }
    ]


def test_rules_stand_once_and_results_point_to_them():
    value = log(finding(code="b"), finding(code="a", id="2"), finding(code="b", id="3", path="z"))
    assert [rule["id"] for rule in value["tool"]["driver"]["rules"]] == ["a", "b"]
    assert [(result["ruleId"], result["ruleIndex"]) for result in value["results"]] == [("a", 0), ("b", 1), ("b", 1)]


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("a b#c%d?.py", "a%20b%23c%25d%3F.py"),
        ("漢.py", "%E6%BC%A2.py"),
        ("c:/x.py", "c%3A/x.py"),
        ("a\\b.py", "a%5Cb.py"),
        ("a\udcffb", "a%ED%B3%BFb"),
    ],
)
def test_paths_become_relative_references(path, uri):
    assert relative_uri(path) == uri


def test_a_run_that_failed_says_why():
    value = log(
        status="failed", error=RunError(code="quota", message="Too many."), notes=("A note.",), finished_at=None
    )
    [invocation] = value["invocations"]
    assert invocation["executionSuccessful"] is False
    assert [entry["message"]["text"] for entry in invocation["toolExecutionNotifications"]] == [
        "A note.",
        "quota: Too many.",
    ]
    assert value["results"] == []


def test_the_scope_and_the_base_are_kept():
    value = log(finding(), scope=ReviewScope(scope="branch", base="main"), base="0" * 40, models=("large",))
    assert value["properties"]["scope"]["base"] == "main"
    assert value["properties"]["base"] == "0" * 40


def test_the_schema_in_use_refuses_what_is_no_log():
    value = sarif_log(run(), [finding()], version="1")
    value["runs"][0]["results"][0]["level"] = "information"
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(value)
