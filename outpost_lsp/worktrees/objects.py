"""Reading objects through one long-lived git process, and writing trees that differ in a few places.

The invariant: only the folders on the way to a change are read and written, whatever the size of the repository; a tree
has the name that git gives it. Used by snapshots, change sets and worktrees that are filled on demand.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import anyio
from anyio import to_thread

from outpost_lsp.errors import OutpostError
from outpost_lsp.worktrees.git import Repository, open_git, run_git, unlike_git
from outpost_lsp.worktrees.new_objects import NewObjects
from outpost_lsp.worktrees.talk import Talk

TREE_MODE = b"40000"

_RECORD: Final = {width: re.compile(rb"([0-7]+ ([^\0]+)\0.{%d})" % width, re.DOTALL) for width in (20, 32)}
_PIECE = 1_048_576
_TOGETHER = 64  # Few enough that the questions fit into a pipe while git waits for its answers to be read.


class Entry(NamedTuple):
    """What a tree says about one name: git's octal mode, and the object's name."""

    mode: bytes
    oid: str

    @property
    def is_tree(self) -> bool:
        return self.mode == TREE_MODE


Changes = Mapping[bytes, Entry | None]
"""Paths relative to the top, to what stands there now; `None` when nothing does."""

_Records = dict[bytes, bytes]
"""A tree by name, in its order, each record as it is stored: most of them only go from one tree into the next."""


class ObjectReader:
    """Answers for objects from one ``git cat-file --batch``; questions are asked one at a time."""

    def __init__(self, talk: Talk, repository: Repository) -> None:
        self._talk = talk
        self._repository = repository
        self._turn = anyio.Lock()
        self._known: dict[str, _Records] = {}

    async def read(self, oid: str, *, limit: int | None = None) -> tuple[str, bytes, int]:
        """The type, the content and the size of an object; the content is cut at `limit`."""
        async with self._turn:
            # A question that was asked is answered to its end, or the next answer would be taken for another's.
            with anyio.CancelScope(shield=True):
                answer = await self._ask(oid, limit)
            return answer  # noqa: RET504 - a return inside the scope would look as if it could be skipped

    async def tree(self, oid: str) -> dict[bytes, Entry]:
        """The entries of a tree object by name."""
        return {name: _entry(name, record) for name, record in (await self._trees([oid]))[0].items()}

    async def _trees(self, oids: Sequence[str]) -> list[_Records]:
        """Several trees, asked for together."""
        found = []
        async with self._turn:
            with anyio.CancelScope(shield=True):
                for start in range(0, len(oids), _TOGETHER):
                    asked = oids[start : start + _TOGETHER]
                    await self._send("".join(f"{oid}\n" for oid in asked))
                    answers = [await self._answer(oid, None) for oid in asked]
                    found += [
                        _records(oid, kind, content) for oid, (kind, content, _) in zip(asked, answers, strict=True)
                    ]
        return found

    async def tree_of_commit(self, oid: str) -> str:
        """The name of a commit's tree."""
        kind, content, _ = await self.read(oid)
        if kind != "commit":
            raise OutpostError("workspace", f"The object {oid} is no commit.")
        return content[len(b"tree ") : content.index(b"\n")].decode("ascii")

    async def entries(self, base: str, paths: Collection[bytes]) -> dict[bytes, Entry]:
        """What a tree has at the paths, for those at which it has something."""
        await self.look_ahead(base, paths)
        found = {}
        for path in paths:
            *folders, name = path.split(b"/")
            oid: str | None = base
            for folder in folders:
                oid = oid and _inner(self._known[oid], folder)
            if oid and (record := self._known[oid].get(name)) is not None:
                found[path] = _entry(name, record)
        return found

    async def look_ahead(self, base: str, paths: Collection[bytes]) -> None:
        """Read the folders of a tree in which the paths lie, for who asks for them later."""
        root = _Folder()
        for path in paths:
            root.put(path.split(b"/"), None)
        await self.on_the_way(root, base)

    async def on_the_way(self, root: _Folder, base: str) -> Mapping[str, _Records]:
        """The trees of a base in which changes lie, read level by level; each is read once in a reader's life."""
        level = [(root, base)] if base else []
        while level:
            oids = list(dict.fromkeys(oid for _, oid in level if oid not in self._known))
            self._known |= dict(zip(oids, await self._trees(oids), strict=True))
            level = [
                (inner, below)
                for folder, oid in level
                for name, inner in folder.folders.items()
                if (below := _inner(self._known[oid], name)) is not None
            ]
        return self._known

    async def _ask(self, oid: str, limit: int | None) -> tuple[str, bytes, int]:
        await self._send(f"{oid}\n")
        return await self._answer(oid, limit)

    async def _send(self, questions: str) -> None:
        # What has ended may have said something first: the answer tells.
        with suppress(EOFError):
            await self._talk.send(questions.encode("ascii"))

    async def _answer(self, oid: str, limit: int | None) -> tuple[str, bytes, int]:
        try:
            header = (await self._talk.receive_until(b"\n", 1_024)).split()
            if header[1:] == [b"missing"]:
                raise OutpostError("workspace", f"The object {oid} is missing in the repository.")
            if len(header) != 3 or header[0] != oid.encode("ascii") or not header[2].isdigit():
                raise unlike_git(self._repository.environment)
            size = int(header[2])
            content = bytearray()
            remaining = size
            while remaining:
                piece = await self._talk.receive_exactly(min(_PIECE, remaining))
                remaining -= len(piece)
                if limit is None or len(content) < limit:
                    content += piece
            await self._talk.receive_exactly(1)
        except EOFError as error:
            raise await self._ended() from error
        return header[1].decode("ascii"), bytes(content if limit is None else content[:limit]), size

    async def _ended(self) -> OutpostError:
        if not await to_thread.run_sync(self._repository.top.is_dir):
            return OutpostError("workspace", f"The folder {self._repository.top} is gone.")
        return OutpostError("workspace", "git cat-file ended while it was asked.")


