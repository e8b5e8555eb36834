"""What a terminal can do, and text that is safe to print on one.

Colour only where a person looks and `NO_COLOR` does not say otherwise. Text of a model or a file is shown with its
control and direction characters escaped, so that it can neither move the cursor nor pass for something else (SEC-19).
"""

from __future__ import annotations

import os
import re
from typing import Final, TextIO

_UNSAFE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]")

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


def printable(text: str) -> str:
    """The text with what a terminal would act on, or a reader would not see, spelled out. Tabs and line feeds stay."""
    return _UNSAFE.sub(lambda found: _spelled(found.group()), text.replace("\r\n", "\n"))


class Paint:
    """Wraps text in colour, or leaves it alone."""

    def __init__(self, *, colour: bool) -> None:
        self._colour = colour

    def __call__(self, text: str, *codes: str) -> str:
        return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if self._colour and codes and text else text


def _spelled(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
