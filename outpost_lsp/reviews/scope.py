"""From a review's scope, as somebody asked for it, to what a reviewer is given: commits, files, changed lines, a brief.

The snapshot is what is reviewed, the base is what it is compared with; both are object ids, so that nothing a user does
meanwhile moves them. Nothing here touches the user's index, refs or files. A value that names nothing (a revision, a
path) is a `configuration` fault that names the field. The service calls `prepare_review` before it dispatches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pathspec import GitIgnoreSpec

from outpost_lsp.domain.anchor import LineRange
from outpost_lsp.domain.finding import Dismissal, Finding
from outpost_lsp.domain.permission import normalised_path
from outpost_lsp.domain.run import CHANGE_SCOPES, ReviewScope
from outpost_lsp.domain.wording import count_of
from outpost_lsp.errors import OutpostError, configuration
from outpost_lsp.models.rule_based.assignment import ScopeFile
from outpost_lsp.reviews.brief import ReviewBrief, brief_text, scope_title
from outpost_lsp.reviews.history import Comparison, compared_with, messages_between
from outpost_lsp.reviews.written_rules import written_rules
from outpost_lsp.storage.dismissed import DismissedFinding
from outpost_lsp.tools.findings import FindingScope, Outside
from outpost_lsp.worktrees.changed_lines import changed_files_and_lines
from outpost_lsp.worktrees.git import Repository, run_git
from outpost_lsp.worktrees.snapshot import Snapshot
from outpost_lsp.worktrees.together import both
from outpost_lsp.worktrees.working_tree import why_not_taken

_SHOWN_NAMES: Final = 5
_SUBMODULE: Final = "160000"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewSettings:
    """What the configuration says about reviews and their snapshots (`[review]`, `[sandbox]`)."""

    outside_diff: Outside = "hint"
    max_findings: int = 100
    min_confidence: float = 0.0
    exclude: tuple[str, ...] = ("**/*.lock",)
    """Patterns of gitignore; a file that is asked for by its name is reviewed all the same."""
    instructions: tuple[str, ...] = ("AGENTS.md", "REVIEW.md")
    uncommitted: bool = True
    untracked: bool = True
    max_untracked_mib: int = 500
    git_timeout_s: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedReview:
    """A review that can be dispatched on `snapshot.commit` with `brief`."""

    scope: ReviewScope
    settings: ReviewSettings
    snapshot: Snapshot
    base: str
    """The commit or tree the change is seen against; empty where the scope is no change."""
    files: tuple[ScopeFile, ...]
    changed: Mapping[str, Sequence[LineRange]] | None
    title: str
    brief: str
    notes: tuple[str, ...]
    excluded: Callable[[str], bool] = field(repr=False)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to review: the run then succeeds without a request."""
        return not self.files

    def finding_scope(
        self, run_id: str, agent: str, *, dismissed: Callable[[Finding], Dismissal | None] = lambda _finding: None
    ) -> FindingScope:
        """What the findings tool of this review needs to know."""
        return FindingScope(
            run_id=run_id,
            agent=agent,
            snapshot=self.snapshot.commit,
            changed=self.changed,
            paths=self.scope.paths,
            span=self.scope.span if self.scope.scope == "selection" else None,
            outside=self.settings.outside_diff,
            max_findings=self.settings.max_findings,
            min_confidence=self.settings.min_confidence,
            excluded=self.excluded,
            dismissed=dismissed,
        )

    def covers(self, finding: Finding) -> bool:
        """Whether the review has looked at the place of an earlier finding, so that its own findings replace it."""
        if self.scope.scope == "selection" and (span := self.scope.span) is not None:
            inside = span.start_line <= finding.span.end_line and finding.span.start_line <= span.end_line
            return finding.path in self.scope.paths and inside
        return any(finding.path in {file.path, file.old_path} for file in self.files)


def refuse_without_repository(scope: ReviewScope, folder: Path) -> None:
    """Raise for a change scope in a folder that is no git repository, and say what works there (SNAP-09)."""
    if scope.scope in CHANGE_SCOPES:
        raise OutpostError(
            "workspace",
            f"{folder} is not a git repository, so there are no changes to tell. Review a file, a selection or the "
            "whole workspace instead (on the command line: --all).",
            {"folder": str(folder), "scope": scope.scope},
        )


