"""Runs ruff over texts, as a process in a private folder, and turns what it says into findings.

The repository's configuration has no say: ruff sees neither its files nor its environment, only the texts, under names
of our own. Many texts go into one process. A run that fails is a fault (`process`), never a clean result.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import anyio.to_thread

from outpost_lsp.errors import OutpostError
from outpost_lsp.models.rule_based.analysis import RawFinding, SourceText
from outpost_lsp.reviews.rules.placed import UNPARSABLE, Placed, quoted
from outpost_lsp.reviews.rules.second_look import second_look
from outpost_lsp.reviews.rules.table import CONFIDENCE, HABITS, RULES, SAID_ONCE
from outpost_lsp.sandbox.process import run_process
from outpost_lsp.worktrees.scratch import scratch_folder

_NEWEST_PYTHON: Final = "py314"
"""Newer syntax than the project's own is no fault that a rule could judge."""
_USAGE: Final = 2
"""The status with which ruff refuses its arguments."""
_OUTPUT_LIMIT: Final = 64 * 1024 * 1024
_DEADLINE_S: Final = 120.0
_NEWLINE: Final = re.compile(r"\r\n|\n|\r")
_NAME: Final = re.compile(r"`([^`]+)`")
_KEPT_NAMES: Final = frozenset(("__init__.py", "__main__.py", "conftest.py", "setup.py"))
_LONGEST_NAME: Final = 60


def is_python(source: SourceText) -> bool:
    """Whether ruff can read it: by its name, or a script by its first line."""
    name = source.path.rsplit("/", 1)[-1]
    if name.endswith((".py", ".pyi", ".pyw")):
        return True
    return "." not in name and re.match(r"#![^\n]*\bpython[\d.]*\b", source.text) is not None


class Ruff:
    """Ruff as the analyser of Python texts. `selected` are the rules of the table that the installed ruff knows."""

    def __init__(self) -> None:
        self.selected: tuple[str, ...] = tuple(RULES)

    async def findings(self, sources: Sequence[SourceText]) -> list[list[Placed]]:
        """What ruff says of each text, in their order."""
        if not sources:
            return []
        folder = await anyio.to_thread.run_sync(_written, sources)
        try:
            output = await self._checked(folder, [f"{index}/{_name(source)}" for index, source in enumerate(sources)])
            return await anyio.to_thread.run_sync(_read, output, sources)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_removed, folder)

    async def _checked(self, folder: Path, names: Sequence[str]) -> str:
        try:
            return await _run(_arguments(self.selected, names), folder)
        except OutpostError as error:
            # A rule that a later ruff does not know any more must not fail every review.
            known = await _known_rules() if error.details.get("status") == _USAGE else frozenset(self.selected)
            selected = tuple(code for code in self.selected if code in known)
            if selected == self.selected or not selected:
                raise
        self.selected = selected
        return await _run(_arguments(selected, names), folder)


def _arguments(selected: Sequence[str], names: Sequence[str]) -> list[str]:
    return [
        "check",
        "--isolated",
        "--no-cache",
        "--quiet",
        "--preview",
        "--no-respect-gitignore",
        "--output-format=json",
        f"--target-version={_NEWEST_PYTHON}",
        f"--select={','.join(selected)}",
        "--",
        *names,
    ]


async def _known_rules() -> frozenset[str]:
    listed = json.loads(await _run(["rule", "--all", "--output-format=json"], Path(tempfile.gettempdir())))
    return frozenset(rule["code"] for rule in listed if "Removed" not in json.dumps(rule.get("status", "")))


@cache
def _binary() -> str:
    # The import is made here because it is needed by reviews alone.
    from ruff import find_ruff_bin  # type: ignore[import-untyped]

    try:
        return str(find_ruff_bin())
    except FileNotFoundError as error:
        raise OutpostError("process", "offline review: the program ruff is not installed", cause=error) from error


async def _run(arguments: Sequence[str], folder: Path) -> str:
    # An empty environment: variables could name a configuration or an output file.
    result = await run_process(
        [_binary(), *arguments], cwd=folder, environment={}, deadline_s=_DEADLINE_S, retain=_OUTPUT_LIMIT
    )
    if result.status not in (0, 1):
        words = result.stderr.strip()[-500:] or f"status {result.status}"
        details = {"status": result.status, "stdout": result.stdout, "stderr": result.stderr}
        raise OutpostError("process", f"offline review: ruff failed: {words}", details)
    if result.truncated:
        raise OutpostError("process", "offline review: ruff said more than can be kept")
    return result.stdout


