"""Reading objects through one long-lived git process, and writing trees that differ in a few places.

The invariant: only the folders on the way to a change are read and written, whatever the size of the repository; a tree
has the name that git gives it. Used by snapshots, change sets and worktrees that are filled on demand.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
from anyio import to_thread
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from outpost_lsp.errors import OutpostError
from outpost_lsp.worktrees.git import Repository, open_git, run_git
from outpost_lsp.worktrees.new_objects import NewObjects

TREE_MODE = b"40000"

_PIECE = 1_048_576
_TOGETHER = 64  # Few enough that the questions fit into a pipe while git waits for its answers to be read.


@dataclass(frozen=True, slots=True)
class Entry:
    """What a tree says about one name: git's octal mode, and the object's name."""

    mode: bytes
    oid: str

    @property
    def is_tree(self) -> bool:
        return self.mode == TREE_MODE


Changes = Mapping[bytes, Entry | None]
"""Paths relative to the top, to what stands there now; `None` when nothing does."""


class ObjectReader:
    """Answers for objects from one ``git cat-file --batch``; questions are asked one at a time."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._questions = process.stdin
        self._answers = BufferedByteReceiveStream(process.stdout)
        self._turn = anyio.Lock()

    async def read(self, oid: str, *, limit: int | None = None) -> tuple[str, bytes, int]:
        """The type, the content and the size of an object; the content is cut at `limit`."""
        async with self._turn:
            # A question that was asked is answered to its end, or the next answer would be taken for another's.
            with anyio.CancelScope(shield=True):
                answer = await self._ask(oid, limit)
            return answer  # noqa: RET504 - a return inside the scope would look as if it could be skipped

    async def tree(self, oid: str) -> dict[bytes, Entry]:
        """The entries of a tree object by name."""
        return (await self.trees([oid]))[0]

    async def trees(self, oids: Sequence[str]) -> list[dict[bytes, Entry]]:
        """The entries of several trees, asked for together."""
        found = []
        async with self._turn:
            with anyio.CancelScope(shield=True):
                for start in range(0, len(oids), _TOGETHER):
                    asked = oids[start : start + _TOGETHER]
                    await self._send("".join(f"{oid}\n" for oid in asked))
                    answers = [await self._answer(oid, None) for oid in asked]
                    found += [
                        _entries(oid, kind, content) for oid, (kind, content, _) in zip(asked, answers, strict=True)
                    ]
        return found

    async def tree_of_commit(self, oid: str) -> str:
        """The name of a commit's tree."""
        kind, content, _ = await self.read(oid)
        if kind != "commit":
            raise OutpostError("workspace", f"The object {oid} is no commit.")
        return content[len(b"tree ") : content.index(b"\n")].decode("ascii")

    async def entries(self, base: str, paths: Collection[bytes]) -> dict[bytes, Entry]:
        """What a tree has at the paths, for those at which it has something; the folders are read level by level."""
        root = _Folder()
        for path in paths:
            root.put(path.split(b"/"), None)
        known = await _on_the_way(self, root, base)
        found = {}
        for path in paths:
            *folders, name = path.split(b"/")
            oid = base
            for folder in folders:
                above = known[oid].get(folder)
                if above is None or not above.is_tree:
                    break
                oid = above.oid
            else:
                if (entry := known[oid].get(name)) is not None:
                    found[path] = entry
        return found

    async def _ask(self, oid: str, limit: int | None) -> tuple[str, bytes, int]:
        await self._send(f"{oid}\n")
        return await self._answer(oid, limit)

    async def _send(self, questions: str) -> None:
        try:
            await self._questions.send(questions.encode("ascii"))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise OutpostError("workspace", "git cat-file ended while it was asked.") from error

    async def _answer(self, oid: str, limit: int | None) -> tuple[str, bytes, int]:
        try:
            header = (await self._answers.receive_until(b"\n", 1_024)).split()
            if len(header) != 3:
                raise OutpostError("workspace", f"The object {oid} is missing in the repository.")
            size = int(header[2])
            content = bytearray()
            remaining = size
            while remaining:
                piece = await self._answers.receive_exactly(min(_PIECE, remaining))
                remaining -= len(piece)
                if limit is None or len(content) < limit:
                    content += piece
            await self._answers.receive_exactly(1)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.IncompleteRead, anyio.EndOfStream) as error:
            raise OutpostError("workspace", "git cat-file ended while it was asked.") from error
        return header[1].decode("ascii"), bytes(content if limit is None else content[:limit]), size


