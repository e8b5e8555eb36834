"""Confinement of commands with bubblewrap, and the probe that says whether it works here (SEC-12, LOCAL-05).

The invariant: inside, only the worktree and a private temporary folder are writable, there is no network, no home, no
other process, and of the repository only its objects, read-only. Where bubblewrap cannot start there is no confinement,
and no caller may take that for permission to run without. Called by leases; the probe also by whoever offers a shell.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anyio import to_thread

from outpost_lsp.errors import OutpostError
from outpost_lsp.sandbox.process import run_process

SYSTEM_FOLDERS: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store")
SYSTEM_FILES: Final = (
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/group",
    "/etc/ssl/certs",
    "/etc/ca-certificates",
)
INNER_TEMPORARY: Final = "/tmp"  # noqa: S108 - a file system of the sandbox's own, not the shared folder
INNER_HOME: Final = f"{INNER_TEMPORARY}/home"

_UNSHARED: Final = (
    "--die-with-parent",
    "--new-session",
    "--unshare-user",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-net",
    "--unshare-cgroup-try",
    "--cap-drop",
    "ALL",
)


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether commands can be confined here, and if not, why and what to do."""

    is_available: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Confinement:
    """What a confined command sees besides the system: a worktree, its git folder's stand-in, extra readable folders.

    `git_folder` is a small git directory of the run's own that stands in for the worktree's, with a file `pointer` that
    leads git there; `objects` are the folders it borrows objects from. Git works inside, commits there reach nobody, and
    nothing else of the user's git directory is mounted.
    """

    root: Path
    git_folder: Path | None = None
    objects: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    program: str = "bwrap"

    async def wrap(self, arguments: Sequence[str], directory: Path) -> list[str]:
        """The arguments that run a command confined, with `directory` (inside the root) as its working directory."""
        return await to_thread.run_sync(self._wrap, arguments, directory)

    def _wrap(self, arguments: Sequence[str], directory: Path) -> list[str]:
        wrapped = [self.program, *_UNSHARED, *_system_binds()]
        wrapped += ["--dev", "/dev", "--proc", "/proc", "--tmpfs", INNER_TEMPORARY, "--dir", INNER_HOME]
        wrapped += ["--setenv", "HOME", INNER_HOME, "--setenv", "TMPDIR", INNER_TEMPORARY]
        for folder in (*self.readable, *self.objects):
            wrapped += ["--ro-bind-try", str(folder), str(folder)]
        wrapped += ["--bind", str(self.root), str(self.root)]
        if self.git_folder is not None:
            wrapped += ["--bind", str(self.git_folder), str(self.git_folder)]
            wrapped += ["--ro-bind", str(self.git_folder / "pointer"), str(self.root / ".git")]
        elif (self.root / ".git").is_dir():
            wrapped += ["--tmpfs", str(self.root / ".git")]
        elif (self.root / ".git").exists():
            wrapped += ["--ro-bind", "/dev/null", str(self.root / ".git")]
        wrapped += ["--remount-ro", "/"]
        return [*wrapped, "--chdir", str(directory), "--", *arguments]


async def probe_confinement(*, path: str, program: str = "bwrap", deadline_s: float = 20.0) -> Availability:
    """Start bubblewrap once, with everything that a confined command needs.

    `path` is the PATH of the host's environment.
    """
    found = await to_thread.run_sync(lambda: shutil.which(program, path=path))
    if found is None:
        return Availability(
            False, "bubblewrap (bwrap) is not installed; install the package bubblewrap to run confined commands."
        )
    arguments = [found, *_UNSHARED, *await to_thread.run_sync(_system_binds)]
    arguments += ["--dev", "/dev", "--proc", "/proc", "--tmpfs", INNER_TEMPORARY, "--", "sh", "-c", "exit 7"]
    try:
        result = await run_process(arguments, cwd=Path("/"), environment={"PATH": path}, deadline_s=deadline_s)
    except OutpostError as error:
        return Availability(False, f"bubblewrap does not start: {error}")
    if result.status != 7:
        words = result.stderr.strip().splitlines()
        reason = words[-1] if words else f"exit status {result.status}"
        return Availability(
            False, f"bubblewrap does not start: {reason}; unprivileged user namespaces may be switched off."
        )
    return Availability(True)


def _system_binds() -> list[str]:
    """Read-only mounts of the system; a folder that is a link on this system is the same link inside."""
    binds = []
    for name in SYSTEM_FOLDERS:
        folder = Path(name)
        if folder.is_symlink():
            binds += ["--symlink", str(folder.readlink()), name]
        elif folder.is_dir():
            binds += ["--ro-bind", name, name]
    for name in SYSTEM_FILES:
        binds += ["--ro-bind-try", name, name]
    return binds
