"""The command `demo`: a coordinator and its reviewer go over a sample repository, with the built-in rules alone.

Everything in it is real: the repository, the worktree, the delegation, the routing and the findings. It needs no network
and no configuration, uses neither the user's settings nor their state, and leaves nothing behind.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

from outpost_lsp.cli.report import refuse_output
from outpost_lsp.cli.review import reported
from outpost_lsp.cli.session import followed, run_async
from outpost_lsp.domain.run import ReviewScope
from outpost_lsp.service.outpost import Outpost
from outpost_lsp.storage.layout import Layout
from outpost_lsp.worktrees.creation import commit_all, create_repository

SETTINGS: Final[dict[str, Any]] = {
    "agents": {
        "coordinator": {
            "description": "Splits a change into areas and hands each to the reviewer",
            "tools": ["files", "search", "git"],
            "subagents": ["reviewer"],
            "routing": "rules",
        },
        "reviewer": {
            "description": "Inspects files and reports findings",
            "tools": ["files", "search", "git", "findings"],
            "routing": "rules",
        },
    }
}


def demo(options: argparse.Namespace) -> int:
    """Show a review of the sample repository; the exit status is that of a review."""
    refuse_output(options.output)
    with tempfile.TemporaryDirectory(prefix="outpost-demo-") as folder:
        return run_async(lambda: _demo(options, Path(folder)))


async def _demo(options: argparse.Namespace, folder: Path) -> int:
    top = folder / "shop"
    await make_sample(top)
    environment = dict(os.environ) | {"OUTPOST_CONFIG": os.devnull}
    layout = Layout(state=folder / "state", cache=folder / "cache")
    async with Outpost(layout, environment, offline=True) as outpost:
        workspace = outpost.add_workspace(top, client_settings=SETTINGS)
        handle = await followed(
            outpost,
            lambda: outpost.review(workspace, ReviewScope(scope="uncommitted"), agent="coordinator"),
            quiet=options.quiet,
        )
        return await reported(handle, workspace, options)


async def make_sample(top: Path) -> None:
    """Make the sample repository: one commit, and uncommitted work on top of it that holds a few slips."""
    sample = files("outpost_lsp.cli") / "sample"
    _write(sample / "before", top)
    repository = await create_repository(top)
    await commit_all(repository, "A small shop")
    _write(sample / "after", top)


def _write(source: Traversable, target: Path) -> None:
    for path, text in _texts(source, ""):
        file = target / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")


def _texts(folder: Traversable, prefix: str) -> Iterator[tuple[str, str]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _texts(entry, f"{prefix}{entry.name}/")
        else:
            # The files carry one more suffix, so that no tool takes the sample's slips for ours.
            yield f"{prefix}{entry.name.removesuffix('.txt')}", entry.read_text("utf-8")
