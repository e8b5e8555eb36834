"""Reading what the built-in tools answer: numbered lines, git's output under its status line, listings.

The inverse of the formats of the file and git tools (BTOOL-10 to -15, BTOOL-38). Whatever was cut on the way is
recognised as cut and never taken for the whole.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from outpost_lsp.models.rule_based.assignment import ChangeStatus, ScopeFile

LINE_LIMIT: Final = 2_000
"""Longer lines are cut by `read_file` (BTOOL-12)."""

_NUMBERED: Final = re.compile(r" *(\d+)\t(.*)", re.DOTALL)
_SHOWN: Final = re.compile(r"\[lines (\d+)-(\d+) of (\d+)\]")
_EMPTY: Final = "(empty file)"
_STDOUT: Final = "\n--- stdout ---\n"
_STDERR: Final = "\n--- stderr ---\n"
_CUT: Final = re.compile(r"^\[\.\.\. \d+ characters left out \.\.\.\]$|^\[cut: [^\n]*\]\Z", re.MULTILINE)
_NO_FILES: Final = re.compile(r"No files( below .*)?( match .*)?\.", re.DOTALL)
_REST_OF_LISTING: Final = re.compile(r"\[[^\n]*?(\d[\d,]*)[^\n]*\]")
_STATUS: Final[Mapping[str, ChangeStatus]] = {
    "A": "added",
    "C": "added",
    "M": "modified",
    "T": "modified",
    "D": "deleted",
    "R": "renamed",
}


@dataclass(frozen=True, slots=True)
class Page:
    """Consecutive lines of a file. `total` is the file's number of lines where the page knows it."""

    first: int
    lines: tuple[str, ...]
    total: int | None
    long_lines: bool = False

    @property
    def next_line(self) -> int:
        """The line after the last one shown."""
        return self.first + len(self.lines)


def parse_page(content: str) -> Page | None:
    """What `read_file` answered; `None` when it is not in that form."""
    if content.strip() == _EMPTY:
        return Page(1, (), 0)
    lines: list[str] = []
    first = 0
    rest: list[str] = []
    pieces = content.split("\n")
    for index, piece in enumerate(pieces):
        match = _NUMBERED.fullmatch(piece)
        if match is None or (lines and int(match[1]) != first + len(lines)):
            rest = pieces[index:]
            break
        if not lines:
            first = int(match[1])
        lines.append(match[2])
    if not lines:
        return None
    last_words = "\n".join(rest).strip()
    total: int | None = None
    if not last_words:
        total = first + len(lines) - 1
    elif shown := _SHOWN.fullmatch(last_words):
        total = int(shown[3])
    else:
        # The loop cut the answer: the last line may be a part of itself, and the number of lines is not known.
        lines.pop()
    return Page(first, tuple(lines), total, any(len(line) > LINE_LIMIT for line in lines))


@dataclass(frozen=True, slots=True)
class GitOutput:
    """How a git call of the `git` tool ended. `whole` is false when its output was cut."""

    status: int
    stdout: str
    stderr: str
    whole: bool


def parse_git(content: str) -> GitOutput | None:
    """What the `git` tool answered; `None` when it is not in that form (a denial, a refused argument)."""
    head, _, _ = content.partition("\n")
    number = re.search(r"-?\d+", head)
    if number is None or "status" not in head:
        return None
    status = int(number[0])
    # Errors are only looked for where git failed: the file that `git show` prints may hold such a line itself.
    body, _, stderr = content.rpartition(_STDERR) if status and _STDERR in content else (content, "", "")
    _, _, stdout = body.partition(_STDOUT)
    return GitOutput(status, stdout, stderr, _CUT.search(content) is None)


@dataclass(frozen=True, slots=True)
class ListedChange:
    """A line of the raw difference. `is_file` is false for links, submodules and other things that hold no text."""

    file: ScopeFile
    is_file: bool


def parse_changes(stdout: str) -> tuple[ListedChange, ...]:
    """The files of `git diff --raw`, quoted names decoded."""
    changes = []
    for line in stdout.split("\n"):
        head, *names = line.split("\t")
        fields = head.split(" ")
        if not head.startswith(":") or len(fields) != 5 or not names:
            continue
        letter = fields[4][:1]
        paths = [unquoted(name) for name in names]
        status = _STATUS.get(letter)
        if status is None or len(paths) != (2 if letter in "RC" else 1):
            continue
        file = ScopeFile(paths[-1], status, paths[0] if letter == "R" else None)
        mode = fields[0].removeprefix(":") if status == "deleted" else fields[1]
        changes.append(ListedChange(file, mode.startswith("100")))
    return tuple(changes)


def unquoted(name: str) -> str:
    """A path as git prints it: in double quotes with C escapes when it holds unusual characters."""
    if len(name) < 2 or not (name.startswith('"') and name.endswith('"')):
        return name
    data = bytearray()
    escapes = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13}
    for match in re.finditer(r"\\([0-7]{3}|.)|([^\\]+)", name[1:-1], re.DOTALL):
        escape, plain = match.groups()
        if plain is not None:
            data += plain.encode("utf-8", "surrogateescape")
        elif len(escape) == 3:
            data.append(int(escape, 8) & 0xFF)
        elif escape in escapes:
            data.append(escapes[escape])
        else:
            data += escape.encode()
    return data.decode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class Listing:
    """What `list_files` answered. `hidden` counts the entries it did not show."""

    paths: tuple[str, ...]
    hidden: int


def parse_listing(content: str) -> Listing:
    """The paths of a listing; empty for the sentence that says there are none."""
    lines = [line for line in content.split("\n") if line]
    hidden = 0
    if lines and (rest := _REST_OF_LISTING.fullmatch(lines[-1])):
        hidden = int(rest[1].replace(",", ""))
        lines.pop()
    if len(lines) == 1 and _NO_FILES.fullmatch(lines[0]):
        return Listing((), hidden)
    return Listing(tuple(lines), hidden)


def short_reason(content: str, *, limit: int = 160) -> str:
    """The first line of a tool's error, for a sentence in the summary."""
    output = parse_git(content)
    text = output.stderr.strip() if output is not None and output.stderr.strip() else content.strip()
    line = text.split("\n")[0].strip() if text else "no reason given"
    return line if len(line) <= limit else line[: limit - 1] + "…"


def joined(lines: Sequence[str]) -> str:
    """Lines as the text of a file."""
    return "".join(f"{line}\n" for line in lines)
