"""The command `collect`: what became of a review that was left to go on elsewhere."""

from __future__ import annotations

import argparse
import sys

from outpost_lsp.cli.report import refuse_output
from outpost_lsp.cli.review import ended_status, reported
from outpost_lsp.cli.runs import found_run
from outpost_lsp.cli.session import followed, opened, run_async
from outpost_lsp.service.detached import detached_run
from outpost_lsp.service.handle import RunHandle


def collect(options: argparse.Namespace) -> int:
    """Wait for a detached review, record it here and report what it found; the exit status is a review's."""
    refuse_output(options.output)
    known: frozenset[str] = frozenset()
    if options.baseline is not None:
        # Reading reports is for those who have one.
        from outpost_lsp.cli.baseline import read_baseline

        known = read_baseline(options.baseline)
    return run_async(lambda: _collect(options, known))


async def _collect(options: argparse.Namespace, known: frozenset[str]) -> int:
    async with opened(options, starts_runs=True) as (outpost, workspace):
        detached = detached_run(outpost, workspace, found_run(workspace, options.run))
        if options.cancel:
            await detached.cancel()
        elif not options.quiet:
            run = detached.run
            print(f"outpost-lsp: {run.title}: waiting for {run.id}; it goes on when you stop waiting", file=sys.stderr)
        if not await detached.ended():
            return ended_status(detached.run)

        async def start() -> RunHandle:
            return detached.fetch()

        handle = await followed(outpost, start, quiet=options.quiet)
        return await reported(handle, workspace, options, known)
