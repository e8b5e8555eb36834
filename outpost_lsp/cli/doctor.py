"""The command `doctor`: whether what runs depend on is there."""

from __future__ import annotations

import argparse
import json
import sys

from outpost_lsp.cli.session import opened, run_async
from outpost_lsp.cli.status import DONE
from outpost_lsp.cli.terminal import GREEN, RED, YELLOW, Paint, wants_colour
from outpost_lsp.domain.markdown import one_line

_CHECK_FAILED = 1
_COLOURS = {"ok": GREEN, "warn": YELLOW, "fail": RED}


def doctor(options: argparse.Namespace) -> int:
    """Print the checks; 1 when one failed."""
    return run_async(lambda: _doctor(options))


async def _doctor(options: argparse.Namespace) -> int:
    # The probes need packages that nothing else does.
    from outpost_lsp.service.checks import diagnose

    async with opened(options, is_examined=True) as (outpost, workspace):
        checks = await diagnose(outpost, workspace)
    if options.json:
        listed = [{"name": check.name, "status": check.status, "detail": check.detail} for check in checks]
        print(json.dumps({"checks": listed}, ensure_ascii=False, indent=2))
    else:
        paint = Paint(colour=wants_colour(sys.stdout))
        for check in checks:
            print(f"{paint(f'{check.status:<4}', _COLOURS[check.status])}  {check.name}: {one_line(check.detail, 500)}")
    return _CHECK_FAILED if any(check.status == "fail" for check in checks) else DONE
