"""Carrying out operations on the user's own files: all of them, or none.

The invariant: every file is checked against what the operation expects right before it changes, no link is followed on
the way or at the end, each file changes by a rename, and a failure puts back what had changed (SEC-23, REL-02); what a
killed process had begun, the next start puts back (REL-01). Called for `apply` on the disk, with the user's folder as root.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from anyio import to_thread

from outpost_lsp.domain.landing import FileOperation, Present, folders_above, turned, turning
from outpost_lsp.errors import OutpostError
from outpost_lsp.sandbox.landing_record import (
    RECOVERY,
    Record,
    Step,
    beside,
    digest,
    digest_at,
    digest_of_folder,
    forget_kept,
    recorded,
    roll_back,
    settle_landings,
)
from outpost_lsp.sandbox.paths import Place
from outpost_lsp.sandbox.standing import look, mode, place_of, present, within


async def land(root: Path, operations: Sequence[FileOperation], *, records: Path) -> None:
    """Carry out all operations below `root`; on a fault (`conflict` when a file changed meanwhile) nothing has changed.

    `records` is the folder in which a landing is written down while it lasts, so that `settle_landings` takes back what a
    killed process had begun.
    """
    if operations:
        await to_thread.run_sync(_land, root, operations, records)


def _land(root: Path, operations: Sequence[FileOperation], records: Path) -> None:
    settle_landings(records)
    planned = [_planned(root, operation) for operation in operations]
    turns = {path: _turn(root, path, operations) for path in sorted(turned(operations))}
    below = frozenset(turns)
    steps = [step for both in planned for step in both if turning(step.path, below) is None]
    record = Record(str(root), [*turns.values(), *steps], _missing_folders(root, operations, below))
    try:
        with recorded(records, record) as file:
            try:
                for operation, (step, *_) in zip(operations, planned, strict=True):
                    place = turning(operation.path, below)
                    _stage(root, operation, step if place is None else turns[place], record.made)
                for step in record.steps:
                    _exchange(root, step)
                file.done()
            except BaseException as error:
                taken_back = False
                with contextlib.suppress(OutpostError):
                    roll_back(record, records.parent / RECOVERY)
                    file.drop()
                    taken_back = True
                if taken_back and isinstance(error, OutpostError) and error.code == "workspace":
                    raise OutpostError("workspace", f"{error.message} Nothing was changed.", error.details) from error
                raise
            forget_kept(record)
            file.drop()
    except OSError as error:
        raise OutpostError(
            "workspace",
            f"The changes could not be applied: {error.strerror}. Nothing was changed.",
            {"errno": error.errno},
        ) from error


def _planned(root: Path, operation: FileOperation) -> list[Step]:
    """The names that an operation changes: its path first, then the one that a file is moved from."""
    source = operation.moved_from
    here = operation.before if source is None else None
    before = Present("absent") if here is None else _found(root, operation.path, here)
    steps = [_step(operation.path, before, _after(operation))]
    if source is not None:
        steps.append(_step(source, _found(root, source, operation.before or b""), Present("absent")))
    return steps


def _after(operation: FileOperation) -> Present:
    if operation.after is None:
        return Present("absent")
    return Present("link" if operation.is_link else "file", operation.after)


def _step(path: str, before: Present, after: Present) -> Step:
    staged = "" if after.kind == "absent" else beside("new")
    kept = "" if before.kind == "absent" else beside("old")
    return Step(path, digest(before), digest(after), staged, kept)


def _turn(root: Path, path: str, operations: Sequence[FileOperation]) -> Step:
    """The step of a file that becomes a folder, or of a folder that becomes a file: either is exchanged as a whole."""
    before, start = present(root, path), f"{path}/"
    if before.kind == "directory":
        taken = {one.moved_from or one.path: one.before for one in operations if one.moved_from or one.after is None}
        held: dict[str, Present] = {}
        with place_of(root, path) as place:
            for each in within(place):
                name = f"{start}{each.relative}"
                # What is not to go is not read either: it may be large.
                if name not in taken or (standing := look(each)).content != taken[name]:
                    raise _changed(name)
                held[each.relative] = standing
        file = next(one for one in operations if one.path == path)
        return Step(path, digest_of_folder(held), digest(_after(file)), beside("new"), beside("old"))
    made = {
        one.path[len(start) :]: _after(one)
        for one in operations
        if one.after is not None and one.path.startswith(start)
    }
    return Step(path, digest(before), digest_of_folder(made), beside("new"), beside("old"))


def _missing_folders(root: Path, operations: Sequence[FileOperation], turns: frozenset[str]) -> list[str]:
    """The folders that have to be made, outer ones first."""
    missing: list[str] = []
    for operation in operations:
        if operation.after is None or turning(operation.path, turns) is not None:
            continue
        for folder in folders_above(operation.path):
            if folder not in missing and present(root, folder).kind == "absent":
                missing.append(folder)
    return missing


def _stage(root: Path, operation: FileOperation, step: Step, made: Sequence[str]) -> None:
    """Write the new content beside its place; nothing that the user sees has changed yet."""
    if operation.after is None:
        return
    for folder in made:
        if operation.path.startswith(f"{folder}/"):
            with place_of(root, folder) as place:
                if place.status() is None:
                    os.mkdir(place.name, dir_fd=place.folder)
    if operation.path == step.path:
        with place_of(root, step.path) as place:
            _write_new(root, operation, place.folder, step.staged)
        return
    # The file is one of a folder that takes a file's place: the whole folder is made beside it.
    folder = "/".join((*step.path.split("/")[:-1], step.staged))
    with place_of(root, folder + operation.path.removeprefix(step.path), create=True) as place:
        _write_new(root, operation, place.folder, place.name)


def _write_new(root: Path, operation: FileOperation, folder: int, name: str) -> None:
    assert operation.after is not None
    if operation.is_link:
        os.symlink(operation.after, os.fsencode(name), dir_fd=folder)
        return
    known = mode(root, operation.moved_from or operation.path) if operation.mode is None else operation.mode
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, 0o666, dir_fd=folder), "wb") as opened:
        opened.write(operation.after)
        opened.flush()
        own = stat.S_IMODE(os.fstat(opened.fileno()).st_mode) if known is None else known
        os.fchmod(opened.fileno(), _with_bit(own, operation.is_executable))
        os.fsync(opened.fileno())


def _found(root: Path, path: str, expected: bytes) -> Present:
    found = present(root, path)
    if found.content != expected:
        raise _changed(path)
    return found


def _exchange(root: Path, step: Step) -> None:
    """Put the new content in place, if the old one is still what was expected, and keep the old one beside it."""
    with place_of(root, step.path) as place:
        if digest_at(place, step) != step.before:
            raise _changed(step.path)
        if step.kept:
            os.rename(place.name, step.kept, src_dir_fd=place.folder, dst_dir_fd=place.folder)
        if step.turns:
            # Looked at once more: until it was aside, somebody could put something into the folder.
            if digest_at(Place(place.folder, step.kept, step.kept), step) != step.before:
                raise _changed(step.path)
            _turn_round(place, step)
        elif step.staged:
            # A hard link, not a rename: what somebody puts there at this very moment is not overwritten.
            _link_or_rename(step.staged, place)


def _turn_round(place: Place, step: Step) -> None:
    if step.before.startswith("directory:"):
        _link_or_rename(step.staged, place)
    elif place.status() is not None:
        raise _changed(step.path)
    else:
        # A folder takes nothing's place but that of an empty folder.
        os.rename(step.staged, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)


def _link_or_rename(staged: str, place: Place) -> None:
    try:
        os.link(staged, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder, follow_symlinks=False)
    except FileExistsError:
        raise _changed(place.relative) from None
    except OSError:
        os.rename(staged, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
        return
    os.unlink(staged, dir_fd=place.folder)


def _with_bit(permissions: int, is_executable: bool | None) -> int:
    if is_executable is None:
        return permissions
    return permissions | (permissions & 0o444) >> 2 if is_executable else permissions & ~0o111


def _changed(path: str) -> OutpostError:
    return OutpostError("conflict", f"{path} has changed meanwhile; nothing was applied.", {"path": path})
