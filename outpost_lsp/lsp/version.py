"""The version of the package, found without loading the machinery that reads a package's metadata."""

from __future__ import annotations

import os
import sys
from typing import Final

_PREFIX: Final = "outpost_lsp-"
_SUFFIX: Final = ".dist-info"


def package_version() -> str:
    """The installed version: the name of the package's metadata folder holds it."""
    for folder in sys.path:
        try:
            with os.scandir(folder or ".") as entries:
                names = [entry.name for entry in entries if entry.name.startswith(_PREFIX)]
        except OSError:
            continue
        for name in names:
            if name.endswith(_SUFFIX):
                return name[len(_PREFIX) : -len(_SUFFIX)]
    return _from_metadata()


def _from_metadata() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("outpost-lsp")
    except PackageNotFoundError:
        return "0"
