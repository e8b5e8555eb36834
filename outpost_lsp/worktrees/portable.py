"""Commits on their way to another machine and back, as packs: a base once, a thin delta for each job, a result.

The invariant: a pack holds commits without their history, and nothing of another repository's is taken over: what comes
back is indexed strictly in a quarantine that leans on the user's objects and is thrown away; only one commit on the
snapshot is accepted, every path and mode of it checked (SEC-08), and it leaves the quarantine as a patch.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final
from uuid import uuid4

from anyio import to_thread

from outpost_lsp.errors import OutpostError
from outpost_lsp.worktrees.git import Repository, run_git
from outpost_lsp.worktrees.hardening import host_environment

MOST_BASE_BYTES: Final = 512 * 1024 * 1024
MOST_DELTA_BYTES: Final = 64 * 1024 * 1024
"""Of a delta to a worker, and of a result from one."""
MOST_RESULT_PATHS: Final = 100_000

_MODES: Final = frozenset(("100644", "100755", "120000", "000000"))
_OID: Final = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
_INDEX_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class DeliveredResult:
    """What a worker made of a snapshot: paths that were checked, and the patch that leads to its tree."""

    tree: str
    paths: tuple[str, ...]
    patch: bytes


# On the side of whoever asks


async def pack_base(repository: Repository, commit: str, file: Path) -> int:
    """Write everything of one commit, without its history, to a new pack; its size in bytes.

    `workspace` when that is more than a worker takes.
    """
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=".pack-") as folder:
        arguments = ["pack-objects", "--quiet", "--revs", "--delta-base-offset", str(Path(folder) / "base")]
        await run_git(repository, arguments, stdin=_alone((commit,)), deadline_s=_INDEX_S, check=True)
        return await to_thread.run_sync(_moved_pack, Path(folder), file)


async def pack_delta(repository: Repository, base: str, commits: Sequence[str]) -> bytes:
    """What these commits hold beyond `base` (nothing when it is empty), without history, as a thin pack."""
    commits = [commit for commit in dict.fromkeys(commits) if commit != base]
    if not commits:
        return b""
    arguments = ["pack-objects", "--quiet", "--revs", "--thin", "--shallow", "--delta-base-offset", "--stdout"]
    standing_on = (base,) if base else ()
    # What is compared with may be a tree, which has no history to leave out.
    kinds = await _kinds(repository, commits)
    ends = [commit for commit, kind in zip(commits, kinds, strict=True) if kind == "commit"]
    result = await run_git(
        repository, arguments, stdin=_alone(commits, standing_on, ends), max_output=MOST_DELTA_BYTES, check=True
    )
    if result.truncated:
        limit = MOST_DELTA_BYTES >> 20
        raise OutpostError("workspace", f"The changes are too large to be sent: more than {limit} MiB in a pack.")
    return result.stdout


async def accept_result(repository: Repository, pack: bytes, snapshot: str) -> DeliveredResult:
    """Check a result that a worker sent; nothing of it reaches the user's repository here.

    `workspace` when it is anything but one sound commit whose only parent is the snapshot.
    """
    if len(pack) > MOST_DELTA_BYTES:
        raise _refused(f"it is larger than {MOST_DELTA_BYTES >> 20} MiB")
    async with _quarantine(repository, snapshot) as quarantine:
        await _index(quarantine, pack)
        commit = await _only_commit(quarantine)
        tree = await _tree_on(quarantine, commit, snapshot)
        paths = await _checked_paths(quarantine, snapshot, commit)
        arguments = ["diff-tree", "-p", "--binary", "--full-index", "--no-renames", "--no-color", snapshot, commit]
        patch = await run_git(quarantine, arguments, max_output=4 * MOST_DELTA_BYTES, check=True)
        if patch.truncated:
            raise _refused("its changes are too large to be applied")
        return DeliveredResult(tree, paths, patch.stdout)


# On the side of whoever works


async def open_store(folder: Path, *, sha256: bool = False, environment: Mapping[str, str] | None = None) -> Repository:
    """The repository at `folder` that keeps what packs bring, made when there is none."""
    host = host_environment() if environment is None else environment
    store = Repository(folder / "top", folder / "git", folder / "git", environment=dict(host))
    if not await to_thread.run_sync((store.git_dir / "HEAD").exists):
        await to_thread.run_sync(lambda: store.top.mkdir(mode=0o700, parents=True, exist_ok=True))
        await to_thread.run_sync(lambda: store.git_dir.mkdir(mode=0o700, parents=True, exist_ok=True))
        await _init(store, sha256=sha256)
    return store


async def has_commit(store: Repository, commit: str) -> bool:
    """Whether the store holds a commit with all of its files."""
    if not _OID.fullmatch(commit):
        return False
    return (await run_git(store, ["cat-file", "-e", f"{commit}^{{tree}}"])).status == 0


async def store_pack(store: Repository, pack: bytes | Path, commits: Sequence[str]) -> None:
    """Take a pack into the store; where the parents of its commits are not there, history ends.

    `workspace` when the pack is broken, or lacks one of the commits.
    """
    if any(not _OID.fullmatch(commit) for commit in commits):
        raise _refused("it names something that is no commit")
    known = await to_thread.run_sync(lambda: _shallow(store))
    await to_thread.run_sync(lambda: _write_shallow(store, known | set(commits)))
    try:
        if pack:
            await _index(store, pack)
        for commit in commits:
            if (await run_git(store, ["cat-file", "-e", f"{commit}^{{tree}}"])).status != 0:
                raise _refused(f"it lacks the commit {commit}")
        kinds = await _kinds(store, commits) if commits else []
        ends = {
            commit
            for commit, kind in zip(commits, kinds, strict=True)
            if kind == "commit" and not await _has_parents(store, commit)
        }
        await to_thread.run_sync(lambda: _write_shallow(store, known | ends))
    except BaseException:
        await to_thread.run_sync(lambda: _write_shallow(store, known))
        raise


# Within


async def _kinds(store: Repository, names: Sequence[str]) -> list[str]:
    question = "\n".join(names).encode("ascii") + b"\n"
    told = await run_git(store, ["cat-file", "--batch-check=%(objecttype)"], stdin=question, check=True)
    return told.stdout.decode("ascii").split("\n")[: len(names)]


def _alone(commits: Sequence[str], standing_on: Sequence[str] = (), ends: Sequence[str] | None = None) -> bytes:
    """Revisions for `pack-objects --revs`: each without its history, less what is known already."""
    lines = [f"--shallow {commit}" for commit in (*(commits if ends is None else ends), *standing_on)]
    lines += [*commits, *(f"^{commit}" for commit in standing_on)]
    return ("\n".join(lines) + "\n").encode("ascii")


def _moved_pack(folder: Path, file: Path) -> int:
    pack = next(folder.glob("*.pack"))
    size = pack.stat().st_size
    if size > MOST_BASE_BYTES:
        limit = MOST_BASE_BYTES >> 20
        raise OutpostError("workspace", f"The repository is too large to be sent: more than {limit} MiB in a pack.")
    pack.replace(file)
    return size


@asynccontextmanager
async def _quarantine(repository: Repository, snapshot: str) -> AsyncIterator[Repository]:
    """An empty repository that sees the user's objects and adds none to them."""
    with tempfile.TemporaryDirectory(prefix="outpost-result-") as folder:
        store = Repository(
            Path(folder) / "top", Path(folder) / "git", Path(folder) / "git", environment=repository.environment
        )
        await to_thread.run_sync(store.top.mkdir)
        await to_thread.run_sync(store.git_dir.mkdir)
        await _init(store, sha256=len(snapshot) == 64)
        alternates = store.git_dir / "objects" / "info" / "alternates"
        await to_thread.run_sync(lambda: alternates.write_bytes(bytes(repository.common_dir / "objects") + b"\n"))
        shallow = repository.common_dir / "shallow"
        if await to_thread.run_sync(shallow.exists):
            await to_thread.run_sync(lambda: (store.git_dir / "shallow").write_bytes(shallow.read_bytes()))
        yield store


