"""Commands about findings: list, dismiss, restore, clear."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from outpost_lsp.lsp.commands import when_ready
from outpost_lsp.protocol import commands as shapes

if TYPE_CHECKING:
    from outpost_lsp.lsp.commands import Handler, Result
    from outpost_lsp.lsp.desk import Desk


def _findings(desk: Desk, params: shapes.FindingsParams) -> Result:
    desk.flush_edits()
    if params.uri is not None:
        workspace, path = desk.places.demand(params.uri)
        found = [(workspace, finding) for finding in workspace.findings(path or None, params.status)]
    else:
        found = [
            (workspace, finding)
            for workspace in desk.outpost.workspaces
            for finding in workspace.findings(None, params.status)
        ]
    return {"findings": [desk.places.finding(workspace, finding) for workspace, finding in found]}


def _dismiss(desk: Desk, params: shapes.DismissParams) -> Result:
    workspace = desk.workspace_of_finding(params.finding_id)
    finding = workspace.dismiss(params.finding_id, reason=params.reason, until=params.until)
    return {"finding": desk.places.finding(workspace, finding)}


def _restore(desk: Desk, params: shapes.FindingParams) -> Result:
    workspace = desk.workspace_of_finding(params.finding_id)
    finding = workspace.restore(params.finding_id)
    return {"finding": desk.places.finding(workspace, finding)}


def _clear(desk: Desk, params: shapes.ClearParams) -> Result:
    if params.uri is not None:
        workspace, path = desk.places.demand(params.uri)
        return {"cleared": workspace.clear(path or None)}
    return {"cleared": sum(workspace.clear() for workspace in desk.outpost.workspaces)}


HANDLERS: Final[dict[str, Handler]] = {
    "outpost.findings": when_ready(_findings),
    "outpost.dismiss": when_ready(_dismiss),
    "outpost.restore": when_ready(_restore),
    "outpost.clear": when_ready(_clear),
}
