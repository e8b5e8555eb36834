"""The life of a run's worktree: opened locked, closed out of sight, and cleared away after a process that died.

The invariant: the user's repository gains one registration for as long as the worktree lives, and no ref (SEC-06); a
worktree with changes, commits or a living process is never removed by the reaper (SNAP-07, REL-20); worktrees, locks and
branches of others are not looked at twice. Called by dispatches and at the start of a service.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import stat
from collections.abc import Awaitable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

import anyio
from anyio import to_thread

from outpost_lsp.domain.sandbox import GitResult
from outpost_lsp.errors import OutpostError, configuration
from outpost_lsp.worktrees import registration
from outpost_lsp.worktrees.changes import ChangeSet, change_set, freeze
from outpost_lsp.worktrees.git import MAX_OUTPUT, Repository, failed, run_git
from outpost_lsp.worktrees.on_demand import OnDemand, pays
from outpost_lsp.worktrees.private_index import writing
from outpost_lsp.worktrees.repository import administrative_directories, registered_directory
from outpost_lsp.worktrees.submodules import lay_out_submodules
from outpost_lsp.worktrees.together import both
from outpost_lsp.worktrees.trash import TRASH, discard, sweep

_log = logging.getLogger(__name__)

Fill = Literal["at once", "auto", "on demand"]

_RETRY_S = 5.0
_PAUSE_S = 0.05
_CLEAN_UP_S = 10.0
_SAFE_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_LOCKED_BY_OTHERS = re.compile(
    r"(could not lock|unable to create .*\.lock|File exists|cannot lock ref|could not create directory of .*worktrees/)",
    re.IGNORECASE,
)
"""The last when somebody took away the empty folder of registrations between git's two steps."""


class GitCall(Protocol):
    """The door to git, bound to a worktree."""

    def __call__(
        self,
        arguments: Sequence[str],
        *,
        stdin: bytes | None = None,
        max_output: int = MAX_OUTPUT,
        glob_pathspecs: bool = False,
        deadline_s: float = 120.0,
    ) -> Awaitable[GitResult]: ...


@dataclass(slots=True)
class Worktree:
    """A registered, locked and detached worktree that stands on a snapshot."""

    repository: Repository
    """The repository as seen from this worktree: git called on it works on the worktree's own index and files."""
    origin: Repository
    """The repository of the user's checkout."""
    directory: Path
    commit: str
    run_id: str
    notes: tuple[str, ...] = ()
    companions: tuple[Path, ...] = ()
    """Folders that go when the worktree goes."""
    hold: registration.Hold | None = None
    """Shows that it is in use to processes that cannot see this one."""
    tree: str = ""
    """The tree of `commit`, where it is known."""
    on_demand: OnDemand | None = None
    """Where the files come from that are not laid out yet; `None` for a worktree that was checked out whole."""
    is_closed: bool = field(default=False, init=False)

    async def changes(self, *, touched: Collection[str] | None = None, deadline_s: float = 120.0) -> ChangeSet:
        """What differs from the snapshot now; the worktree stays as it is. `touched` is as a lease tells it."""
        return await change_set(self.repository, self.commit, touched=touched, tree=self.tree, deadline_s=deadline_s)

    async def freeze(self, *, touched: Collection[str] | None = None, deadline_s: float = 120.0) -> ChangeSet:
        """What differs from the snapshot at the end of the run, kept by the worktree until it is removed."""
        return await freeze(self.repository, self.commit, touched=touched, tree=self.tree, deadline_s=deadline_s)

    @property
    def git(self) -> GitCall:
        """The door to git, bound to this worktree, as leases take it."""
        return partial(run_git, self.repository) if self.on_demand is None else self.on_demand.git

    async def fill(self) -> None:
        """Lay out what is not laid out yet: whoever reads the disk without asking needs it whole."""
        if self.on_demand is not None:
            await self.on_demand.fill()

    async def close(self, *, keep: bool) -> None:
        """Let go of the worktree: with `keep` it stays locked and registered, else it is gone from view on return.

        A cancellation waits for that, since nobody could close it a second time.
        """
        if self.is_closed:
            return
        self.is_closed = True
        with anyio.CancelScope(shield=True), anyio.move_on_after(_CLEAN_UP_S):
            if self.on_demand is not None:
                await self.on_demand.aclose()
            if self.hold is not None:
                self.hold.close()
            if keep:
                return
            await remove_worktree(self.origin, self.directory)
            for folder in self.companions:
                await to_thread.run_sync(discard, folder)


