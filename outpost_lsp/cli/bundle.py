"""The command `report`: what a bug report about a run needs, in one file that a person can look through first.

In it: versions, the settings in force, the run's record and its journal. Not in it: keys, the home folder's path, and
anything that a file, a model or a person wrote. Texts are taken for such unless their field is known to hold a word of
the product's own, so that a field of a newer version hides too much rather than too little. Nothing is sent.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from outpost_lsp.cli.runs import found_run
from outpost_lsp.cli.session import opened, run_async
from outpost_lsp.cli.status import DONE
from outpost_lsp.config.describe import to_json
from outpost_lsp.config.masking import masked
from outpost_lsp.domain.run import Run
from outpost_lsp.errors import OutpostError, configuration
from outpost_lsp.service.workspace import Workspace
from outpost_lsp.storage.journal import read_journal
from outpost_lsp.storage.private_files import private_folder
from outpost_lsp.worktrees.git import git_version

_PACKAGES: Final = ("pygls", "lsprotocol", "httpx", "pydantic", "anyio", "gitpython", "pathspec", "rich", "ruff")
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
_ABOUT: Final = """What is here: versions, the settings in force, the record of one run and its journal.

Keys, the path of the home folder and everything that a file, a model or a person wrote are left out: of such a text only
its length is told. Names of files inside the repository are kept. Look through it before you give it to somebody;
nothing was sent anywhere.
"""

Clean = Callable[[str], str]


def bundle(options: argparse.Namespace) -> int:
    """Write the bundle of a run; the exit status."""
    return run_async(lambda: _bundle(options))


async def _bundle(options: argparse.Namespace) -> int:
    async with opened(options) as (outpost, workspace):
        run = found_run(workspace, options.run)
        clean = cleaner(workspace, os.environ)
        contents = {
            "ABOUT.txt": _ABOUT,
            "versions.json": _json(await _versions()),
            "settings.json": _json(redacted_settings(to_json(workspace.loaded), clean)),
            "run.json": _json(redacted_run(run, clean)),
            "journal.jsonl": _journal(workspace, run, clean),
        }
    if options.output is not None:
        path = Path(options.output)
    else:
        # Not into the repository, where the next review would see it.
        path = outpost.layout.state / "reports" / f"outpost-report-{run.id}.zip"
        private_folder(path.parent)
        path.unlink(missing_ok=True)
    _write(path, contents)
    print(f"wrote {path}: look through it before you give it to somebody; nothing was sent")
    return DONE


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
    """The record of a run; its error and its notes are sentences of the product's own."""
    shown = redacted(run.to_json(), clean)
    if run.error is not None:
        shown["error"]["message"] = clean(run.error.message)[:500]
    return shown | {"notes": [clean(note) for note in run.notes]}


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


async def _versions() -> dict[str, Any]:
    def installed(name: str) -> str | None:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            return None

    try:
        git = ".".join(map(str, await git_version()))
    except OutpostError as error:
        git = error.message
    return {
        "outpost-lsp": installed("outpost-lsp"),
        "python": sys.version.split()[0],
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "git": git,
        "packages": {name: installed(name) for name in _PACKAGES},
    }


def _journal(workspace: Workspace, run: Run, clean: Clean) -> str:
    path = workspace.journal_path(run.id)
    if not path.exists():
        return ""
    lines: Sequence[Any] = [
        {"seq": one.seq, "at": one.at, "source": one.source, "event": redacted(dict(one.event), clean)}
        for one in read_journal(path)
    ]
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


def _write(path: Path, contents: Mapping[str, str]) -> None:
    try:
        # Not over a file that is there, and for the person's eyes only.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in contents.items():
                archive.writestr(name, text)
    except FileExistsError as error:
        raise configuration(f"{path} is there already; name another file with --output") from error
    except OSError as error:
        raise configuration(f"{path} cannot be written: {error.strerror or error}") from error
