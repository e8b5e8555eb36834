"""What the configuration takes from outside the files: the user's folders, the environment's variables.

The only module that knows how the user's folders are found. The environment is handed in, so that a test or another
face can give its own.

| variable | says |
| --- | --- |
| `OUTPOST_CONFIG` | the user's own configuration file |
| `OUTPOST_STATE_DIR` | where conversations, journals, runs and findings are kept |
| `OUTPOST_CACHE_DIR` | where worktrees are |
| `OUTPOST_TRUST` | `1`: every folder is trusted |
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import platformdirs

from outpost_lsp.config.files import SettingsFile, read_user_file
from outpost_lsp.storage.layout import Layout

_APPLICATION = "outpost"


def default_layout(environment: Mapping[str, str]) -> Layout:
    """The user's state and cache folders."""
    state, cache = environment.get("OUTPOST_STATE_DIR"), environment.get("OUTPOST_CACHE_DIR")
    return Layout(
        state=_folder(state) if state else platformdirs.user_state_path(_APPLICATION),
        cache=_folder(cache) if cache else platformdirs.user_cache_path(_APPLICATION),
    )


def user_file_path(environment: Mapping[str, str]) -> Path:
    """Where the user's own file is, or would be."""
    named = environment.get("OUTPOST_CONFIG")
    return _folder(named) if named else platformdirs.user_config_path(_APPLICATION) / "config.toml"


def user_settings(environment: Mapping[str, str]) -> SettingsFile:
    """What the user's own file says now. A file that `OUTPOST_CONFIG` names must be there."""
    named = environment.get("OUTPOST_CONFIG")
    path = user_file_path(environment)
    if named == os.devnull:
        return SettingsFile(path, "user", {})
    return read_user_file(path, must_exist=bool(named))


def _folder(text: str) -> Path:
    return Path(text).expanduser().absolute()