async def prepare_review(
    repository: Repository,
    scope: ReviewScope,
    *,
    unsaved: Mapping[str, str | bytes] | None = None,
    brief: str | None = None,
    settings: ReviewSettings | None = None,
    dismissed: Sequence[DismissedFinding] = (),
) -> PreparedReview:
    """Everything a reviewer is given for `scope`. `unsaved` holds the texts of open, changed documents by their path.

    `brief` is what the user adds in words; of what is `dismissed` the reviewer is told what lies in the reviewed files.
    """
    settings = settings or ReviewSettings()
    scope = _checked(scope)
    compared = await compared_with(
        repository,
        scope,
        unsaved=unsaved or {},
        uncommitted=settings.uncommitted or scope.scope in {"uncommitted", "unstaged"},
        untracked=settings.untracked,
        max_untracked_mib=settings.max_untracked_mib,
        deadline_s=settings.git_timeout_s,
    )
    excluded = exclusion(settings.exclude, scope.paths)
    notes = [*compared.notes, *compared.snapshot.notes]
    rules: list[str] = []

    async def reviewed() -> tuple[tuple[ScopeFile, ...], Mapping[str, Sequence[LineRange]] | None]:
        if scope.scope in CHANGE_SCOPES:
            return await _changed(repository, scope, compared, excluded, notes)
        return await _standing(repository, scope, compared.snapshot, excluded, notes), None

    (files, changed), instructions = await both(
        reviewed, lambda: written_rules(repository, compared.snapshot, settings.instructions, rules)
    )
    await _check_paths(repository, scope, compared, files)
    notes += rules
    paths = {file.path for file in files}
    text = brief_text(
        ReviewBrief(
            scope=scope,
            base=compared.base,
            base_name=compared.base_name,
            snapshot=compared.snapshot.commit,
            files=files,
            outside=settings.outside_diff,
            words=brief,
            messages=await messages_between(repository, scope, compared),
            instructions=instructions,
            dismissed=[record for record in dismissed if record.path in paths],
        )
    )
    return PreparedReview(
        scope=scope,
        settings=settings,
        snapshot=compared.snapshot,
        base=compared.base,
        files=files,
        changed=changed,
        title=scope_title(scope, compared.base_name),
        brief=text,
        notes=tuple(dict.fromkeys(notes)),
        excluded=excluded,
    )


def _checked(scope: ReviewScope) -> ReviewScope:
    paths = []
    for path in scope.paths:
        normalised = normalised_path(path)
        if normalised is None or "\0" in path:
            raise configuration(f"paths: {path!r} is not a path inside the repository", field="paths", path=path)
        if normalised:
            paths.append(normalised)
    if len(paths) < len(scope.paths):
        # The repository's top was among them: everything is asked for.
        paths = []
    if scope.scope in {"file", "selection"} and not paths:
        raise configuration(f"paths: the scope {scope.scope} needs a file", field="paths")
    if scope.scope == "selection" and (scope.span is None or len(paths) != 1):
        raise configuration("range: the scope selection needs one file and a range in it", field="range")
    if scope.scope == "commit" and not scope.revision:
        raise configuration("revision: the scope commit needs a revision", field="revision")
    return scope.model_copy(update={"paths": tuple(dict.fromkeys(paths))})


def exclusion(patterns: Sequence[str], named: Sequence[str]) -> Callable[[str], bool]:
    """Whether a path is left out by patterns of gitignore; what was asked for by its name is not."""
    try:
        spec = GitIgnoreSpec.from_lines(patterns)
    except ValueError as error:
        raise configuration(f"review.exclude: {error}", field="review.exclude") from error
    kept = frozenset(named)
    return lambda path: path not in kept and spec.match_file(path)


async def _changed(
    repository: Repository,
    scope: ReviewScope,
    compared: Comparison,
    excluded: Callable[[str], bool],
    notes: list[str],
) -> tuple[tuple[ScopeFile, ...], Mapping[str, Sequence[LineRange]]]:
    found, lines, odd = await changed_files_and_lines(repository, compared.base, compared.snapshot.commit, scope.paths)
    if compared.tracked is not None:
        # What is not staged at all is no unstaged change of something, as `git diff` sees it.
        found = tuple(file for file in found if file.status != "added" or file.path in compared.tracked)
    submodules = [file.path for file in found if _SUBMODULE in {file.old_mode, file.new_mode}]
    left_out = [file.path for file in found if file.path not in submodules and excluded(file.path)]
    hidden = {*submodules, *left_out}
    files = tuple(ScopeFile(file.path, file.status, file.old_path) for file in found if file.path not in hidden)
    if odd:
        notes.append(_unnamed(odd))
    if submodules:
        notes.append(f"Not reviewed, submodules: {_named(submodules)}.")
    if left_out:
        notes.append(f"Not reviewed, excluded by review.exclude: {_named(left_out)}.")
    if not files:
        notes.append(_nothing(scope, compared, found_any=bool(found or odd)))
        return (), {}
    return files, {file.path: lines.get(file.path, ()) for file in files}


