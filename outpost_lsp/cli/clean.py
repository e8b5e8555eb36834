"""The command `clean`: remove what ended runs left and nobody needs."""

from __future__ import annotations

import argparse

from outpost_lsp.cli.session import opened, run_async
from outpost_lsp.cli.status import DONE


def clean(options: argparse.Namespace) -> int:
    """Print what goes, and remove it unless it is a dry run; the exit status."""
    return run_async(lambda: _clean(options))


async def _clean(options: argparse.Namespace) -> int:
    # Looking for leftovers needs packages that nothing else here does.
    from outpost_lsp.service.cleaning import leftovers, remove

    async with opened(options) as (_, workspace):
        found = await leftovers(workspace)
        verb = "would remove" if options.dry_run else "removed"
        if not options.dry_run:
            await remove(workspace, found)
        for leftover in found:
            print(f"{verb} {leftover.kind} {leftover.id}: {leftover.why}")
        if not found:
            print("nothing to remove")
    return DONE
