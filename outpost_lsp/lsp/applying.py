"""Bringing a run's changes into the user's files through the editor: one edit that touches only what differs.

An open buffer counts before the disk, and each edit names the version of the buffer it was made for, so that whatever
the person typed meanwhile is never overwritten. What an editor cannot do (bytes that are no text, links, the executable
bit; creating and removing, where it says so) is done on disk first and taken back when the editor declines (SEC-23).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, Final

from outpost_lsp.domain.landing import FileOperation, Present, turned, turning
from outpost_lsp.errors import OutpostError
from outpost_lsp.lsp.documents import Document, as_on_disk, decoded
from outpost_lsp.lsp.protocol import RequestFault
from outpost_lsp.protocol.positions import position_json, split_lines, without_line_end
from outpost_lsp.sandbox.landing import land
from outpost_lsp.sandbox.standing import mode_on_disk, present_on_disk

if TYPE_CHECKING:
    from outpost_lsp.lsp.client import Client
    from outpost_lsp.lsp.documents import Documents
    from outpost_lsp.lsp.places import Places
    from outpost_lsp.lsp.protocol import OutpostProtocol
    from outpost_lsp.service.workspace import Workspace

logger = logging.getLogger(__name__)

_PATIENCE_S: Final = 300.0
_MOST_LINES_COMPARED: Final = 20_000
_MARK: Final = "\ufeff"


class EditorLanding:
    """Looks at the user's files and changes them, once, for one apply."""

    def __init__(
        self, protocol: OutpostProtocol, client: Client, places: Places, documents: Documents, workspace: Workspace
    ) -> None:
        self._protocol = protocol
        self._client = client
        self._places = places
        self._documents = documents
        self._workspace = workspace
        self._seen: dict[str, int] = {}
        self.reason = ""
        """Why the editor declined."""
        self.left_changed: tuple[str, ...] = ()
        """What the editor had changed already when it gave up; empty after one that undoes what it began."""
        self.still_open: tuple[str, ...] = ()
        """Files that became folders and are open; no request of the protocol closes them."""

    async def present(self, path: str) -> Present:
        """What stands at a path now: the open buffer's text, as it would be on disk, else the disk's bytes."""
        on_disk = await present_on_disk(self._workspace.top, path)
        document = self._document(path)
        if document is None or on_disk.kind not in ("file", "absent"):
            return on_disk
        self._seen[path] = document.version
        return Present("file", as_on_disk(document.text, on_disk.content))

    async def land(self, operations: Sequence[FileOperation]) -> bool:
        """Carry the operations out, all or none."""
        # Editors carry a creation and a deletion out one by one: a file that becomes a folder is the disk's.
        turns = turned(operations)
        by_editor = [
            one
            for one in operations
            if self._can_edit(one)
            and turning(one.path, turns) is None
            and (one.moved_from is None or turning(one.moved_from, turns) is None)
        ]
        by_disk = [one for one in operations if one not in by_editor]
        for operation in by_disk:
            if self._document(operation.moved_from or operation.path) is not None and operation.before is not None:
                await self._refuse_unsaved(operation)
        top, records = self._workspace.top, self._workspace.layout.landings
        taken_back = [_inverse(one, await mode_on_disk(top, one.moved_from or one.path)) for one in reversed(by_disk)]
        await land(top, by_disk, records=records)
        if not by_editor or await self._apply(by_editor):
            is_open = [path for path in sorted(turns) if self._document(path) is not None]
            self.still_open = tuple([one for one in is_open if (await present_on_disk(top, one)).kind == "directory"])
            return True
        await land(top, taken_back, records=records)
        self.left_changed = tuple([one.path for one in by_editor if await self._stands(one)])
        return False

    async def _stands(self, operation: FileOperation) -> bool:
        """Whether the editor has done what it says it has not."""
        now = await self.present(operation.path)
        return operation.before != operation.after and now.content == operation.after

    def _document(self, path: str) -> Document | None:
        return self._documents.at(self._places.file(self._workspace, path))

    def _can_edit(self, operation: FileOperation) -> bool:
        # An editor follows a link, and would write to what it leads to.
        on_disk = operation.is_link or operation.was_link or operation.is_executable is not None
        if on_disk or not self._client.can("workspace.applyEdit"):
            return False
        needed = {"create"} if operation.before is None else {"delete"} if operation.after is None else set()
        needed |= {"rename"} if operation.moved_from is not None else set()
        if needed and not needed <= self._client.resource_operations:
            return False
        return all(side is None or decoded(side) is not None for side in (operation.before, operation.after))

    async def _refuse_unsaved(self, operation: FileOperation) -> None:
        path = operation.moved_from or operation.path
        if (await present_on_disk(self._workspace.top, path)).content != operation.before:
            raise OutpostError(
                "conflict",
                f"{path} has unsaved changes and the editor cannot apply this edit: save it first",
                {"path": path},
            )

    async def _apply(self, operations: Sequence[FileOperation]) -> bool:
        if any(
            document.version != self._seen[one.path]
            for one in operations
            if one.path in self._seen and (document := self._document(one.path)) is not None
        ):
            self.reason = "the text was edited meanwhile"
            return False
        params = {"label": "Apply the changes of an Outpost run", "edit": self._edit(operations)}
        try:
            answer = await self._protocol.ask("workspace/applyEdit", params, _PATIENCE_S)
        except (RequestFault, TimeoutError) as error:
            self.reason = str(error) or "the editor did not answer"
            return False
        if isinstance(answer, dict) and answer.get("applied") is True:
            return True
        reason = answer.get("failureReason") if isinstance(answer, dict) else None
        self.reason = reason if isinstance(reason, str) and reason else "the editor declined"
        return False

    def _edit(self, operations: Sequence[FileOperation]) -> dict[str, Any]:
        if not self._client.can("workspace.workspaceEdit.documentChanges"):
            # Without document changes there are no files that appear or vanish, only texts that change.
            return {"changes": {self._uri(one.path): self._text_edits(one) for one in operations}}
        steps: list[dict[str, Any]] = []
        for operation in operations:
            uri = self._uri(operation.path)
            if operation.moved_from is not None:
                steps.append({"kind": "rename", "oldUri": self._uri(operation.moved_from), "newUri": uri})
            elif operation.before is None:
                steps.append({"kind": "create", "uri": uri, "options": {"overwrite": False, "ignoreIfExists": False}})
            if operation.after is None:
                steps.append({"kind": "delete", "uri": uri})
            elif edits := self._text_edits(operation):
                document = self._document(operation.path)
                version = document.version if document is not None else None
                steps.append({"textDocument": {"uri": uri, "version": version}, "edits": edits})
        return {"documentChanges": steps}

    def _text_edits(self, operation: FileOperation) -> list[dict[str, Any]]:
        before, after = decoded(operation.before or b"") or "", decoded(operation.after or b"") or ""
        document = self._document(operation.moved_from or operation.path)
        if document is not None and document.text.startswith(_MARK):
            # The editor counts the byte-order mark as a character, and must not lose it.
            before, after = _MARK + before, _MARK + after
        return text_edits(before, after, self._places)

    def _uri(self, path: str) -> str:
        return self._places.uri(self._workspace, path)


