"""A worktree whose files are laid out when somebody needs them; until then they are read from the object store.

The invariant: it is a registered worktree with a sparse index, and every git call in it gives the same answer as in a full
checkout; what was removed stays removed, also after a crash. The settings that make the index sparse are passed with each
call and never written to the user's configuration. Opened by `worktree`, asked by `sandbox.files_on_demand`.
"""

from __future__ import annotations

import secrets
import shutil
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread

from outpost_lsp.domain.sandbox import EntryKind, GitResult, Listing
from outpost_lsp.errors import OutpostError
from outpost_lsp.worktrees.git import MAX_OUTPUT, Repository, open_git, run_git, unlike_git
from outpost_lsp.worktrees.objects import TREE_MODE, Entry, ObjectReader, object_reader
from outpost_lsp.worktrees.private_index import private_index
from outpost_lsp.worktrees.repository import ON_DEMAND_MARK
from outpost_lsp.worktrees.snapshot import tree_name
from outpost_lsp.worktrees.talk import Talk
from outpost_lsp.worktrees.working_tree import scan_working_tree

ROOT_ONLY: Final = ON_DEMAND_MARK + b"/*\n!/*/\n"
EVERYTHING: Final = ON_DEMAND_MARK + b"/*\n"

_KINDS: Final[dict[bytes, EntryKind]] = {
    b"100644": "file",
    b"100755": "file",
    b"120000": "link",
    TREE_MODE: "directory",
}
_INDEX_OF_A_LARGE_REPOSITORY = 512 * 1024
_TREES_KEPT = 512
_LARGEST_READ = 16 * 1024 * 1024
_LONGEST_LISTING = 1 << 30


async def pays(repository: Repository, commit: str) -> bool:
    """Whether a worktree of the commit is worth filling on demand: many files, and nothing that only a checkout lays out."""
    try:
        size = (await to_thread.run_sync((repository.git_dir / "index").stat)).st_size
    except OSError:
        return False
    sparse = any(
        setting.key == "core.sparsecheckout" and setting.value == "true" for setting in repository.overrides.settings
    )
    if size < _INDEX_OF_A_LARGE_REPOSITORY or sparse:
        return False
    listing = await run_git(repository, ["ls-tree", "--full-tree", commit, "--", ".gitmodules"])
    return listing.status == 0 and not listing.stdout


