"""The commands `run`, `continue` and `replay`: an agent's work from a terminal, its answer on standard output."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from outpost_lsp.cli.changes import apply_run
from outpost_lsp.cli.review import ended_status
from outpost_lsp.cli.runs import found_run
from outpost_lsp.cli.session import followed, opened, read_brief, run_async
from outpost_lsp.cli.status import DONE
from outpost_lsp.domain.markdown import visible
from outpost_lsp.domain.wording import count_of
from outpost_lsp.errors import OutpostError, configuration
from outpost_lsp.protocol.records import run_json
from outpost_lsp.protocol.uris import uri_of
from outpost_lsp.service.handle import RunHandle
from outpost_lsp.service.outpost import Outpost
from outpost_lsp.service.workspace import Workspace

Start = Callable[[Outpost, Workspace], Awaitable[RunHandle]]


def run(options: argparse.Namespace) -> int:
    """Give an agent a brief; the exit status."""
    brief = read_brief(options.brief)
    return run_async(
        lambda: _carried(options, lambda outpost, workspace: outpost.run_agent(workspace, options.agent, brief))
    )


def go_on(options: argparse.Namespace) -> int:
    """Go on with a conversation; the exit status."""
    brief = read_brief(options.brief)
    return run_async(
        lambda: _carried(
            options,
            lambda outpost, workspace: outpost.continue_conversation(
                workspace, _conversation(workspace, options.conversation), brief, agent=options.agent, fork=options.fork
            ),
        )
    )


def replay(options: argparse.Namespace) -> int:
    """Go through a run again from its journal; the exit status."""

    def start(outpost: Outpost, workspace: Workspace) -> Awaitable[RunHandle]:
        return outpost.replay(workspace, found_run(workspace, options.run).id)

    return run_async(lambda: _carried(options, start))


def _conversation(workspace: Workspace, text: str) -> str:
    """The conversation with this id, or the one that a run held."""
    try:
        run = found_run(workspace, text)
    except OutpostError:
        return text
    if run.conversation is None:
        raise configuration(f"conversation: the run {run.id} kept none")
    return run.conversation


async def _carried(options: argparse.Namespace, start: Start) -> int:
    async with opened(options, starts_runs=True) as (outpost, workspace):
        handle = await followed(outpost, lambda: start(outpost, workspace), quiet=options.quiet)
        run = handle.run
        status = ended_status(run)
        if status == DONE and getattr(options, "apply", False) and run.disposition == "pending":
            told_to = sys.stderr if options.json else sys.stdout
            status = await apply_run(workspace, run, paths=None, told_to=told_to, folder=Path(options.folder))
            run = handle.run
        if options.json:
            print(json.dumps(run_json(run, uri_of), ensure_ascii=False, indent=2))
        elif run.text:
            print(visible(run.text))
        if run.disposition == "pending" and run.changes is not None and not options.quiet:
            verb = "waits" if run.changes.files == 1 else "wait"
            print(
                f"outpost-lsp: {count_of(run.changes.files, 'changed file')} {verb}: outpost-lsp diff {run.id}, "
                "then apply or discard",
                file=sys.stderr,
            )
        return status