def text_edits(before: str, after: str, places: Places) -> list[dict[str, Any]]:
    """Edits that turn one text into another and touch only the lines that differ."""
    old, new = split_lines(before), split_lines(after)
    edits = []
    for first, last, start, end in _differing(old, new):
        edits.append(
            {
                "range": {
                    "start": _line_start(old, first, places),
                    "end": _line_start(old, last, places),
                },
                "newText": "".join(new[start:end]),
            }
        )
    return edits


def _differing(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int, int, int]]:
    """Line ranges that differ, as (first, last) in the old and (start, end) in the new text; in order."""
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    if head == len(old) == len(new):
        return []
    middle_old, middle_new = old[head : len(old) - tail], new[head : len(new) - tail]
    if len(middle_old) + len(middle_new) > _MOST_LINES_COMPARED:
        return [(head, len(old) - tail, head, len(new) - tail)]
    matcher = SequenceMatcher(None, middle_old, middle_new, autojunk=False)
    return [
        (head + i1, head + i2, head + j1, head + j2) for tag, i1, i2, j1, j2 in matcher.get_opcodes() if tag != "equal"
    ]


def _line_start(lines: Sequence[str], line: int, places: Places) -> dict[str, int]:
    """The beginning of a line; the end of the text for the line after the last."""
    if line < len(lines):
        return {"line": line, "character": 0}
    last = len(lines) - 1
    return position_json(lines, last, len(without_line_end(lines[last])), places.encoding)


def _inverse(operation: FileOperation, mode: int | None) -> FileOperation:
    """What takes an operation back; `mode` is what its file had before."""
    path, source = operation.path, operation.moved_from
    if source is not None:
        path, source = source, path
    return FileOperation(
        path, operation.after, operation.before, source, None, operation.was_link, operation.is_link, mode
    )