async def _init(store: Repository, *, sha256: bool) -> None:
    form = "sha256" if sha256 else "sha1"
    arguments = ["init", "--quiet", "--template=", "--initial-branch=main", f"--object-format={form}"]
    await run_git(store, arguments, check=True)


async def _index(store: Repository, pack: bytes | Path) -> None:
    """Take a pack in, its objects and links checked. A file is taken as it is, bytes may be a thin pack."""
    place = store.git_dir / "objects" / "pack" / f"pack-{uuid4().hex}.pack"
    if isinstance(pack, bytes):
        arguments = ["index-pack", "--stdin", "--fix-thin", "--strict", str(place)]
        result = await run_git(store, arguments, stdin=pack, deadline_s=_INDEX_S)
    else:
        await to_thread.run_sync(shutil.copyfile, pack, place)
        result = await run_git(store, ["index-pack", "--strict", str(place)], deadline_s=_INDEX_S)
    if result.status != 0:
        for leftover in (place, place.with_suffix(".idx")):
            await to_thread.run_sync(leftover.unlink, True)
        said = next((line for line in reversed(result.stderr.splitlines()) if line.strip()), "")
        raise OutpostError("workspace", "A pack that came from another machine is broken.", {"stderr": said[:300]})


async def _only_commit(quarantine: Repository) -> str:
    """The one commit among the objects of the quarantine itself."""
    packs = await to_thread.run_sync(lambda: sorted((quarantine.git_dir / "objects" / "pack").glob("*.idx")))
    names = []
    for index in packs:
        data = await to_thread.run_sync(index.read_bytes)
        shown = await run_git(quarantine, ["show-index"], stdin=data, max_output=MOST_BASE_BYTES, check=True)
        names += [line.split()[1] for line in shown.stdout.decode("ascii").splitlines()]
    question = "\n".join(names).encode("ascii") + b"\n"
    arguments = ["cat-file", "--batch-check=%(objecttype) %(objectname)"]
    told = await run_git(quarantine, arguments, stdin=question, max_output=MOST_BASE_BYTES, check=True)
    commits = [line.split()[1] for line in told.stdout.decode("ascii").splitlines() if line.startswith("commit ")]
    # A thin pack is completed with objects of the user's own, none of which is a commit.
    if len(commits) != 1:
        raise _refused(f"it holds {len(commits)} commits instead of one")
    return commits[0]


