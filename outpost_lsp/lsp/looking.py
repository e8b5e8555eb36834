"""What an editor asks while a person looks at a document: hovers, code actions, lenses.

Every answer is of the present text: edits that were not passed on yet are passed on first. A document that belongs to no
workspace has nothing to show, which is no fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from outpost_lsp.domain.finding import Finding
from outpost_lsp.lsp import actions
from outpost_lsp.lsp.diagnostics import shown_findings
from outpost_lsp.lsp.encoding import diagnostic
from outpost_lsp.lsp.hover import findings_at, hover_markdown, hover_text, overlapping
from outpost_lsp.lsp.protocol import RequestFault

if TYPE_CHECKING:
    from outpost_lsp.lsp.client import Client
    from outpost_lsp.lsp.documents import Document, Documents
    from outpost_lsp.lsp.places import Places
    from outpost_lsp.service.workspace import Workspace


class Looking:
    """Answers for one client."""

    def __init__(
        self, client: Client, places: Places, documents: Documents, follow_edits: Callable[[Document], None]
    ) -> None:
        self._client = client
        self._places = places
        self._documents = documents
        self._follow_edits = follow_edits

    def hover(self, params: types.HoverParams) -> dict[str, Any] | None:
        """What is known about the findings at a place."""
        workspace, path, findings = self._shown(params.text_document.uri)
        if workspace is None or not findings:
            return None
        place = self._places.span(workspace, path, types.Range(params.position, params.position))
        here = findings_at(findings, place.start_line, place.start_character)
        if not here:
            return None
        kind = self._client.hover_markup
        text = hover_markdown(here) if kind == "markdown" else hover_text(here)
        return {"contents": {"kind": kind, "value": text}, "range": self._places.range(workspace, path, here[0].span)}

    def code_actions(self, params: types.CodeActionParams) -> list[dict[str, Any]]:
        """What can be done at a place."""
        uri = params.text_document.uri
        workspace, path, findings = self._shown(uri)
        if workspace is None:
            return []
        offered: list[dict[str, Any]] = []
        if findings:
            document = self._documents.get(uri)
            version = document.version if document is not None else None
            meant = _named(params.context.diagnostics)
            meant |= {one.id for one in overlapping(findings, self._places.span(workspace, path, params.range))}
            for finding in [one for one in findings if one.id in meant]:
                record = self._places.finding(workspace, finding) | {"uri": uri}
                shown = diagnostic(finding, record["range"])
                offered += actions.finding_actions(finding, record, shown, version, self._client)
        offered += actions.review_actions(uri, _range_json(params.range))
        only = [str(getattr(kind, "value", kind)) for kind in params.context.only] if params.context.only else None
        asked = [action for action in offered if actions.wanted(action, only)]
        return asked if self._client.knows_code_action_literals else actions.as_commands(asked)

    def code_lenses(self, params: types.CodeLensParams) -> list[dict[str, Any]]:
        """What stands above a file with findings."""
        return actions.lenses(params.text_document.uri, self._shown(params.text_document.uri)[2])

    def _shown(self, uri: str) -> tuple[Workspace | None, str, list[Finding]]:
        document = self._documents.get(uri)
        if document is not None:
            self._follow_edits(document)
        try:
            workspace, path = self._places.demand(uri)
        except RequestFault:
            return None, "", []
        return workspace, path, shown_findings(workspace, path)


def _named(diagnostics: Iterable[types.Diagnostic]) -> set[str]:
    """The findings whose diagnostics a client means: some send those of the whole line, with the cursor as the range."""
    given = [one.data.get("findingId") for one in diagnostics if isinstance(one.data, Mapping)]
    return {finding_id for finding_id in given if isinstance(finding_id, str)}


def _range_json(asked: types.Range) -> dict[str, Any]:
    return {
        "start": {"line": asked.start.line, "character": asked.start.character},
        "end": {"line": asked.end.line, "character": asked.end.character},
    }
