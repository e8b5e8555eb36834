"""What a landing wrote down before it began, so that one that was killed half-way is taken back or finished.

The invariant: nothing of the user's is changed before the record is on the disk, and the record goes last. Whoever lands
holds a lock on its record, which the system lets go of when the process dies; a record without a holder is what a dead
process left. What somebody changed since is never touched: the earlier text is then kept in the recovery folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from outpost_lsp.domain.landing import Present
from outpost_lsp.errors import OutpostError
from outpost_lsp.sandbox.paths import Place
from outpost_lsp.sandbox.standing import look, place_of, within

logger = logging.getLogger(__name__)

RECOVERY: Final = "recovery"
"""Beside the folder of records: earlier texts that could not be put back, since somebody had changed the file."""

_DONE: Final = b"done\n"
_FOLDER: Final = "directory:"


@dataclass(slots=True)
class Step:
    """One name that changes: what is beside it before and after, and digests of what stood and what will stand there."""

    path: str
    before: str
    after: str
    staged: str = ""
    kept: str = ""

    @property
    def turns(self) -> bool:
        """Whether a file becomes a folder, or a folder a file; the names beside it are then a folder's, too."""
        return self.before.startswith(_FOLDER) or self.after.startswith(_FOLDER)


@dataclass(slots=True)
class Record:
    """A landing: the folder, its steps in order, and the folders that it has to make."""

    root: str
    steps: list[Step] = field(default_factory=list)
    made: list[str] = field(default_factory=list)


def digest(standing: Present) -> str:
    """A name for what stands somewhere."""
    content = b"" if standing.content is None else standing.content
    return f"{standing.kind}:{hashlib.sha256(content).hexdigest()}"


def digest_of_folder(held: Mapping[str, Present]) -> str:
    """A name for a folder that holds this at any depth."""
    names = "".join(f"{path!r} {digest(held[path])}\n" for path in sorted(held))
    return f"{_FOLDER}{hashlib.sha256(names.encode('utf-8', 'backslashreplace')).hexdigest()}"


def digest_at(place: Place, step: Step) -> str:
    """A name for what stands at a step's place; what a folder holds is looked at where the step is about a folder."""
    standing = look(place)
    if standing.kind == "directory" and step.turns:
        return digest_of_folder({found.relative: look(found) for found in within(place)})
    return digest(standing)


def beside(ending: str) -> str:
    """A name next to a file, which nobody uses."""
    return f".outpost-{secrets.token_hex(8)}.{ending}"


class RecordFile:
    """A record on the disk, held by this process."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def done(self) -> None:
        """Everything is in its place: from now on the landing is finished, not taken back."""
        os.write(self._descriptor, _DONE)
        os.fsync(self._descriptor)

    def drop(self) -> None:
        """Nothing is left to do."""
        self._path.unlink(missing_ok=True)


@contextlib.contextmanager
def recorded(folder: Path, record: Record) -> Iterator[RecordFile]:
    """Write a record and hold it; it stays on the disk when the context is left without `drop`."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{secrets.token_hex(8)}.json"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            with os.fdopen(os.dup(descriptor), "wb") as file:
                file.write(json.dumps(asdict(record)).encode("ascii") + b"\n")
            os.fsync(descriptor)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        yield RecordFile(path, descriptor)
    finally:
        os.close(descriptor)


def settle_landings(folder: Path) -> tuple[str, ...]:
    """Take back or finish what dead processes left in a folder of records; the paths whose earlier text is in recovery."""
    saved: list[str] = []
    for path in sorted(folder.glob("*.json")):
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            saved += _settle(path, folder.parent / RECOVERY / path.stem)
            path.unlink(missing_ok=True)
        except BlockingIOError:
            continue  # Its process is at work.
        except (OutpostError, OSError) as error:
            logger.warning("what %s tells of a landing could not be settled: %s", path, error)
        finally:
            os.close(descriptor)
    return tuple(saved)


