"""What applying a result does to the user's files, as values: operations, conflicts, and which files need a person's word.

Pure. An operation says what it expects to find, so that whoever carries it out (an editor, the disk) can check once more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

_FOLDERS: Final = frozenset(
    (
        ".vscode", ".idea", ".zed", ".fleet", ".vs", ".nvim", ".devcontainer", ".direnv", ".github", ".gitlab", ".gitea",
        ".forgejo", ".circleci", ".buildkite", ".woodpecker", ".ci", ".husky", ".githooks", ".hooks", ".hg", ".svn", ".cursor",
        ".claude", ".codex", ".gemini", ".windsurf", ".aider", ".continue", ".outpost", ".cargo", ".mvn", ".bundle", ".yarn",
    )
)  # fmt: skip
_FILES: Final = re.compile(
    r"\.envrc|\.gitattributes|\.gitmodules|\.gitconfig|\.mcp\.json|mcp\.json|agents(\..*)?\.md|claude(\..*)?\.md|gemini\.md"
    r"|copilot-instructions\.md|\.cursorrules|\.windsurfrules|\.clinerules|\.roorules|outpost\.toml|\.outpost\.toml"
    r"|\.worktreeinclude|\.gitlab-ci\.ya?ml|\.travis\.ya?ml|appveyor\.ya?ml|\.appveyor\.ya?ml|azure-pipelines.*\.ya?ml"
    r"|bitbucket-pipelines\.ya?ml|\.drone\.ya?ml|\.woodpecker\.ya?ml|cloudbuild\.ya?ml|jenkinsfile|\.pre-commit-config\.ya?ml"
    r"|lefthook\.ya?ml|\.?lefthook-local\.ya?ml|\.huskyrc.*|\.exrc|\.nvimrc|\.nvim\.lua|\.vimrc|\.lvimrc|\.dir-locals(-2)?\.el"
    r"|.*\.code-workspace|.*\.sublime-project|\.tool-versions|\.?mise\.toml|\.npmrc|\.yarnrc(\.yml)?|\.pnpmfile\.c?js"
    r"|devcontainer\.json|\.bashrc|\.bash_profile|\.profile|\.zshrc|\.zshenv|\.zprofile|\.inputrc|\.lldbinit|\.gdbinit|\.rgignore"
)


_UNFINISHED: Final = re.compile(rb"(?:.*/)?\.outpost-[0-9a-f]{16}\.(?:new|old|tmp)(?:/.*)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Present:
    """What stands at a path now; the content of a link is its target, of anything else than a file `None`."""

    kind: Literal["file", "link", "directory", "other", "absent"]
    content: bytes | None = None


@dataclass(frozen=True, slots=True)
class FileOperation:
    """One file that changes: made (`before` is `None`), written, removed (`after` is `None`) or moved.

    The bytes are as they stand on disk. A link's content is its target: `was_link` tells it of `before`, `is_link` of
    `after`. `moved_from` names the file that is renamed to `path`; `before` is then its content.
    """

    path: str
    before: bytes | None
    after: bytes | None
    moved_from: str | None = None
    is_executable: bool | None = None
    """What the executable bit becomes; `None` leaves it as it is."""
    is_link: bool = False
    was_link: bool = False
    mode: int | None = None
    """The permissions of the file that is put there; `None` keeps those that are there."""


@dataclass(frozen=True, slots=True)
class ApplyConflict:
    """A file that cannot take the change, and why, for a person."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Landing:
    """What to do, or why nothing is done: with a conflict there are no operations (SEC-23)."""

    operations: tuple[FileOperation, ...] = ()
    conflicts: tuple[ApplyConflict, ...] = ()
    already: tuple[str, ...] = ()
    """Files that hold the result as they are."""


def turned(operations: Sequence[FileOperation]) -> frozenset[str]:
    """The paths where a file becomes a folder or a folder a file: one is taken away there, the other made."""
    made = {one.path for one in operations if one.after is not None}
    taken = {one.path for one in operations if one.after is None}
    taken |= {one.moved_from for one in operations if one.moved_from is not None}
    into_folders = {above for path in made for above in folders_above(path)} & taken
    return frozenset(into_folders | ({above for path in taken for above in folders_above(path)} & made))


def folders_above(path: str) -> list[str]:
    """The folders that lead to a path, outer ones first."""
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def turning(path: str, turns: frozenset[str]) -> str | None:
    """The one of the `turned` paths that a path is, or lies below."""
    return next((place for place in (*folders_above(path), path) if place in turns), None)


def needs_own_accept(path: str) -> bool:
    """Whether a file makes editors, shells, agents or build services act, so that a person must name it (SEC-09)."""
    *folders, name = path.casefold().split("/")
    return any(folder in _FOLDERS for folder in folders) or name in _FOLDERS or _FILES.fullmatch(name) is not None


def is_unfinished(path: bytes) -> bool:
    """Whether a path is, or lies in, what the product is just writing, beside the place that it is meant for."""
    return _UNFINISHED.fullmatch(path) is not None
