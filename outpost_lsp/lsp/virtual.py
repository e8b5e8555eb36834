"""Documents that exist only here: a run's report and patch, and the two sides of what it changed.

outpost:/runs/RUN/report.md
outpost:/runs/RUN/changes.patch
outpost:/runs/RUN/before/PATH
outpost:/runs/RUN/after/PATH
"""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from outpost_lsp.domain.markdown import one_line, safe_markdown
from outpost_lsp.lsp.documents import decoded
from outpost_lsp.lsp.protocol import INVALID_PARAMS, RequestFault
from outpost_lsp.protocol.names import DOCUMENT_SCHEME
from outpost_lsp.service import results
from outpost_lsp.service.whereabouts import Whereabouts, whereabouts

if TYPE_CHECKING:
    from outpost_lsp.domain.finding import Finding
    from outpost_lsp.domain.run import Run
    from outpost_lsp.lsp.desk import Desk

_SIDES: Final = ("before", "after")


async def virtual_content(desk: Desk, uri: str) -> dict[str, Any]:
    """The answer to `workspace/textDocumentContent`; a fault that names the URI when there is nothing behind it."""
    return {"text": await virtual_text(desk, uri)}


async def virtual_text(desk: Desk, uri: str) -> str:
    """The text behind a URI of ours."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        raise RequestFault(INVALID_PARAMS, f"uri: {uri} is no URI") from None
    names = unquote(parts.path).strip("/").split("/")
    if parts.scheme != DOCUMENT_SCHEME or len(names) < 3 or names[0] != "runs":
        raise RequestFault(INVALID_PARAMS, f"uri: {uri} is no document of Outpost")
    workspace, run = desk.outpost.find_run(names[1])
    if names[2:] == ["report.md"]:
        found = await whereabouts(workspace, run)
        return _report(run, found, {one.id for one in workspace.findings()})
    shown = await results.diff(workspace, run)
    if names[2:] == ["changes.patch"]:
        return shown.patch.decode("utf-8", "replace")
    path = "/".join(names[3:])
    for versions in shown.files:
        if names[2] in _SIDES and path in (versions.file.path, versions.file.old_path):
            side = versions.base if names[2] == "before" else versions.result
            return decoded(side or b"") or ""
    raise RequestFault(INVALID_PARAMS, f"uri: {uri} names nothing that the run changed")


def _report(run: Run, found: Whereabouts, shown: Set[str]) -> str:
    lines = [f"# {safe_markdown(run.title)}", "", f"{run.kind} by {run.agent}: {run.status}", ""]
    if run.error is not None:
        lines += [safe_markdown(run.error.message), ""]
    if run.text:
        lines += [safe_markdown(run.text), ""]
    for one in sorted(found.here, key=lambda finding: (finding.path, finding.span.start_line)):
        together = "" if one.id in shown else ", shown together with another agent's"
        lines += [_titled(one), "", f"{_place(one)} ({one.status}{together})", ""]
        if one.detail.strip():
            lines += [safe_markdown(one.detail), ""]
    for one, became in found.gone:
        lines += [_titled(one), "", f"{_place(one)}, when it was reported ({became})", ""]
    if (found.here or found.gone) and run.notes:
        lines += ["## Notes", ""]
    lines += [f"- {safe_markdown(note)}" for note in run.notes]
    return "\n".join(lines).rstrip() + "\n"


def _titled(finding: Finding) -> str:
    return f"## {finding.severity}: {safe_markdown(one_line(finding.title))}"


def _place(finding: Finding) -> str:
    return f"{safe_markdown(finding.path)}:{finding.span.start_line + 1}"
