"""Between the client's URIs and positions and the service's paths and code points.

The last place that knows URIs on the way in and the first on the way out. A repository is spelled as the client spelled
the folder it opened, also through links.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lsprotocol import types

from outpost_lsp.domain.finding import Finding, Span
from outpost_lsp.lsp.protocol import INVALID_PARAMS, RequestFault
from outpost_lsp.protocol.names import Encoding
from outpost_lsp.protocol.positions import range_json, span_of, split_lines
from outpost_lsp.protocol.records import Range, finding_json
from outpost_lsp.protocol.uris import UriSpellings, path_of

if TYPE_CHECKING:
    from outpost_lsp.lsp.documents import Documents
    from outpost_lsp.service.outpost import Outpost
    from outpost_lsp.service.workspace import Workspace

_MAX_FILE: Final = 64 * 1024 * 1024
_KEPT_FILES: Final = 128


class Places:
    """Translates for one client."""

    def __init__(self, outpost: Outpost, documents: Documents, spellings: UriSpellings, encoding: Encoding) -> None:
        self._outpost = outpost
        self._documents = documents
        self._spellings = spellings
        self.encoding = encoding
        self._files: OrderedDict[Path, tuple[tuple[int, int], list[str]]] = OrderedDict()

    # Files

    def locate(self, path: Path) -> tuple[Workspace, str] | None:
        """The workspace that a file belongs to, the innermost one, and its path in the repository."""
        workspaces = sorted(self._outpost.workspaces, key=lambda one: len(one.folder.parts), reverse=True)
        for workspace in workspaces:
            if path.is_relative_to(workspace.folder):
                return workspace, _relative(path, self.top(workspace))
        for workspace in workspaces:
            if path.is_relative_to(self.top(workspace)):
                return workspace, _relative(path, self.top(workspace))
        resolved = Path(os.path.realpath(path))
        for workspace in workspaces:
            top = Path(os.path.realpath(workspace.top))
            if resolved.is_relative_to(top):
                return workspace, _relative(resolved, top)
        return None

    @property
    def are_many(self) -> bool:
        """Whether more than one folder is open."""
        return len(self._outpost.workspaces) > 1

    def demand(self, uri: str, field: str = "uri") -> tuple[Workspace, str]:
        """The workspace and path of a URI; a fault that names the field when there is none."""
        if not uri.strip():
            expected = "the URI of a document or folder (file:///...) is expected"
            raise RequestFault(INVALID_PARAMS, f"{field}: is blank; {expected}")
        path = path_of(uri)
        if path is None:
            raise RequestFault(INVALID_PARAMS, f"{field}: {uri} is not the URI of a file on this machine")
        found = self.locate(path)
        if found is None:
            raise RequestFault(INVALID_PARAMS, f"{field}: {uri} is outside every workspace folder")
        return found

    def top(self, workspace: Workspace) -> Path:
        """The repository's top folder, spelled as the client spelled the workspace folder."""
        top = workspace.top
        if workspace.folder.is_relative_to(top):
            return top
        inner = Path(os.path.relpath(os.path.realpath(workspace.folder), os.path.realpath(top)))
        count = len(inner.parts)
        if count == 0:
            return workspace.folder
        return workspace.folder.parents[count - 1] if workspace.folder.parts[-count:] == inner.parts else top

    def file(self, workspace: Workspace, path: str) -> Path:
        """The absolute path of a file of the repository."""
        return self.top(workspace) / path

    def uri(self, workspace: Workspace, path: str) -> str:
        """The URI of a file of the repository, as the client would write it."""
        return self._spellings.spell(self.file(workspace, path))

    def folder_uri(self, folder: Path) -> str:
        """The URI of a folder."""
        return self._spellings.spell(folder)

    # Texts

    def lines(self, workspace: Workspace, path: str) -> Sequence[str]:
        """The lines of a file as the client sees it: the open document's, else the disk's; empty when unreadable."""
        file = self.file(workspace, path)
        document = self._documents.at(file)
        return document.lines if document is not None else self._on_disk(file)

    def _on_disk(self, file: Path) -> Sequence[str]:
        try:
            status = file.stat()
            stamp = (status.st_mtime_ns, status.st_size)
            known = self._files.get(file)
            if known is not None and known[0] == stamp:
                self._files.move_to_end(file)
                return known[1]
            if status.st_size > _MAX_FILE:
                return ()
            # A byte-order mark is no part of the text, as editors and the findings count.
            lines = split_lines(file.read_bytes().decode("utf-8", "replace").removeprefix("\ufeff"))
        except (OSError, ValueError):
            return ()
        self._files[file] = (stamp, lines)
        while len(self._files) > _KEPT_FILES:
            self._files.popitem(last=False)
        return lines

    # Positions

    def span(self, workspace: Workspace, path: str, asked: types.Range | Range) -> Span:
        """The span that a range of the client means, cut to the text."""
        lines = self.lines(workspace, path) or [""]
        start, end = asked.start, asked.end
        return span_of(lines, (start.line, start.character), (end.line, end.character), self.encoding)

    def range(self, workspace: Workspace, path: str, span: Span) -> dict[str, Any]:
        """The range of a span, in the client's encoding."""
        return range_json(self.lines(workspace, path), span, self.encoding)

    def findings(
        self, workspace: Workspace, path: str, findings: Iterable[Finding]
    ) -> list[tuple[Finding, dict[str, Any]]]:
        """Findings of one file, each with what the client sees of it."""
        uri, lines = self.uri(workspace, path), self.lines(workspace, path)
        return [(finding, finding_json(finding, uri, lines, self.encoding)) for finding in findings]

    def finding(self, workspace: Workspace, finding: Finding) -> dict[str, Any]:
        """A finding as the client sees it."""
        path = finding.path
        return finding_json(finding, self.uri(workspace, path), self.lines(workspace, path), self.encoding)


def _relative(path: Path, top: Path) -> str:
    relative = path.relative_to(top).as_posix()
    return "" if relative == "." else relative
