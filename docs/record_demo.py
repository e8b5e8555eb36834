"""Records a real run of `outpost-lsp demo` on a terminal as the picture in the README.

    python docs/record_demo.py docs/demo.svg

The program runs on a pseudo-terminal, so that it shows what a person sees; what it wrote is played on a small screen
model (only the few control sequences that a live view uses) and exported by rich.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

from rich.console import Console
from rich.text import Text

WIDTH, HEIGHT = 108, 60
TOKEN = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\r|\n|[^\x1b\r\n]+")


def main() -> int:
    """Record into the file named on the command line."""
    output = run_on_terminal([sys.executable, "-m", "outpost_lsp", "demo"])
    console = Console(record=True, width=WIDTH, file=open(os.devnull, "w", encoding="utf-8"), force_terminal=True)
    console.print(Text.from_ansi("$ outpost-lsp demo\n\n" + "\n".join(screen(output))))
    console.save_svg(sys.argv[1], title="outpost-lsp demo")
    return 0


def run_on_terminal(command: list[str]) -> str:
    """What a command writes to a terminal of our size."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": str(WIDTH), "LINES": str(HEIGHT)}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        pieces = []
        while True:
            try:
                piece = os.read(ours, 65_536)
            except OSError:
                break
            if not piece:
                break
            pieces.append(piece)
        process.wait()
    os.close(ours)
    return b"".join(pieces).decode("utf-8", "replace")


def screen(output: str) -> list[str]:
    """The lines that stand on the screen at the end, colours included."""
    lines, row = [""], 0
    for token in TOKEN.finditer(output):
        text = token.group()
        if text == "\n":
            row += 1
            lines.extend([""] * (row + 1 - len(lines)))
        elif text == "\r":
            continue
        elif not text.startswith("\x1b"):
            lines[row] += text
        elif token.group(2) == "m":
            lines[row] += text
        elif token.group(2) == "A":
            row = max(0, row - int(token.group(1) or 1))
        elif token.group(2) == "K":
            lines[row] = ""
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


if __name__ == "__main__":
    sys.exit(main())
