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
import sys
import zipfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from outpost_lsp.cli.redacting import Clean, cleaner, redacted, redacted_run, redacted_settings
from outpost_lsp.cli.runs import found_run
from outpost_lsp.cli.session import opened, run_async
from outpost_lsp.cli.status import DONE
from outpost_lsp.config.describe import to_json
from outpost_lsp.domain.run import Run
from outpost_lsp.errors import OutpostError, configuration
from outpost_lsp.service.workspace import Workspace
from outpost_lsp.storage.journal import read_journal
from outpost_lsp.storage.private_files import private_folder
from outpost_lsp.worktrees.git import git_version

_PACKAGES: Final = ("pygls", "lsprotocol", "httpx", "pydantic", "anyio", "gitpython", "pathspec", "rich", "ruff")
_ABOUT: Final = """What is here: versions, the settings in force, the record of one run and its journal.

Keys, the path of the home folder and everything that a file, a model or a person wrote are left out: of such a text only
its length is told. Names of files inside the repository are kept. Look through it before you give it to somebody;
nothing was sent anywhere.
"""


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
