"""Trees and commits that go into a repository together: as one pack that a single git process takes apart.

The invariant: an object has the name that git gives it, and nothing refers to one before all are written. Pure but for
that process. Used by whatever writes trees: a process of git for each would be most of what a small change costs.
"""

from __future__ import annotations

import hashlib
import time
import zlib
from typing import Final, Literal

from anyio import to_thread

from outpost_lsp.worktrees.git import Repository, run_git

_KINDS: Final = {"commit": 1, "tree": 2}
_AS_IT_IS: Final = 0
"""Git takes the pack apart at once and compresses each object in its own way."""
_SMALL: Final = 8_192
"""As many bytes are packed sooner than a worker thread takes them up."""
_WHO: Final = "Outpost <outpost@localhost>"


class NewObjects:
    """Objects on their way into a repository; written by `write`, all at once."""

    def __init__(self) -> None:
        self._objects: dict[str, tuple[int, bytes]] = {}

    def add(self, kind: Literal["commit", "tree"], content: bytes, *, like: str) -> str:
        """Add an object; its name, in the kind of name that `like` has: SHA-1 or SHA-256."""
        header = b"%s %d\0" % (kind.encode("ascii"), len(content))
        name = hashlib.new(algorithm(like), header + content, usedforsecurity=False).hexdigest()
        self._objects[name] = (_KINDS[kind], content)
        return name

    def add_commit(self, tree: str, parent: str, message: str) -> str:
        """Add a commit of the product's own; `parent` is empty for none."""
        moment = f"{_WHO} {int(time.time())} +0000"
        lines = [f"tree {tree}", *([f"parent {parent}"] if parent else []), f"author {moment}", f"committer {moment}"]
        return self.add("commit", "\n".join([*lines, "", f"{message}\n"]).encode("utf-8"), like=tree)

    async def write(self, repository: Repository) -> None:
        """Write what was added; nothing is started when that is nothing."""
        if not self._objects:
            return
        is_small = sum(len(content) for _, content in self._objects.values()) < _SMALL
        pack = self._pack() if is_small else await to_thread.run_sync(self._pack)
        self._objects.clear()
        await run_git(repository, ["unpack-objects", "-q"], stdin=pack, check=True)

    def _pack(self) -> bytes:
        pieces = [b"PACK", (2).to_bytes(4, "big"), len(self._objects).to_bytes(4, "big")]
        for kind, content in self._objects.values():
            pieces += [_header(kind, len(content)), zlib.compress(content, _AS_IT_IS)]
        pack = b"".join(pieces)
        name = next(iter(self._objects))
        return pack + hashlib.new(algorithm(name), pack, usedforsecurity=False).digest()


def algorithm(like: str) -> str:
    """How objects are named in a repository in which one has the name `like`."""
    return "sha256" if len(like) == 64 else "sha1"


def _header(kind: int, size: int) -> bytes:
    """What a pack says before an object: its kind, and its size in groups of bits, the lowest first."""
    byte, size = kind << 4 | size & 0b1111, size >> 4
    header = bytearray()
    while size:
        header.append(byte | 0b1000_0000)
        byte, size = size & 0b111_1111, size >> 7
    header.append(byte)
    return bytes(header)
