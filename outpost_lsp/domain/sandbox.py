"""Where tools act: the contract of a sandbox lease, and the commands that run in it (SBX and CMD rules).

A lease is a git worktree with confined access to its files, its git state and, where allowed, programs. The loop, the
tools and the hooks know only this contract; `sandbox/` and `worktrees/` implement it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, Self, runtime_checkable

Channel = Literal["stdout", "stderr"]
EntryKind = Literal["file", "directory", "link", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program to run in the sandbox. No shell is involved unless `executable` is one (CMD-03).

    `directory` is relative to the root. `retain` is how many characters of each channel's end are kept (CMD-01).
    `observe` sees everything, in pieces that never split a character.
    """

    executable: str
    arguments: Sequence[str] = ()
    stdin: str | None = None
    directory: str | None = None
    variables: Mapping[str, str] | None = None
    deadline_s: float = 600.0
    retain: int = 65_536
    observe: Callable[[Channel, str], None] | None = None


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a program ended: its exit status (128 + signal number when a signal ended it) and the kept output."""

    status: int
    stdout: str
    stderr: str
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class GitResult:
    """How a git call ended; `stdout` is cut at the asked size and `truncated` says so."""

    status: int
    stdout: bytes
    stderr: str
    truncated: bool = False


class LiveProcess(Protocol):
    """A program that one talks to while it runs. Whoever started it ends it; the release of the lease does so too."""

    @property
    def stderr(self) -> str:
        """The kept end of what it wrote to its error output."""

    async def send(self, data: bytes) -> None:
        """Write all of `data` to its input; `process` when it no longer reads."""

    async def line(self, limit: int) -> bytes | None:
        """The next line of its output without its end, `None` after the last; `response` when it exceeds `limit`."""

    async def status(self, within_s: float) -> int | None:
        """Its exit status as in `CommandResult`, waited for at most `within_s`; `None` while it runs."""

    async def end(self, grace_s: float = 2.0) -> None:
        """Close its input, wait `grace_s` for it to end, then end its whole session."""

    def kill(self) -> None:
        """End its whole session at once; `end` is still due."""


class Listing(tuple[str, ...]):  # noqa: SLOT001 - a tuple can have none
    """The names of files, each once, sorted. JSON carries text, so a name that is no UTF-8 is kept beside them."""

    unnamed: tuple[str, ...]
    """The names that are no UTF-8, sorted, each byte that is none as a surrogate (as `os.fsdecode` writes it)."""

    def __new__(cls, names: Iterable[str]) -> Self:
        """Out of names as `os.fsdecode` gives them."""
        known = sorted(set(names))
        made = super().__new__(cls, (name for name in known if _is_text(name)))
        made.unnamed = tuple(name for name in known if not _is_text(name)) if len(made) < len(known) else ()
        return made

    def with_more(self, other: Listing) -> Listing:
        """The names of both."""
        return Listing((*self, *self.unnamed, *other, *other.unnamed))


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


class WorktreeFiles(Protocol):
    """Confined access to the files of a worktree. Paths are as a model writes them; each is checked (BTOOL-01 to -04).

    Every method raises `OutpostError("workspace")` that names the path and the reason when the path is refused
    (outside the root, through a link that leaves it, `.git`, a device) or does not exist. `details["reason"]` is one of
    `escape`, `git`, `missing`, `kind` (not a regular file), `link`, `size`, `exists`.
    """

    def normalise(self, path: str) -> str:
        """The repository-relative POSIX form; pure, no disk access. `.` gives the empty string (BTOOL-01, BTOOL-05)."""

    async def read(self, path: str, *, limit: int) -> bytes:
        """The whole file; `size` when it is larger than `limit` bytes."""

    async def write(self, path: str, data: bytes, *, expected: bytes | None = None, create: bool = True) -> None:
        """Replace or create a file, parents included, through a temporary file and a rename; the mode is kept.

        With `expected`, the file must still hold exactly these bytes (BTOOL-21), else `conflict`.
        """

    async def delete(self, path: str) -> None:
        """Remove one file or link, never a folder, never a link's target."""

    async def move(self, path: str, to: str) -> None:
        """Rename one file; the target must not exist."""

    async def kind(self, path: str) -> EntryKind | None:
        """What stands at the path, links not followed; `None` when nothing does."""

    async def listing(self, path: str) -> Listing:
        """Tracked and untracked, not ignored files below `path`, sorted, relative to the root (BTOOL-14, BTOOL-16)."""


class Lease(Protocol):
    """A worktree to act in. Borrowed by every tool call and hook; only its owner may release it (SBX-08)."""

    @property
    def root(self) -> Path: ...

    @property
    def home(self) -> Path: ...

    @property
    def live_input(self) -> bool:
        """Whether `spawn` works here."""

    def variable(self, name: str) -> str | None:
        """A variable of the sandbox, for what acts on its behalf; commands need not have it in their environment."""

    @property
    def files(self) -> WorktreeFiles: ...

    async def git(
        self,
        arguments: Sequence[str],
        *,
        stdin: bytes | None = None,
        max_output: int = 16 * 1024 * 1024,
        glob_pathspecs: bool = False,
        deadline_s: float = 120.0,
    ) -> GitResult:
        """One git call in the worktree, through the product's only door to git (SEC-01)."""

    async def invoke(self, command: Command) -> CommandResult:
        """Run a program; a non-zero exit is a result, not an exception (CMD-02)."""

    async def spawn(self, command: Command) -> LiveProcess:
        """Start a program to talk to. `retain` and `observe` are for its error output; no deadline applies."""

    async def upload(self, source: Path, destination: str) -> None:
        """Copy a host file or folder into the sandbox."""

    async def download(self, source: str, destination: Path) -> None:
        """Copy a file or folder of the sandbox to the host."""

    async def release(self) -> None:
        """Give the lease back; `configuration` on a borrowed one."""


@runtime_checkable
class AttachableLease(Lease, Protocol):
    """A lease that can hand this process's terminal over to a program."""

    async def attach(self, command: Command) -> int:
        """Run a program on the terminal; its exit status. `configuration` where there is no terminal."""
