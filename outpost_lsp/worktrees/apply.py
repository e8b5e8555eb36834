"""Applying a result to the user's files: three-way merges of contents, all or nothing, as operations to carry out.

The invariant: nothing is written here. Each file of the result is compared with what the user has now (buffer before
disk); one that differs from the snapshot is merged in three ways, and a single unclean file turns the whole into
conflicts (SNAP-06, SEC-21, SEC-23). Called by a service for the editor and for the disk alike.
"""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace

import anyio
from anyio import to_thread

from outpost_lsp.domain.landing import ApplyConflict, FileOperation, Landing, Present, folders_above, needs_own_accept
from outpost_lsp.errors import OutpostError
from outpost_lsp.worktrees.changes import ChangedFile
from outpost_lsp.worktrees.contents import FileVersions, with_hunks
from outpost_lsp.worktrees.git import Repository, run_git
from outpost_lsp.worktrees.scratch import scratch_folder, write_scratch

_LINK = "120000"
_EXECUTABLE = "100755"
_SUBMODULE = "160000"


ReadPresent = Callable[[str], Awaitable[Present]]
"""How a path is looked up: an open buffer's text where there is one, else the disk. A path behind a link is `other`."""

ReadNames = Callable[[str], Awaitable[Sequence[str]]]
"""The paths of all that a folder of the user holds at any depth: files, links, and folders in which nothing is."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The part of a result that a person asked for, and what waits for a word of its own (SEC-09)."""

    versions: tuple[FileVersions, ...]
    needs_own_accept: tuple[str, ...] = ()


def choose(
    versions: Sequence[FileVersions], *, paths: Collection[str] | None = None, hunks: Collection[str] | None = None
) -> Chosen:
    """Narrow a result to the named files and hunks. What makes editors or shells act is taken only when it is named.

    `configuration` for a path or a hunk that the result does not have.
    """
    known = {each.file.path for each in versions}
    missing = sorted(set(paths or ()) - known)
    if missing:
        raise OutpostError("configuration", f"paths: the run did not change {missing[0]}.", {"paths": missing})
    wanted = [each for each in versions if paths is None or each.file.path in paths]
    waiting = () if paths is not None else tuple(each.file.path for each in wanted if needs_own_accept(each.file.path))
    wanted = [each for each in wanted if each.file.path not in waiting]
    if hunks is not None:
        unknown = sorted(set(hunks) - {hunk.id for each in versions for hunk in each.hunks})
        if unknown:
            raise OutpostError("configuration", f"hunks: there is no hunk {unknown[0]} in the run.", {"hunks": unknown})
        wanted = [_narrowed(each, hunks) for each in wanted if any(hunk.id in hunks for hunk in each.hunks)]
    return Chosen(tuple(wanted), waiting)


async def plan(
    repository: Repository, versions: Sequence[FileVersions], present: ReadPresent, within: ReadNames
) -> Landing:
    """What applying the versions to the user's files takes, or the conflicts for which nothing may be done.

    A file may become a folder, and a folder a file, when the versions take away all that stands there now.
    """
    taken = frozenset(
        each.file.path if each.result is None else each.file.old_path or each.file.path
        for each in versions
        if each.result is None or each.file.old_path not in {None, each.file.path}
    )
    way = _Way(present, within, taken)
    operations: list[FileOperation] = []
    conflicts: list[ApplyConflict] = []
    already: list[str] = []
    for each in versions:
        try:
            operation = await _plan_file(repository, each, way)
        except _UncleanError as unclean:
            conflicts.append(ApplyConflict(each.file.path, str(unclean)))
            continue
        if operation is None:
            already.append(each.file.path)
        else:
            operations.append(operation)
    if conflicts:
        return Landing(conflicts=tuple(conflicts))
    return Landing(tuple(operations), already=tuple(already))


async def merge_contents(repository: Repository, current: bytes, base: bytes, result: bytes) -> bytes | None:
    """The three-way merge of a text, byte for byte where only one side changed; `None` when it is not clean.

    Merged by `git merge-file` on private copies: a merge command would ask the repository's merge drivers.
    """
    if current in {base, result}:
        return result
    if result == base:
        return current
    if any(b"\0" in side for side in (current, base, result)):
        return None
    folder = await to_thread.run_sync(scratch_folder, "merge")
    try:
        places = [folder / name for name in ("current", "base", "result")]
        for place, content in zip(places, (current, base, result), strict=True):
            await to_thread.run_sync(write_scratch, place, content)
        arguments = ["merge-file", "-p", "-q", *map(str, places)]
        merged = await run_git(repository, arguments, max_output=len(current) + len(base) + len(result) + 65_536)
        return merged.stdout if merged.status == 0 and not merged.truncated else None
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(shutil.rmtree, folder, True)


class _UncleanError(Exception):
    """Why one file cannot take the change."""


