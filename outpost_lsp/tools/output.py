"""What a program said, as a model is shown it: exit status, then each channel, shortened in the middle (BTOOL-38, TEXEC-14).

The loop keeps the head of a long result and commands keep the tail; so the tools for commands shorten their own output
to what fits, with the cut marked in between.
"""

from __future__ import annotations

from typing import Final

from outpost_lsp.domain.tool import ToolOutput

RESULT_LIMIT: Final = 98_000
"""Characters of a whole result, below the 100,000 at which the loop cuts."""

_ERROR_SHARE: Final = 20_000


class KeptOutput:
    """The head and the tail of one channel, each up to `limit` characters, and how much there was."""

    def __init__(self, limit: int = RESULT_LIMIT) -> None:
        self._limit = limit
        self._head = ""
        self._tail = ""
        self.characters = 0

    @classmethod
    def of(cls, text: str) -> KeptOutput:
        """A text that is there already."""
        kept = cls(len(text))
        kept.add(text)
        return kept

    def add(self, text: str) -> None:
        """Take the next piece of output."""
        self.characters += len(text)
        room = self._limit - len(self._head)
        if room > 0:
            self._head += text[:room]
        self._tail = (self._tail + text)[-self._limit :]

    def text(self, limit: int) -> str:
        """Everything where it fits, else head and tail with the cut marked in between."""
        if self.characters <= min(limit, self._limit):
            return self._head
        half = min(limit, self._limit) // 2
        left_out = self.characters - 2 * half
        return f"{self._head[:half]}\n[... {left_out} characters left out ...]\n{self._tail[len(self._tail) - half :]}"


def program_output(status: int, stdout: KeptOutput, stderr: KeptOutput, *, note: str = "") -> ToolOutput:
    """The result of a program; an error when its status says so. `note` says what is missing at the end."""
    parts = [f"exit status {status}", *channels(stdout, stderr)]
    if note:
        parts.append(f"[{note}]")
    return ToolOutput("\n".join(parts), is_error=status != 0)


def channels(stdout: KeptOutput, stderr: KeptOutput) -> list[str]:
    """A header and the text for each channel that is not empty, as much of both as fits one result."""
    for_errors = max(_ERROR_SHARE, RESULT_LIMIT - stdout.characters)
    for_output = RESULT_LIMIT - min(stderr.characters, for_errors)
    parts = []
    for name, kept, limit in (("stdout", stdout, for_output), ("stderr", stderr, for_errors)):
        if kept.characters:
            parts += [f"--- {name} ---", kept.text(limit).removesuffix("\n")]
    return parts
