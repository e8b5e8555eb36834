"""The only door to git: every git process of the product starts here, with the environment of `hardening`.

The invariant: no call starts a program that a repository names, follows a redirection of it, touches the network, or
outlives its caller (SEC-01 to SEC-05, GIT-01, GIT-02). Everything of `worktrees/` comes through `run_git`, and so do
leases and tools, which are handed it bound to their worktree.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread

from outpost_lsp.domain.sandbox import GitResult
from outpost_lsp.errors import OutpostError
from outpost_lsp.worktrees import hardening
from outpost_lsp.worktrees.child import end, see_through
from outpost_lsp.worktrees.repository import (
    Overrides,
    Repository,
    discover,
    owned_by_others,
    refuse_foreign_owner,
    refuse_redirection,
)
from outpost_lsp.worktrees.spawned import Pipes, Spawned
from outpost_lsp.worktrees.talk import Talk

__all__ = [
    "MAX_OUTPUT",
    "OLDEST_GIT",
    "Repository",
    "find_repository",
    "git_version",
    "open_git",
    "resolve_commit",
    "run_git",
    "unlike_git",
]

MAX_OUTPUT: Final = 16 * 1024 * 1024
OLDEST_GIT: Final = (2, 38)
_CLEAN_UP_S = 10.0
_HALF_MADE = re.compile(
    r"(failed to read|unable to read|could not open) .*/worktrees/[^/]+/(commondir|gitdir|HEAD)"
    r"|Invalid path '.*/worktrees/[^/]+'"
)
"""Git ends before it does anything when it meets a worktree that another process is just registering or removing."""
_HALF_MADE_S = 5.0
_NO_FOLDER = b"fatal: cannot change to"
_NO_SPACE = "No space left on device"
_NOT_WRITABLE = ("Read-only file system", "insufficient permission")
_PAUSE_S = 0.02
_CONFIGURATION = ("config", "--list", "-z", "--show-scope", "--show-origin")


async def find_repository(folder: Path, environment: Mapping[str, str] | None = None) -> Repository:
    """The repository that holds `folder`, checked: not bare, not redirected, owned by the user, with a usable git.

    `environment` is what git may see of the host; the allow-listed part of the process environment by default.
    """
    host = hardening.host_environment() if environment is None else environment
    repository, foreign, program = await to_thread.run_sync(_look_up, folder, host)
    await _check_version(host, program)
    key = (repository.git_dir, repository.common_dir, frozenset(host.items()))
    known = _read.setdefault(key, repository.overrides)
    if len(_read) > _MOST_READ:
        _read.pop(next(iter(_read)), None)
    repository = replace(repository, overrides=known)
    await _read_settings(repository)
    refuse_foreign_owner(repository, known.settings, foreign)
    refuse_redirection(repository, known.settings)
    return repository


_NEW_ENOUGH: Final[set[tuple[str, int, int]]] = set()
"""Programs that have told their version, by path, inode and time of change: each is asked once."""


_programs: Final[dict[str, str]] = {}
"""Where git was found, by the value of PATH."""


_read: Final[dict[tuple[Path, Path, frozenset[tuple[str, str]]], Overrides]] = {}
"""Configurations that were read, by git directory and environment; what has changed since is read again."""
_MOST_READ: Final = 64


def _look_up(folder: Path, host: Mapping[str, str]) -> tuple[Repository, Sequence[Path], tuple[str, int, int] | None]:
    repository = discover(folder, host)
    return repository, owned_by_others(repository), _program(host.get("PATH", ""))


async def _check_version(host: Mapping[str, str], program: tuple[str, int, int] | None) -> None:
    if program in _NEW_ENOUGH:
        return
    version = await git_version(host)
    if version < OLDEST_GIT:
        needed, found = (".".join(map(str, numbers)) for numbers in (OLDEST_GIT, version))
        raise OutpostError("workspace", f"git {found} is too old; install git {needed} or newer.")
    if program is not None:
        _NEW_ENOUGH.add(program)


def _program(path: str) -> tuple[str, int, int] | None:
    found = shutil.which("git", path=path)
    if found is None:
        return None
    status = os.stat(found)  # noqa: PTH116 - one call, of a path that is text already
    return found, status.st_ino, status.st_mtime_ns


async def git_version(environment: Mapping[str, str] | None = None) -> tuple[int, ...]:
    """The version of the git found in PATH."""
    host = hardening.host_environment() if environment is None else environment
    result = await _run(["version"], hardening.variables(host, ()), None, None, 65_536, 30.0)
    found = re.match(rb"git version (\d+)\.(\d+)", result.stdout)
    if found is None:
        raise unlike_git(host)
    return int(found[1]), int(found[2])


async def run_git(
    repository: Repository,
    arguments: Sequence[str],
    *,
    worktree: Path | None = None,
    index: Path | None = None,
    stdin: bytes | None = None,
    max_output: int = MAX_OUTPUT,
    deadline_s: float = 120.0,
    glob_pathspecs: bool = False,
    environment: Mapping[str, str] | None = None,
    check: bool = False,
) -> GitResult:
    """Run git on a repository; a non-zero exit is a result, with `check` a `workspace` fault in git's own words.

    Paths and pathspecs are relative to the top and literal; with `glob_pathspecs` they may carry magic. `worktree`
    names a linked worktree to work in. Output beyond `max_output` ends the call: the result is `truncated`, status 0.
    """
    if worktree is not None:
        repository = repository.linked(worktree)
    await _read_settings(repository)
    variables = hardening.variables(
        repository.environment,
        (*repository.overrides.values, *repository.settings),
        index=index,
        glob_pathspecs=glob_pathspecs,
        extra=environment,
    )
    named = [*_place(repository), *hardening.guarded(arguments)]
    result = await _run(named, variables, repository.top, stdin, max_output, deadline_s)
    patience = anyio.current_time() + _HALF_MADE_S
    while result.status == 128 and _HALF_MADE.search(result.stderr) and anyio.current_time() < patience:
        await anyio.sleep(_PAUSE_S)
        result = await _run(named, variables, repository.top, stdin, max_output, deadline_s)
    if check and result.status != 0:
        raise failed(arguments, result, repository)
    return result


@asynccontextmanager
async def open_git(repository: Repository, arguments: Sequence[str]) -> AsyncIterator[Talk]:
    """A git process to talk with for as long as the context lasts; its error output is dropped."""
    await _read_settings(repository)
    overrides = (*repository.overrides.values, *repository.settings)
    variables = hardening.variables(repository.environment, overrides)
    try:
        named = [*_place(repository), *hardening.guarded(arguments)]
        process = _start(named, variables, has_input=True, has_errors=False)
    except OSError as error:
        raise _not_started(error) from error
    talk = Talk(process)
    try:
        yield talk
    finally:
        talk.close()
        with anyio.CancelScope(shield=True), anyio.move_on_after(_CLEAN_UP_S):
            await end(process)


async def resolve_commit(repository: Repository, revision: str) -> str:
    """The commit that a revision from outside names (SEC-03); `configuration` when it is unsafe or names none."""
    details = {"revision": revision}
    if not revision.strip() or revision.startswith("-") or any(mark in revision for mark in "\0\n\r"):
        raise OutpostError("configuration", f"{revision!r} is not a revision.", details)
    arguments = ["rev-parse", "--quiet", "--verify", "--end-of-options", f"{revision}^{{commit}}"]
    result = await run_git(repository, arguments)
    oid = result.stdout.decode("ascii", "replace").strip()
    if result.status != 0 or not re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", oid):
        raise OutpostError("configuration", f"There is no commit {revision!r} in {repository.top}.", details)
    return oid


def failed(arguments: Sequence[str], result: GitResult, repository: Repository | None = None) -> OutpostError:
    """The `workspace` fault of a git call that had to succeed; on a disk without room or right to write it names the folders."""
    words = next((line for line in result.stderr.splitlines() if line.startswith(("fatal:", "error:"))), "")
    words = words or result.stderr.strip().partition("\n")[0] or f"exit status {result.status}"
    if _NO_SPACE in result.stderr and repository is not None:
        words += f"; free some space for {repository.common_dir} and for {tempfile.gettempdir()}"
    elif repository is not None and any(mark in result.stderr for mark in _NOT_WRITABLE):
        words += f"; snapshots and worktrees are kept in {repository.common_dir}, which has to be writable"
    return OutpostError(
        "workspace", f"git {arguments[0]} failed: {words}", {"status": result.status, "stderr": result.stderr}
    )


def unlike_git(environment: Mapping[str, str]) -> OutpostError:
    """The fault of a program that is called git, as found in the PATH of an environment, and answers otherwise."""
    program = shutil.which("git", path=environment.get("PATH", os.defpath)) or "git"
    return OutpostError(
        "workspace",
        f"{program} does not answer as git does; put git {'.'.join(map(str, OLDEST_GIT))} or newer in its place, or before "
        "it in PATH.",
        {"program": program},
    )


async def _read_settings(repository: Repository) -> None:
    """Read the merged configuration again when a file that it comes from changed since."""
    known: Overrides = repository.overrides
    if known.files and hardening.signature(known.files) == known.stamp:
        return
    variables = hardening.variables(repository.environment, ())
    named = [*_place(repository), *_CONFIGURATION]
    before = hardening.signature(known.files)
    result = await _run(named, variables, repository.top, None, MAX_OUTPUT, 30.0)
    if result.status != 0 or result.truncated:
        raise failed(_CONFIGURATION, result)
    settings = hardening.parse_configuration(result.stdout)
    files = hardening.configuration_files(repository.environment, repository.git_dir, repository.common_dir, settings)
    # A file that changes while git reads it is read again by the next call: the older stamp is kept.
    stamp = before if files == known.files else hardening.signature(files)
    # The stamp last: another thread that finds it good finds the rest.
    known.values = hardening.disarmed(settings)
    known.settings = settings
    known.files = files
    known.stamp = stamp


def _place(repository: Repository) -> tuple[str, ...]:
    return f"--git-dir={repository.git_dir}", f"--work-tree={repository.top}", "-C", str(repository.top)


async def _run(
    arguments: Sequence[str],
    variables: Mapping[str, str],
    directory: Path | None,
    stdin: bytes | None,
    max_output: int,
    deadline_s: float,
) -> GitResult:
    try:
        process = _start(arguments, variables, has_input=stdin is not None)
    except OSError as error:
        raise _not_started(error) from error
    try:
        ended = await see_through(process, stdin, max_output=max_output, deadline_s=deadline_s)
    except TimeoutError as error:
        words = (one for one in arguments if not one.startswith("-") and one != str(directory))
        name = next(words, "")
        message = f"git {name} took longer than {deadline_s:g} s; sandbox.git_timeout_s raises the limit."
        raise OutpostError("timeout", message) from error
    if process.is_unknown and not ended.truncated:
        raise OutpostError(
            "workspace",
            "How git ended is unknown: this program ignores the ends of its children or waits for all of them; let it handle "
            "SIGCHLD as the system does by default.",
        )
    if ended.status == 128 and directory is not None and ended.stderr.startswith(_NO_FOLDER):
        if not await to_thread.run_sync(directory.is_dir):
            raise OutpostError("workspace", f"The folder {directory} is gone.")
        raise OutpostError("workspace", f"The folder {directory} cannot be entered.")
    return GitResult(ended.status, ended.stdout, ended.stderr.decode("utf-8", "replace"), ended.truncated)


def _not_started(error: OSError) -> OutpostError:
    if isinstance(error, FileNotFoundError):
        return OutpostError("workspace", "git was not found in PATH; install git 2.38 or newer.")
    what_to_do = "; raise this process's limit of open files (ulimit -n)" if error.errno == errno.EMFILE else ""
    return OutpostError("workspace", f"git could not be started: {error.strerror}{what_to_do}.")


def _start(
    arguments: Sequence[str], variables: Mapping[str, str], *, has_input: bool, has_errors: bool = True
) -> Spawned:
    """Takes 0.12 ms of this process; `subprocess` three times that, most of it for the environment, and the event loop more."""
    path = variables.get("PATH", os.defpath)
    try:
        program = _programs.get(path) or _located(path)
        return spawn(program, arguments, variables, has_input=has_input, has_errors=has_errors)
    except (FileNotFoundError, PermissionError):
        # It was there, and has been put elsewhere since, or is no program any more.
        return spawn(_located(path), arguments, variables, has_input=has_input, has_errors=has_errors)


def _located(path: str) -> str:
    program = shutil.which("git", path=path)
    if program is None:
        raise FileNotFoundError("git")
    _programs[path] = program
    return program


def spawn(
    program: str,
    arguments: Sequence[str],
    variables: Mapping[str, str],
    *,
    has_input: bool,
    has_errors: bool = True,
) -> Spawned:
    """Start a program in a session of its own, in this folder.

    Where this process ignores the ends of its children, git must not: it would take what its helpers do as failed.
    """
    with Pipes(has_input=has_input, has_errors=has_errors) as pipes:
        pid = os.posix_spawn(
            program,
            [program, *arguments],
            variables,
            file_actions=pipes.actions,
            setsid=True,
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD],
        )
        return pipes.of(pid)
