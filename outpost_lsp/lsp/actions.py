"""Code actions on findings and selections, and the lenses above a file with findings.

A suggestion is offered only while the text it replaces stands where it was found, and as an edit of that very version
of the document (SEC-21).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from outpost_lsp.domain.finding import Finding
from outpost_lsp.domain.markdown import one_line
from outpost_lsp.lsp.client import Client
from outpost_lsp.lsp.outcome import findings_text
from outpost_lsp.protocol.names import REVIEW_ACTION_KIND

QUICK_FIX: Final = "quickfix"
_MODEL_TAG: Final = 1


def finding_actions(
    finding: Finding, record: dict[str, Any], diagnostic: dict[str, Any], version: int | None, client: Client
) -> list[dict[str, Any]]:
    """What can be done about one finding. `record` is the finding as the client sees it."""
    title = one_line(finding.title, 60)
    actions = []
    if finding.status == "open" and finding.suggestion is not None:
        suggestion = record["suggestion"]
        actions.append(
            {
                "title": f"Apply the suggested fix: {one_line(suggestion['title'].removeprefix('Fix: '), 60)}",
                "isPreferred": True,
                "edit": workspace_edit(record["uri"], suggestion["edits"], version, client),
            }
        )
    argument = {"findingId": finding.id}
    actions += [
        _by_command(f"Fix with an agent: {title}", "outpost.fix", argument),
        _by_command(f"Dismiss: {title}", "outpost.dismiss", argument),
    ]
    for action in actions:
        action |= {"kind": QUICK_FIX, "diagnostics": [diagnostic]}
        if client.knows_model_tag:
            action["tags"] = [_MODEL_TAG]
    return actions


def review_actions(uri: str, place: dict[str, Any]) -> list[dict[str, Any]]:
    """Reviews that can be asked for from a selection, or from a place in a file."""
    whole = _by_command("Review this file with Outpost", "outpost.review", {"scope": "file", "uri": uri})
    actions = [whole]
    if place["start"] != place["end"]:
        argument = {"scope": "selection", "uri": uri, "range": place}
        actions.insert(0, _by_command("Review the selection with Outpost", "outpost.review", argument))
    for action in actions:
        action["kind"] = REVIEW_ACTION_KIND
    return actions


def workspace_edit(uri: str, edits: Sequence[dict[str, Any]], version: int | None, client: Client) -> dict[str, Any]:
    """Edits of one document; of this version of it, where the client can check that."""
    if client.can("workspace.workspaceEdit.documentChanges"):
        document = {"uri": uri, "version": version}
        return {"documentChanges": [{"textDocument": document, "edits": list(edits)}]}
    return {"changes": {uri: list(edits)}}


def wanted(action: dict[str, Any], only: Sequence[str] | None) -> bool:
    """Whether the client asked for this kind of action."""
    kind = action["kind"]
    return only is None or any(kind == asked or kind.startswith(f"{asked}.") or not asked for asked in only)


def as_commands(actions: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The actions that are commands, for clients that know nothing else."""
    return [action["command"] for action in actions if "command" in action]


def lenses(uri: str, findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """How many findings the file has, and a way to review it again; on its first line."""
    if not findings:
        return []
    place = {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 0}}
    total = findings_text(len(findings), [finding.severity for finding in findings if finding.status == "open"])
    return [
        {"range": place, "command": _command(total, "outpost.findings", {"uri": uri})},
        {"range": place, "command": _command("Review again", "outpost.review", {"scope": "file", "uri": uri})},
    ]


def _by_command(title: str, name: str, argument: dict[str, Any]) -> dict[str, Any]:
    return {"title": title, "command": _command(title, name, argument)}


def _command(title: str, name: str, argument: dict[str, Any]) -> dict[str, Any]:
    return {"title": title, "command": name, "arguments": [argument]}