def roll_back(record: Record, recovery: Path) -> list[str]:
    """Put everything back that still is as the landing left it; the paths whose earlier text is in recovery.

    What can be put back is, also when something cannot: then the first fault is raised, and the record has to stay.
    """
    root, saved = Path(record.root), []
    faults: list[OutpostError] = []
    for step in reversed(record.steps):
        try:
            with place_of(root, step.path) as place:
                if _put_back(place, step, recovery):
                    saved.append(step.path)
                remove(place, step.staged)
        except OutpostError as fault:
            if fault.details.get("reason") != "missing":
                faults.append(fault)
    for name in reversed(record.made):
        with contextlib.suppress(OSError):
            (root / name).rmdir()
    if faults:
        raise faults[0]
    return saved


def forget_kept(record: Record) -> None:
    """The landing stands: what was kept for taking it back goes."""
    for step in record.steps:
        with contextlib.suppress(OutpostError), place_of(Path(record.root), step.path) as place:
            remove(place, step.kept)
            remove(place, step.staged)


def remove(place: Place, name: str) -> None:
    """Remove what the product put beside a place, if it is there; a folder with all that it holds."""
    status = _status(place, name) if name else None
    if status is not None and stat.S_ISDIR(status.st_mode):
        shutil.rmtree(name, dir_fd=place.folder)
    elif status is not None:
        _unlink(place, name)


def _settle(path: Path, recovery: Path) -> list[str]:
    data = path.read_bytes()
    if not data.endswith(b"\n"):
        data = data[: data.rfind(b"\n") + 1]
    if not data:
        return []  # Killed while it was written: nothing had begun.
    first, _, rest = data.partition(b"\n")
    known = json.loads(first)
    record = Record(known["root"], [Step(**step) for step in known["steps"]], known["made"])
    if rest == _DONE:
        forget_kept(record)
        return []
    return roll_back(record, recovery)


def _put_back(place: Place, step: Step, recovery: Path) -> bool:
    """Whether the earlier text had to be put into recovery, since the file is somebody else's by now."""
    now = digest_at(place, step)
    folder = place.folder
    if not step.kept or _status(place, step.kept) is None:
        if step.before.startswith("absent:") and now == step.after and _is_ours(place, step):
            _unlink(place, place.name)
        return False
    if now == step.after or now.startswith("absent:"):
        if step.turns and now == step.after:
            # Neither a file nor a folder can be renamed onto the other.
            remove(place, step.staged)
            os.rename(place.name, step.staged, src_dir_fd=folder, dst_dir_fd=folder)
        os.rename(step.kept, place.name, src_dir_fd=folder, dst_dir_fd=folder)
        return False
    if now == step.before:
        remove(place, step.kept)
        return False
    _recover(place, step, recovery / step.path)
    remove(place, step.kept)
    return True


def _recover(place: Place, step: Step, target: Path) -> None:
    """Copy what was kept to the recovery folder."""
    kept = Place(place.folder, step.kept, step.kept)
    status = kept.status()
    if status is None or not stat.S_ISDIR(status.st_mode):
        _copy(kept, target)
        return
    for found in within(kept):
        _copy(found, target / found.relative)


def _copy(source: Place, target: Path) -> None:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    what = look(source)
    if what.kind == "link":
        target.unlink(missing_ok=True)
        target.symlink_to(os.fsdecode(what.content or b""))
    elif what.content is not None:
        with target.open("wb") as new:
            new.write(what.content)
            new.flush()
            os.fsync(new.fileno())


def _is_ours(place: Place, step: Step) -> bool:
    """Whether the landing made the file: as long as its own copy stands beside it, only a file that is that very copy."""
    staged, now = _status(place, step.staged), _status(place, place.name)
    return staged is None or (now is not None and os.path.samestat(staged, now))


def _status(place: Place, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=place.folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _unlink(place: Place, name: str) -> None:
    if name:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=place.folder)
