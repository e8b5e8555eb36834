"""From a command line to an exit status: the border where faults become sentences and numbers.

Statuses: 0 done; 1 findings at or above the floor; 2 wrong usage or configuration; 3 the run failed; 130 cancelled.
Every command lives in a module of its own and is imported only when it is asked for. The server belongs to another face
and is handed in.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final

from outpost_lsp.cli.status import CANCELLED, DONE, FAILED, TERMINATED, USAGE, TerminatedError

if TYPE_CHECKING:
    import argparse

    from outpost_lsp.errors import OutpostError

Command = Callable[["argparse.Namespace"], int]

_SERVER_OPTIONS: Final = ("--stdio", "--tcp", "--ws", "--clientProcessId")

_HOMES: Final = {
    "review": ("review", "review"),
    "collect": ("detached", "collect"),
    "audit": ("audit", "audit"),
    "demo": ("demo", "demo"),
    "run": ("agents", "run"),
    "continue": ("agents", "go_on"),
    "runs": ("runs", "list_runs"),
    "show": ("runs", "show"),
    "usage": ("spending", "usage"),
    "report": ("bundle", "bundle"),
    "init": ("init", "init"),
    "diff": ("changes", "diff"),
    "apply": ("changes", "apply"),
    "discard": ("changes", "discard"),
    "reopen": ("changes", "reopen"),
    "replay": ("agents", "replay"),
    "config": ("settings", "config"),
    "schema": ("settings", "schema"),
    "trust": ("settings", "trust"),
    "doctor": ("doctor", "doctor"),
    "clean": ("clean", "clean"),
}
"""Where each command lives: module of this package and function."""

_OF_CLUSTERS: Final = ("worker", "face")
"""Another face's commands, which is handed in like the server."""


def main(arguments: Sequence[str], *, serve: Command, cluster: Command) -> int:
    """Run one command line; never raises for what a person can mend. `serve` and `cluster` are the other faces."""
    if list(arguments) in (["--version"], ["-V"]):
        from outpost_lsp import __version__

        print(f"outpost-lsp {__version__}")
        return DONE
    if _means_server(arguments):
        arguments = ["serve", *arguments]
    # What an editor starts should not load what only other commands need, so the parser is imported here.
    from outpost_lsp.cli.arguments import WrongUsageError, parse, parser

    try:
        options = parse(arguments)
    except WrongUsageError as error:
        print(error, file=sys.stderr)
        return USAGE
    except SystemExit as ended:
        return int(ended.code or 0)
    if options.command is None:
        parser().print_help(sys.stderr)
        return USAGE
    if options.command == "serve":
        return serve(options)
    if options.command in _OF_CLUSTERS:
        return _guarded(lambda: cluster, options)
    module, name = _HOMES[options.command]
    return _guarded(lambda: getattr(import_module(f"outpost_lsp.cli.{module}"), name), options)


def _means_server(arguments: Sequence[str]) -> bool:
    if not arguments:
        # An editor that starts the bare program talks to it through a pipe.
        return sys.stdin is not None and not sys.stdin.isatty()
    return arguments[0].split("=", 1)[0] in _SERVER_OPTIONS


def _guarded(load: Callable[[], Command], options: argparse.Namespace) -> int:
    from outpost_lsp.errors import OutpostError

    try:
        status = load()(options)
        sys.stdout.flush()
        return status
    except OutpostError as error:
        return _explain(error)
    except KeyboardInterrupt:
        print("outpost-lsp: cancelled", file=sys.stderr)
        return CANCELLED
    except TerminatedError:
        return TERMINATED
    except BrokenPipeError:
        # The reader of our output has gone (`| head`). Python would complain again when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE


def _explain(error: OutpostError) -> int:
    from outpost_lsp.domain.markdown import one_line

    print(f"outpost-lsp: {one_line(error.message, 2000)}", file=sys.stderr)
    return USAGE if error.code in ("configuration", "workspace") else FAILED
