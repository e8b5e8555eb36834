"""Which folder a command works in. Apart from the rest, because commands about settings need neither service nor engine."""

from __future__ import annotations

from pathlib import Path

from outpost_lsp.errors import OutpostError, configuration
from outpost_lsp.worktrees.repository import discover


def workspace_folder(folder: Path) -> Path:
    """The top of the repository around a folder; the folder itself where there is none."""
    try:
        what = "" if folder.is_dir() else "is not a folder" if folder.exists() else "does not exist"
    except OSError as error:
        what = f"cannot be looked at ({error.strerror})"
    if what:
        raise configuration(f"{folder} {what}; name an existing folder")
    try:
        absolute = folder.absolute()
    except FileNotFoundError:
        raise configuration("the current folder is gone; change into one that exists, or name one with -C") from None
    try:
        return discover(absolute, {}).top
    except OutpostError:
        # What is wrong is told by whatever needs the repository; settings and schemas do not.
        return absolute
