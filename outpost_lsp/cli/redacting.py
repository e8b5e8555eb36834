"""What a bug report may tell: the product's own words and numbers, and nothing that somebody else wrote.

Pure but for the names of folders. A text is left out unless its field is known to hold a word of the product's own, so
that a field of a newer version hides too much rather than too little. Used by the command `report`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from outpost_lsp.config.masking import masked
from outpost_lsp.domain.run import Run
from outpost_lsp.service.workspace import Workspace

_OWN_WORDS: Final = frozenset(
    [
        "kind",
        "at",
        "source",
        "id",
        "runId",
        "parentId",
        "callId",
        "subagentId",
        "name",
        "status",
        "agent",
        "model",
        "models",
        "code",
        "reason",
        "rule",
        "choice",
        "question",
        "mode",
        "strategy",
        "severity",
        "disposition",
        "scope",
        "effort",
        "stopReason",
        "finishReason",
        "startedAt",
        "finishedAt",
        "resetAt",
        "base",
        "currency",
        "provider",
        "errorCode",
        "limit",
        "counter",
        "budget",
        "field",
        "delivery",
        "conversation",
        "level",
        "origin",
        "sandbox",
        "label",
        "type",
        "api",
        "tool",
        "place",
        "key",
        "version",
    ]
)
"""Fields that hold a word of the product's, a service's or the settings' own; every other text is left out."""

_MESSAGES: Final = frozenset(("error", "fault", "warning", "model-retry", "fallback", "stuck"))
"""Kinds of events whose message is the product's own sentence."""

_OWN_SETTINGS: Final = re.compile(
    r"(kind|base_url|api|api_key_env|provider|name|model|default_model|agent|decider|routing|question|fallback|on_error"
    r"|reasoning|confidence_source|state|shell|keep|executor|events|when_away|outside_diff|dismissals|currency|effect"
    r"|default|on_stuck|tools|subagents|candidates|on|context|transport)$"
)
_ADDRESS: Final = re.compile(r"(?<=://)[^/\s]+")

Clean = Callable[[str], str]
"""Takes keys and the paths of this person's folders out of a text."""


def cleaner(workspace: Workspace, environment: Mapping[str, str]) -> Clean:
    """What takes keys and the paths of this person's folders out of a text."""
    patterns = workspace.services.masks()
    homes = {environment.get("HOME", ""), str(Path("~").expanduser())}
    places = [(str(workspace.top), "<repository>"), (str(workspace.folder), "<repository>")]
    places += [(os.path.realpath(place), name) for place, name in places]
    places += [(str(Path(home)), "~") for home in homes if len(home) > 1]

    def clean(text: str) -> str:
        for place, name in sorted(places, key=lambda one: -len(one[0])):
            text = text.replace(place, name)
        return masked(text, patterns)

    return clean


def redacted(value: Any, clean: Clean, field: str = "", *, keeps_message: bool = False) -> Any:
    """A JSON value without what somebody else wrote; counts, flags and the product's own words stay."""
    match value:
        case dict():
            has_message = keeps_message or value.get("kind") in _MESSAGES
            return {
                clean(str(name)): redacted(one, clean, str(name), keeps_message=has_message)
                for name, one in value.items()
            }
        case list() | tuple():
            return [redacted(one, clean, field, keeps_message=keeps_message) for one in value]
        case str() if field in _OWN_WORDS and len(value) <= 200:
            return clean(value)
        case str() if field in ("message", "error") and keeps_message:
            return clean(value)[:500]
        case str() if field in ("path", "paths", "file") and not value.startswith(("/", "~")):
            return clean(value)
        case str():
            return f"[{len(value)} characters]"
        case _:
            return value


def redacted_run(run: Run, clean: Clean) -> Any:
    """The record of a run; its error and its notes are sentences of the product's own.

    They may name the patch under review, which is a file of the person's and no file of the repository.
    """
    shown = redacted(run.to_json(), clean)
    patch = run.scope.patch if run.scope is not None else None
    if run.error is not None:
        shown["error"]["message"] = clean(_without(patch, run.error.message))[:500]
    return shown | {"notes": [clean(_without(patch, note)) for note in run.notes]}


def _without(name: str | None, text: str) -> str:
    return text.replace(name, f"[{len(name)} characters]") if name else text


def redacted_settings(told: Mapping[str, Any], clean: Clean) -> Any:
    """The settings with where each comes from; hosts other than this machine, and texts, are left out."""
    settings = [one | {"value": _setting(one["key"], one["value"], clean)} for one in told["settings"]]
    cleaned = [one | {"source": clean(str(one.get("source", "")))} for one in settings]
    words = {name: [clean(text) for text in told[name]] for name in ("files", "faults", "refused", "warnings")}
    return {"trusted": told["trusted"], **words, "settings": cleaned}


def _setting(key: str, value: Any, clean: Clean) -> Any:
    match value:
        case str() if not value or _OWN_SETTINGS.search(key):
            return _ADDRESS.sub(_host, clean(value))
        case list() if _OWN_SETTINGS.search(key):
            return [_setting(key, one, clean) for one in value]
        case str():
            return f"[{len(value)} characters]"
        case list():
            return f"[{len(value)} values]"
        case _:
            return value


def _host(found: re.Match[str]) -> str:
    host = found[0].rpartition("@")[2]
    name = host.rpartition(":")[0] or host
    is_known = name in ("localhost", "127.0.0.1", "[::1]", "api.openai.com", "api.anthropic.com")
    return host if is_known else "[a host]"
