"""Both sides of one file of the scope: which calls still have to be made to know them, and what came back.

A side is whole or it is not used: a text that was cut on its way is read in further pages, taken from git or, for the
base, rebuilt from the difference. What cannot be had is said in `trouble`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from outpost_lsp.models.rule_based.analysis import RawFinding
from outpost_lsp.models.rule_based.assignment import ScopeFile
from outpost_lsp.models.rule_based.tool_text import GitOutput, Page, joined, parse_git, parse_page, short_reason

PAGE_LINES: Final = 2_000
_HUNK: Final = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call to make."""

    tool: str
    input: dict[str, Any]


@dataclass(slots=True)
class FileSides:
    """What is known of one file. `findings` is filled once both sides were analysed; the texts are let go then."""

    file: ScopeFile
    base: str
    snapshot: str
    with_git: bool
    lines: list[str] = field(default_factory=list)
    text: str | None = None
    base_text: str | None = None
    base_asked: bool = False
    base_trouble: str | None = None
    base_cut: bool = False
    through_git: bool = False
    trouble: str | None = None
    analysed: bool = False
    brought: list[RawFinding] = field(default_factory=list)
    older: list[RawFinding] = field(default_factory=list)
    line_count: int = 0

    @property
    def is_read(self) -> bool:
        """Whether nothing more is to be asked: both sides are known, or will never be."""
        return self.trouble is not None or (self.text is not None and not self._base_is_wanted)

    @property
    def base_known(self) -> bool:
        """Whether the new side can be compared: with a base text, or with the knowledge that there is none."""
        return self.base_text is not None

    def calls(self) -> list[Call]:
        """What to ask next."""
        if self.trouble is not None or self.analysed:
            return []
        wanted = []
        if self.text is None:
            wanted.append(self._new_side_call())
        if self._base_is_wanted and not (self.base_cut and self.text is None):
            wanted.append(self._base_call())
        return wanted

    def new_side_answered(self, content: str, *, is_error: bool, through_git: bool) -> None:
        """Take in what `read_file`, or `git show` in its place, answered."""
        if through_git:
            self._shown(content)
            return
        page = None if is_error else parse_page(content)
        if page is None:
            self.trouble = short_reason(content)
        elif page.first != len(self.lines) + 1 and page.total != 0:
            return
        else:
            self._page(page)

    def base_answered(self, content: str, *, is_error: bool) -> None:
        """Take in what `git show` or `git diff` said of the base."""
        output = parse_git(content)
        if output is None:
            self.base_trouble = short_reason(content)
        elif self.base_cut:
            self._rebuild(output)
        elif not output.whole:
            self.base_cut = True
        elif output.status or is_error:
            self.base_trouble = short_reason(content)
        else:
            self.base_text = _whole_text(output.stdout)

    def release(self) -> None:
        """Let the texts go once they were analysed."""
        self.analysed = True
        self.line_count = len(self.lines) or (self.text or "").count("\n")
        self.lines = []
        self.text = self.text and ""
        self.base_text = self.base_text and ""

    @property
    def _base_is_wanted(self) -> bool:
        return (
            bool(self.base)
            and self.with_git
            and self.file.base_path is not None
            and self.base_text is None
            and self.base_trouble is None
        )

    def _new_side_call(self) -> Call:
        # A backslash in a name is a separator to the file tools; git takes the name as it is.
        if self.with_git and (self.through_git or "\\" in self.file.path):
            self.through_git = True
            return Call("git", {"command": "show", "arguments": [f"{self.snapshot or 'HEAD'}:{self.file.path}"]})
        wanted: dict[str, Any] = {"path": self.file.path}
        if self.lines:
            wanted["offset"] = len(self.lines) + 1
        return Call("read_file", wanted)

    def _base_call(self) -> Call:
        if self.base_cut:
            arguments = ["--unified=0", "--no-color", "--no-renames", self.base, self.snapshot or "HEAD", "--"]
            return Call("git", {"command": "diff", "arguments": [*arguments, self.file.path]})
        return Call("git", {"command": "show", "arguments": [f"{self.base}:{self.file.base_path}"]})

    def _page(self, page: Page) -> None:
        if page.long_lines:
            self._long_lines()
            return
        self.lines.extend(page.lines)
        if page.total is not None and len(self.lines) >= page.total:
            self.text = joined(self.lines)
        elif not page.lines:
            self.trouble = "its text was cut and could not be read on"

    def _long_lines(self) -> None:
        self.lines = []
        if self.with_git and not self.through_git:
            self.through_git = True
        else:
            self.trouble = "its lines are too long to be read whole"

    def _shown(self, content: str) -> None:
        output = parse_git(content)
        if output is None or output.status:
            self.trouble = short_reason(content)
        elif not output.whole:
            self.trouble = "its lines are too long to be read whole"
        elif "\0" in output.stdout:
            self.trouble = "it looks binary"
        else:
            self.text = _whole_text(output.stdout)

    def _rebuild(self, output: GitOutput) -> None:
        if output.status or not output.whole or self.text is None:
            self.base_trouble = "its earlier text is too large to compare with"
            return
        rebuilt = base_from_difference(self.text, output.stdout)
        if rebuilt is None:
            self.base_trouble = "its earlier text could not be rebuilt"
        else:
            self.base_text = rebuilt


def _whole_text(shown: str) -> str:
    # The tool leaves the last line end away, and `read_file` shows neither byte-order mark nor carriage returns.
    text = shown.removeprefix("\ufeff").replace("\r\n", "\n")
    return f"{text}\n" if text else ""


def base_from_difference(text: str, difference: str) -> str | None:
    """The old side of a file from its new side and a difference without context; `None` when they do not fit."""
    new = text.split("\n")
    if new and new[-1] == "":
        new.pop()
    old: list[str] = []
    position = 0
    hunk: tuple[int, int] | None = None
    for raw in difference.split("\n"):
        line = raw.removesuffix("\r")
        if match := _HUNK.match(line):
            count = int(match[4]) if match[4] is not None else 1
            # With no lines on the new side git names the line before the gap.
            start = int(match[3]) - 1 if count else int(match[3])
            if start < position or start + count > len(new):
                return None
            old.extend(new[position:start])
            position = start + count
            hunk = (start, count)
        elif hunk is not None and line.startswith("-"):
            old.append(line[1:])
        elif hunk is not None and not line.startswith(("+", "\\")) and line:
            hunk = None
    old.extend(new[position:])
    return joined(old)
