"""The version of the package, without the cost of reading its metadata where it is not needed."""

from __future__ import annotations


def package_version() -> str:
    """The installed version."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("outpost-lsp")
    except PackageNotFoundError:
        return "0"