def _records(oid: str, kind: str, content: bytes) -> _Records:
    if kind != "tree":
        raise OutpostError("workspace", f"The object {oid} is no tree.")
    return {name: record for record, name in _RECORD[len(oid) // 2].findall(content)}


def _entry(name: bytes, record: bytes) -> Entry:
    mode, _, rest = record.partition(b" ")
    return Entry(mode, rest[len(name) + 1 :].hex())


def _record(name: bytes, entry: Entry) -> bytes:
    return b"%s %s\0%s" % (entry.mode, name, bytes.fromhex(entry.oid))


def _is_tree(record: bytes) -> bool:
    return record.startswith(b"40000 ")


def _inner(tree: _Records, name: bytes) -> str | None:
    """The object name of a folder in a tree; `None` when there is none."""
    record = tree.get(name)
    return None if record is None or not _is_tree(record) else _entry(name, record).oid


@asynccontextmanager
async def object_reader(repository: Repository) -> AsyncIterator[ObjectReader]:
    """A reader that lives as long as the context."""
    async with open_git(repository, ["cat-file", "--batch"]) as talk:
        yield ObjectReader(talk, repository)


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
            known = await own.on_the_way(root, base)
    else:
        known = await reader.on_the_way(root, base)
    written = NewObjects() if new is None else new
    like = base or "0" * await _name_length(repository)
    top = _rebuild(known, root, base, written, like) or written.add("tree", b"", like=like)
    if new is None:
        await written.write(repository)
    return top


def empty_tree(like: str) -> str:
    """The name of the tree that holds nothing, in the kind of name that `like` has: SHA-1 or SHA-256."""
    return NewObjects().add("tree", b"", like=like)


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


def _rebuild(known: Mapping[str, _Records], folder: _Folder, base: str, new: NewObjects, like: str) -> str | None:
    """The new name of a folder's tree, `None` when nothing is left in it; the new trees are added to `new`."""
    tree = dict(known[base]) if base else {}
    in_order = True
    for name, entry in folder.entries.items():
        if entry is None:
            tree.pop(name, None)
        else:
            in_order &= _put(tree, name, entry)
    for name, inner in folder.folders.items():
        below = _inner(tree, name)
        if below is None and name in tree and folder.entries.get(name) is not None:
            continue  # A file stands where a folder was; what was below it is gone.
        oid = _rebuild(known, inner, below or "", new, like)
        if oid is None:
            tree.pop(name, None)
        else:
            in_order &= _put(tree, name, Entry(TREE_MODE, oid))
    if not tree:
        return None
    records = tree.values() if in_order else [tree[name] for name in sorted(tree, key=lambda name: _place(tree, name))]
    return new.add("tree", b"".join(records), like=like)


def _put(tree: _Records, name: bytes, entry: Entry) -> bool:
    """Whether the tree is in its order afterwards if it was before: a file and a folder of one name have other places."""
    earlier = tree.get(name)
    tree[name] = _record(name, entry)
    return earlier is not None and _is_tree(earlier) == entry.is_tree


def _place(tree: _Records, name: bytes) -> bytes:
    return name + b"/" if _is_tree(tree[name]) else name


async def _name_length(repository: Repository) -> int:
    result = await run_git(repository, ["rev-parse", "--show-object-format"], check=True)
    return 64 if result.stdout.strip() == b"sha256" else 40
