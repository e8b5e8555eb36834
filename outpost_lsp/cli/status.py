"""The exit statuses, and the exception that stands for the one a signal asks for."""

from __future__ import annotations

from typing import Final

DONE: Final = 0
FOUND: Final = 1
USAGE: Final = 2
FAILED: Final = 3
CANCELLED: Final = 130
TERMINATED: Final = 143


class TerminatedError(Exception):
    """The process was asked to end (SIGTERM); whatever ran was stopped first."""
