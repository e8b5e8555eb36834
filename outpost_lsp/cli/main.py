"""From a command line to an exit status: the border where faults become sentences and numbers.

Statuses: 0 done; 1 findings at or above the floor; 2 wrong usage or configuration; 3 the run failed; 130 cancelled.
Every command lives in a module of its own and is imported only when it is asked for.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from outpost_lsp.errors import OutpostError

DONE: Final = 0
FOUND: Final = 1
USAGE: Final = 2
FAILED: Final = 3
CANCELLED: Final = 130
TERMINATED: Final = 143

_SERVER_OPTIONS: Final = ("--stdio", "--tcp", "--ws", "--clientProcessId")


def main(arguments: Sequence[str]) -> int:
    """Run one command line; never raises for what a person can mend."""
    if list(arguments) in (["--version"], ["-V"]):
        from outpost_lsp.cli.version import package_version

        print(f"outpost-lsp {package_version()}")
        return DONE
    if _means_server(arguments):
        arguments = ["serve", *arguments]
    from outpost_lsp.cli.arguments import WrongUsageError, parse, parser

    try:
        options = parse(arguments)
    except WrongUsageError as error:
        return complain(str(error))
    except SystemExit as ended:
        return int(ended.code or 0)
    if options.command is None:
        parser().print_help(sys.stderr)
        return USAGE
    return _guarded(_COMMANDS[options.command], options)


def complain(message: str) -> int:
    """One sentence on standard error, and the status of wrong usage."""
    print(f"outpost-lsp: {message}" if not message.startswith("outpost-lsp") else message, file=sys.stderr)
    return USAGE


def _means_server(arguments: Sequence[str]) -> bool:
    if not arguments:
        # An editor that starts the bare program talks to it through a pipe.
        return sys.stdin is not None and not sys.stdin.isatty()
    return arguments[0].split("=", 1)[0] in _SERVER_OPTIONS


def _guarded(command: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    from outpost_lsp.errors import OutpostError

    try:
        return command(options)
    except OutpostError as error:
        return _explain(error)
    except KeyboardInterrupt:
        print("outpost-lsp: cancelled", file=sys.stderr)
        return CANCELLED
    except BrokenPipeError:
        # The reader of our output has gone (`| head`). Python would complain again when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE


def _explain(error: OutpostError) -> int:
    print(f"outpost-lsp: {error.message}", file=sys.stderr)
    return USAGE if error.code in ("configuration", "workspace") else FAILED


def _serve(options: argparse.Namespace) -> int:
    from outpost_lsp.cli.serve import serve

    return serve(options)


def _review(options: argparse.Namespace) -> int:
    from outpost_lsp.cli.review import review

    return review(options)


_COMMANDS: Final[dict[str, Callable[[argparse.Namespace], int]]] = {"serve": _serve, "review": _review}
