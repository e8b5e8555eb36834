"""Inputs that an application brings into a workspace besides what is committed (COPY rules).

The invariant: nothing is read or written through a link, nothing of a git directory comes along, and what stood in a
workspace before it was opened again is moved aside, never overwritten unseen. What was copied is listed with hashes, so
that it does not count as work when it has not changed. Blocking file work runs in a worker thread that a passed deadline
stops.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread

from outpost_lsp.errors import OutpostError, configuration
from outpost_lsp.worktrees.copies import CopiedFile

_DRIVE: Final = re.compile(r"[A-Za-z]:")


def checked_entries(entries: Iterable[str | Path]) -> tuple[str, ...]:
    """The entries in their plain form, each checked (COPY-01)."""
    if isinstance(entries, str | bytes):
        raise configuration("copies: a list of paths is expected")
    checked = []
    for entry in entries:
        text = os.fspath(entry)
        parts = [part for part in text.replace("\\", "/").split("/") if part not in {"", "."}]
        absolute = text.startswith(("/", "\\")) or _DRIVE.match(text) is not None
        if not parts or absolute or "\0" in text or ".." in parts or any(part.casefold() == ".git" for part in parts):
            raise configuration(f"copies: {text!r} is no path of files in the repository")
        checked.append("/".join(part for part in text.split("/") if part not in {"", "."}))
    return tuple(checked)


async def copy_entries(
    top: Path, directory: Path, entries: Sequence[str], *, aside: Path | None, deadline_s: float
) -> tuple[CopiedFile, ...]:
    """Copy files and folders of the checkout at `top` into the workspace at `directory`; a missing one is passed over.

    What other content stands in the way is replaced; with `aside` it is moved there first. `timeout` when all of it
    takes longer than `deadline_s`.
    """
    if not entries:
        return ()
    copying = _Copying(top, directory, aside)
    try:
        with anyio.fail_after(deadline_s):
            try:
                await to_thread.run_sync(copying.run, entries, abandon_on_cancel=True)
            finally:
                copying.is_cancelled = True
    except TimeoutError as error:
        raise OutpostError("timeout", f"Copying inputs took longer than {deadline_s:g} s.") from error
    return tuple(copying.copied)


def unchanged(directory: Path, copied: Iterable[CopiedFile]) -> frozenset[str]:
    """The copied files that still hold what was copied."""
    return frozenset(file.path for file in copied if digest(directory / file.path) == file.sha256)


@dataclass(slots=True)
class _Copying:
    """One run over the entries."""

    top: Path
    directory: Path
    aside: Path | None
    copied: list[CopiedFile] = field(default_factory=list)
    is_cancelled: bool = False

    def run(self, entries: Sequence[str]) -> None:
        for entry in entries:
            for root in (self.top, self.directory):
                _refuse_links_above(root, entry)
            if os.path.lexists(self.top / entry):
                (self.directory / entry).parent.mkdir(parents=True, exist_ok=True)
                self._copy(entry)

    def _copy(self, path: str) -> None:
        if self.is_cancelled:
            return
        source, target = self.top / path, self.directory / path
        mode = source.lstat().st_mode
        if stat.S_ISDIR(mode):
            if not target.is_dir() or target.is_symlink():
                self._clear(path, target)
                target.mkdir()
                shutil.copystat(source, target)
            for name in sorted(entry.name for entry in source.iterdir()):
                if name.casefold() != ".git":
                    self._copy(f"{path}/{name}")
        elif stat.S_ISREG(mode) or stat.S_ISLNK(mode):
            wanted = digest(source)
            if digest(target) != wanted or target.lstat().st_mode != mode:
                self._clear(path, target)
                shutil.copy2(source, target, follow_symlinks=False)
            if wanted is not None:
                self.copied.append(CopiedFile(path, wanted))

    def _clear(self, path: str, target: Path) -> None:
        if not os.path.lexists(target):
            return
        if self.aside is not None:
            place = self.aside / path
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            shutil.move(target, place)
        elif target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            target.unlink()


def digest(path: Path) -> str | None:
    """The SHA-256 of a file's bytes or of a link's target; `None` for anything else."""
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            return hashlib.sha256(b"link\0" + os.fsencode(path.readlink())).hexdigest()
        if not stat.S_ISREG(mode):
            return None
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _refuse_links_above(root: Path, path: str) -> None:
    place = root
    for part in path.split("/")[:-1]:
        place = place / part
        if place.is_symlink():
            raise OutpostError("workspace", f"copies: {path} lies behind the link {place}.", {"path": path})
