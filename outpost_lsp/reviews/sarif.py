"""A run and its findings as a SARIF 2.1.0 log, for code scanning services and viewers.

Dismissed findings are there too, as suppressed results with the reason. Places are relative to the repository's top and
counted in code points, which the log says of itself. Pure; called by faces that write reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal
from urllib.parse import quote

from outpost_lsp.domain.finding import Finding, Severity, Span, Suggestion
from outpost_lsp.domain.markdown import plain
from outpost_lsp.domain.run import Run

SCHEMA_URI: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
FINGERPRINT: Final = "outpostFingerprint/v1"

_TOP: Final = "%SRCROOT%"
_LEVELS: Final[Mapping[Severity, Literal["error", "warning", "note"]]] = {
    "error": "error",
    "warning": "warning",
    "information": "note",
    "hint": "note",
}


def sarif_log(run: Run, findings: Sequence[Finding], *, version: str, is_compared: bool = False) -> dict[str, Any]:
    """The log, ready to be written as JSON. `version` is the product's.

    `is_compared`: the findings are those that a baseline does not hold, which each result says of itself.
    """
    ordered = sorted(findings, key=lambda one: (one.path, one.span.start_line, one.span.start_character, one.code))
    codes = {code: index for index, code in enumerate(sorted({finding.code for finding in ordered}))}
    return {
        "$schema": SCHEMA_URI,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "outpost-lsp",
                        "version": version,
                        "rules": [{"id": code, "shortDescription": {"text": _words(code)}} for code in codes],
                    }
                },
                "automationDetails": {"id": f"outpost/{run.kind}/{run.agent}/{run.id}"},
                "invocations": [_invocation(run)],
                "originalUriBaseIds": {_TOP: {"description": {"text": "The top folder of the repository."}}},
                "columnKind": "unicodeCodePoints",
                "newlineSequences": ["\r\n", "\n", "\r"],
                "results": [
                    _result(finding, codes[finding.code]) | ({"baselineState": "new"} if is_compared else {})
                    for finding in ordered
                ],
                "properties": _run_properties(run),
            }
        ],
    }


def relative_uri(path: str) -> str:
    """A repository path as a relative URI reference; no character of a name is taken for syntax."""
    return quote(path, safe="/", errors="surrogatepass")


def _invocation(run: Run) -> dict[str, Any]:
    notifications = [{"level": "note", "message": {"text": note}} for note in run.notes]
    if run.error is not None:
        notifications.append({"level": "error", "message": {"text": f"{run.error.code}: {run.error.message}"}})
    invocation: dict[str, Any] = {"executionSuccessful": run.status == "succeeded", "startTimeUtc": run.started_at}
    if run.finished_at is not None:
        invocation["endTimeUtc"] = run.finished_at
    if notifications:
        invocation["toolExecutionNotifications"] = notifications
    return invocation


def _run_properties(run: Run) -> dict[str, Any]:
    properties: dict[str, Any] = {"status": run.status, "models": list(run.models), "usage": run.usage.to_json()}
    if run.base:
        properties["base"] = run.base
    if run.scope is not None:
        properties["scope"] = run.scope.to_json()
    return properties


def _result(finding: Finding, rule: int) -> dict[str, Any]:
    text = "\n\n".join(part for part in (finding.title, plain(finding.detail)) if part)
    markdown = "\n\n".join(part for part in (f"**{_escaped(finding.title)}**", finding.detail) if part)
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": _LEVELS[finding.severity],
        "message": {"text": text, "markdown": markdown},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": _artifact(finding.path),
                    "region": {**_region(finding.span), "snippet": {"text": finding.quote}},
                }
            }
        ],
        "partialFingerprints": {FINGERPRINT: finding.fingerprint},
        # An empty list says that nothing suppresses it; without the list nobody knows.
        "suppressions": _suppressions(finding),
        "properties": _finding_properties(finding),
    }
    if finding.suggestion is not None:
        result["fixes"] = [_fix(finding.path, finding.suggestion)]
    return result


def _suppressions(finding: Finding) -> list[dict[str, Any]]:
    if finding.status != "dismissed":
        return []
    suppression: dict[str, Any] = {"kind": "external", "status": "accepted"}
    if finding.dismissal is not None:
        if finding.dismissal.reason:
            suppression["justification"] = finding.dismissal.reason
        suppression["properties"] = finding.dismissal.to_json()
    return [suppression]


def _finding_properties(finding: Finding) -> dict[str, Any]:
    known = {
        "id": finding.id,
        "severity": finding.severity,
        "status": finding.status,
        "agent": finding.agent,
        "model": finding.model,
        "route": finding.route,
        "confidence": finding.confidence,
        "inDiff": finding.in_diff,
    }
    return {name: value for name, value in known.items() if value is not None}


def _fix(path: str, suggestion: Suggestion) -> dict[str, Any]:
    replacements = [
        {"deletedRegion": _region(edit.span), "insertedContent": {"text": edit.text}} for edit in suggestion.edits
    ]
    return {
        "description": {"text": suggestion.title},
        "artifactChanges": [{"artifactLocation": _artifact(path), "replacements": replacements}],
    }


def _artifact(path: str) -> dict[str, str]:
    return {"uri": relative_uri(path), "uriBaseId": _TOP}


def _region(span: Span) -> dict[str, int]:
    return {
        "startLine": span.start_line + 1,
        "startColumn": span.start_character + 1,
        "endLine": span.end_line + 1,
        "endColumn": span.end_character + 1,
    }


def _words(code: str) -> str:
    return code.replace("-", " ")


def _escaped(text: str) -> str:
    return "".join(f"\\{character}" if character in "\\`*_[]<>~" else character for character in text)
