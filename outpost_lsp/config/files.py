"""Reading configuration files. What a workspace holds was written by whoever wrote the repository: reading is bounded,
and a pipe, a device or a link out of the folder is refused.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, Final, Literal

from outpost_lsp.config.faults import ConfigurationFault, Origin
from outpost_lsp.config.toml_lines import Path, toml_lines

_LIMIT_BYTES: Final = 4 * 1024 * 1024
_AT_LINE: Final = re.compile(r"\(at line (\d+), column \d+\)")
WORKSPACE_FILE: Final = "outpost.toml"


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """What a file says. `tree` is `None` when it could not be read, and `fault` says why."""

    path: FilePath
    place: Literal["user", "workspace"]
    tree: Mapping[str, Any] | None = None
    lines: Mapping[Path, int] = field(default_factory=dict)
    prefix: Path = ()
    """The path of the settings within the file: `tool.outpost` in a `pyproject.toml`."""
    fault: ConfigurationFault | None = None

    def origin(self, path: Path) -> Origin:
        """Where the value at `path` stands in the file."""
        full = (*self.prefix, *path)
        while full and full not in self.lines:
            full = full[:-1]
        return Origin(self.place, str(self.path), self.lines.get(full))


def read_user_file(path: FilePath, *, must_exist: bool = False) -> SettingsFile:
    """The user's own file; empty when there is none, unless somebody named it."""
    found = _read(path, "user", None)
    if found is None:
        fault = _fault(path, "user", "there is no such file") if must_exist else None
        return SettingsFile(path, "user", None if must_exist else {}, fault=fault)
    return found


def read_workspace_file(folder: FilePath) -> SettingsFile | None:
    """`outpost.toml` of a folder, else the table `tool.outpost` of its `pyproject.toml`; `None` without both."""
    found = _read(folder / WORKSPACE_FILE, "workspace", folder)
    if found is not None:
        return found
    project = _read(folder / "pyproject.toml", "workspace", folder)
    if project is None or project.tree is None:
        # A broken pyproject.toml is its own tools' business; it is no place of ours until it has our table.
        return None
    tool = project.tree.get("tool")
    if not isinstance(tool, Mapping) or "outpost" not in tool:
        return None
    table = tool["outpost"]
    if not isinstance(table, Mapping):
        fault = ConfigurationFault(project.origin(("tool", "outpost")), "tool.outpost", "a table is expected")
        return SettingsFile(project.path, "workspace", fault=fault)
    return SettingsFile(project.path, "workspace", table, project.lines, ("tool", "outpost"))


def read_settings_file(path: FilePath) -> SettingsFile:
    """Any file as somebody names it, for checking: a `pyproject.toml` by its table, everything else whole."""
    if path.name == "pyproject.toml":
        found = read_workspace_file(path.parent) if not (path.parent / WORKSPACE_FILE).exists() else None
        if found is not None:
            return found
    return read_user_file(path, must_exist=True)


def _read(path: FilePath, place: Literal["user", "workspace"], within: FilePath | None) -> SettingsFile | None:
    try:
        if within is not None and path.is_symlink() and not path.resolve().is_relative_to(within.resolve()):
            return _faulty(path, place, "a link that leaves the folder is not followed")
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, RuntimeError) as error:
        return _faulty(path, place, f"cannot be read: {getattr(error, 'strerror', None) or error}")
    try:
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return _faulty(path, place, "cannot be read: it is no regular file")
            content = file.read(_LIMIT_BYTES + 1)
    except OSError as error:
        return _faulty(path, place, f"cannot be read: {error.strerror}")
    if len(content) > _LIMIT_BYTES:
        return _faulty(path, place, f"cannot be read: it is larger than {_LIMIT_BYTES >> 20} MiB")
    return _parsed(path, place, content)


def _parsed(path: FilePath, place: Literal["user", "workspace"], content: bytes) -> SettingsFile:
    try:
        text = content.decode("utf-8-sig")
        tree = tomllib.loads(text)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return _faulty(path, place, "it is not UTF-8", line)
    except tomllib.TOMLDecodeError as error:
        found = _AT_LINE.search(str(error))
        message = _AT_LINE.sub("", str(error)).strip()
        return _faulty(path, place, f"it is no TOML: {message}", int(found[1]) if found else None)
    except RecursionError:
        return _faulty(path, place, "it is nested too deeply")
    return SettingsFile(path, place, tree, toml_lines(text.replace("\r\n", "\n")))


def _faulty(path: FilePath, place: Literal["user", "workspace"], message: str, line: int | None = None) -> SettingsFile:
    return SettingsFile(path, place, fault=_fault(path, place, message, line))


def _fault(
    path: FilePath, place: Literal["user", "workspace"], message: str, line: int | None = None
) -> ConfigurationFault:
    return ConfigurationFault(Origin(place, str(path), line), "", message)
