"""The text of a file as the reviewed commit has it, cut into lines once per version.

A worktree file that no agent touched is read as it stands, because it has the line ends that the editor shows; one that
an agent changed is read from the commit, so that places are those of the user's file. The findings tool keeps one
`ReviewedTexts` per toolset.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from outpost_lsp.domain.anchor import LineRange, SourceText
from outpost_lsp.domain.sandbox import Lease
from outpost_lsp.errors import OutpostError

READ_LIMIT: Final = 16 * 1024 * 1024
"""Larger files have no findings."""

_BINARY_PROBE: Final = 8_000
_KEPT_FILES: Final = 8


@dataclass(frozen=True, slots=True)
class ReviewedText:
    """A text to place findings in. It is exact unless bytes that are not UTF-8 had to be replaced."""

    source: SourceText
    is_exact: bool = True

    def editor_lines(self, ranges: Sequence[LineRange]) -> Sequence[LineRange]:
        """Ranges of lines as git counts them, in lines as editors count them."""
        line = self.source.line_after_line_feeds
        return [(line(start), line(end)) for start, end in ranges]


class ReviewedTexts:
    """Reads reviewed files and keeps the last few, so that many findings in one file cut it into lines once."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[bytes, ReviewedText]] = OrderedDict()

    async def read(self, sandbox: Lease, path: str, snapshot: str) -> ReviewedText:
        """The file at `path`; `workspace` with the reason when there is none that findings can be placed in."""
        data = await _reviewed_bytes(sandbox, path, snapshot)
        if b"\0" in data[:_BINARY_PROBE]:
            raise OutpostError(
                "workspace", f"{path} looks binary; findings are placed in text only", {"reason": "kind"}
            )
        known = self._kept.get(path)
        if known is None or known[0] != data:
            known = self._kept[path] = (data, _decoded(data))
        self._kept.move_to_end(path)
        while len(self._kept) > _KEPT_FILES:
            self._kept.popitem(last=False)
        return known[1]


async def _reviewed_bytes(sandbox: Lease, path: str, snapshot: str) -> bytes:
    if not snapshot:
        return await sandbox.files.read(path, limit=READ_LIMIT)
    kind = await sandbox.files.kind(path)
    if kind == "link":
        raise OutpostError("workspace", f"{path} is a link; report the finding in the file itself", {"reason": "link"})
    blob = await sandbox.git(["cat-file", "blob", f"{snapshot}:{path}"], max_output=READ_LIMIT + 1)
    if blob.status != 0:
        raise OutpostError("workspace", f"{path}: there is no such file in what is reviewed", {"reason": "missing"})
    if len(blob.stdout) > READ_LIMIT:
        message = f"{path} is larger than {READ_LIMIT} bytes; findings are placed in smaller files only"
        raise OutpostError("workspace", message, {"reason": "size"})
    if kind == "file":
        standing = await sandbox.files.read(path, limit=READ_LIMIT)
        if _with_line_feeds(standing) == _with_line_feeds(blob.stdout):
            return standing
    return blob.stdout


def _with_line_feeds(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n")


def _decoded(data: bytes) -> ReviewedText:
    try:
        return ReviewedText(SourceText(data.decode()))
    except UnicodeDecodeError:
        return ReviewedText(SourceText(data.decode(errors="replace")), is_exact=False)
