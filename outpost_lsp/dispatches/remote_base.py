"""The packs of bases, kept while they are likely to be asked for again."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread

from outpost_lsp.worktrees.git import Repository
from outpost_lsp.worktrees.portable import pack_base

_KEPT: Final = 3


class KeptBase:
    """The pack of one commit in a folder of packs; made when a worker asks for it."""

    def __init__(self, repository: Repository, commit: str, folder: Path) -> None:
        self._repository = repository
        self._commit = commit
        self._folder = folder
        self._turn = anyio.Lock()

    async def file(self) -> Path:
        """The pack, made now unless it is there."""
        path = self._folder / f"{self._commit}.pack"
        async with self._turn:
            if not await to_thread.run_sync(path.exists):
                await to_thread.run_sync(lambda: self._folder.mkdir(mode=0o700, parents=True, exist_ok=True))
                await pack_base(self._repository, self._commit, path)
                await to_thread.run_sync(self._forget_old)
            else:
                # What is asked for again is not what is forgotten next.
                await to_thread.run_sync(path.touch)
        return path

    def _forget_old(self) -> None:
        packs = sorted(self._folder.glob("*.pack"), key=lambda pack: pack.stat().st_mtime)
        for pack in packs[:-_KEPT]:
            pack.unlink(missing_ok=True)
