"""The one stretch in which two texts differ, and where it takes what stood beside it.

Pure; offsets are code points. Findings are moved by it (`tracking`), and the board makes one of each change of a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_LONGEST_SLACK: Final = 600


@dataclass(frozen=True, slots=True)
class Edit:
    """What differs between two texts: one stretch of the old one, and how long it is in the new one."""

    start: int
    end: int
    new_end: int
    slack: int = 0
    """By how much earlier it may have been just as well: removing either of two equal stretches leaves the same text."""

    @property
    def shift(self) -> int:
        """By how much everything behind it moved."""
        return self.new_end - self.end

    def moved(self, offset: int, *, to_end: bool) -> int:
        """Where an offset in the old text is in the new one; one inside the stretch goes to its new start or end."""
        if offset < self.start or (offset == self.start and not (to_end and self.start == self.end)):
            return offset
        if offset >= self.end:
            return offset + self.shift
        return self.new_end if to_end else self.start


def edit_between(old: str, new: str) -> Edit | None:
    """The one stretch in which two texts differ; `None` when they are equal."""
    if old == new:
        return None
    start = _common_prefix(old, new)
    limit = min(len(old), len(new)) - start
    tail = _common_suffix(old, new, limit)
    end, new_end = len(old) - tail, len(new) - tail
    slack = 0
    if new_end == start:
        while slack < min(start, _LONGEST_SLACK) and old[start - slack - 1] == old[end - slack - 1]:
            slack += 1
    return Edit(start, end, new_end, slack)


def _common_prefix(left: str, right: str) -> int:
    # Halving compares long stretches at once, which is much faster than character by character.
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _common_suffix(left: str, right: str, limit: int) -> int:
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if left[len(left) - middle : len(left) - low] == right[len(right) - middle : len(right) - low]:
            low = middle
        else:
            high = middle - 1
    return low