def _name(source: SourceText) -> str:
    name = source.path.rsplit("/", 1)[-1]
    if name in _KEPT_NAMES:
        return name
    return "module.pyi" if name.endswith(".pyi") else "module.py"


def _written(sources: Sequence[SourceText]) -> Path:
    folder = scratch_folder("review").resolve()
    for index, source in enumerate(sources):
        place = folder / str(index)
        place.mkdir()
        (place / _name(source)).write_bytes(source.text.encode("utf-8", "replace"))
    return folder


def _removed(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _read(output: str, sources: Sequence[SourceText]) -> list[list[Placed]]:
    found: list[list[Placed]] = [[] for _ in sources]
    lines: dict[int, list[str]] = {}
    try:
        for diagnostic in json.loads(output):
            index = int(Path(diagnostic["filename"]).parent.name)
            if index not in lines:
                lines[index] = _NEWLINE.split(sources[index].text)
            if (placed := _placed(diagnostic, lines[index])) is not None:
                found[index].append(placed)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise OutpostError("process", f"offline review: ruff's answer has another form: {error!r}") from error
    return [
        second_look(placed, source.path, source.text, lines[index]) if placed else []
        for index, (source, placed) in enumerate(zip(sources, found, strict=True))
    ]


@dataclass(frozen=True, slots=True)
class _Edit:
    start: tuple[int, int]
    end: tuple[int, int]
    text: str


def _placed(diagnostic: Mapping[str, Any], lines: Sequence[str]) -> Placed | None:
    code = diagnostic["code"] or UNPARSABLE
    start, end = _position(diagnostic["location"]), _position(diagnostic["end_location"])
    message = str(diagnostic["message"]).strip().rstrip(".")
    last = end[0] - 1 if end[1] == 1 and end[0] > start[0] else end[0]
    line, quote = quoted(lines, start[0], last)
    if not quote.strip():
        return None
    if code == UNPARSABLE:
        finding = _unparsable(message, line, quote)
        return Placed(finding, start, end)
    rule = RULES[code]
    # "from line 3" moves with the file; a key stays.
    names = [name for name in _NAME.findall(message) if not name.isdigit()]
    slug = str(diagnostic.get("name") or str(diagnostic.get("url") or "").rsplit("/", 1)[-1] or code.lower())
    finding = RawFinding(
        rule=code,
        code=slug,
        severity=rule.severity,
        title=_filled(rule.title, names),
        detail=f"{message}. Found by rule {code} (`{slug}`).",
        line=line,
        quote=quote,
        key=",".join(names),
        confidence=CONFIDENCE[rule.severity],
        replacement=_replacement(diagnostic.get("fix"), line, quote),
        whole_file=code in SAID_ONCE,
        is_habit=code in HABITS,
    )
    return Placed(finding, start, end)


def _unparsable(message: str, line: int, quote: str) -> RawFinding:
    return RawFinding(
        rule=UNPARSABLE,
        code="does-not-parse",
        severity="error",
        title="Nothing in this file runs: it does not parse",
        detail=f"{message}. Found by parsing the file.",
        line=line,
        quote=quote,
        confidence=CONFIDENCE["error"],
        whole_file=True,
        hides_others=True,
    )


def _filled(title: str, names: Sequence[str]) -> str:
    shown = [name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…" for name in names]
    for index in range(2):
        title = title.replace(f"{{{index}}}", shown[index] if index < len(shown) else "it")
    return title.replace("\n", " ")


def _position(place: Mapping[str, Any]) -> tuple[int, int]:
    return int(place["row"]), int(place["column"])


def _replacement(fix: Mapping[str, Any] | None, line: int, quote: str) -> str | None:
    """The quote with ruff's own safe fix applied, when the fix changes nothing outside the quote."""
    if not fix or fix.get("applicability") != "safe" or not fix.get("edits"):
        return None
    edits = [
        _Edit(_position(edit["location"]), _position(edit["end_location"]), edit["content"] or "")
        for edit in fix["edits"]
    ]
    rows = quote.split("\n")
    if any(edit.start[0] < line or edit.end[0] >= line + len(rows) for edit in edits):
        return None
    for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
        first, last = edit.start[0] - line, edit.end[0] - line
        text = rows[first][: edit.start[1] - 1] + edit.text + rows[last][edit.end[1] - 1 :]
        rows[first : last + 1] = text.split("\n")
    fixed = "\n".join(rows)
    return fixed if fixed.strip() and fixed != quote else None
