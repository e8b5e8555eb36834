"""Finding a repository by reading folders, without asking git: what git would be redirected by does not redirect us.

The invariant: a `Repository` names a work tree and its own git directory, and both belong to the user (SEC-04). Reads
files only; `git.find_repository` adds what only git can tell.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from outpost_lsp.errors import OutpostError
from outpost_lsp.worktrees.hardening import Setting, files_of_work_tree, signature

ON_DEMAND_MARK = b"# outpost: filled on demand\n"

_LONGEST_GIT_FILE = 65_536
_ON_DEMAND_SETTINGS = (
    ("core.sparseCheckout", "true"),
    ("core.sparseCheckoutCone", "true"),
    ("index.sparse", "true"),
    ("sparse.expectFilesOutsideOfPatterns", "false"),
)


@dataclass(slots=True)
class Overrides:
    """The overrides of free-named drivers, and the stamp of the files they were read from."""

    files: tuple[Path, ...] = ()
    stamp: tuple[tuple[int, int, int, int] | None, ...] = ()
    settings: tuple[Setting, ...] = ()
    values: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Repository:
    """A work tree and its git directory, both absolute and free of links."""

    top: Path
    git_dir: Path
    common_dir: Path
    prefix: str = ""
    """The folder that was asked for, relative to `top`, in POSIX form; empty for `top` itself."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """What git sees of the host's environment."""
    overrides: Overrides = field(default_factory=Overrides, repr=False, compare=False)
    settings: tuple[tuple[str, str], ...] = field(default=(), repr=False, compare=False)
    """Settings that are passed with every call; kept out of the user's configuration files (SEC-06)."""

    @property
    def is_linked(self) -> bool:
        """Whether this is a linked worktree of another checkout."""
        return self.git_dir != self.common_dir

    def linked(self, directory: Path) -> Repository:
        """The same repository seen from its linked worktree at `directory`.

        It is found by the registration in the common git directory, never by the worktree's own `.git` file, which an
        agent can rewrite.
        """
        if directory == self.top:
            return self
        for entry in administrative_directories(self.common_dir):
            if registered_directory(entry) == directory:
                return self.at(directory, entry)
        raise OutpostError("workspace", f"{directory} is not a registered worktree of {self.top}.")

    def at(self, directory: Path, git_dir: Path) -> Repository:
        """The same repository with another work tree and git directory."""
        settings = on_demand_settings(git_dir)
        overrides = self._shared_overrides(git_dir)
        return replace(self, top=directory, git_dir=git_dir, prefix="", overrides=overrides, settings=settings)

    def _shared_overrides(self, git_dir: Path) -> Overrides:
        """What is known of the configuration, for another work tree: all of it, unless it asks which work tree it is for."""
        known = self.overrides
        asks = any(setting.key.startswith(("includeif.", "extensions.worktreeconfig")) for setting in known.settings)
        if asks or not known.files or signature(known.files) != known.stamp:
            return Overrides()
        stamps = dict(zip(known.files, known.stamp, strict=True))
        for file in files_of_work_tree(self.git_dir):
            stamps.pop(file, None)
        here = files_of_work_tree(git_dir)
        stamps |= zip(here, signature(here), strict=True)
        return Overrides(tuple(stamps), tuple(stamps.values()), known.settings, known.values)


def on_demand_settings(git_dir: Path) -> tuple[tuple[str, str], ...]:
    """The settings of a worktree that the product fills on demand; none for any other git directory."""
    try:
        with (git_dir / "info" / "sparse-checkout").open("rb") as file:
            return _ON_DEMAND_SETTINGS if file.readline() == ON_DEMAND_MARK else ()
    except OSError:
        return ()


def administrative_directories(common_dir: Path) -> Sequence[Path]:
    """Where git keeps its linked worktrees' own files."""
    try:
        return sorted(entry for entry in (common_dir / "worktrees").iterdir() if entry.is_dir())
    except OSError:
        return ()


def registered_directory(administrative: Path) -> Path | None:
    """The folder of a linked worktree, or `None` when the registration does not say."""
    try:
        text = (administrative / "gitdir").read_text("utf-8", "surrogateescape").removesuffix("\n")
    except OSError:
        return None
    path = Path(text) if text else None
    if path is None:
        return None
    return Path(os.path.normpath(path if path.is_absolute() else administrative / path)).parent


