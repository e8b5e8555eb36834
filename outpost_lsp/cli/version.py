"""The version of the installed package, found without importing the engine."""

from __future__ import annotations

from importlib import metadata


def package_version() -> str:
    """The version, as the package's metadata says it."""
    return metadata.version("outpost-lsp")
