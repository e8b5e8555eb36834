"""What a terminal can do: colour only where a person looks and `NO_COLOR` does not say otherwise."""

from __future__ import annotations

import os
from typing import Final, TextIO

BOLD: Final = "1"
DIM: Final = "2"
RED: Final = "31"
YELLOW: Final = "33"
BLUE: Final = "34"
GREEN: Final = "32"


def wants_colour(stream: TextIO) -> bool:
    """Whether colour may be written to the stream."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def is_interactive(stream: TextIO) -> bool:
    """Whether somebody looks at the stream while it is written."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


class Paint:
    """Wraps text in colour, or leaves it alone."""

    def __init__(self, *, colour: bool) -> None:
        self._colour = colour

    def __call__(self, text: str, *codes: str) -> str:
        return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if self._colour and codes and text else text
