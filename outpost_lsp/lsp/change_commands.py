"""Commands about what runs changed, and about the folders they work in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from outpost_lsp.protocol import commands as shapes
from outpost_lsp.service.checks import diagnose

if TYPE_CHECKING:
    from outpost_lsp.lsp.commands import Handler, Result
    from outpost_lsp.lsp.desk import Desk
    from outpost_lsp.lsp.progress import Token


async def _doctor(desk: Desk, _: shapes.NoParams, __: Token | None) -> Result:
    await desk.all_ready()
    checks: list[Result] = []
    for workspace in desk.outpost.workspaces:
        for check in await diagnose(desk.outpost, workspace):
            shown = {"name": check.name, "status": check.status, "detail": check.detail}
            if shown not in checks:
                checks.append(shown)
    return {"checks": checks}


HANDLERS: Final[dict[str, Handler]] = {"outpost.doctor": _doctor}
