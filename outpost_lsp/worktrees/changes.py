"""What differs between commits, and what an agent left in its worktree: files, lines, patch, frozen as a tree.

The invariant: a change set is made from the files as they stand through an index of its own, and is named by a tree, so
that later writes do not change it (SNAP-05, SEC-24). Names are exact; one that is no UTF-8 is noted, not listed. Called
by dispatches, reviews and apply.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import anyio
from anyio import to_thread

from outpost_lsp.domain.sandbox import GitResult
from outpost_lsp.errors import OutpostError
from outpost_lsp.worktrees.git import Repository, resolve_commit, run_git
from outpost_lsp.worktrees.nested import with_nested_files
from outpost_lsp.worktrees.new_objects import NewObjects
from outpost_lsp.worktrees.objects import object_reader
from outpost_lsp.worktrees.private_index import private_index, writing
from outpost_lsp.worktrees.snapshot import head_and_tree, tree_name, tree_of
from outpost_lsp.worktrees.together import both
from outpost_lsp.worktrees.working_tree import Scan, named, scan_paths, scan_working_tree

ChangeStatus = Literal["added", "modified", "deleted", "renamed"]

_UNCOUNTED = (0, 0, False)
_STATUS: Final[Mapping[str, ChangeStatus]] = {
    "A": "added",
    "M": "modified",
    "T": "modified",
    "D": "deleted",
    "R": "renamed",
}
_OBJECT_NAME = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
RENAMES: Final = ("--find-renames=50%", "-l0")
LONGEST_LISTING: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """One file that differs. Modes (git's octal ones) and object names are empty on the side where there is no file."""

    path: str
    status: ChangeStatus
    old_path: str | None = None
    insertions: int = 0
    deletions: int = 0
    binary: bool = False
    old_mode: str = ""
    new_mode: str = ""
    old_oid: str = ""
    new_oid: str = ""


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """The result of a run, frozen: `tree` holds it whole, `commit` keeps it and has the snapshot as its parent."""

    base: str
    tree: str
    commit: str
    files: tuple[ChangedFile, ...]
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing differs from the snapshot."""
        return not self.files and not self.notes


async def change_set(
    worktree: Repository,
    snapshot_commit: str,
    *,
    touched: Collection[str] | None = None,
    tree: str = "",
    deadline_s: float = 120.0,
) -> ChangeSet:
    """Everything that differs from the snapshot: commits, staged, unstaged and new files together.

    With `touched`, only these files can differ (a lease knows when no command ran), and nothing else is looked at.
    `tree` is the snapshot's, where the caller knows it.
    `worktree` is the linked worktree's own view (`Worktree.repository`). Only objects are written: the worktree stays as
    it is, so this can be asked while a run goes on.
    """
    try:
        with anyio.fail_after(deadline_s):
            return (await _frozen(worktree, snapshot_commit, touched, tree))[0]
    except TimeoutError as error:
        raise _too_slow(worktree, deadline_s) from error


async def freeze(
    worktree: Repository,
    snapshot_commit: str,
    *,
    touched: Collection[str] | None = None,
    tree: str = "",
    deadline_s: float = 120.0,
) -> ChangeSet:
    """The change set at the end of a run, kept: the worktree's own HEAD and index move to the result (SEC-06, SEC-24).

    Its HEAD is what keeps the objects from a clean-up of the user's git; a ref below `refs/worktree/` does not. `tree`
    is the snapshot's, where the caller knows it.
    """
    try:
        with anyio.fail_after(deadline_s):
            changes, paths = await _frozen(worktree, snapshot_commit, touched, tree)
            if changes.commit != snapshot_commit:
                arguments = ["update-ref", "--no-deref", "-m", "outpost: result", "HEAD", changes.commit]
                await run_git(worktree, arguments, check=True)
                # Only for a person who looks into the worktree: the index follows, and git finds nothing changed there.
                arguments = ["update-index", "-z", "--add", "--remove", "--replace", "--stdin"]
                await run_git(worktree, arguments, stdin=b"".join(path + b"\0" for path in paths))
            return changes
    except TimeoutError as error:
        raise _too_slow(worktree, deadline_s) from error


async def patch(repository: Repository, base: str, commit: str, paths: Sequence[str] = (), *, max_output: int) -> bytes:
    """The difference as a patch that git can apply, binary files included; `limit` when it is larger than allowed."""
    arguments = [
        "diff-tree",
        "-r",
        "-p",
        "--binary",
        "--full-index",
        *RENAMES,
        base,
        commit,
        "--",
        *paths,
    ]
    result = await compared(repository, arguments, max_output)
    if result.truncated:
        raise OutpostError("limit", f"The patch is larger than {max_output} bytes.", {"limit": "patch"})
    return result.stdout


async def changed_files(
    repository: Repository, base: str, commit: str, paths: Sequence[str] = ()
) -> tuple[ChangedFile, ...]:
    """The files that differ between two commits or trees, sorted by path; `paths` are files or folders, literal."""
    return (await _compare(repository, base, commit, paths))[0]


async def merge_base(repository: Repository, first: str, second: str) -> str | None:
    """The best common ancestor of two commits, or `None` when their histories never met."""
    result = await run_git(repository, ["merge-base", "--end-of-options", first, second])
    if result.status not in {0, 1}:
        raise OutpostError("workspace", f"git merge-base failed: {result.stderr.strip()}")
    return result.stdout.decode("ascii").split("\n")[0].strip() or None


async def file_at(repository: Repository, commit: str, path: str, limit: int) -> bytes | None:
    """The content of a regular file or the target of a link in a commit; `None` when there is no such file.

    `workspace` with reason `size` when it is larger than `limit` bytes.
    """
    # A whole name of an object is one already; git says it when there is none.
    oid = commit if _OBJECT_NAME.fullmatch(commit) else await resolve_commit(repository, commit)
    listing = await run_git(repository, ["ls-tree", "-z", "-l", "--full-tree", oid, "--", path], check=True)
    entry, _, name = listing.stdout.rstrip(b"\0").partition(b"\t")
    fields = entry.split()
    if len(fields) != 4 or fields[1] != b"blob" or name != path.encode("utf-8", "surrogateescape"):
        return None
    if int(fields[3]) > limit:
        details = {"path": path, "reason": "size", "size": int(fields[3])}
        raise OutpostError("workspace", f"{path} has {int(fields[3])} bytes; the limit is {limit}.", details)
    blob = await run_git(repository, ["cat-file", "blob", fields[2].decode("ascii")], check=True, max_output=limit + 1)
    return blob.stdout


async def _frozen(
    worktree: Repository, snapshot_commit: str, touched: Collection[str] | None, known: str
) -> tuple[ChangeSet, tuple[bytes, ...]]:
    """The files as they stand, named by a tree and a commit; and the paths that git has to look at again."""
    new = NewObjects()
    if touched is None:
        scan, base, ground = await _compared(worktree, snapshot_commit, known)
        scan, said = await with_nested_files(worktree, scan, base, ground)
        tree, notes = await tree_of(worktree, scan, ground, max_untracked=1 << 62, new=new)
        notes += said
    elif known and not touched:
        if not await to_thread.run_sync(worktree.top.is_dir):
            raise OutpostError("workspace", f"The folder {worktree.top} is gone.")
        return ChangeSet(snapshot_commit, known, snapshot_commit, ()), ()
    else:
        async with object_reader(worktree) as reader:
            base = known or await reader.tree_of_commit(snapshot_commit)
            scan = await scan_paths(worktree, base, touched, reader)
            tree, notes = await tree_of(worktree, scan, base, max_untracked=1 << 62, reader=reader, new=new)
    paths = (*scan.staged, *scan.changed, *scan.deleted, *scan.untracked)
    if tree == base:
        return ChangeSet(snapshot_commit, tree, snapshot_commit, (), notes), paths
    commit = new.add_commit(tree, snapshot_commit, "Outpost result")
    async with writing(worktree):
        await new.write(worktree)
    files, odd = await _compare(worktree, base, tree, ())
    if odd:
        notes += (f"Not listed, the name is no UTF-8: {named(odd)}.",)
    return ChangeSet(snapshot_commit, tree, commit, files, notes), paths


async def _compared(worktree: Repository, snapshot_commit: str, known: str) -> tuple[Scan, str, str]:
    """What differs from the worktree's own HEAD; the tree of the snapshot, and that of HEAD."""
    if not known:
        scan, (base, ground) = await both(
            lambda: _scan(worktree, snapshot_commit), lambda: _trees(worktree, snapshot_commit)
        )
        return scan, base, ground
    scan = await _scan(worktree, snapshot_commit)
    if scan.head == snapshot_commit:
        return scan, known, known
    # The agent committed something, or went elsewhere.
    return scan, *await _trees(worktree, snapshot_commit)


async def _trees(worktree: Repository, snapshot_commit: str) -> tuple[str, str]:
    """The tree of the snapshot, and that of the worktree's own HEAD, which an agent may have moved."""
    both = await run_git(worktree, ["rev-parse", "--quiet", f"{snapshot_commit}^{{tree}}", "HEAD^{tree}"])
    if both.status == 0:
        base, ground = both.stdout.decode("ascii").split()
        return base, ground
    _, ground = await head_and_tree(worktree)
    return await tree_name(worktree, snapshot_commit), ground


async def _scan(worktree: Repository, snapshot_commit: str) -> Scan:
    try:
        return await scan_working_tree(worktree, ignored=False)
    except OutpostError:
        # The agent broke its own index; the files are what counts.
        async with private_index() as index:
            await run_git(worktree, ["read-tree", snapshot_commit], index=index, check=True)
            scan = await scan_working_tree(worktree, index=index, ignored=False)
    return scan


def _too_slow(worktree: Repository, deadline_s: float) -> OutpostError:
    return OutpostError("timeout", f"Collecting the changes in {worktree.top} took longer than {deadline_s:g} s.")


async def compared(repository: Repository, arguments: Sequence[str], max_output: int) -> GitResult:
    """Compare trees without the index, which costs time to read and can be broken."""
    absent = repository.git_dir / "outpost-no-index"
    return await run_git(repository, arguments, index=absent, check=True, max_output=max_output)


async def _compare(
    repository: Repository, base: str, commit: str, paths: Sequence[str]
) -> tuple[tuple[ChangedFile, ...], tuple[bytes, ...]]:
    arguments = [
        "diff-tree",
        "-r",
        "-z",
        "--raw",
        "--numstat",
        *RENAMES,
        base,
        commit,
        "--",
        *paths,
    ]
    return listed((await compared(repository, arguments, LONGEST_LISTING)).stdout, counted=True)


def listed(output: bytes, *, counted: bool = False) -> tuple[tuple[ChangedFile, ...], tuple[bytes, ...]]:
    """The files of a `-z --raw` listing, sorted by path, and the names among them that are no UTF-8.

    With `counted` the listing has `--numstat` too, and the files their numbers of lines.
    """
    entries = list(raw_entries(output))
    numbers = _numstat(output, sum(len(entry[-1]) + 1 for entry in entries)) if counted else [_UNCOUNTED] * len(entries)
    files = []
    odd = []
    for (status, *sides, names), (insertions, deletions, binary) in zip(entries, numbers, strict=True):
        texts = [text_of(name) for name in names]
        path, old_path = texts[-1], texts[0] if len(texts) == 2 else None
        if path is None or None in texts:
            odd.append(names[-1])
            continue
        known = ["" if set(one) == {"0"} else one for one in sides]
        files.append(ChangedFile(path, _STATUS[status], old_path, insertions, deletions, binary, *known))
    return tuple(sorted(files, key=lambda file: file.path)), tuple(odd)


def raw_entries(output: bytes) -> list[tuple[str, str, str, str, str, tuple[bytes, ...]]]:
    """The raw records at the start of `-z` output: status letter, the modes, the object names, and one or two names."""
    fields = output.split(b"\0")
    entries = []
    position = 0
    while position < len(fields) and fields[position].startswith(b":"):
        old_mode, new_mode, old_oid, new_oid, status = fields[position][1:].decode("ascii").split(" ")
        count = 2 if status[0] in "RC" else 1
        names = tuple(fields[position + 1 : position + 1 + count])
        entries.append((status[0], old_mode, new_mode, old_oid, new_oid, names))
        position += 1 + count
    return entries


def _numstat(output: bytes, skip: int) -> list[tuple[int, int, bool]]:
    fields = output.split(b"\0")[skip:]
    numbers = []
    position = 0
    while position < len(fields) and fields[position].count(b"\t") >= 2:
        insertions, deletions, name = fields[position].split(b"\t", 2)
        binary = insertions == b"-"
        numbers.append((0, 0, True) if binary else (int(insertions), int(deletions), False))
        position += 1 if name else 3
    return numbers


def text_of(name: bytes) -> str | None:
    """A name as text; `None` when it is no UTF-8."""
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        return None
