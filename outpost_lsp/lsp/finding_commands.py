"""Commands about findings: list, dismiss, restore, clear."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from outpost_lsp.protocol import commands as shapes

if TYPE_CHECKING:
    from outpost_lsp.lsp.commands import Handler, Result
    from outpost_lsp.lsp.desk import Desk
    from outpost_lsp.lsp.progress import Token


async def _findings(desk: Desk, params: shapes.FindingsParams, _: Token | None) -> Result:
    await desk.all_ready()
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


async def _dismiss(desk: Desk, params: shapes.DismissParams, _: Token | None) -> Result:
    workspace = await desk.workspace_of_finding(params.finding_id)
    finding = workspace.dismiss(params.finding_id, reason=params.reason, until=params.until)
    return {"finding": desk.places.finding(workspace, finding)}


async def _restore(desk: Desk, params: shapes.FindingParams, _: Token | None) -> Result:
    workspace = await desk.workspace_of_finding(params.finding_id)
    finding = workspace.restore(params.finding_id)
    return {"finding": desk.places.finding(workspace, finding)}


async def _clear(desk: Desk, params: shapes.ClearParams, _: Token | None) -> Result:
    await desk.all_ready()
    if params.uri is not None:
        workspace, path = desk.places.demand(params.uri)
        return {"cleared": workspace.clear(path or None)}
    return {"cleared": sum(workspace.clear() for workspace in desk.outpost.workspaces)}


HANDLERS: Final[dict[str, Handler]] = {
    "outpost.findings": _findings,
    "outpost.dismiss": _dismiss,
    "outpost.restore": _restore,
    "outpost.clear": _clear,
}