@dataclass(frozen=True, slots=True)
class _Way:
    """What stands at the paths of a result and on the way to them, and which of it the result takes away."""

    present: ReadPresent
    within: ReadNames
    taken: frozenset[str]

    async def find(self, path: str, mode: str, *, is_made: bool) -> Present:
        """What stands at a path that changes; where something is made, what the result takes away does not stand."""
        found = await self.present(path)
        if is_made and found.kind == "directory":
            await self._check_folder(path)
            return Present("absent")
        if is_made and found.kind in {"absent", "other"} and await self._is_open(path):
            return Present("absent")
        if found.kind in {"directory", "other"}:
            raise _UncleanError("a folder or something that is no file stands there.")
        if found.kind == "link" and mode != _LINK:
            raise _UncleanError("a link stands there, and nothing is written through it.")
        return found

    async def is_gone(self, path: str) -> bool:
        """Whether a folder has the name of a file, or a link stands where its folder was."""
        kind = (await self.present(path)).kind
        if kind == "other":
            return any([(await self.present(folder)).kind == "link" for folder in folders_above(path)])
        return kind == "directory"

    async def _check_folder(self, path: str) -> None:
        if not any(one.startswith(f"{path}/") for one in self.taken):
            raise _UncleanError("a folder stands there; if the run empties it, apply both together.")
        names = await self.within(path)
        if not names:
            raise _UncleanError("an empty folder stands there: remove it first.")
        others = [one for one in names if one not in self.taken]
        if others:
            raise _UncleanError(
                f"a folder stands there, and the run does not remove {others[0]}: move that away first."
            )

    async def _is_open(self, path: str) -> bool:
        """Whether folders, nothing, or a file that the result takes away are on the way to a new file."""
        for folder in folders_above(path):
            kind = (await self.present(folder)).kind
            if kind in {"file", "link"} and folder in self.taken:
                return True
            if kind == "link":
                return False
            if kind not in {"absent", "directory"}:
                raise _UncleanError(f"{folder} is no folder; if the run removes that, apply both together.")
        return (await self.present(path)).kind == "absent"


async def _plan_file(repository: Repository, versions: FileVersions, way: _Way) -> FileOperation | None:
    """The operation for one file; `None` when the user has the result already."""
    file = versions.file
    if _SUBMODULE in {file.old_mode, file.new_mode}:
        raise _UncleanError("a submodule is not applied; move it to its new commit yourself.")
    if file.new_mode == _LINK and versions.result is not None and _leaves(file.path, versions.result):
        raise _UncleanError("it becomes a link that leads out of the repository.")
    if versions.result is None and await way.is_gone(file.path):
        return None
    is_moved = file.old_path is not None and file.old_path != file.path
    is_made = versions.result is not None and (versions.base is None or is_moved)
    expected = _LINK if _LINK in {file.old_mode, file.new_mode} else file.new_mode
    target = await way.find(file.path, expected, is_made=is_made)
    if versions.base is None:
        return _create(versions, target)
    if is_moved:
        return await _move(repository, versions, target, way)
    if versions.result is None:
        return _delete(versions, target)
    return await _write(repository, versions, target)


def _create(versions: FileVersions, target: Present) -> FileOperation | None:
    file, result = versions.file, versions.result
    if target.kind == "absent":
        return FileOperation(file.path, None, result, None, _executable(file), file.new_mode == _LINK)
    if target.content == result and (target.kind == "link") == (file.new_mode == _LINK):
        return None
    raise _UncleanError("something was put there meanwhile.")


def _delete(versions: FileVersions, target: Present) -> FileOperation | None:
    if target.kind == "absent":
        return None
    if target.content != versions.base:
        raise _UncleanError("it was changed meanwhile, and the run removes it.")
    return FileOperation(versions.file.path, target.content, None, was_link=target.kind == "link")


async def _write(repository: Repository, versions: FileVersions, target: Present) -> FileOperation | None:
    file = versions.file
    assert versions.base is not None
    assert versions.result is not None
    if target.content is None:
        raise _UncleanError("it was removed meanwhile." if target.kind == "absent" else "it is no file any more.")
    is_link = file.new_mode == _LINK
    if (target.kind == "link") != (file.old_mode == _LINK) or (is_link != (file.old_mode == _LINK)):
        if target.content == versions.result and (target.kind == "link") == is_link:
            return None
        if (target.kind == "link") != (file.old_mode == _LINK) or target.content != versions.base:
            raise _UncleanError("it became another kind of file meanwhile.")
        return _changed(file, target, versions.result)
    if is_link:
        merged = versions.result if target.content in {versions.base, versions.result} else None
    else:
        merged = await merge_contents(repository, target.content, versions.base, versions.result)
    if merged is None:
        raise _UncleanError("what was changed meanwhile and what the run changed do not fit together.")
    if merged == target.content and _executable(file) is None:
        return None
    return _changed(file, target, merged)


async def _move(repository: Repository, versions: FileVersions, target: Present, way: _Way) -> FileOperation | None:
    file = versions.file
    assert file.old_path is not None
    gone = await way.is_gone(file.old_path)
    source = Present("absent") if gone else await way.find(file.old_path, file.old_mode, is_made=False)
    if source.kind == "absent" and target.content == versions.result:
        return None
    if target.kind != "absent":
        raise _UncleanError("something was put there meanwhile.")
    moved = await _write(repository, versions, source)
    content = source.content if moved is None else moved.after
    return replace(_changed(file, source, content), moved_from=file.old_path)


def _changed(file: ChangedFile, target: Present, content: bytes | None) -> FileOperation:
    is_link, was_link = file.new_mode == _LINK, target.kind == "link"
    return FileOperation(file.path, target.content, content, None, _executable(file), is_link, was_link)


def _executable(file: ChangedFile) -> bool | None:
    """What becomes of the executable bit: set for a new program, changed where the run changed it."""
    if _LINK in {file.new_mode, file.old_mode} or file.new_mode == file.old_mode:
        return None
    return file.new_mode == _EXECUTABLE if file.old_mode or file.new_mode == _EXECUTABLE else None


def _leaves(path: str, target: bytes) -> bool:
    """Whether a link's target, as text, leads above the top or is absolute."""
    if target.startswith(b"/"):
        return True
    depth = path.count("/")
    for part in target.split(b"/"):
        if part == b"..":
            depth -= 1
        elif part not in {b"", b"."}:
            depth += 1
        if depth < 0:
            return True
    return False


def _narrowed(versions: FileVersions, hunks: Collection[str]) -> FileVersions:
    result = with_hunks(versions, hunks)
    if result == versions.result:
        return versions
    return replace(versions, file=replace(versions.file, new_mode=versions.file.old_mode), result=result)
