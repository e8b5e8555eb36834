"""The texts of the documents that the client has open.

Kept as lines, so that an edit costs what it touches, in whatever encoding its position counts; the text is joined only
when somebody asks for it. Changes are applied in the order in which they arrive. Knows nothing of the service.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from outpost_lsp.protocol.names import Encoding
from outpost_lsp.protocol.positions import place, split_lines


@dataclass(frozen=True, slots=True)
class Change:
    """A change as the client sent it: a range in its encoding, or none for the whole text."""

    start: tuple[int, int] | None
    end: tuple[int, int] | None
    text: str


class Document:
    """One open document."""

    def __init__(self, uri: str, path: Path | None, language: str, version: int, text: str) -> None:
        self.uri = uri
        self.path = path
        self.language = language
        self.version = version
        self.lines = split_lines(text)
        self._text: str | None = text

    @property
    def text(self) -> str:
        """The whole text."""
        if self._text is None:
            self._text = "".join(self.lines)
        return self._text

    def apply(self, change: Change, encoding: Encoding) -> None:
        """Change the text."""
        self._text = None
        if change.start is None or change.end is None:
            self.lines = split_lines(change.text)
            self._text = change.text
            return
        first = place(self.lines, *change.start, encoding)
        last = place(self.lines, *change.end, encoding)
        if last < first:
            first, last = last, first
        self._splice(first, last, change.text)

    def _splice(self, first: tuple[int, int], last: tuple[int, int], text: str) -> None:
        lines = self.lines
        begin, end = first[0], last[0] + 1
        fresh = lines[first[0]][: first[1]] + text + lines[last[0]][last[1] :]
        # A CR and an LF that come to stand together become one line end, so the neighbours take part.
        if fresh.startswith("\n") and begin and lines[begin - 1].endswith("\r"):
            begin -= 1
            fresh = lines[begin] + fresh
        if fresh.endswith("\r") and end < len(lines) and lines[end].startswith("\n"):
            fresh += lines[end]
            end += 1
        pieces = split_lines(fresh)
        if end < len(lines):
            # What follows the last line end is the next line, which stays as it is.
            pieces.pop()
        lines[begin:end] = pieces


class Documents:
    """Every open document, by the URI the client gave it and by its path."""

    def __init__(self) -> None:
        self._by_uri: dict[str, Document] = {}
        self._by_path: dict[Path, Document] = {}

    def __iter__(self) -> Iterator[Document]:
        return iter(self._by_uri.values())

    def __len__(self) -> int:
        return len(self._by_uri)

    def open(self, document: Document) -> None:
        """Add a document, or replace the one that was open under its URI."""
        self._by_uri[document.uri] = document
        if document.path is not None:
            self._by_path[document.path] = document

    def close(self, uri: str) -> Document | None:
        """Forget a document."""
        document = self._by_uri.pop(uri, None)
        if document is not None and document.path is not None and self._by_path.get(document.path) is document:
            del self._by_path[document.path]
        return document

    def get(self, uri: str) -> Document | None:
        """The open document with this URI."""
        return self._by_uri.get(uri)

    def at(self, path: Path) -> Document | None:
        """The open document of this file."""
        return self._by_path.get(path)


_ENCODINGS: Final = ("utf-8", "utf-16", "latin-1")
"""How editors read files that do not say what they are; the last one reads everything."""


def decoded(data: bytes) -> str | None:
    """The text of a UTF-8 file without its byte-order mark; `None` for anything else."""
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError:
        return None


def as_on_disk(text: str, on_disk: bytes | None) -> bytes:
    """The bytes that saving an open document would write: its file's own, when only the reading of them differs."""
    if on_disk is None:
        return text.encode("utf-8", "surrogatepass")
    for encoding in _ENCODINGS:
        try:
            known = on_disk.decode(encoding)
        except UnicodeDecodeError:
            continue
        if text in (known, known.removeprefix("\ufeff")):
            return on_disk
    mark = "\ufeff" if on_disk.startswith(b"\xef\xbb\xbf") and not text.startswith("\ufeff") else ""
    return (mark + text).encode("utf-8", "surrogatepass")


def differs_from_disk(path: Path, text: str) -> bool:
    """Whether an open document holds something else than its file."""
    try:
        data = path.read_bytes()
    except OSError:
        return True
    return as_on_disk(text, data) != data
