"""A program on a terminal that a test can read and type on, and take a picture of."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pyte
from rich.console import Console
from rich.style import Style
from rich.text import Text

_PATIENCE_S = 60.0
_NAMES = {"brown": "yellow", "brightbrown": "bright_yellow"}


class TerminalScreen:
    """What stands on the terminal of a program."""

    def __init__(self, process: subprocess.Popen[bytes], ours: int, columns: int, lines: int) -> None:
        self.process = process
        self._ours = ours
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)

    @property
    def text(self) -> str:
        return "\n".join(self._screen.display)

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def wait(self, what: str, condition: Callable[[str], bool]) -> None:
        """Read until the condition holds of the text on the screen."""
        end = time.monotonic() + _PATIENCE_S
        while not condition(self.text):
            assert time.monotonic() < end, f"{what} was not seen on\n{self.text}"
            assert self.process.poll() is None, f"it ended before {what} was seen\n{self.text}"
            if select.select([self._ours], [], [], 0.1)[0]:
                with contextlib.suppress(OSError):
                    self._stream.feed(os.read(self._ours, 65_536))

    def picture(self, file: Path, title: str) -> None:
        """Draw the screen as it stands, with its colours, as an SVG."""
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
            console = Console(
                record=True, width=self._screen.columns, file=nowhere, force_terminal=True, color_system="truecolor"
            )
            for number in range(self._screen.lines):
                row = Text(no_wrap=True)
                for column in range(self._screen.columns):
                    cell = self._screen.buffer[number][column]
                    row.append(cell.data or "", _style(cell))
                console.print(row, overflow="crop")
            file.write_text(console.export_svg(title=title), "utf-8")


@contextlib.contextmanager
def on_terminal(
    command: Sequence[str], environment: Mapping[str, str], *, cwd: Path, columns: int = 110, lines: int = 32
) -> Iterator[TerminalScreen]:
    """The program on a terminal of this size, ended in the end."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env={**environment, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield TerminalScreen(process, ours, columns, lines)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(ours)


def photograph(svg: Path) -> None:
    """A PNG of a picture, beside it, where Chromium is there to make it."""
    browser = shutil.which("chromium")
    if browser is not None:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1380,860"]
        picture = f"--screenshot={svg.with_suffix('.png')}"
        subprocess.run([browser, *options, picture, svg.as_uri()], check=True, capture_output=True, timeout=60)


def _style(cell: pyte.screens.Char) -> Style:
    return Style(
        color=_colour(cell.fg),
        bgcolor=_colour(cell.bg),
        bold=cell.bold,
        italic=cell.italics,
        underline=cell.underscore,
        reverse=cell.reverse,
    )


def _colour(name: str) -> str | None:
    if name == "default":
        return None
    if len(name) == 6 and all(digit in "0123456789abcdef" for digit in name.lower()):
        return f"#{name}"
    return _NAMES.get(name, name.replace("bright", "bright_"))