def _unnamed(count: int) -> str:
    return f"Not reviewed, the name is no UTF-8: {count_of(count, 'file')}."


def _nothing(scope: ReviewScope, compared: Comparison, *, found_any: bool) -> str:
    if found_any:
        return "Nothing to review: all that changed is left out."
    where = f" below {_named(scope.paths)}" if scope.paths else ""
    match scope.scope:
        case "staged":
            return f"Nothing to review: nothing is staged{where}."
        case "unstaged":
            return f"Nothing to review: there are no unstaged changes{where}."
        case "branch":
            return f"Nothing to review: nothing differs from {compared.base_name}{where}."
        case "commit":
            return f"Nothing to review: the commit changes no file{where}."
        case _:
            return f"Nothing to review: there are no uncommitted changes{where}."


async def _standing(
    repository: Repository,
    scope: ReviewScope,
    snapshot: Snapshot,
    excluded: Callable[[str], bool],
    notes: list[str],
) -> tuple[ScopeFile, ...]:
    arguments = ["ls-tree", "-r", "-z", "--full-tree", snapshot.commit, "--", *scope.paths]
    listing = await run_git(repository, arguments, check=True, max_output=256 * 1024 * 1024)
    if listing.truncated:
        raise OutpostError(
            "limit", "The repository has too many files for one review; name folders.", {"limit": "files"}
        )
    paths: list[str] = []
    left_out: list[str] = []
    odd = 0
    for entry in listing.stdout.split(b"\0"):
        described, _, name = entry.partition(b"\t")
        if not described.startswith(b"100"):
            continue
        try:
            path = name.decode()
        except UnicodeDecodeError:
            odd += 1
            continue
        (left_out if excluded(path) else paths).append(path)
    if odd:
        notes.append(_unnamed(odd))
    if left_out:
        notes.append(f"Not reviewed, excluded by review.exclude: {_named(left_out)}.")
    if not paths and not scope.paths:
        notes.append("Nothing to review: there are no files.")
    return tuple(ScopeFile(path) for path in paths)


async def _check_paths(
    repository: Repository, scope: ReviewScope, compared: Comparison, files: Sequence[ScopeFile]
) -> None:
    """Refuse a path that neither the snapshot nor the base has."""
    one_file = scope.scope in {"file", "selection"}
    known = {
        part
        for file in files
        for path in (file.path, file.old_path)
        if path
        for part in ([path] if one_file else _with_folders(path))
    }
    for path in scope.paths:
        if path in known:
            continue
        sides = [compared.snapshot.commit] + ([compared.base] if compared.base else [])
        for side in sides:
            arguments = ["ls-tree", "-z", "--name-only", "--full-tree", side, "--", path]
            if (await run_git(repository, arguments, check=True, max_output=1 << 20)).stdout:
                break
        else:
            raise configuration(f"paths: {await _why_unknown(repository, scope, path)}", field="paths", path=path)
        if one_file:
            raise configuration(f"paths: {path} is not a file that can be reviewed", field="paths", path=path)


async def _why_unknown(repository: Repository, scope: ReviewScope, path: str) -> str:
    # This command takes names only and refuses the literal form of pathspecs.
    ignored = await run_git(repository, ["check-ignore", "--quiet", "--", path], glob_pathspecs=True)
    if ignored.status == 0:
        return f"{path} is ignored by git, so it is no part of what is reviewed"
    if scope.scope not in {"commit", "staged"} and (reason := await why_not_taken(repository, path)) is not None:
        return reason
    return f"there is no {path} in what is reviewed"


def _with_folders(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[: index + 1]) for index in range(len(parts))]


def _named(paths: Sequence[str]) -> str:
    shown = ", ".join(paths[:_SHOWN_NAMES])
    return shown if len(paths) <= _SHOWN_NAMES else f"{shown} and {len(paths) - _SHOWN_NAMES} more"
