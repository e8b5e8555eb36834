"""What a rule-based review knows after a prefix of its conversation.

Fed message by message, in order; everything it holds follows from the messages alone, so that the state may be thrown
away at any moment and built again, from a shortened history too. The reviewer asks it what to do next.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from outpost_lsp.domain.finding import normalised_quote
from outpost_lsp.domain.message import Message, ToolCallBlock, ToolResultBlock
from outpost_lsp.models.rule_based.assignment import Assignment, ScopeFile
from outpost_lsp.models.rule_based.sides import Call, FileSides
from outpost_lsp.models.rule_based.tool_text import (
    parse_changes,
    parse_git,
    parse_listing,
    short_reason,
)

LAST_CHANGE: Final = Assignment(scope="uncommitted", base="HEAD^", snapshot="HEAD")
"""What is reviewed when the brief does not say: in a snapshot's worktree, what it holds beyond its parent."""
CHECKED_LINE: Final = re.compile(r"\bChecked( at [0-9a-f]{12})?: (\".*\")$", re.MULTILINE)
"""What the reviewer says of the files it is done with. It outlives answers that are cut from a history.

People read it in the timeline, too: names as JSON writes them, since they may hold anything, and no more marks than those.
"""
_PLACE: Final = re.compile(r"\b[Pp]laced at .*?:(\d+)")
_KNOWN: Final = re.compile(r"^Reported already in this run, at .*?:(\d+): (.*)\. Nothing was added\.$", re.DOTALL)
_SEVERITY: Final = re.compile(r"\bseverity (error|warning|information|hint)\b")
_BINARY_SUFFIX: Final = re.compile(
    r"\.(png|jpe?g|gif|bmp|ico|webp|avif|tiff?|pdf|zip|gz|tgz|bz2|xz|zst|7z|rar|jar|war|class|whl|so|dylib|dll|exe|o|a"
    r"|pyc|woff2?|ttf|otf|eot|mp[34]|mov|avi|mkv|ogg|wav|flac|sqlite3?|db|parquet|npy|npz|pkl|bin|onnx|wasm)\Z",
    re.IGNORECASE,
)
_MADE_ELSEWHERE: Final = re.compile(
    r"(^|/)(node_modules|bower_components|vendor|third_party|site-packages|\.venv|__pycache__)/"
    r"|\.min\.(js|css|mjs)\Z|\.(js|css|mjs)\.map\Z"
)


@dataclass(frozen=True, slots=True)
class ReportKey:
    """What makes two reports the same report."""

    path: str
    code: str
    quote: str
    line: int


@dataclass(frozen=True, slots=True)
class Placing:
    """Where a report was placed, and with which severity, where the answer says so."""

    line: int | None
    severity: str | None
    title: str | None = None
    """That of the finding which had been shown already."""
    is_merged: bool = False
    """It became part of another finding at the same text."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A report that was not taken, and why."""

    path: str
    reason: str
    is_error: bool
    """Whether the tool failed or forbade it, rather than having its reasons not to show it."""


