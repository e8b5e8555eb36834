"""What an application asks of a workspace: which branch, which limits on its diff, which hooks and time limits.

Everything here is checked when it is built and frozen from then on, so that what was asked for cannot change while a
workspace is open (GUARD-01). Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import Field, field_validator, model_validator

from outpost_lsp.domain.record import Declaration, NonBlank, SafeInt
from outpost_lsp.domain.sandbox import Command
from outpost_lsp.errors import configuration

PolicyMode = Literal["current", "named", "integrate"]
_DRIVE: Final = re.compile(r"[A-Za-z]:")


class BranchPolicy(Declaration):
    """Where an agent works.

    `current`: in the checkout itself. `named`: in a worktree of the branch `name`, which stays. `integrate`: in a
    worktree of a generated branch, which is merged back. `start` is the revision that a new branch begins at, by
    default the checkout's commit.
    """

    mode: PolicyMode
    name: NonBlank | None = None
    start: NonBlank | None = None

    def __init__(self, mode: PolicyMode = "current", name: str | None = None, start: str | None = None) -> None:
        super().__init__(mode=mode, name=name, start=start)

    @model_validator(mode="after")
    def _fits(self) -> BranchPolicy:
        if (self.mode == "named") != (self.name is not None):
            raise ValueError("name: the mode named needs one, the others take none")
        if self.mode == "current" and self.start is not None:
            raise ValueError("start: the mode current begins where the checkout stands")
        return self


class DiffGuard(Declaration):
    """What committed work may not do: touch `protected_paths` (globs), or change more than `max_changed_lines`."""

    protected_paths: tuple[str, ...] = ()
    max_changed_lines: SafeInt | None = None

    @field_validator("protected_paths")
    @classmethod
    def _relative(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            parts = pattern.split("/")
            if not pattern.strip() or "\0" in pattern or "\\" in pattern or _DRIVE.match(pattern):
                raise ValueError(f"{pattern!r} is no glob of paths in the repository, with forward slashes")
            if not all(parts) or {".", ".."} & set(parts):
                raise ValueError(f"{pattern!r} is not relative to the repository's top")
        return patterns


class StageLimits(Declaration):
    """Time limits in seconds: of copying inputs, one git call, collecting commits, and merging."""

    copy_s: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    git_s: float = Field(default=120.0, gt=0, allow_inf_nan=False)
    collect_s: float = Field(default=30.0, gt=0, allow_inf_nan=False)
    merge_s: float = Field(default=30.0, gt=0, allow_inf_nan=False)


class LifecycleHooks(Declaration):
    """Commands around a workspace and its sandboxes; each must exit with status 0.

    `workspace_ready` runs on the host, once, when the workspace opens. `host_ready` runs on the host and `sandbox_ready`
    in the sandbox, whenever one starts.
    """

    workspace_ready: tuple[Command, ...] = ()
    host_ready: tuple[Command, ...] = ()
    sandbox_ready: tuple[Command, ...] = ()

    @field_validator("*")
    @classmethod
    def _runnable(cls, commands: tuple[Command, ...]) -> tuple[Command, ...]:
        for command in commands:
            if not command.executable.strip():
                raise ValueError("a command names no executable")
            if not command.deadline_s > 0:
                raise ValueError(f"{command.executable}: deadline_s: a positive number of seconds is expected")
        return commands


NO_HOOKS: Final = LifecycleHooks()


def as_policy(value: Any) -> BranchPolicy:
    """The policy itself, or the one that a mapping or the name of a mode spells."""
    if isinstance(value, BranchPolicy):
        return value
    if isinstance(value, str):
        return BranchPolicy(value)  # type: ignore[arg-type]
    policy: BranchPolicy = _built(BranchPolicy, "branch", value)
    return policy


def as_guard(value: Any) -> DiffGuard | None:
    """The guard itself, or a copy of what a mapping spells (GUARD-01)."""
    return value if value is None or isinstance(value, DiffGuard) else _built(DiffGuard, "guard", value)


def as_limits(value: Any) -> StageLimits:
    """The limits, or those that a mapping spells; the defaults for `None`."""
    if value is None:
        return StageLimits()
    return value if isinstance(value, StageLimits) else _built(StageLimits, "limits", value)


def as_hooks(value: Any) -> LifecycleHooks | None:
    """The hooks, or those that a mapping spells."""
    return value if value is None or isinstance(value, LifecycleHooks) else _built(LifecycleHooks, "hooks", value)


def _built(kind: Any, option: str, value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise configuration(f"{option}: a {kind.__name__} is expected, not {type(value).__name__}")
    return kind(**value)
