"""What each place may set, and which folders are trusted (SEC-12, SEC-15, SEC-17, U-43).

A workspace file is written by whoever wrote the repository. Until its folder is trusted it may set what `_Untrusted`
lets through and nothing else; some keys are the user's own file's in any case. What was refused is reported by key.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Final, Literal

from outpost_lsp.config.faults import Place
from outpost_lsp.config.merge import leaves
from outpost_lsp.config.refused_agents import without_refused_agents
from outpost_lsp.config.toml_lines import Path
from outpost_lsp.errors import OutpostError
from outpost_lsp.storage.identifiers import now_text
from outpost_lsp.storage.json_lines import parse_object
from outpost_lsp.storage.locks import exclusive
from outpost_lsp.storage.private_files import private_folder, read_private, replace_private

TrustState = Literal["trusted", "changed", "unknown"]
TRUST_VARIABLE: Final = "OUTPOST_TRUST"

OWN_FILE: Final = "only your own configuration file may set it"
OWN_FILE_OR_CLIENT: Final = "only your own configuration file or your editor may set it"
TRUSTED_ONLY: Final = "the folder is not trusted"
ONLY_LOWER: Final = "the folder is not trusted, so it may only lower it"

Refusal = tuple[Path, str]
Judge = Callable[[Path, Any], str | None]


@dataclass(frozen=True, slots=True)
class Trust:
    """Whether a folder is trusted, and by whose word."""

    is_trusted: bool
    reason: str


class TrustStore:
    """The folders that the user trusts, each with the hash of the settings it had then."""

    def __init__(self, state: FilePath) -> None:
        self._folder = state
        self._path = state / "trusted.json"

    def state(self, folder: FilePath, digest: str) -> TrustState:
        """Whether `folder` is trusted with settings of this hash; `changed` when it was with others."""
        known = self._read().get(_real(folder))
        if not isinstance(known, dict):
            return "unknown"
        return "trusted" if known.get("digest") == digest else "changed"

    def trust(self, folder: FilePath, digest: str) -> None:
        """Trust a folder as long as its settings stay as they are."""
        self._change(lambda known: {**known, _real(folder): {"digest": digest, "at": now_text()}})

    def distrust(self, folder: FilePath) -> bool:
        """Take the trust back; whether there was any."""
        was_known = _real(folder) in self._read()
        self._change(lambda known: {name: value for name, value in known.items() if name != _real(folder)})
        return was_known

    def _change(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        private_folder(self._folder)
        with exclusive(self._folder / ".trusted.lock"):
            content = json.dumps({"version": 1, "folders": change(self._read())}, indent=2)
            replace_private(self._path, content.encode())

    def _read(self) -> dict[str, Any]:
        try:
            value = parse_object(read_private(self._path)) or {}
        except (FileNotFoundError, OutpostError):
            # Without a readable list nobody is trusted.
            return {}
        folders = value.get("folders")
        return folders if isinstance(folders, dict) else {}


def decide_trust(
    folder: FilePath,
    digest: str,
    *,
    client: bool | None,
    environment: Mapping[str, str],
    store: TrustStore | None,
) -> Trust:
    """Whether a folder whose settings have this hash is trusted. What the editor says of it goes before all else."""
    if client is not None:
        return Trust(client, "the editor says so")
    if environment.get(TRUST_VARIABLE) == "1":
        return Trust(True, f"{TRUST_VARIABLE}=1")
    state = store.state(folder, digest) if store is not None else "unknown"
    if state == "trusted":
        return Trust(True, "it was trusted with `outpost-lsp trust`")
    if state == "changed":
        return Trust(False, "its settings have changed since it was trusted; trust it again with `outpost-lsp trust`")
    return Trust(False, "nobody has trusted it; do so with `outpost-lsp trust`")


def settings_digest(tree: Mapping[str, Any] | None) -> str:
    """The hash that stands for a folder's settings."""
    text = json.dumps(tree or {}, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def allowed(
    place: Place, tree: Mapping[str, Any], base: Mapping[str, Any], *, is_trusted: bool
) -> tuple[dict[str, Any], list[Refusal]]:
    """The part of `tree` that its place may set, and the keys that were refused with the reason.

    `base` is what the user's own file and the client have said.
    """
    judges: list[Judge] = []
    if place in ("workspace", "client"):
        judges.append(_own_file_only)
    if place == "workspace":
        judges.append(_not_the_workspace)
    if place == "client" and not is_trusted:
        judges.append(_programs)
    if place == "workspace" and not is_trusted:
        judges.append(_Untrusted(base))
    kept, refused = _filtered(tree, judges)
    if place == "workspace" and not is_trusted:
        taken = without_refused_agents(tree, kept, base)
        refused += [(path, f"{TRUSTED_ONLY}, so it has no agent {name}") for path, name in taken]
    return kept, refused


def _filtered(tree: Mapping[str, Any], judges: list[Judge]) -> tuple[dict[str, Any], list[Refusal]]:
    kept: dict[str, Any] = {}
    refused: dict[Path, str] = {}
    for path, value in leaves(tree):
        reason = next((reason for judge in judges if (reason := judge(path, value)) is not None), None)
        if reason is not None:
            refused[path] = reason
            continue
        into: dict[Any, Any] = kept
        for part in path[:-1]:
            into = into.setdefault(part, {})
        into[path[-1]] = value
    return kept, list(refused.items())


def _own_file_only(path: Path, _: Any) -> str | None:
    match path:
        case ("providers", _, "api_key_command", *_) | ("sandbox", "environment" | "readable", *_):
            return OWN_FILE
    return None


def _not_the_workspace(path: Path, _: Any) -> str | None:
    return OWN_FILE_OR_CLIENT if path[:2] in (("runs", "executor"), ("runs", "ray")) or path[0] == "telemetry" else None


def _programs(path: Path, _: Any) -> str | None:
    match path:
        case ("mcp", *_) | ("sandbox", "setup", *_) | ("agents", _, "command" | "mcp", *_):
            return TRUSTED_ONLY
    return None


class _Untrusted:
    """What an untrusted workspace file may set, key by key; everything that is not named here is refused."""

    def __init__(self, base: Mapping[str, Any]) -> None:
        self._base = base

    def __call__(self, path: Path, value: Any) -> str | None:
        match path:
            case ("default_model",):
                return self._chosen("models", value)
            case ("review", "max_findings"):
                return self._lower(path, value, 100)
            case ("review", "dismissals"):
                return None if value == "private" else TRUSTED_ONLY
            case ("review", "agent" | "instructions" | "outside_diff" | "min_confidence" | "exclude"):
                return None
            case ("review",):
                return None
            case ("budget", "per_run" | "per_day", _):
                return self._lower(path, value, None)
            case ("budget", *_):
                return None if not value else TRUSTED_ONLY
            case ("agents", str(name), *rest):
                return self._agent(name, tuple(rest), value)
        return TRUSTED_ONLY

    def _agent(self, name: str, rest: Path, value: Any) -> str | None:
        path: Path = ("agents", name, *rest)
        match rest:
            case () | (
                "description" | "instructions" | "subagents" | "conversations" | "context" | "candidates" | "on",
            ):
                return None
            case ("model",):
                return self._chosen("models", value)
            case ("routing",):
                return self._chosen("routing", value)
            case ("tools",):
                return TRUSTED_ONLY if isinstance(value, list) and "shell" in value else None
            case ("limits", "max_steps"):
                return self._lower(path, value, 100)
            case ("limits", "max_delegation_depth"):
                return self._lower(path, value, 3)
            case ("limits", "max_tool_calls") | ("limits", "usage", _):
                return self._lower(path, value, None)
            case ("tool_execution", "concurrency"):
                return self._lower(path, value, 4)
            case ("tool_execution", "deadline_s"):
                return self._lower(path, value, 300)
            case ("tool_execution", "on_error"):
                return None
            case ("permissions", *_):
                return self._unless_set(path[:3])
            case ("watchdog", *_):
                return self._unless_set(path[:3])
        return TRUSTED_ONLY

    def _chosen(self, table: str, value: Any) -> str | None:
        # A name that nobody else has given is refused, too: the workspace's own definition of it is.
        known = self._base.get(table)
        return None if isinstance(value, str) and isinstance(known, Mapping) and value in known else TRUSTED_ONLY

    def _lower(self, path: Path, value: Any, default: float | None) -> str | None:
        ceiling = self._at(path)
        if ceiling is None:
            ceiling = default
        if not isinstance(value, int | float) or not isinstance(ceiling, int | float):
            return None
        return None if value <= ceiling else ONLY_LOWER

    def _unless_set(self, path: Path) -> str | None:
        """Where nobody else has said anything, everything is allowed, so that whatever is said makes it stricter."""
        return None if self._at(path) is None else "the folder is not trusted, so it may not loosen yours"

    def _at(self, path: Path) -> Any:
        value: Any = self._base
        for part in path:
            value = value.get(part) if isinstance(value, Mapping) else None
        return value


def _real(folder: FilePath) -> str:
    return os.path.realpath(folder)