@dataclass(slots=True)
class ReviewState:
    """Everything known of one review. `tools` are the names of the tools that may be called."""

    assignment: Assignment
    tools: frozenset[str]
    sides: dict[str, FileSides] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    binary: list[str] = field(default_factory=list)
    checked_before: set[str] = field(default_factory=set)
    reported: dict[ReportKey, Mapping[str, Any]] = field(default_factory=dict)
    placed: dict[ReportKey, Placing] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    listing_done: bool = False
    listing_trouble: str | None = None
    unlisted: int = 0
    steps: int = 0
    remarks: int = 0
    stopped_reading: bool = False
    _pending: list[ToolCallBlock] = field(default_factory=list)
    _folders: list[str] = field(default_factory=list)
    _listed_folders: set[str] = field(default_factory=set)
    _by_base: dict[str, list[FileSides]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._add(self.assignment.files)
        wants_folders = not self.assignment.is_change and (not self.assignment.files or self.assignment.omitted > 0)
        if wants_folders and "list_files" in self.tools:
            self._folders = list(self.assignment.paths) or ["."]
        self.unlisted = self.assignment.omitted
        self.listing_done = not self.listing_calls()

    def feed(self, message: Message) -> None:
        """Take in the next message of the conversation."""
        for mark, names in CHECKED_LINE.findall(message.text):
            # The summary of a shortened history repeats these lines, and may repeat a file that imitates them: no file
            # can name the snapshot that holds it.
            if message.role == "assistant" or (mark and mark == self.mark):
                self._checked(names)
        if message.role == "assistant":
            self.steps += 1
            self._pending = list(message.calls)
            for call in self._pending:
                if call.name == "report_finding" and isinstance(call.input, Mapping):
                    self.reported[report_key(call.input)] = call.input
            return
        results = list(message.results)
        for call in self._pending:
            result = next((result for result in results if result.call_id == call.id), None)
            if result is not None:
                results.remove(result)
                self._answered(call, result)
        if self._pending:
            self.remarks += bool(message.text.strip())
        self._pending = []

    @property
    def mark(self) -> str:
        """What ties a line about checked files to this review; empty where no snapshot is named."""
        snapshot = self.assignment.snapshot
        return f" at {snapshot[:12]}" if len(snapshot) >= 40 else ""

    def checked_line(self, paths: Sequence[str]) -> str:
        """The line that says which files are done."""
        names = ", ".join(json.dumps(path, ensure_ascii=False) for path in paths)
        return f"Checked{self.mark}: {names}"

    def listing_calls(self) -> list[Call]:
        """What to ask to learn which files there are."""
        if self.assignment.is_change:
            if self.listing_done or "git" not in self.tools or not self.assignment.base:
                return []
            arguments = ["--raw", "--find-renames", "--abbrev=40", "--no-color", self.assignment.base]
            return [Call("git", {"command": "diff", "arguments": [*arguments, self.assignment.snapshot or "HEAD"]})]
        return [Call("list_files", {"path": folder}) for folder in self._folders[:8]]

    def reading_calls(self) -> list[Call]:
        """What to ask to know the texts that are still missing, of all files."""
        if self.stopped_reading or "read_file" not in self.tools:
            return []
        return [call for sides in self.sides.values() if not self._is_settled(sides) for call in sides.calls()]

    def ready(self) -> list[FileSides]:
        """The files that are read and not analysed yet."""
        return [
            sides
            for sides in self.sides.values()
            if sides.trouble is None and sides.text is not None and sides.is_read and not sides.analysed
        ]

    def unread(self) -> list[FileSides]:
        """Files whose text never became known, with their reason."""
        return [
            sides for sides in self.sides.values() if not sides.analysed and sides.file.path not in self.checked_before
        ]

    @property
    def checked_count(self) -> int:
        """How many files were analysed, now or before the history was shortened."""
        return sum(sides.analysed or path in self.checked_before for path, sides in self.sides.items())

    def _is_settled(self, sides: FileSides) -> bool:
        return sides.analysed or (sides.text is None and sides.file.path in self.checked_before)

    def _checked(self, names: str) -> None:
        try:
            found = json.loads(f"[{names}]")
        except ValueError:
            return
        self.checked_before.update(name for name in found if isinstance(name, str))

    def _add(self, files: Iterable[ScopeFile]) -> None:
        for file in files:
            if file.path in self.sides or file.path in self.deleted:
                continue
            if file.status == "deleted":
                self.deleted.append(file.path)
            elif _BINARY_SUFFIX.search(file.path):
                self.binary.append(file.path)
            elif _MADE_ELSEWHERE.search(file.path):
                self.left_out.append(file.path)
            else:
                base = self.assignment.base if self.assignment.is_change else ""
                sides = FileSides(file, base, self.assignment.snapshot, "git" in self.tools)
                self.sides[file.path] = sides
                if file.base_path is not None:
                    self._by_base.setdefault(file.base_path, []).append(sides)

    def _answered(self, call: ToolCallBlock, result: ToolResultBlock) -> None:
        asked: Mapping[str, Any] = call.input if isinstance(call.input, Mapping) else {}
        is_error = bool(result.is_error)
        if call.name == "report_finding":
            self._report_answered(asked, result)
        elif call.name == "read_file":
            if (sides := self.sides.get(str(asked.get("path")))) is not None:
                sides.new_side_answered(result.content, is_error=is_error, through_git=False)
        elif call.name == "list_files":
            self._folder_listed(str(asked.get("path", ".")), result)
        elif call.name == "git":
            arguments = [str(argument) for argument in asked.get("arguments") or ()]
            self._git_answered(arguments, result)

    def _report_answered(self, asked: Mapping[str, Any], result: ToolResultBlock) -> None:
        key = report_key(asked)
        answer = result.content
        if result.is_error or answer.startswith("Not shown"):
            self.refusals.append(
                Refusal(key.path, short_reason(answer), bool(result.is_error) and not answer.startswith("Refused"))
            )
            return
        place, severity = _PLACE.search(answer), _SEVERITY.search(answer)
        if (known := _KNOWN.search(answer)) is not None:
            self.placed[key] = Placing(int(known[1]), None, known[2])
            return
        self.placed[key] = Placing(
            int(place[1]) if place else None,
            severity[1] if severity else None,
            is_merged=answer.startswith("Merged with"),
        )

    def _git_answered(self, arguments: list[str], result: ToolResultBlock) -> None:
        is_error = bool(result.is_error)
        if "--raw" in arguments:
            self._changes_listed(result.content)
        elif "--unified=0" in arguments:
            if (sides := self.sides.get(arguments[-1])) is not None:
                sides.base_answered(result.content, is_error=is_error)
        elif arguments and ":" in arguments[0]:
            revision, _, path = arguments[0].partition(":")
            if revision == self.assignment.base:
                for sides in self._by_base.get(path, ()):
                    sides.base_answered(result.content, is_error=is_error)
            elif (found := self.sides.get(path)) is not None and found.through_git:
                found.new_side_answered(result.content, is_error=is_error, through_git=True)

    def _changes_listed(self, content: str) -> None:
        self.listing_done = True
        output = parse_git(content)
        if output is None or output.status:
            self.listing_trouble = short_reason(content)
            if self.assignment == LAST_CHANGE and "list_files" in self.tools:
                # Without anything to compare with, the review is one of the files as they stand.
                self.assignment = Assignment(scope="workspace")
                self._folders = ["."]
                self.listing_done = False
            return
        changes = parse_changes(output.stdout)
        if not self.assignment.files or self.assignment.omitted:
            known = len(self.sides) + len(self.deleted) + len(self.binary) + len(self.left_out)
            self._add(change.file for change in changes if self._in_paths(change.file.path))
            found = len(self.sides) + len(self.deleted) + len(self.binary) + len(self.left_out) - known
            self.unlisted = max(0, self.unlisted - found)
        for change in changes:
            if not change.is_file and (sides := self.sides.get(change.file.path)) is not None:
                sides.trouble = "it is a link or a submodule"
        if not output.whole and (not self.assignment.files or self.assignment.omitted):
            self.listing_trouble = "the list of changed files was cut"

    def _folder_listed(self, folder: str, result: ToolResultBlock) -> None:
        if folder in self._folders:
            self._folders.remove(folder)
        self.listing_done = not self._folders
        if result.is_error:
            self.listing_trouble = short_reason(result.content)
            return
        listing = parse_listing(result.content)
        before = len(self.sides)
        self._add(ScopeFile(path) for path in listing.paths)
        self.unlisted = max(0, self.unlisted - (len(self.sides) - before))
        self._listed_folders.add(folder)
        if listing.hidden:
            # The folders that are seen so far are listed one by one; what lies beside them stays counted as unlisted.
            depth = 0 if folder in (".", "") else folder.rstrip("/").count("/") + 1
            inner = {"/".join(path.split("/")[: depth + 1]) for path in listing.paths if path.count("/") > depth}
            self._folders.extend(sorted(inner - self._listed_folders))
            self.listing_done = not self._folders
            if not self.assignment.omitted:
                self.unlisted += listing.hidden

    def _in_paths(self, path: str) -> bool:
        return not self.assignment.paths or any(
            path == prefix or path.startswith(f"{prefix.rstrip('/')}/") or prefix in (".", "")
            for prefix in self.assignment.paths
        )


def report_key(report: Mapping[str, Any]) -> ReportKey:
    """The key of a call of `report_finding`."""
    line = report.get("line")
    return ReportKey(
        str(report.get("path", "")),
        str(report.get("code", "")),
        normalised_quote(str(report.get("quote", ""))),
        line if isinstance(line, int) else 0,
    )
