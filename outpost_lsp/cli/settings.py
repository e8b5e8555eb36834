"""The commands `config`, `schema` and `trust`: what is in force, what it may look like, who may say so."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from outpost_lsp.cli.folders import workspace_folder
from outpost_lsp.cli.status import DONE, USAGE
from outpost_lsp.cli.terminal import DIM, Paint, wants_colour
from outpost_lsp.config.describe import describe, to_json
from outpost_lsp.config.environment import default_layout, user_settings
from outpost_lsp.config.files import read_settings_file
from outpost_lsp.config.overrides import settings_from_assignments
from outpost_lsp.config.sources import ClientSettings, LoadedSettings, check_file, load_settings
from outpost_lsp.config.trust import TrustStore, decide_trust


def config(options: argparse.Namespace) -> int:
    """Print or check the configuration; the exit status."""
    return _show(options) if options.action == "show" else _check(options)


def _show(options: argparse.Namespace) -> int:
    loaded = _loaded(options)
    if options.json:
        print(json.dumps(to_json(loaded), ensure_ascii=False, indent=2))
    else:
        paint = Paint(colour=wants_colour(sys.stdout))
        for value in describe(loaded):
            setting, _, origin = str(value).rpartition("  # ")
            print(f"{setting}  {paint(f'# {origin}', DIM)}")
    return _told(loaded)


def _check(options: argparse.Namespace) -> int:
    if options.file is None:
        loaded = _loaded(options)
        status = _told(loaded)
        if status == DONE:
            looked_at = [str(path) for path in loaded.files if path.exists()]
            print(f"the configuration is in order: {', '.join(looked_at) or 'built-in settings only'}")
        return status
    faults = check_file(read_settings_file(Path(options.file)))
    for fault in faults:
        print(fault, file=sys.stderr)
    if not faults:
        print(f"{options.file} is in order")
    return USAGE if faults else DONE


def _loaded(options: argparse.Namespace) -> LoadedSettings:
    folder = workspace_folder(Path(options.folder))
    assignments = settings_from_assignments(options.settings)
    store = TrustStore(default_layout(os.environ).state)
    return load_settings(
        user_file=user_settings(os.environ),
        folder=folder,
        client=[ClientSettings("--set", assignments)] if assignments else [],
        trust=lambda digest: decide_trust(folder, digest, client=None, environment=os.environ, store=store),
    )


def _told(loaded: LoadedSettings) -> int:
    """Say what is wrong on standard error; a fault is a wrong configuration, what was refused or passed over is not."""
    for fault in (*loaded.faults, *loaded.refused, *loaded.warnings):
        print(fault, file=sys.stderr)
    if remedy := loaded.remedy_of_refusals:
        print(remedy, file=sys.stderr)
    return USAGE if loaded.faults else DONE


def schema(options: argparse.Namespace) -> int:
    """Print a JSON Schema; the exit status."""
    if options.name == "config":
        from outpost_lsp.config.schema import json_schema

        value = json_schema()
    elif options.name == "protocol":
        from outpost_lsp.protocol.schema import protocol_schema

        value = protocol_schema()
    else:
        from outpost_lsp.cli.report import report_schema

        value = report_schema()
    print(json.dumps(value, ensure_ascii=False, indent=2))
    return DONE


def trust(options: argparse.Namespace) -> int:
    """Trust a folder's settings as they are now, or take the trust back; the exit status."""
    folder = workspace_folder(Path(options.folder) / options.trusted)
    store = TrustStore(default_layout(os.environ).state)
    if options.remove:
        was_trusted = store.distrust(folder)
        print(f"{folder} is not trusted any more" if was_trusted else f"{folder} was not trusted")
        return DONE
    before = load_settings(user_file=user_settings(os.environ), folder=folder)
    store.trust(folder, before.digest)
    print(f"{folder} is trusted, as long as its settings stay as they are")
    now = load_settings(
        user_file=user_settings(os.environ),
        folder=folder,
        trust=lambda digest: decide_trust(folder, digest, client=None, environment=os.environ, store=store),
    )
    _told(now)
    if not now.faults:
        # What has a fault counts for nothing, and some keys are for nobody's repository to set.
        kept_out = {refusal.key for refusal in now.refused}
        for refusal in before.refused:
            if refusal.key not in kept_out:
                print(f"  now in force: {refusal.key} ({refusal.origin})")
    return DONE
