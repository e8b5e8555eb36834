"""Small private index files, read and written without starting git: version 2 of its index format.

The invariant: only indexes of the product's own are handled here, never the user's. An entry is written without what git
remembers of its file, so that git reads the file again; what cannot be read here is left for git to list.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from pathlib import Path

from outpost_lsp.worktrees.objects import Entry
from outpost_lsp.worktrees.scratch import write_scratch

_HEADER = struct.Struct(">4sLL")
_REMEMBERED = struct.Struct(">10L")
"""Times, device, inode, mode, owner, group and size; only the mode is told here."""
_FLAGS = struct.Struct(">H")
_LONGEST_NAME_IN_FLAGS = 0xFFF
_STAGE = 0x3000
_EXTENDED = 0x4000


def write_index(file: Path, entries: Mapping[bytes, Entry]) -> None:
    """An index that holds the entries. The folder is private, and nobody reads the file before this returns."""
    width = len(next(iter(entries.values())).oid) // 2
    pieces = [_HEADER.pack(b"DIRC", 2, len(entries))]
    for path, entry in sorted(entries.items()):
        known = _REMEMBERED.pack(0, 0, 0, 0, 0, 0, int(entry.mode, 8), 0, 0, 0)
        flags = _FLAGS.pack(min(len(path), _LONGEST_NAME_IN_FLAGS))
        record = known + bytes.fromhex(entry.oid) + flags + path
        pieces += [record, b"\0" * _padding(len(record))]
    data = b"".join(pieces)
    algorithm = "sha256" if width == 32 else "sha1"
    write_scratch(file, data + hashlib.new(algorithm, data, usedforsecurity=False).digest())


def read_index(file: Path, width: int) -> dict[bytes, Entry] | None:
    """The merged entries of an index whose object names have `width` bytes; `None` when it is of another kind."""
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return {}
    signature, version, count = _HEADER.unpack_from(data)
    if signature != b"DIRC" or version != 2:
        return None
    entries: dict[bytes, Entry] = {}
    position = _HEADER.size
    for _ in range(count):
        mode = _REMEMBERED.unpack_from(data, position)[6]
        start = position + _REMEMBERED.size + width
        (flags,) = _FLAGS.unpack_from(data, start)
        if flags & _EXTENDED:
            return None
        name = start + _FLAGS.size
        end = data.index(b"\0", name)
        if not flags & _STAGE:
            entries[data[name:end]] = Entry(b"%06o" % mode, data[start - width : start].hex())
        position = end + _padding(end - position)
    return entries


def _padding(length: int) -> int:
    """How many zero bytes follow a record: at least one, up to a multiple of eight."""
    return 8 - length % 8
