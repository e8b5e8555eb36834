"""The program `outpost-lsp`, also `python -m outpost_lsp`: the one place that knows both faces.

Nothing is imported before it is known what was asked for: `--version` starts neither server nor engine.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import argparse


def main() -> int:
    """Run the program with the process's arguments; the result is its exit status."""
    from outpost_lsp.cli.main import main as run_command_line

    return run_command_line(sys.argv[1:], serve=_serve)


def _serve(options: argparse.Namespace) -> NoReturn:
    from pathlib import Path

    from outpost_lsp.lsp.serve import ServeOptions, run_server

    address = options.tcp if options.tcp is not None else options.ws
    run_server(
        ServeOptions(
            transport="tcp" if options.tcp is not None else "ws" if options.ws is not None else "stdio",
            address=address or "",
            token="" if options.no_token else options.token,
            allow_remote=options.allow_remote,
            client_process_id=options.client_process_id,
            log_file=Path(options.log_file) if options.log_file else None,
            log_level=options.log_level,
        )
    )


if __name__ == "__main__":
    sys.exit(main())