@dataclass(frozen=True, slots=True)
class Leftover:
    """A worktree of a process that died: removed because it was empty, or kept because it holds something."""

    directory: Path
    run_id: str
    base: str
    state: Literal["removed", "kept"]
    reason: str


async def open_worktree(
    repository: Repository, commit: str, directory: Path, *, run_id: str, fill: Fill = "at once", tree: str = ""
) -> Worktree:
    """A detached worktree of `commit` at ``directory/run_id``, locked in this process's name.

    With `fill` other than ``at once`` the files of a large repository (``auto``) or of any (``on demand``) are laid out
    when they are asked for; the lease must then get its git and its files from the worktree's `on_demand`. `tree` is the
    commit's, where the caller knows it.

    Registrations of one repository are made one at a time; the lock of another program is waited for, 5 s at most, and
    never removed (REL-13). What was begun is undone when the checkout fails: the fault carries git's own words (SNAP-08).
    """
    if not _SAFE_RUN_ID.fullmatch(run_id) or run_id == TRASH:
        raise configuration(f"run_id: {run_id!r} cannot be the name of a folder")
    target = await to_thread.run_sync(prepare_place, directory, run_id)
    owner = registration.this_process(run_id, commit)
    arguments = ["worktree", "add", "--quiet", "--detach", "--no-checkout", "--lock", "--reason", owner.reason]

    async def register() -> None:
        async with writing(repository):
            await _retry(repository, [*arguments, str(target), commit])

    async def is_on_demand() -> bool:
        return fill == "on demand" or (fill == "auto" and await pays(repository, commit))

    try:
        _, lazily = await both(register, is_on_demand)
        view, hold = await to_thread.run_sync(_taken_up, repository, target)
        if lazily:
            on_demand = OnDemand(view, repository, commit, tree)
            await on_demand.begin()
            return Worktree(
                on_demand.view, repository, target, commit, run_id, hold=hold, tree=tree, on_demand=on_demand
            )
        checkout = await run_git(view, ["read-tree", "--reset", "-u", commit])
        if checkout.status != 0:
            raise failed(["checkout"], checkout)
        notes = await lay_out_submodules(view, commit)
    except BaseException:
        with anyio.CancelScope(shield=True), anyio.move_on_after(_CLEAN_UP_S):
            await remove_worktree(repository, target)
        raise
    return Worktree(view, repository, target, commit, run_id, notes, hold=hold, tree=tree)


def _taken_up(repository: Repository, target: Path) -> tuple[Repository, registration.Hold]:
    view = repository.linked(target)
    return view, registration.Hold(view.git_dir)


async def remove_worktree(repository: Repository, directory: Path) -> None:
    """Take a worktree of the product out of view at once: folder and registration; what remains is swept in a worker."""
    async with writing(repository):
        await to_thread.run_sync(_out_of_view, repository, directory)


async def reap(repository: Repository, directory: Path, *, deadline_s: float = 60.0) -> Sequence[Leftover]:
    """Clear what dead processes left of this repository in the folder of worktrees, and tell what was kept and why.

    Another folder that worktrees went to before is found by git's registrations; there only what is certainly ours is
    looked at, and a folder that is away (a disk that is not mounted) is left for later.
    """
    found = []
    for entry in await to_thread.run_sync(administrative_directories, repository.common_dir):
        owner = registration.owner_of(entry)
        target = registered_directory(entry)
        if owner is None or owner.is_alive:
            continue
        if target is not None and target.parent != directory and not _is_of(owner, target, entry):
            continue
        reason = await _holds(repository, entry, target, owner, deadline_s)
        place = target or directory / owner.run_id
        if not reason:
            await _clear(repository, entry, target)
        found.append(Leftover(place, owner.run_id, owner.base, "kept" if reason else "removed", reason))
    await to_thread.run_sync(sweep, directory / TRASH)
    await to_thread.run_sync(_drop_if_empty, repository.common_dir / "worktrees")
    return found


async def forget_gone(repository: Repository) -> None:
    """Drop the registrations of worktrees whose folder is gone and whose process is dead, wherever they were."""
    gone = await to_thread.run_sync(_gone, repository)
    if gone:
        async with writing(repository):
            for entry in gone:
                await to_thread.run_sync(_drop_registration, entry)


def _gone(repository: Repository) -> list[Path]:
    found = []
    for entry in administrative_directories(repository.common_dir):
        owner, target = registration.owner_of(entry), registered_directory(entry)
        if owner is not None and not owner.is_alive and (target is None or not target.exists()):
            found.append(entry)
    return found


