"""What git is told before it is told anything else: a clean environment and a configuration that starts no program.

The invariant: whatever a repository's configuration names (hooks, filters, drivers, pagers, helpers), the variables made
here override it, so that git starts nothing but itself (SEC-01, SEC-02, SEC-05). Pure but for `host_environment` and
`signature`, which read the process environment and file stamps. Called by the door to git alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HOST_VARIABLES: Final = ("PATH", "HOME", "XDG_CONFIG_HOME", "TMPDIR", "USER", "LOGNAME", "SUDO_UID")
"""What git gets from the host: how to find programs, and the user's own configuration."""

FIXED_SETTINGS: Final[tuple[tuple[str, str], ...]] = (
    ("core.hooksPath", os.devnull),
    ("core.fsmonitor", "false"),
    ("core.pager", "cat"),
    ("core.editor", ":"),
    ("sequence.editor", ":"),
    ("core.sshCommand", "false"),
    ("core.gitProxy", ""),
    ("core.askPass", ""),
    ("core.alternateRefsCommand", "false"),
    ("credential.helper", ""),
    ("credential.interactive", "false"),
    ("interactive.diffFilter", ""),
    ("gpg.program", "false"),
    ("gpg.openpgp.program", "false"),
    ("gpg.x509.program", "false"),
    ("gpg.ssh.program", "false"),
    ("gpg.ssh.defaultKeyCommand", ""),
    ("commit.gpgSign", "false"),
    ("tag.gpgSign", "false"),
    ("tag.forceSignAnnotated", "false"),
    ("push.gpgSign", "false"),
    ("log.showSignature", "false"),
    ("diff.trustExitCode", "false"),
    ("diff.submodule", "short"),
    ("diff.ignoreSubmodules", "dirty"),
    ("diff.orderFile", os.devnull),
    ("status.submoduleSummary", "false"),
    ("submodule.recurse", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("protocol.allow", "never"),
    ("safe.bareRepository", "explicit"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("checkout.workers", "0"),
    ("core.safecrlf", "false"),
    ("core.splitIndex", "false"),
    ("color.ui", "false"),
    ("i18n.commitEncoding", "UTF-8"),
    ("i18n.logOutputEncoding", "UTF-8"),
)
"""Keys with fixed names. A submodule is compared by its commit only: looking into it would start git on its settings."""

_FREE_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "filter": {"clean": "", "smudge": "", "process": "", "required": "false"},
    "diff": {"command": "", "textconv": "", "cachetextconv": "false"},
    "merge": {"driver": ""},
    "trailer": {"command": "", "cmd": ""},
    "credential": {"helper": ""},
    "gpg": {"program": "false", "defaultkeycommand": ""},
    "pager": {},
    "remote": {"vcs": "", "uploadpack": "false", "receivepack": "false", "proxy": ""},
    "hook": {"command": "true", "event": "", "enabled": "false"},
    "tar": {"command": ""},
    "submodule": {"update": "none"},
}

_DIFF_COMMANDS: Final = frozenset(
    ("diff", "diff-tree", "diff-index", "diff-files", "log", "show", "whatchanged", "format-patch")
)


@dataclass(frozen=True, slots=True)
class Setting:
    """One line of the merged configuration: where it stands, its key (section and variable in lower case), its value."""

    scope: str
    origin: str
    key: str
    value: str


def host_environment() -> dict[str, str]:
    """The part of the process environment that git may see; no key of a service, no `GIT_*` variable."""
    return {name: os.environ[name] for name in HOST_VARIABLES if name in os.environ}


def parse_configuration(listing: bytes) -> tuple[Setting, ...]:
    """The output of ``git config --list -z --show-scope --show-origin``; what the command line added is left out."""
    fields = listing.split(b"\0")
    found = []
    for index in range(0, len(fields) - 2, 3):
        scope, origin, line = (os.fsdecode(field) for field in fields[index : index + 3])
        key, _, value = line.partition("\n")
        if scope != "command":
            found.append(Setting(scope, origin, key, value))
    return tuple(found)


def disarmed(settings: Iterable[Setting]) -> tuple[tuple[str, str], ...]:
    """Overrides for every program that the configuration names under a name of its own choosing."""
    overrides: dict[str, str] = {}
    for setting in settings:
        section, _, rest = setting.key.partition(".")
        name, dot, variable = rest.rpartition(".")
        if section == "pager" and not dot:
            overrides[setting.key] = "false"
        variables = _FREE_NAMES.get(section)
        if variables is None or not dot or variable not in variables:
            continue
        for each, value in variables.items():
            overrides[f"{section}.{name}.{each}"] = value
    return tuple(overrides.items())


def variables(
    base: Mapping[str, str],
    overrides: Iterable[tuple[str, str]],
    *,
    index: Path | None = None,
    glob_pathspecs: bool = False,
    extra: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The whole environment of one git call."""
    environment = {name: value for name, value in base.items() if not name.startswith("GIT_")}
    for name, value in (extra or {}).items():
        if name.startswith("GIT_") and not re.fullmatch("GIT_(AUTHOR|COMMITTER)_(NAME|EMAIL|DATE)", name):
            raise ValueError(f"{name} may not be set for git")
        environment[name] = value
    environment |= {
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "",
        "GIT_ASKPASS": "",
        "SSH_ASKPASS": "",
        "GIT_EDITOR": ":",
        "GIT_SEQUENCE_EDITOR": ":",
        "GIT_PAGER": "cat",
        "GIT_SSH_COMMAND": "false",
    }
    if not glob_pathspecs:
        environment["GIT_LITERAL_PATHSPECS"] = "1"
    if index is not None:
        environment["GIT_INDEX_FILE"] = str(index)
    settings = (*FIXED_SETTINGS, *overrides)
    environment["GIT_CONFIG_COUNT"] = str(len(settings))
    for number, (key, value) in enumerate(settings):
        environment[f"GIT_CONFIG_KEY_{number}"] = key
        environment[f"GIT_CONFIG_VALUE_{number}"] = value
    return environment


def guarded(arguments: Sequence[str]) -> list[str]:
    """The arguments with the options that keep diffs, logs and status from starting a program (SEC-02)."""
    command, *rest = arguments
    options: list[str] = []
    if command in _DIFF_COMMANDS:
        options += ["--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty"]
    if command in {"log", "show", "whatchanged"}:
        options.append("--no-show-signature")
    if command == "status":
        options.append("--ignore-submodules=dirty")
    return [command, *options, *rest]


def configuration_files(
    base: Mapping[str, str], git_dir: Path, common_dir: Path, settings: Iterable[Setting]
) -> tuple[Path, ...]:
    """Every file whose change can change the merged configuration; `HEAD` too, since an include can ask for a branch."""
    home = Path(base.get("HOME", "/nonexistent"))
    files = {
        Path("/etc/gitconfig"),
        home / ".gitconfig",
        Path(base.get("XDG_CONFIG_HOME") or home / ".config") / "git" / "config",
        common_dir / "config",
        *files_of_work_tree(git_dir),
    }
    named: dict[str, Path] = {}
    for setting in settings:
        if not setting.origin.startswith("file:"):
            continue
        # An absolute name replaces what it is joined to.
        origin = named.get(setting.origin) or named.setdefault(
            setting.origin, git_dir.parent / setting.origin.removeprefix("file:")
        )
        if setting.key == "include.path" or (setting.key.startswith("includeif.") and setting.key.endswith(".path")):
            target = setting.value
            files.add(home / target[2:] if target.startswith("~/") else origin.parent / target)
    return tuple(sorted(files.union(named.values())))


def files_of_work_tree(git_dir: Path) -> tuple[Path, ...]:
    """Those of the `configuration_files` that each work tree of a repository has for itself."""
    return git_dir / "config.worktree", git_dir / "HEAD"


def signature(files: Iterable[Path]) -> tuple[tuple[int, int, int, int] | None, ...]:
    """A stamp of the files that differs whenever one of them was written, replaced, made or removed."""
    return tuple(_stamp(file) for file in files)


def _stamp(file: Path) -> tuple[int, int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
