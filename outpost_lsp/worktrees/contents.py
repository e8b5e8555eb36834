"""The contents of changed files on both sides, as they stand on disk, and the hunks between them.

The invariant: line ends and encodings are those that the user's checkout has on disk, and no filter of the repository's
is started for that. Called for `outpost.diff` and by `apply`.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from anyio import to_thread

from outpost_lsp.errors import OutpostError
from outpost_lsp.worktrees.changes import ChangedFile, ChangeSet
from outpost_lsp.worktrees.git import Repository, run_git

MAX_CONTENTS: Final = 512 * 1024 * 1024

_HUNK = re.compile(rb"(?m)^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@.*$")
_LINK = "120000"
_SUBMODULE = "160000"


@dataclass(frozen=True, slots=True)
class Hunk:
    """One place where a file changed: half-open line ranges from 0 on both sides."""

    id: str
    header: str
    old: tuple[int, int]
    new: tuple[int, int]


@dataclass(frozen=True, slots=True)
class FileVersions:
    """A changed file with its two contents (a link's is its target) and the hunks between them."""

    file: ChangedFile
    base: bytes | None
    result: bytes | None
    hunks: tuple[Hunk, ...] = ()


async def versions_of(
    repository: Repository, changes: ChangeSet, paths: Collection[str] | None = None
) -> tuple[FileVersions, ...]:
    """The changed files of a result with their contents; `paths` are exact names, all by default.

    `repository` is the user's checkout: its attributes say how files stand on disk.
    """
    files = [file for file in changes.files if paths is None or file.path in paths]
    sides = [(file, oid, mode, path) for file in files for oid, mode, path in _sides(file)]
    contents = await _contents(repository, [side[1:] for side in sides])
    pairs = list(zip(contents[::2], contents[1::2], strict=True))
    found = []
    for file, (base, result) in zip(files, pairs, strict=True):
        hunks = () if _is_binary(base) or _is_binary(result) else await _file_hunks(repository, file, base, result)
        found.append(FileVersions(file, base, result, hunks))
    return tuple(found)


def with_hunks(versions: FileVersions, chosen: Collection[str]) -> bytes | None:
    """The result with only the chosen hunks; a file without any of them keeps its base."""
    if versions.base is None or versions.result is None:
        return versions.result if {hunk.id for hunk in versions.hunks} <= set(chosen) else versions.base
    old, new = (_lines(side) for side in (versions.base, versions.result))
    pieces: list[bytes] = []
    position = 0
    for hunk in versions.hunks:
        if hunk.id in chosen:
            pieces += old[position : hunk.old[0]] + new[hunk.new[0] : hunk.new[1]]
            position = hunk.old[1]
    return b"".join(pieces + old[position:])


async def _file_hunks(
    repository: Repository, file: ChangedFile, base: bytes | None, result: bytes | None
) -> tuple[Hunk, ...]:
    if base is None or result is None:
        old, new = (len(_lines(side or b"")) for side in (base, result))
        header = f"@@ -{min(old, 1)},{old} +{min(new, 1)},{new} @@"
        return (Hunk(_hunk_id(file.path, header, 0), header, (0, old), (0, new)),)
    # Two blobs are compared, not two paths: a path could also match what stands below it.
    arguments = ["diff", "--no-color", file.old_oid, file.new_oid]
    text = (await run_git(repository, arguments, check=True, max_output=MAX_CONTENTS)).stdout
    return await to_thread.run_sync(_hunks, file.path, text)


def _is_binary(content: bytes | None) -> bool:
    return content is not None and b"\0" in content


def _sides(file: ChangedFile) -> tuple[tuple[str, str, str], tuple[str, str, str]]:
    return (file.old_oid, file.old_mode, file.old_path or file.path), (file.new_oid, file.new_mode, file.path)


async def _contents(repository: Repository, sides: Sequence[tuple[str, str, str]]) -> list[bytes | None]:
    """The contents of blobs, converted as the checkout converts them; `None` for an absent side and for a submodule."""
    asked = [(oid, mode, path) for oid, mode, path in sides if mode not in {"", _SUBMODULE}]
    contents: dict[tuple[str, str], bytes] = {}
    for as_link in (True, False):
        group = [(oid, path) for oid, mode, path in asked if (mode == _LINK) == as_link]
        if not group:
            continue
        # A link's target is never converted; a file's content is, by the attributes of its path.
        stdin = b"".join(f"{oid}\0".encode() if as_link else f"{oid} {path}\0".encode() for oid, path in group)
        # The header's size is that before the conversion, so that a mark nobody can guess tells the contents apart.
        mark = secrets.token_hex(16)
        arguments = ["cat-file", f"--batch={mark} %(objecttype)", "-z", *([] if as_link else ["--filters"])]
        result = await run_git(repository, arguments, stdin=stdin, max_output=MAX_CONTENTS, check=True)
        if result.truncated:
            raise OutpostError(
                "limit", f"The changed files hold more than {MAX_CONTENTS} bytes.", {"limit": "contents"}
            )
        pieces = _batch(result.stdout, mark.encode())
        if len(pieces) != len(group):
            raise OutpostError("workspace", "git cat-file failed: an object of the result is missing.")
        contents |= dict(zip(group, pieces, strict=True))
    return [contents.get((oid, path)) if mode not in {"", _SUBMODULE} else None for oid, mode, path in sides]


def _batch(output: bytes, mark: bytes) -> list[bytes]:
    contents = []
    for piece in output.split(mark + b" ")[1:]:
        kind, _, content = piece.partition(b"\n")
        if kind != b"blob":
            raise OutpostError("workspace", f"git cat-file failed: {kind.decode(errors='replace')} is no file.")
        contents.append(content[:-1])
    return contents


def _hunks(path: str, text: bytes) -> tuple[Hunk, ...]:
    hunks: list[Hunk] = []
    for match in _HUNK.finditer(text):
        old_start, old_count, new_start, new_count = (1 if group is None else int(group) for group in match.groups())
        header = match[0].decode("utf-8", "replace")
        old = old_start if old_count == 0 else old_start - 1
        new = new_start if new_count == 0 else new_start - 1
        number = _hunk_id(path, header, len(hunks))
        hunks.append(Hunk(number, header, (old, old + old_count), (new, new + new_count)))
    return tuple(hunks)


def _hunk_id(path: str, header: str, ordinal: int) -> str:
    text = f"{path}\0{header}\0{ordinal}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _lines(content: bytes) -> list[bytes]:
    return [line for line in re.split(rb"(?<=\n)", content) if line]
