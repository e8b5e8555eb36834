"""How much the offline reviewer catches, and how silent it is: seeded slips against the base, and unseen code.

    python -m tests.benchmarks.offline_reviewer [--each N] [--verbose] [FOLDER ...]

Without folders the standard library is taken (without its tests). Three figures come out: the share of slips that are
caught against the base, the share of pairs on whose corrected side something new is said, and errors and warnings for
1,000 lines of code as it stands.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sysconfig
import warnings
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from outpost_lsp.models.rule_based.analysis import RawFinding, SourceText, brought_by_change, changed_lines
from outpost_lsp.reviews.rules import RuleAnalyser
from outpost_lsp.reviews.rules.python_compare import lost_by_change
from tests.benchmarks.offline_slips import PYTHON

_TRIED = 150
"""Files that are tried for one kind."""
_LEFT_OUT = {"test", "tests", "idle_test", "lib2to3", "site-packages", "idlelib", "turtledemo", "encodings"}


@dataclass(frozen=True, slots=True)
class Pair:
    """A correct text and the same text with a slip."""

    kind: str
    path: str
    correct: str
    slipped: str


def files_below(folders: Sequence[Path]) -> list[SourceText]:
    found = []
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            if _LEFT_OUT & set(path.relative_to(folder).parts) or path.stat().st_size > 200_000:
                continue
            try:
                found.append(SourceText(path.relative_to(folder).as_posix(), path.read_text("utf-8")))
            except (UnicodeDecodeError, OSError):
                continue
    return found


def seeded(files: Sequence[SourceText], each: int, seed: int = 7) -> list[Pair]:
    """At most `each` pairs of every kind, from different files."""
    pairs = []
    for kind, slip in PYTHON.items():
        chance = random.Random(f"{seed}{kind}")
        found = 0
        for source in chance.sample(list(files), min(len(files), _TRIED)):
            if found == each:
                break
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    slipped = slip(source.text, chance)
            except (SyntaxError, ValueError):
                continue
            if slipped is not None and slipped != source.text:
                pairs.append(Pair(kind, source.path, source.text, slipped))
                found += 1
    return pairs


def against_base(
    before: str, after: str, found_before: Sequence[RawFinding], found_after: Sequence[RawFinding], path: str
) -> list[RawFinding]:
    """What the reviewer says the change brought."""
    brought, _ = brought_by_change(found_after, found_before, changed_lines(before, after))
    known = {found.line for found in brought}
    lost = lost_by_change(SourceText(path, before), SourceText(path, after))
    return [*brought, *(found for found in lost if found.line not in known)]


async def analysed(analyse: RuleAnalyser, texts: Sequence[SourceText]) -> list[list[RawFinding]]:
    found: list[list[RawFinding]] = []
    for start in range(0, len(texts), 200):
        found += await analyse(texts[start : start + 200])
    return found


async def measure(folders: Sequence[Path], each: int, *, verbose: bool) -> dict[str, float]:
    files = files_below(folders)
    pairs = seeded(files, each)
    analyse = RuleAnalyser()
    correct = await analysed(analyse, [SourceText(pair.path, pair.correct) for pair in pairs])
    slipped = await analysed(analyse, [SourceText(pair.path, pair.slipped) for pair in pairs])
    caught: dict[str, list[bool]] = defaultdict(list)
    noisy = 0
    for pair, before, after in zip(pairs, correct, slipped, strict=True):
        brought = against_base(pair.correct, pair.slipped, before, after, pair.path)
        caught[pair.kind].append(any(found.severity in ("error", "warning") for found in brought))
        back = against_base(pair.slipped, pair.correct, after, before, pair.path)
        if back:
            noisy += 1
            if verbose:
                print("NOISE", pair.kind, pair.path, [(found.code, found.line, found.quote[:60]) for found in back])
        if verbose and not caught[pair.kind][-1]:
            print("MISSED", pair.kind, pair.path)
    standing = await analysed(analyse, files)
    lines = sum(source.text.count("\n") for source in files)
    said = Counter(found.as_it_stands.severity for findings in standing for found in findings if not found.only_new)
    for kind, results in sorted(caught.items(), key=lambda item: sum(item[1]) / len(item[1])):
        print(f"{sum(results):3} of {len(results):3}  {kind}")
    total = sum(map(len, caught.values()))
    figures = {
        "caught": 100 * sum(map(sum, caught.values())) / total,
        "caught by kind": 100 * sum(sum(results) / len(results) for results in caught.values()) / len(caught),
        "new on the corrected side": 100 * noisy / total,
        "errors and warnings per 1,000 lines": 1000 * (said["error"] + said["warning"]) / lines,
    }
    print(
        f"{total} slips in {len(files)} files of {lines} lines; "
        + ", ".join(f"{name}: {value:.2f}" for name, value in figures.items())
    )
    return figures


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--each", type=int, default=12)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    folders = options.folders or [Path(sysconfig.get_paths()["stdlib"])]
    asyncio.run(measure(folders, options.each, verbose=options.verbose))


if __name__ == "__main__":
    main()
