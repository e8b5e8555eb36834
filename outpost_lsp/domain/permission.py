"""Rules on tool calls, and the verdict they give with its reason (PERM rules). Permissions are not isolation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from outpost_lsp.domain.globs import path_glob, text_glob
from outpost_lsp.domain.record import Declaration, NonBlank

Effect = Literal["allow", "deny", "ask"]
_Globs = Annotated[tuple[NonBlank, ...], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class Resources:
    """What a call touches: paths as the model wrote them, and a command. For permissions only (TDEF-05)."""

    paths: tuple[str, ...] = ()
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the rules say of one call. `reason` is the text after "Denied: ", or what a question shows."""

    effect: Effect
    reason: str


class PermissionRule(Declaration):
    """All conditions must hold; a rule without conditions matches every call (PERM-02)."""

    effect: Effect
    tools: _Globs | None = None
    paths: _Globs | None = None
    commands: _Globs | None = None
    reason: NonBlank | None = None

    def __init__(
        self,
        effect: Effect,
        tools: Sequence[str] | None = None,
        paths: Sequence[str] | None = None,
        commands: Sequence[str] | None = None,
        reason: str | None = None,
        **unknown: Any,
    ) -> None:
        super().__init__(effect=effect, tools=tools, paths=paths, commands=commands, reason=reason, **unknown)

    def matches(self, tool: str, paths: Sequence[str | None], command: str | None) -> bool:
        """Whether the rule speaks of this call. A path that escapes the root is `None` and matches nothing (PERM-05)."""
        if self.tools is not None and not _any(self.tools, tool):
            return False
        if self.commands is not None and (command is None or not _any(self.commands, command)):
            return False
        if self.paths is None:
            return True
        if not paths:
            return False
        found = (
            path is not None and any(path_glob(glob).fullmatch(path) for glob in self.paths or ()) for path in paths
        )
        # A denial needs one path, a permission needs them all (PERM-04); asking is like permitting (PERM-10).
        return any(found) if self.effect == "deny" else all(found)


class Permissions(Declaration):
    """Rules in order, the first match decides, else `default` (PERM-01)."""

    rules: tuple[PermissionRule, ...] = ()
    default: Effect = "allow"

    def __init__(self, rules: Sequence[PermissionRule] = (), default: Effect = "allow", **unknown: Any) -> None:
        super().__init__(rules=rules, default=default, **unknown)

    def verdict(self, tool: str, resources: Resources) -> Verdict:
        """What the rules say of a call of `tool` on `resources`."""
        paths = [normalised_path(path) for path in resources.paths]
        for number, rule in enumerate(self.rules, 1):
            if rule.matches(tool, paths, resources.command):
                return Verdict(rule.effect, rule.reason or f"permission rule {number}")
        return Verdict(self.default, "no permission rule allows this call")


def normalised_path(path: str) -> str | None:
    """The repository-relative POSIX form of a path; `None` when it leaves the root (BTOOL-01, PERM-05)."""
    text = path.replace("\\", "/")
    if text.startswith("/") or (len(text) > 1 and text[1] == ":" and text[0].isalpha()):
        return None
    parts: list[str] = []
    for part in text.split("/"):
        if part in ("", "."):
            continue
        if part == "..":
            if not parts:
                return None
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)


def _any(globs: Sequence[str], text: str) -> bool:
    return any(text_glob(glob).fullmatch(text) for glob in globs)
