"""Commands about workspaces: their agents, their trust, their worktrees, and whether all that they need is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pydantic.alias_generators import to_camel

from outpost_lsp.lsp.commands import when_ready
from outpost_lsp.protocol import commands as shapes
from outpost_lsp.service.checks import diagnose
from outpost_lsp.service.worktree_listing import prune_worktrees, standing_worktrees

if TYPE_CHECKING:
    from outpost_lsp.lsp.commands import Handler, Result
    from outpost_lsp.lsp.desk import Desk
    from outpost_lsp.lsp.progress import Token
    from outpost_lsp.service.workspace import Workspace


def _agents(desk: Desk, _: shapes.NoParams) -> Result:
    found: dict[str, Result] = {}
    for workspace in desk.outpost.workspaces:
        for name in workspace.settings.agents:
            found.setdefault(name, _agent_json(workspace, name))
    return {"agents": list(found.values())}


def _agent_json(workspace: Workspace, name: str) -> Result:
    settings = workspace.settings.agents[name]
    body: Result = {
        "name": name,
        "description": settings.description,
        "model": settings.model or workspace.settings.default_model,
        "tools": list(settings.tools),
        "subagents": list(settings.subagents),
        "limits": _camel_case(settings.limits.model_dump(mode="json", exclude_none=True)),
    }
    return body | ({"routing": settings.routing} if settings.routing else {})


def _camel_case(table: dict[str, Any]) -> Result:
    return {to_camel(name): _camel_case(value) if isinstance(value, dict) else value for name, value in table.items()}


async def _trust(desk: Desk, params: shapes.TrustParams, _: Token | None) -> Result:
    await desk.all_ready()
    workspaces = list(desk.outpost.workspaces) if params.uri is None else [desk.places.demand(params.uri)[0]]
    for workspace in workspaces:
        await desk.settings.trust(workspace, is_trusted=params.trusted)
    return {"trusted": all(workspace.is_trusted for workspace in workspaces) and bool(workspaces)}


async def _worktrees(desk: Desk, params: shapes.WorktreesParams, _: Token | None) -> Result:
    await desk.all_ready()
    found = [
        one
        for workspace in desk.outpost.workspaces
        for one in await (prune_worktrees(workspace) if params.prune else standing_worktrees(workspace))
    ]
    return {
        "worktrees": [
            {
                "path": str(one.path),
                "runId": one.run_id,
                "size": one.size,
                "inUse": one.in_use,
                "changed": one.changed,
            }
            for one in {one.path: one for one in found}.values()
        ]
    }


async def _doctor(desk: Desk, _: shapes.NoParams, __: Token | None) -> Result:
    encoding = f"positions are counted in {desk.places.encoding}"
    checks: list[Result] = [{"name": "position encoding", "status": "ok", "detail": encoding}]
    for workspace in desk.outpost.workspaces:
        for check in await diagnose(desk.outpost, workspace):
            shown = {"name": check.name, "status": check.status, "detail": check.detail}
            if shown not in checks:
                checks.append(shown)
    return {"checks": checks}


HANDLERS: Final[dict[str, Handler]] = {
    "outpost.agents": when_ready(_agents),
    "outpost.trust": _trust,
    "outpost.worktrees": _worktrees,
    "outpost.doctor": _doctor,
}
