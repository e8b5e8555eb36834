"""What a new worktree gets before an agent sees it: ignored files by pattern, a confinement for its commands, set-up.

All of it is by the user's settings or a trusted folder's word (SEC-11, SEC-12, SEC-15); whoever makes the provider knows
which. What came along and what did not is told in notes. Called by the sandbox provider while it opens.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anyio import to_thread

from outpost_lsp.domain.markdown import one_line
from outpost_lsp.domain.sandbox import Command, Lease
from outpost_lsp.errors import OutpostError
from outpost_lsp.sandbox.confinement import Confinement
from outpost_lsp.worktrees.copies import copy_ignored
from outpost_lsp.worktrees.git import Repository
from outpost_lsp.worktrees.shadow import shadow_git_directory
from outpost_lsp.worktrees.snapshot import Snapshot
from outpost_lsp.worktrees.worktree import Worktree

_SETUP_DEADLINE_S: Final = 1_800.0
_NAMED: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Furnishing:
    """What worktrees get. `setup` are shell commands; `with_include_file` follows the checkout's `.worktreeinclude`."""

    copy_ignored: tuple[str, ...] = ()
    with_include_file: bool = False
    setup: tuple[str, ...] = ()
    is_confined: bool = False
    """Whether commands run under bubblewrap."""
    readable: tuple[Path, ...] = ()
    """Folders that confined commands may read besides the system's."""


async def confinement_for(furnishing: Furnishing, worktree: Worktree, folder: Path) -> Confinement | None:
    """The confinement of a worktree's commands, with its stand-in for the git directory in `folder`."""
    if not furnishing.is_confined:
        return None
    shadow = await shadow_git_directory(worktree.repository, folder)
    return Confinement(worktree.directory, shadow.folder, shadow.objects, furnishing.readable)


async def furnish(furnishing: Furnishing, origin: Repository, snapshot: Snapshot, lease: Lease) -> list[str]:
    """Copy what has to come along, then run the set-up commands; the notes of both.

    A set-up command that fails is a `process` fault that names it: the agent would find a half-made worktree.
    """
    copies = await copy_ignored(
        origin, lease.root, furnishing.copy_ignored, with_include_file=furnishing.with_include_file
    )
    notes = [*copies.notes]
    left_out = copies.left_behind if copies.files else snapshot.ignored_left_out
    if copies.files:
        named = ", ".join(f"{one.path} (sha256 {one.sha256[:12]})" for one in copies.files[:_NAMED])
        more = f" and {len(copies.files) - _NAMED} more" if len(copies.files) > _NAMED else ""
        notes.append(f"Ignored files that came along: {named}{more}.")
    if left_out:
        notes.append(f"Ignored files and folders left out: {left_out}.")
    for command in furnishing.setup:
        await _set_up(lease, command)
    return notes


async def remove_stand_in(folder: Path) -> None:
    """Take a worktree's stand-in away."""
    await to_thread.run_sync(lambda: shutil.rmtree(folder, ignore_errors=True))


async def _set_up(lease: Lease, command: str) -> None:
    result = await lease.invoke(Command(executable="sh", arguments=("-c", command), deadline_s=_SETUP_DEADLINE_S))
    if result.status != 0:
        words: Sequence[str] = (result.stderr.strip() or result.stdout.strip()).splitlines()
        last = f": {one_line(words[-1], 300)}" if words else ""
        raise OutpostError(
            "process",
            f"sandbox.setup: `{one_line(command, 100)}` ended with status {result.status}{last}",
            {"command": command, "status": result.status, "stdout": result.stdout, "stderr": result.stderr},
        )
