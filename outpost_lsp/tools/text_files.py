"""The text of a worktree file for the tools that read and edit, within their limits (BTOOL-13).

Lines end at LF or CRLF here, and a byte-order mark is kept apart, so that models see neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from outpost_lsp.domain.sandbox import WorktreeFiles
from outpost_lsp.errors import OutpostError

FILE_LIMIT: Final = 4 * 1024 * 1024
BINARY_PROBE: Final = 8_000

_MARK: Final = "\ufeff"


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file as it was read. `text` has no byte-order mark; `is_utf8` says whether it can be written back unharmed."""

    path: str
    data: bytes
    mark: str
    text: str
    is_utf8: bool

    def with_text(self, text: str) -> bytes:
        """The bytes of the file with another text; its byte-order mark stays."""
        return (self.mark + text).encode()


async def read_text(files: WorktreeFiles, path: str) -> TextFile:
    """The text file at `path`; `workspace` when it is too large or looks binary."""
    data = await files.read(path, limit=FILE_LIMIT)
    name = files.normalise(path)
    if b"\0" in data[:BINARY_PROBE]:
        raise OutpostError("workspace", f"{name} looks binary; only text is read", {"path": name, "reason": "kind"})
    try:
        text, is_utf8 = data.decode(), True
    except UnicodeDecodeError:
        text, is_utf8 = data.decode(errors="replace"), False
    mark = _MARK if text.startswith(_MARK) else ""
    return TextFile(name, data, mark, text.removeprefix(mark), is_utf8)


def lines_of(text: str) -> list[str]:
    """The lines without their ends; an empty one after the last line end is none."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]
