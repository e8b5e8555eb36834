"""The program `outpost-lsp`, also `python -m outpost_lsp`: the one place that knows all faces.

Nothing is imported before it is known what was asked for: `--version` starts neither server nor engine. That is also
why Ctrl-C finds the one line and status 130 from the first moment on: whatever takes time happens inside `main`.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import NoReturn

_CANCELLED = 130
_LAST_CHANNEL = 2


def main() -> int:
    """Run the program with the process's arguments; the result is its exit status."""
    _make_up_for_what_the_parent_took()
    try:
        from outpost_lsp.cli.main import main as run_command_line

        return run_command_line(sys.argv[1:], serve=_serve, cluster=_cluster)
    except KeyboardInterrupt:
        sys.stderr.write("outpost-lsp: cancelled\n")
        return _CANCELLED
    finally:
        _end_without_words()


def _make_up_for_what_the_parent_took() -> None:
    """Give the process what every program here takes for granted, and so do git and all others that it starts.

    Without a standard channel its number would go to the next file that is opened, and output to that file. Where the
    parent ignores the ends of children, so does git, and takes what it asked its own helpers for as failed.
    """
    import signal

    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if None in (sys.stdin, sys.stdout, sys.stderr):
        import os

        while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _LAST_CHANNEL:
            os.set_inheritable(descriptor, True)
        os.close(descriptor)
        sys.stdin = sys.stdin or os.fdopen(0, encoding="utf-8", closefd=False)
        sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)


def _end_without_words() -> None:
    """Let Ctrl-C end what is left to do, the interpreter's own clean-up, without a traceback."""
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


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


def _cluster(options: argparse.Namespace) -> int:
    from outpost_lsp.cluster import commands

    return commands.worker(options) if options.command == "worker" else commands.face(options)


if __name__ == "__main__":
    sys.exit(main())