def discover(folder: Path, environment: Mapping[str, str]) -> Repository:
    """The repository that holds `folder`; a `workspace` fault with one sentence when there is none to work in."""
    try:
        asked = folder.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise OutpostError("workspace", f"The folder {folder} does not exist or cannot be opened.") from error
    if not asked.is_dir():
        raise OutpostError("workspace", f"{folder} is not a folder.")
    if ".git" in asked.parts:
        raise OutpostError("workspace", f"{folder} lies inside a git directory; open the checkout itself.")
    if is_git_directory(asked):
        raise OutpostError("workspace", f"{folder} is a bare repository; open a checkout or a worktree of it instead.")
    for top in (asked, *asked.parents):
        try:
            git_dir = _git_directory(top)
        except OSError as error:
            message = f"{top / '.git'} cannot be read: {error.strerror}; check the permissions of {top}."
            raise OutpostError("workspace", message) from error
        if git_dir is not None:
            relative = asked.relative_to(top).as_posix()
            prefix = "" if relative == "." else relative
            host = MappingProxyType(dict(environment))
            settings = on_demand_settings(git_dir)
            return Repository(top, git_dir, _common_directory(git_dir), prefix, host, settings=settings)
    raise OutpostError(
        "workspace",
        f"{folder} is not in a git repository; run `git init` there, or open another one.",
        {"reason": "no-repository"},
    )


def refuse_redirection(repository: Repository, settings: Sequence[Setting]) -> None:
    """A `workspace` fault for a bare repository and for a `core.worktree` that leads elsewhere."""
    values = {setting.key: setting for setting in settings if setting.key in {"core.worktree", "core.bare"}}
    if repository.is_linked:
        # Git itself reads both keys of a linked worktree from its own configuration file alone.
        values = {key: setting for key, setting in values.items() if setting.scope == "worktree"}
    bare = values.get("core.bare")
    if bare is not None and bare.value.lower() in {"", "true", "yes", "on", "1"}:
        message = f"{repository.top} belongs to a bare repository; open one of its worktrees instead."
        raise OutpostError("workspace", message)
    worktree = values.get("core.worktree")
    if worktree is not None:
        target = Path(os.path.realpath(repository.git_dir / worktree.value))
        if target != repository.top:
            raise OutpostError(
                "workspace",
                f"The setting core.worktree of {repository.top} redirects git to {target}; remove the setting, or open "
                "that folder.",
            )


def owned_by_others(repository: Repository) -> Sequence[Path]:
    """The folders that make the repository and belong to another user."""
    owners = {os.geteuid()}
    caller = repository.environment.get("SUDO_UID", "")
    if os.geteuid() == 0 and caller.isdigit():
        owners.add(int(caller))
    places = {repository.top, repository.top / ".git", repository.git_dir, repository.common_dir}
    return sorted(place for place in places if place.lstat().st_uid not in owners)


def refuse_foreign_owner(repository: Repository, settings: Sequence[Setting], foreign: Sequence[Path]) -> None:
    """A `workspace` fault when somebody else owns the folder and the user's `safe.directory` does not list it."""
    if foreign and not _listed_as_safe(repository, settings):
        raise OutpostError(
            "workspace",
            f"{foreign[0]} is owned by another user, so its settings are not trusted; if you trust it, run "
            f"`git config --global --add safe.directory {repository.top}`.",
        )


def _listed_as_safe(repository: Repository, settings: Sequence[Setting]) -> bool:
    safe = False
    home = repository.environment.get("HOME", "")
    for setting in settings:
        if setting.key != "safe.directory" or setting.scope not in {"system", "global"}:
            continue
        value = setting.value.replace("~", home, 1) if setting.value.startswith("~/") else setting.value
        if not value:
            safe = False
        else:
            above = value.endswith("/*") and repository.top.is_relative_to(value[:-2])
            safe = safe or above or value == "*" or os.path.normpath(value) == str(repository.top)
    return safe


def _git_directory(top: Path) -> Path | None:
    entry = top / ".git"
    if entry.is_dir():
        return Path(os.path.realpath(entry)) if is_git_directory(entry) else None
    if not entry.is_file():
        return None
    with entry.open("rb") as file:
        text = os.fsdecode(file.read(_LONGEST_GIT_FILE)).rstrip("\r\n")
    target = Path(os.path.realpath(top / text.removeprefix("gitdir: ")))
    if not text.startswith("gitdir: ") or not is_git_directory(target):
        raise OutpostError(
            "workspace", f"The file {entry} does not name a git directory; the worktree was moved or cut."
        )
    return target


def is_git_directory(path: Path) -> bool:
    """Whether git would take the folder for a git directory."""
    try:
        head = path / "HEAD"
        if not (head.is_file() or head.is_symlink()):
            return False
        return (path / "commondir").is_file() or ((path / "objects").is_dir() and (path / "refs").is_dir())
    except OSError:
        return False


def _common_directory(git_dir: Path) -> Path:
    try:
        text = (git_dir / "commondir").read_text("utf-8", "surrogateescape").rstrip("\n")
    except FileNotFoundError:
        return git_dir
    return Path(os.path.realpath(git_dir / text))
