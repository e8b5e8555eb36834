"""Where everything is kept: one state folder, one cache folder, and in each a folder for every repository (WS-03).

A repository's folder is named by a hash of its common git directory, so that all its linked worktrees share it. What may
be lost stands in the cache (worktrees), what may not in the state. `config/environment.py` says where the two are.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from outpost_lsp.errors import OutpostError
from outpost_lsp.storage.private_files import (
    open_private,
    private_folder,
    read_private,
    replace_private,
    storage_fault,
    sweep_unfinished,
    write_all,
)

_NAME_FILE: Final = "repository"
_PLACES_FILE: Final = "worktree-folders"


@dataclass(frozen=True, slots=True)
class RepositoryLayout:
    """The folders of one repository; all of them exist and are the owner's own."""

    state: Path
    cache: Path
    conversations: Path
    journals: Path
    runs: Path
    findings: Path
    locks: Path
    bundles: Path
    """What finished runs changed, as git bundles: it outlives their worktrees."""
    landings: Path
    """What is being applied to the user's files, written down so that a killed process leaves nothing half-way."""
    trash: Path
    """What was moved out of the way instead of being deleted."""
    worktrees: Path
    former_worktrees: tuple[Path, ...] = ()
    """Where worktrees went under other settings: what dead processes left there is cleared away, too."""

    @property
    def agents(self) -> Path:
        """The home folder of external agents: their own conversations outlive the runs. Not made before it is needed."""
        return self.state / "conversations" / "agents"

    def findings_of(self, folder: Path) -> Path:
        """The folder with the findings of one checkout: linked worktrees show other text at the same path."""
        return private_folder(self.findings / folder_name(folder))

    def sweep(self) -> int:
        """Remove what dead processes left half-written; the count of files."""
        return sum(sweep_unfinished(folder) for folder in (self.runs, self.conversations, self.locks, self.findings))


@dataclass(frozen=True, slots=True)
class Layout:
    """The user's two folders for the product."""

    state: Path
    cache: Path

    def for_repository(self, common_dir: Path, *, worktrees: Path | None = None) -> RepositoryLayout:
        """The folders of the repository with this common git directory, made when missing.

        `worktrees` is where its worktrees go instead of the cache. A folder that is no repository may be named, too.
        """
        name = folder_name(common_dir)
        repositories = private_folder(private_folder(self.state) / "repositories")
        state = private_folder(repositories / name)
        private_folder(self.cache)
        base = private_folder(worktrees if worktrees is not None else self.cache / "worktrees")
        private_folder(state / "conversations")
        place = private_folder(base / name)
        layout = RepositoryLayout(
            state=state,
            cache=private_folder(private_folder(self.cache / "repositories") / name),
            conversations=private_folder(state / "conversations" / "harness"),
            journals=private_folder(state / "journals"),
            runs=private_folder(state / "runs"),
            findings=private_folder(state / "findings"),
            locks=private_folder(state / "locks"),
            bundles=private_folder(state / "bundles"),
            landings=private_folder(state / "landings"),
            trash=private_folder(state / "trash"),
            worktrees=place,
            former_worktrees=_others_before(state / _PLACES_FILE, place),
        )
        if not (state / _NAME_FILE).exists():
            replace_private(state / _NAME_FILE, os.fsencode(_real(common_dir)) + b"\n")
        return layout

    def repositories(self) -> Iterator[Path]:
        """The common git directories (or folders) that something is kept for; for cleaning up."""
        base = self.state / "repositories"
        for folder in sorted(base.iterdir()) if base.is_dir() else ():
            try:
                yield Path(os.fsdecode(read_private(folder / _NAME_FILE).rstrip(b"\n")))
            except (OSError, OutpostError):
                continue


def _others_before(record: Path, place: Path) -> tuple[Path, ...]:
    """The folders of worktrees that were used before, all but `place`, which is noted for later."""
    try:
        known = [Path(os.fsdecode(line)) for line in read_private(record).split(b"\0") if line]
    except FileNotFoundError:
        known = []
    here = Path(_real(place))
    if here not in known:
        # Appended in one write: another process may note its own at the same time.
        descriptor = open_private(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            write_all(descriptor, os.fsencode(here) + b"\0")
        except OSError as error:
            raise storage_fault(error, record.parent) from error
        finally:
            os.close(descriptor)
    return tuple(dict.fromkeys(path for path in known if path.is_absolute() and path != here))


def folder_name(folder: Path) -> str:
    """The name that stands for a folder: a hash of its real path."""
    return hashlib.sha256(os.fsencode(_real(folder))).hexdigest()[:20]


def _real(folder: Path) -> str:
    return os.path.realpath(folder)
