"""The texts of a workspace's files that count now: an open document's, else the disk's (REL-18).

Files are read when somebody asks, and again when they were written since. Links are not followed.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from outpost_lsp.domain.anchor import SourceText
from outpost_lsp.errors import OutpostError
from outpost_lsp.worktrees.changes import file_at

if TYPE_CHECKING:
    from outpost_lsp.service.workspace import Workspace

_LARGEST_FILE: Final = 64 * 1024 * 1024


class FileTexts:
    """Texts by their path in the repository."""

    def __init__(self, top: Path) -> None:
        self._top = top
        self._documents: dict[str, SourceText] = {}
        self._on_disk: dict[str, _DiskText] = {}

    def __getitem__(self, path: str) -> SourceText | None:
        """The text that counts; `None` where there is no file, or none that can be read."""
        document = self._documents.get(path)
        if document is not None:
            return document
        if path not in self._on_disk:
            self._on_disk[path] = _read(self._top / path)
        return self._on_disk[path].source

    def is_open(self, path: str) -> bool:
        """Whether an open document's text counts."""
        return path in self._documents

    def document(self, path: str) -> SourceText | None:
        """The open document's text."""
        return self._documents.get(path)

    def set_document(self, path: str, source: SourceText) -> None:
        """From now on this text of an open document counts."""
        self._documents[path] = source
        self._on_disk.pop(path, None)

    def close_document(self, path: str) -> SourceText | None:
        """The disk's text counts again; what the document's was."""
        return self._documents.pop(path, None)

    def was_written(self, path: str) -> bool:
        """Whether a file that is not open was written since it was read; it is read again then."""
        known = self._on_disk.get(path)
        if known is None or path in self._documents or known.signature == _signature(self._top / path):
            return False
        del self._on_disk[path]
        return True

    def forget(self, path: str) -> None:
        """Nobody asks for this file's text any more."""
        self._on_disk.pop(path, None)


@dataclass(frozen=True, slots=True)
class _DiskText:
    """A file as it was read: `signature` tells whether it was written since."""

    signature: tuple[int, ...]
    source: SourceText | None


def _signature(file: Path) -> tuple[int, ...]:
    try:
        status = file.lstat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode


def _read(file: Path) -> _DiskText:
    signature = _signature(file)
    try:
        if not signature or not stat.S_ISREG(signature[3]) or signature[1] > _LARGEST_FILE:
            return _DiskText(signature, None)
        return _DiskText(signature, SourceText(file.read_bytes().decode("utf-8", "replace")))
    except OSError:
        return _DiskText(signature, None)


async def reviewed_texts(workspace: Workspace, commit: str, paths: Iterable[str]) -> dict[str, str]:
    """The texts of files as they were reviewed; those that cannot be read are left out."""
    texts: dict[str, str] = {}
    for path in paths if commit and workspace.has_repository else ():
        try:
            data = await file_at(workspace.repository, commit, path, _LARGEST_FILE)
        except OutpostError:
            continue
        if data is not None:
            texts[path] = data.decode("utf-8", "replace").removeprefix("\ufeff")
    return texts
