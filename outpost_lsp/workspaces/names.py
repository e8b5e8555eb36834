"""The names of generated branches and of worktree folders (WS-06, WS-07).

A worktree is found again by the hash of its branch in its folder's name, whatever label it was opened with. Pure.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from pathlib import Path
from typing import Final

_LONGEST_SLUG: Final = 48
_HASH_DIGITS: Final = 12
_OTHER: Final = re.compile(r"[^a-z0-9]+")


def slug(label: str | None) -> str:
    """The readable part of a name; empty when the label has no letter or digit."""
    return _OTHER.sub("-", (label or "").lower()).strip("-")[:_LONGEST_SLUG].rstrip("-")


def generated_branch(label: str | None) -> str:
    """A branch name that nobody has."""
    return f"outpost/{slug(label) or 'job'}-{uuid.uuid4()}"


def resolution_branch() -> str:
    """A branch name for the resolution of a conflict."""
    return f"outpost/resolve-{uuid.uuid4()}"


def branch_hash(branch: str) -> str:
    """What stands for a branch in the name of its folder."""
    return hashlib.sha256(branch.encode("utf-8", "surrogateescape")).hexdigest()[:_HASH_DIGITS]


def folder_for(branch: str, label: str | None) -> str:
    """The name of a new worktree's folder."""
    readable = slug(label)
    return f"{readable}-{branch_hash(branch)}" if readable else branch_hash(branch)


def belongs_to(folder: Path, branch: str) -> bool:
    """Whether a folder is the worktree of a branch, by its name."""
    return folder.name == branch_hash(branch) or folder.name.endswith(f"-{branch_hash(branch)}")
