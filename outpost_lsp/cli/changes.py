"""The commands `diff`, `apply`, `discard` and `reopen`: what a run changed, and what becomes of it.

Applying writes to the files on disk, all that were asked for or none; a file that was changed meanwhile is merged or
reported, never overwritten.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TextIO

from outpost_lsp.cli.runs import found_run
from outpost_lsp.cli.session import opened, run_async
from outpost_lsp.cli.status import DONE, FAILED
from outpost_lsp.domain.landing import FileOperation
from outpost_lsp.domain.markdown import one_line
from outpost_lsp.domain.run import Run
from outpost_lsp.sandbox.landing import land
from outpost_lsp.sandbox.standing import present_on_disk
from outpost_lsp.service import results
from outpost_lsp.service.workspace import Workspace


def diff(options: argparse.Namespace) -> int:
    """Print what a run changed, as a patch that git can apply; the exit status."""
    return run_async(lambda: _diff(options))


async def _diff(options: argparse.Namespace) -> int:
    async with opened(options) as (_, workspace):
        shown = await results.diff(workspace, found_run(workspace, options.run))
    # Bytes: a patch is exact, whatever encoding its files have.
    sys.stdout.buffer.write(shown.patch)
    sys.stdout.buffer.flush()
    return DONE


def apply(options: argparse.Namespace) -> int:
    """Bring a run's changes into the files; the exit status."""
    return run_async(lambda: _apply(options))


async def _apply(options: argparse.Namespace) -> int:
    async with opened(options) as (_, workspace):
        told_to = None if options.quiet else sys.stdout
        folder = Path(options.folder)
        paths = {workspace.relative(folder / path, spelled=path) for path in options.paths}
        return await apply_run(
            workspace, found_run(workspace, options.run), paths=paths or None, told_to=told_to, folder=folder
        )


async def apply_run(
    workspace: Workspace, run: Run, *, paths: Collection[str] | None, told_to: TextIO | None, folder: Path
) -> int:
    """Apply a run's changes on disk and say what was done, what was not always; the exit status.

    `paths` are relative to the top of the repository; what a person is told to type is relative to `folder`.
    """
    top = workspace.top

    async def write(operations: Sequence[FileOperation]) -> bool:
        await land(top, operations, records=workspace.layout.landings)
        return True

    outcome = await results.apply(
        workspace, run, present=lambda path: present_on_disk(top, path), land=write, paths=paths
    )
    for conflict in outcome.conflicts:
        print(f"outpost-lsp: {one_line(conflict.path)}: {one_line(conflict.reason)}", file=sys.stderr)
    for path in outcome.files if told_to is not None else ():
        print(f"{'already applied' if path in outcome.already else 'applied'} {one_line(path)}", file=told_to)
    for path in outcome.needs_own_accept:
        print(
            f"outpost-lsp: {one_line(path)} makes editors, shells or builds act: name it to apply it, "
            f"outpost-lsp apply {run.id} {one_line(_as_typed(top, path, folder))}",
            file=sys.stderr,
        )
    return FAILED if outcome.conflicts else DONE


def _as_typed(top: Path, path: str, folder: Path) -> str:
    """A path of the repository as an argument for somebody who works in `folder`."""
    relative = os.path.relpath(top.resolve() / path, folder.resolve())
    return shlex.quote(f"./{relative}" if relative.startswith("-") else relative)


def discard(options: argparse.Namespace) -> int:
    """Drop a run's changes; the exit status."""
    return run_async(lambda: _discard(options))


async def _discard(options: argparse.Namespace) -> int:
    async with opened(options) as (_, workspace):
        run = found_run(workspace, options.run)
        dropped = await results.discard(workspace, run)
    print(f"discarded the changes of run {run.id}" if dropped else f"run {run.id} has no changes to discard")
    return DONE


def reopen(options: argparse.Namespace) -> int:
    """Make dropped or applied changes pending again; the exit status."""
    return run_async(lambda: _reopen(options))


async def _reopen(options: argparse.Namespace) -> int:
    async with opened(options) as (_, workspace):
        run = await results.reopen(workspace, found_run(workspace, options.run))
    print(f"the changes of run {run.id} are pending again")
    return DONE