def _entries(oid: str, kind: str, content: bytes) -> dict[bytes, Entry]:
    if kind != "tree":
        raise OutpostError("workspace", f"The object {oid} is no tree.")
    return parse_tree(content, len(oid) // 2)


@asynccontextmanager
async def object_reader(repository: Repository) -> AsyncIterator[ObjectReader]:
    """A reader that lives as long as the context; `workspace` when the folder is gone that it is to work in."""
    if not await to_thread.run_sync(repository.top.is_dir):
        raise OutpostError("workspace", f"The folder {repository.top} is gone.")
    async with open_git(repository, ["cat-file", "--batch"]) as process:
        yield ObjectReader(process)


async def write_tree(
    repository: Repository,
    base: str,
    changes: Changes,
    reader: ObjectReader | None = None,
    new: NewObjects | None = None,
) -> str:
    """The tree that a base tree (empty for none) becomes by the changes, written with the trees on the way.

    `reader` is one that is open already; with `new` the trees are added there, for whoever asked to write them.
    """
    root = _Folder()
    for path, entry in changes.items():
        root.put(path.split(b"/"), entry)
    if reader is None:
        async with object_reader(repository) as own:
            known = await _on_the_way(own, root, base)
    else:
        known = await _on_the_way(reader, root, base)
    written = NewObjects() if new is None else new
    like = base or "0" * await _name_length(repository)
    top = _rebuild(known, root, base, written, like) or _add({}, written, like)
    if new is None:
        await written.write(repository)
    return top


def empty_tree(like: str) -> str:
    """The name of the tree that holds nothing, in the kind of name that `like` has: SHA-1 or SHA-256."""
    return _add({}, NewObjects(), like)


def parse_tree(content: bytes, width: int) -> dict[bytes, Entry]:
    """The entries of a tree object; `width` is the length of an object name in bytes."""
    entries = {}
    position = 0
    while position < len(content):
        space = content.index(b" ", position)
        end = content.index(b"\0", space)
        oid = content[end + 1 : end + 1 + width].hex()
        entries[content[space + 1 : end]] = Entry(content[position:space], oid)
        position = end + 1 + width
    return entries


@dataclass(slots=True)
class _Folder:
    """The changes below one folder."""

    entries: dict[bytes, Entry | None] = field(default_factory=dict)
    folders: dict[bytes, _Folder] = field(default_factory=dict)

    def put(self, parts: list[bytes], entry: Entry | None) -> None:
        folder = self
        for part in parts[:-1]:
            folder = folder.folders.setdefault(part, _Folder())
        folder.entries[parts[-1]] = entry


async def _on_the_way(reader: ObjectReader, root: _Folder, base: str) -> dict[str, dict[bytes, Entry]]:
    """The trees that the changes lie in, read level by level."""
    known: dict[str, dict[bytes, Entry]] = {}
    level = [(root, base)] if base else []
    while level:
        oids = list(dict.fromkeys(oid for _, oid in level if oid not in known))
        known |= dict(zip(oids, await reader.trees(oids), strict=True))
        level = [
            (inner, entry.oid)
            for folder, oid in level
            for name, inner in folder.folders.items()
            if (entry := known[oid].get(name)) is not None and entry.is_tree
        ]
    return known


def _rebuild(
    known: Mapping[str, dict[bytes, Entry]],
    folder: _Folder,
    base: str,
    new: NewObjects,
    like: str,
) -> str | None:
    """The new name of a folder's tree, `None` when nothing is left in it; the new trees are added to `new`."""
    entries = dict(known[base]) if base else {}
    for name, entry in folder.entries.items():
        if entry is None:
            entries.pop(name, None)
        else:
            entries[name] = entry
    for name, inner in folder.folders.items():
        present = entries.get(name)
        if present is not None and not present.is_tree and folder.entries.get(name) is not None:
            continue  # A file stands where a folder was; what was below it is gone.
        oid = _rebuild(known, inner, present.oid if present and present.is_tree else "", new, like)
        if oid is None:
            entries.pop(name, None)
        else:
            entries[name] = Entry(TREE_MODE, oid)
    return _add(entries, new, like) if entries else None


def _add(entries: Mapping[bytes, Entry], new: NewObjects, like: str) -> str:
    ordered = sorted(entries.items(), key=lambda item: item[0] + b"/" if item[1].is_tree else item[0])
    raw = b"".join([b"%s %s\0%s" % (entry.mode, name, bytes.fromhex(entry.oid)) for name, entry in ordered])
    return new.add("tree", raw, like=like)


async def _name_length(repository: Repository) -> int:
    result = await run_git(repository, ["rev-parse", "--show-object-format"], check=True)
    return 64 if result.stdout.strip() == b"sha256" else 40
