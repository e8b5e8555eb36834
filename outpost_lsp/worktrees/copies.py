"""Ignored files that come along into a worktree, by pattern (SNAP-04, COPY rules).

The invariant: nothing ignored comes along unless a pattern of the user's settings or of a trusted folder's
`.worktreeinclude` names it (SEC-11); links are copied as links, and nothing is read or written through one. What came
along is listed with hashes, so that it never counts as work.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio import to_thread

from outpost_lsp.errors import OutpostError, configuration
from outpost_lsp.worktrees.git import Repository, run_git

INCLUDE_FILE = ".worktreeinclude"

_LONGEST_INCLUDE_FILE = 65_536


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """One file that came along: its path relative to the top, and the SHA-256 of its bytes or of its link target."""

    path: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Copies:
    """What came along, what was left out of what the patterns named, and how many other ignored files stayed behind."""

    files: tuple[CopiedFile, ...] = ()
    notes: tuple[str, ...] = ()
    left_behind: int = 0


def checked_patterns(patterns: Iterable[str]) -> tuple[str, ...]:
    """The patterns of the setting, each checked (COPY-01)."""
    checked = []
    for pattern in patterns:
        parts = pattern.replace("\\", "/").split("/")
        if not pattern.strip() or ".." in parts or any(part.casefold() == ".git" for part in parts):
            raise configuration(f"copy_ignored: {pattern!r} is not a pattern of files in the repository")
        checked.append(pattern)
    return tuple(checked)


async def copy_ignored(
    repository: Repository,
    directory: Path,
    patterns: Sequence[str],
    *,
    with_include_file: bool,
    deadline_s: float = 60.0,
) -> Copies:
    """Bring the ignored files that the patterns name from the user's checkout into a worktree at `directory`.

    Patterns are those of `.gitignore`, relative to the top. `with_include_file` also takes those of the checkout's
    `.worktreeinclude`, which only a trusted folder may bring in. `timeout` when all of it takes longer than `deadline_s`.
    """
    wanted = [*checked_patterns(patterns)]
    if with_include_file:
        wanted += await to_thread.run_sync(_include_file, repository.top / INCLUDE_FILE)
    if not wanted:
        return Copies()
    try:
        with anyio.fail_after(deadline_s):
            arguments = ["ls-files", "-z", "--others", "--ignored", "--exclude-standard"]
            listing = await run_git(repository, arguments, check=True, max_output=1 << 30, deadline_s=deadline_s)
            cancelled = [False]
            try:
                return await to_thread.run_sync(
                    _copy_all, repository.top, directory, listing.stdout, wanted, cancelled, abandon_on_cancel=True
                )
            finally:
                cancelled[0] = True
    except TimeoutError as error:
        message = f"Copying ignored files into the worktree took longer than {deadline_s:g} s."
        raise OutpostError("timeout", message) from error


def _include_file(file: Path) -> list[str]:
    try:
        if file.is_symlink():
            return []
        with file.open("rb") as opened:
            text = opened.read(_LONGEST_INCLUDE_FILE).decode("utf-8", "replace")
    except OSError:
        return []
    lines = (line.rstrip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#") and ".." not in line.split("/")]


def _copy_all(top: Path, directory: Path, listing: bytes, patterns: list[str], cancelled: list[bool]) -> Copies:
    # Compiling patterns needs a library that no run without copies has to load.
    import pathspec

    spec = pathspec.GitIgnoreSpec.from_lines(patterns)
    copied = []
    refused = []
    left_behind = 0
    for raw in listing.split(b"\0"):
        if cancelled[0]:
            break
        path = os.fsdecode(raw)
        if not path or path.endswith("/"):
            continue
        if not spec.match_file(path):
            left_behind += 1
            continue
        digest = _copy(top, directory, path)
        if digest is None:
            refused.append(path)
        else:
            copied.append(CopiedFile(path, digest))
    notes = []
    if refused:
        names = ", ".join(os.fsencode(path).decode("utf-8", "backslashreplace") for path in refused[:10])
        notes.append(
            f"Not copied, it is no plain file or lies behind a link: {names}{' …' if len(refused) > 10 else ''}."
        )
    return Copies(tuple(copied), tuple(notes), left_behind)


def _copy(top: Path, directory: Path, path: str) -> str | None:
    """Copy one file or link; its hash, or `None` when it is something else or lies behind a link on either side."""
    source, target = top / path, directory / path
    try:
        if _behind_link(top, path) or _behind_link(directory, path):
            return None
        kind = source.lstat().st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISLNK(kind)):
            return None
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir() and not target.is_symlink():
            return None
        target.unlink(missing_ok=True)
        shutil.copy2(source, target, follow_symlinks=False)
        if stat.S_ISLNK(kind):
            return hashlib.sha256(os.fsencode(target.readlink())).hexdigest()
        with target.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _behind_link(root: Path, path: str) -> bool:
    place = root
    for part in path.split("/")[:-1]:
        place = place / part
        if place.is_symlink():
            return True
    return False
