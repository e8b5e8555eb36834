"""Commands about what runs changed: show it, apply it, drop it, bring it back, go through a run again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from outpost_lsp.domain.markdown import one_line
from outpost_lsp.lsp.documents import decoded
from outpost_lsp.lsp.outcome import MESSAGE_TYPES
from outpost_lsp.lsp.run_commands import answer_run, request
from outpost_lsp.protocol import commands as shapes
from outpost_lsp.service import results

if TYPE_CHECKING:
    from outpost_lsp.lsp.commands import Handler, Result
    from outpost_lsp.lsp.desk import Desk
    from outpost_lsp.lsp.progress import Token
    from outpost_lsp.service.workspace import Workspace
    from outpost_lsp.worktrees.contents import FileVersions


async def _diff(desk: Desk, params: shapes.ViewParams, _: Token | None) -> Result:
    await desk.all_ready()
    workspace, run = desk.outpost.find_run(params.run_id)
    shown = await results.diff(workspace, run)
    return {
        "files": [_file_json(desk, workspace, versions) for versions in shown.files],
        "patch": shown.patch.decode("utf-8", "replace"),
        **({"opened": await desk.show(workspace, run, "changes.patch")} if params.open else {}),
    }


async def _apply(desk: Desk, params: shapes.ApplyParams, token: Token | None) -> Result:
    await desk.all_ready()
    workspace, run = desk.outpost.find_run(params.run_id)
    landing = desk.landing(workspace)
    with desk.progress_during(token, f"Outpost: {one_line(run.title, 80)}", "applying its changes") as ended:
        outcome = await results.apply(
            workspace, run, present=landing.present, land=landing.land, paths=params.paths, hunks=params.hunks
        )
        much = "not all was applied" if landing.left_changed else "nothing was applied"
        ended("done" if outcome.applied else much)
    for path in landing.still_open:
        text = f"{one_line(path)} is a folder now and still open as a file: close it unsaved."
        desk.reporter.message(MESSAGE_TYPES["warning"], text)
    conflicts = [{"path": one.path, "reason": one.reason} for one in outcome.conflicts]
    if landing.reason:
        conflicts.append({"path": "", "reason": f"{much}: {landing.reason}"})
        left = "the editor had changed it before it gave up: undo that there, or apply again"
        conflicts += [{"path": path, "reason": left} for path in landing.left_changed]
    return {
        "applied": outcome.applied,
        "files": list(outcome.files),
        "conflicts": conflicts,
        "needsOwnAccept": list(outcome.needs_own_accept),
    }


async def _discard(desk: Desk, params: shapes.RunParams, _: Token | None) -> Result:
    await desk.all_ready()
    workspace, run = desk.outpost.find_run(params.run_id)
    return {"discarded": await results.discard(workspace, run)}


async def _reopen(desk: Desk, params: shapes.RunParams, _: Token | None) -> Result:
    await desk.all_ready()
    workspace, run = desk.outpost.find_run(params.run_id)
    return {"run": desk.reporter.run(await results.reopen(workspace, run))}


async def _replay(desk: Desk, params: shapes.ReplayParams, token: Token | None) -> Result:
    await desk.all_ready()
    workspace, run = desk.outpost.find_run(params.run_id)
    with request(token):
        handle = await desk.outpost.replay(workspace, run.id)
    return await answer_run(desk, handle, params)


def _file_json(desk: Desk, workspace: Workspace, versions: FileVersions) -> Result:
    file = versions.file
    body: dict[str, Any] = {
        "path": file.path,
        "uri": desk.places.uri(workspace, file.path),
        "status": file.status,
        "hunks": [{"id": hunk.id, "header": hunk.header} for hunk in versions.hunks],
    }
    if file.old_path is not None and file.old_path != file.path:
        body["oldUri"] = desk.places.uri(workspace, file.old_path)
    for name, side in (("before", versions.base), ("after", versions.result)):
        text = None if side is None else decoded(side)
        if text is not None:
            body[name] = text
    return body


HANDLERS: Final[dict[str, Handler]] = {
    "outpost.diff": _diff,
    "outpost.apply": _apply,
    "outpost.discard": _discard,
    "outpost.reopen": _reopen,
    "outpost.replay": _replay,
}