async def _tree_on(quarantine: Repository, commit: str, snapshot: str) -> str:
    if await _parents(quarantine, commit) != [snapshot]:
        raise _refused("its commit does not stand on the snapshot that was sent")
    tree = await run_git(quarantine, ["rev-parse", "--verify", f"{commit}^{{tree}}"], check=True)
    return tree.stdout.decode("ascii").strip()


async def _checked_paths(quarantine: Repository, snapshot: str, commit: str) -> tuple[str, ...]:
    arguments = ["diff-tree", "-r", "-z", "--raw", "--no-renames", snapshot, commit]
    raw = await run_git(quarantine, arguments, max_output=MOST_DELTA_BYTES, check=True)
    fields = raw.stdout.split(b"\0")
    paths = []
    for meta, path in zip(fields[0::2], fields[1::2], strict=False):
        name = path.decode("utf-8", "surrogateescape")
        mode = meta.decode("ascii").split()[1]
        if mode not in _MODES:
            raise _refused(f"{name!r} would become something that is neither a file nor a link")
        _check_path(name)
        paths.append(name)
    if len(paths) > MOST_RESULT_PATHS or raw.truncated:
        raise _refused(f"it changes more than {MOST_RESULT_PATHS} files")
    return tuple(paths)


def _check_path(name: str) -> None:
    parts = PurePosixPath(name).parts
    if not name or name.startswith("/") or any(part in ("..", ".") or _is_git(part) for part in parts):
        raise _refused(f"{name!r} is no path that an agent may write to")


def _is_git(part: str) -> bool:
    plain = "".join(letter for letter in part if letter.isprintable()).rstrip(" .").casefold()
    return plain in (".git", "git~1")


async def _has_parents(store: Repository, commit: str) -> bool:
    parents = await _parents(store, commit)
    return all([(await run_git(store, ["cat-file", "-e", parent])).status == 0 for parent in parents])


async def _parents(store: Repository, commit: str) -> list[str]:
    """As the commit itself names them, whatever the ends of history are."""
    shown = await run_git(store, ["cat-file", "commit", commit], check=True)
    head = shown.stdout.partition(b"\n\n")[0].decode("utf-8", "replace").splitlines()
    return [line[7:] for line in head if line.startswith("parent ")]


def _shallow(store: Repository) -> set[str]:
    try:
        return set((store.git_dir / "shallow").read_text("ascii").split())
    except FileNotFoundError:
        return set()


def _write_shallow(store: Repository, commits: set[str]) -> None:
    file = store.git_dir / "shallow"
    temporary = file.with_name(f"shallow.{uuid4().hex}")
    temporary.write_text("".join(f"{commit}\n" for commit in sorted(commits)), "ascii")
    temporary.replace(file)


def _refused(why: str) -> OutpostError:
    return OutpostError("workspace", f"What a worker sent back is refused: {why}.")
