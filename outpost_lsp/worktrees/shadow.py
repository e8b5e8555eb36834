"""A small git directory that stands in for a worktree's own where commands run confined.

The invariant: what a confined command does with git (add, commit, configure, break) happens in the stand-in; of the user's
repository it reads objects, nothing else. The files of the worktree are what counts for the change set, so nothing that
is committed there is lost. Made by a dispatch, handed to `sandbox.confinement`.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from outpost_lsp.worktrees.git import Repository, run_git

_MOST_ALTERNATES = 64


@dataclass(frozen=True, slots=True)
class Shadow:
    """The stand-in: its folder (writable inside) and the folders of objects it borrows from (readable inside)."""

    folder: Path
    objects: tuple[Path, ...]


async def shadow_git_directory(worktree: Repository, folder: Path) -> Shadow:
    """Make the stand-in for a linked worktree in `folder`, which must not exist; the index comes along."""
    head = await run_git(worktree, ["rev-parse", "--verify", "HEAD"], check=True)
    commit = head.stdout.decode("ascii").strip()
    return await to_thread.run_sync(_make, worktree, folder, commit)


def _make(worktree: Repository, folder: Path, commit: str) -> Shadow:
    objects = _borrowed(worktree.common_dir / "objects")
    folder.mkdir(mode=0o700, parents=True)
    (folder / "objects" / "info").mkdir(parents=True)
    (folder / "refs" / "heads").mkdir(parents=True)
    (folder / "HEAD").write_text(f"{commit}\n", "ascii")
    (folder / "objects" / "info" / "alternates").write_text("".join(f"{path}\n" for path in objects), "utf-8")
    lines = ["[core]", "\tbare = false", "[user]", "\tname = Outpost", "\temail = outpost@localhost"]
    if len(commit) == 64:
        lines[1:1] = ["\trepositoryFormatVersion = 1"]
        lines += ["[extensions]", "\tobjectFormat = sha256"]
    (folder / "config").write_text("\n".join((*lines, "")), "utf-8")
    (folder / "pointer").write_text(f"gitdir: {folder}\n", "utf-8")
    shallow = worktree.common_dir / "shallow"
    for source in (worktree.git_dir / "index", shallow):
        if source.is_file():
            shutil.copy2(source, folder / source.name)
    return Shadow(folder, objects)


def _borrowed(objects: Path) -> tuple[Path, ...]:
    """A folder of objects and those it borrows from itself."""
    found: list[Path] = []
    waiting = [objects]
    while waiting and len(found) < _MOST_ALTERNATES:
        place = waiting.pop(0)
        if place in found or not place.is_dir():
            continue
        found.append(place)
        try:
            text = (place / "info" / "alternates").read_text("utf-8", "surrogateescape")
        except OSError:
            continue
        waiting += [(place / line).resolve() for line in text.splitlines() if line and not line.startswith("#")]
    return tuple(found)