class OnDemand:
    """The part of a worktree that is not laid out yet, by repository-relative paths that are free of links."""

    def __init__(self, view: Repository, origin: Repository, commit: str, tree: str = "") -> None:
        self.is_full = False
        self._view = view
        self._origin = origin
        self._commit = commit
        self._root = tree
        self._removed: set[str] = set()
        self._trees: OrderedDict[str, dict[bytes, Entry]] = OrderedDict()
        self._stack = AsyncExitStack()
        self._objects: ObjectReader | None = None
        self._converted: _ConvertedReader | None = None
        self._turn = anyio.Lock()

    async def begin(self) -> None:
        """Make the sparse index; the files at the root are laid out."""
        patterns = self._view.git_dir / "info" / "sparse-checkout"
        await to_thread.run_sync(_write, patterns, ROOT_ONLY)
        self._view = self._view.at(self._view.top, self._view.git_dir)
        await run_git(self._view, ["read-tree", "--reset", "-u", self._commit], check=True)
        if not self._root:
            self._root = await tree_name(self._view, self._commit)

    @property
    def view(self) -> Repository:
        """The worktree's own view, with the settings that go with each call."""
        return self._view

    async def aclose(self) -> None:
        """End the processes that read objects."""
        await self._stack.aclose()
        self._objects = self._converted = None

    async def look(self, path: str) -> EntryKind | None:
        """What the snapshot has at a path and nobody has removed."""
        entry = await self._entry(path)
        return None if entry is None or path in self._removed else _KINDS.get(entry.mode)

    async def content(self, path: str) -> tuple[bytes, bool] | None:
        """The bytes of a file as a checkout writes them, or a link's target; and whether it is executable.

        `None` when the file is so large that git has laid it out itself.
        """
        entry = await self._entry(path)
        if entry is None:
            raise OutpostError("workspace", f"{path} is not in the snapshot.", {"path": path, "reason": "missing"})
        if entry.mode == b"120000":
            return (await (await self._reader()).read(entry.oid))[1], False
        size = (await run_git(self._view, ["cat-file", "-s", entry.oid], check=True)).stdout
        if int(size) > _LARGEST_READ:
            await run_git(self._view, ["checkout", "--quiet", "--ignore-skip-worktree-bits", "--", path], check=True)
            return None
        async with self._turn:
            if self._converted is None:
                self._converted = await self._stack.enter_async_context(_converted_reader(self._origin))
            data = await self._converted.read(entry.oid, path)
        return data, entry.mode == b"100755"

    async def listing(self, path: str) -> Listing:
        """The files of the snapshot at and below a path that nobody has removed; submodules are no files."""
        arguments = ["ls-tree", "-r", "-z", "--full-tree", self._commit, *(["--", path] if path else [])]
        result = await run_git(self._view, arguments, check=True, max_output=_LONGEST_LISTING)
        return await to_thread.run_sync(_files, result.stdout, self._removed)

    async def removed(self, path: str) -> None:
        """A file of the snapshot was taken away; from now on git sees that too."""
        if self.is_full or await self._entry(path) is None:
            return
        self._removed.add(path)
        stdin = path.encode("utf-8", "surrogateescape") + b"\0"
        await run_git(self._view, ["update-index", "--no-skip-worktree", "-z", "--stdin"], stdin=stdin, check=True)

    async def fill(self) -> None:
        """Lay out everything that is not there yet; what was changed or removed stays so."""
        async with self._turn:
            if self.is_full:
                return
            full = await to_thread.run_sync(self._view.at, self._view.top, self._view.git_dir)
            plain = _with(full, "index.sparse", "false")
            await run_git(plain, ["update-index", "--force-write-index"], check=True)
            await to_thread.run_sync(_write, self._view.git_dir / "info" / "sparse-checkout", EVERYTHING)
            await run_git(plain, ["read-tree", "-m", "-u", "HEAD"], check=True, deadline_s=600.0)
            self.is_full = True

    async def git(
        self,
        arguments: Sequence[str],
        *,
        stdin: bytes | None = None,
        max_output: int = MAX_OUTPUT,
        glob_pathspecs: bool = False,
        deadline_s: float = 120.0,
    ) -> GitResult:
        """One git call in the worktree; a search looks into the object store for what is not laid out."""
        if arguments[:1] != ["grep"] or "--untracked" not in arguments or self.is_full:
            return await run_git(
                self._view,
                arguments,
                stdin=stdin,
                max_output=max_output,
                glob_pathspecs=glob_pathspecs,
                deadline_s=deadline_s,
            )
        cached = ["--cached" if argument == "--untracked" else argument for argument in arguments]
        async with private_index() as index:
            searched = await self._index_of_now(index)
            return await run_git(
                self._view,
                cached,
                index=searched,
                max_output=max_output,
                glob_pathspecs=glob_pathspecs,
                deadline_s=deadline_s,
            )

    async def _index_of_now(self, index: Path) -> Path | None:
        """An index that holds the files as they stand; the worktree's own (`None`) while nothing differs from it."""
        scan = await scan_working_tree(self._view, ignored=False)
        paths = (*scan.changed, *scan.deleted, *scan.untracked)
        if not paths:
            return None
        await to_thread.run_sync(shutil.copy2, self._view.git_dir / "index", index)
        arguments = ["update-index", "-z", "--add", "--remove", "--replace", "--stdin"]
        await run_git(self._view, arguments, index=index, stdin=b"".join(path + b"\0" for path in paths), check=True)
        return index

    async def _entry(self, path: str) -> Entry | None:
        *folders, name = path.encode("utf-8", "surrogateescape").split(b"/")
        entries = await self._tree(self._root)
        for folder in folders:
            entry = entries.get(folder)
            if entry is None or not entry.is_tree:
                return None
            entries = await self._tree(entry.oid)
        return entries.get(name)

    async def _tree(self, oid: str) -> dict[bytes, Entry]:
        entries = self._trees.get(oid)
        if entries is None:
            entries = self._trees[oid] = await (await self._reader()).tree(oid)
            if len(self._trees) > _TREES_KEPT:
                self._trees.popitem(last=False)
        self._trees.move_to_end(oid)
        return entries

    async def _reader(self) -> ObjectReader:
        async with self._turn:
            if self._objects is None:
                self._objects = await self._stack.enter_async_context(object_reader(self._view))
            return self._objects


class _ConvertedReader:
    """Answers with files as a checkout writes them, from one ``git cat-file --batch --filters``.

    The size that git states is that before the conversion. So each question is followed by one for a name that nobody can
    guess, and the answer ends where git says that it is missing.
    """

    def __init__(self, talk: Talk, repository: Repository) -> None:
        self._talk = talk
        self._repository = repository

    async def read(self, oid: str, path: str) -> bytes:
        mark = secrets.token_hex(20).encode("ascii")
        question = b"%s %s\0%s\0" % (oid.encode("ascii"), path.encode("utf-8", "surrogateescape"), mark)
        with anyio.CancelScope(shield=True):
            try:
                with suppress(EOFError):
                    await self._talk.send(question)
                header = await self._talk.receive_until(b"\n", 65_536)
                data = b""
                if not header.startswith(question[: len(oid) + 1]):
                    raise unlike_git(self._repository.environment)
                is_missing = header.endswith(b" missing")
                end = b"%s missing\n" % mark
                data = await self._talk.receive_until(end if is_missing else b"\n" + end, 4 * _LARGEST_READ)
            except EOFError as error:
                raise OutpostError("workspace", "git cat-file ended while it was asked.") from error
        if is_missing:
            raise OutpostError("workspace", f"The content of {path} is missing in the repository.")
        return data


@asynccontextmanager
async def _converted_reader(repository: Repository) -> AsyncIterator[_ConvertedReader]:
    async with open_git(repository, ["cat-file", "--batch", "--filters", "-z"]) as talk:
        yield _ConvertedReader(talk, repository)


def _with(repository: Repository, key: str, value: str) -> Repository:
    return replace(repository, settings=(*repository.settings, (key, value)))


def _write(file: Path, data: bytes) -> None:
    file.parent.mkdir(exist_ok=True)
    temporary = file.with_name(f"{file.name}.new")
    temporary.write_bytes(data)
    temporary.replace(file)


def _files(listing: bytes, removed: Collection[str]) -> Listing:
    entries = (line.partition(b"\t") for line in listing.split(b"\0"))
    paths = (path for attributes, _, path in entries if path and not attributes.startswith(b"160000"))
    names = (path.decode("utf-8", "surrogateescape") for path in paths)
    return Listing(name for name in names if name not in removed)
