"""Which names no tool may touch: git's own folder in every spelling a file system takes for it, and device names.

Pure; the file access layer asks it about every component of every path (SEC-08, BTOOL-04).
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$)", re.IGNORECASE)
_GIT_NAMES: Final = frozenset((".git", "git~1"))


def is_git_name(component: str) -> bool:
    """Whether some file system would open git's folder under this name.

    Case, Unicode compatibility forms, ignored characters, trailing dots and spaces, an alternate stream after a colon and
    the short form of an 8.3 file system make no difference.
    """
    visible = "".join(char for char in component if not _is_ignored(char))
    folded = unicodedata.normalize("NFKC", visible).casefold()
    return folded.partition(":")[0].rstrip(" .") in _GIT_NAMES or folded.rstrip(" .") in _GIT_NAMES


def is_device_name(component: str) -> bool:
    """Whether Windows takes the name for a device, with any extension."""
    stem = component.partition(":")[0].partition(".")[0].rstrip(" ")
    return _DEVICE.fullmatch(stem) is not None


def _is_ignored(char: str) -> bool:
    """Format characters, variation selectors and controls: what HFS+ and fonts leave out of a name."""
    return unicodedata.category(char) in {"Cf", "Cc", "Cs"} or "\ufe00" <= char <= "\ufe0f" or char == "\u034f"