async def _holds(
    repository: Repository, entry: Path, target: Path | None, owner: registration.Owner, deadline_s: float
) -> str:
    """Why a registered worktree has to stay; empty when it holds nothing."""
    if target is None:
        return ""
    return await holds(repository.at(target, entry), owner, deadline_s=deadline_s)


async def holds(view: Repository, owner: registration.Owner, *, deadline_s: float) -> str:
    """Why the worktree of a dead process has to stay; empty when it holds nothing. Not to know counts as holding."""
    if not await to_thread.run_sync(view.top.is_dir):
        return ""
    if await to_thread.run_sync(registration.processes_in, view.top):
        return "a process works in it"
    if await to_thread.run_sync(_is_just_registered, view):
        return ""
    try:
        head = await run_git(view, ["rev-parse", "--quiet", "--verify", "HEAD^{commit}"])
        if head.status != 0 or head.stdout.decode("ascii").strip() != owner.base:
            return "it holds commits"
        if not await to_thread.run_sync((view.git_dir / "index").exists):
            return ""  # The process died before the checkout was finished; no agent has been here.
        changes = await change_set(view, owner.base, deadline_s=deadline_s)
    except OutpostError as error:
        if not await to_thread.run_sync(view.top.is_dir):
            return ""  # Somebody was done with it and removed it just now.
        _log.warning("worktree %s cannot be read: %s", view.top, error)
        return f"its changes cannot be told: {error}"
    return "" if changes.is_empty else "it holds changes"


async def _clear(repository: Repository, entry: Path, target: Path | None) -> None:
    if target is not None:
        await remove_worktree(repository, target)
    else:
        await to_thread.run_sync(_drop_registration, entry)


async def _retry(repository: Repository, arguments: Sequence[str]) -> None:
    deadline = anyio.current_time() + _RETRY_S
    while True:
        result = await run_git(repository, arguments)
        if result.status == 0:
            return
        if not _LOCKED_BY_OTHERS.search(result.stderr) or anyio.current_time() > deadline:
            raise failed(arguments[:2], result)
        await anyio.sleep(_PAUSE_S)


def prepare_place(directory: Path, run_id: str) -> Path:
    """The folder of worktrees, private and the user's own (SEC-10), and the place for this one."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise OutpostError("workspace", f"The folder of worktrees {directory} is a link or belongs to another user.")
    if status.st_mode & 0o077:
        directory.chmod(0o700)
    target = directory.resolve() / run_id
    if target.exists():
        raise OutpostError("workspace", f"The worktree folder {target} exists already.")
    return target


def _is_of(owner: registration.Owner, target: Path, entry: Path) -> bool:
    """Whether a worktree in a folder that is not today's is the one that its registration speaks of."""
    if target.name != owner.run_id or not target.parent.is_dir():
        return False
    try:
        words = (target / ".git").read_bytes().rstrip(b"\n").partition(b"gitdir: ")
    except FileNotFoundError:
        return not os.path.lexists(target)
    except OSError:
        return False
    return not words[0] and Path(os.path.normpath(target / os.fsdecode(words[2]))) == entry


def _out_of_view(repository: Repository, directory: Path) -> None:
    discard(directory)
    for entry in administrative_directories(repository.common_dir):
        if registered_directory(entry) == directory:
            # Removed by hand: `git worktree prune` would take registrations of others along.
            _drop_registration(entry)
            return


def _is_just_registered(view: Repository) -> bool:
    """Whether a worktree never had a file: its process died while git registered it, perhaps before it had a HEAD."""
    return not (view.git_dir / "index").exists() and {place.name for place in view.top.iterdir()} <= {".git"}


def _drop_registration(entry: Path) -> None:
    # The words that say whose it is go last, for whoever comes after a process that dies in between.
    (entry / "gitdir").unlink(missing_ok=True)
    with suppress(FileNotFoundError), os.scandir(entry) as places:
        for place in [*places]:
            if place.is_dir(follow_symlinks=False):
                shutil.rmtree(place, ignore_errors=True)
            elif place.name != "locked":
                Path(place).unlink(missing_ok=True)
    shutil.rmtree(entry, ignore_errors=True)
    _drop_if_empty(entry.parent)


def _drop_if_empty(registrations: Path) -> None:
    try:
        registrations.rmdir()
    except OSError:
        return  # Other worktrees are registered, or none ever was.
