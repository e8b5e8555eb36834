"""The diff guard: committed work is inspected, and refused when it breaks the limits or cannot be inspected (section 7.6).

The invariant: it fails closed. What is inspected is named by commits, and the references are read again afterwards, so
that what passes is what was looked at. Only committed work counts. Called after every dispatch that succeeded and by the
integration, which merges exactly the commit that was inspected.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Final

from outpost_lsp.domain.globs import path_glob
from outpost_lsp.errors import OutpostError
from outpost_lsp.workspaces.policy import DiffGuard
from outpost_lsp.workspaces.reading import branch_tip, commit_of, current_branch, merge_bases
from outpost_lsp.workspaces.workspace import OpenedWorkspace
from outpost_lsp.worktrees.git import Repository, run_git

_LONGEST_STATISTICS: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class References:
    """The two commits that an integration is about, read at one moment."""

    candidate: str
    host: str


@dataclass(slots=True)
class _Findings:
    """What is wrong with a candidate so far."""

    reasons: list[str] = field(default_factory=list)
    matches: list[dict[str, str]] = field(default_factory=list)
    binary_paths: list[str] = field(default_factory=list)
    changed_lines: int = 0
    baseline: str = ""
    words: str = ""


@dataclass(frozen=True, slots=True)
class _Statistic:
    """One file of a diff: its names, two of a rename, and how many lines it costs; `None` for a binary file."""

    paths: tuple[str, ...]
    lines: int | None


async def read_references(workspace: OpenedWorkspace) -> References:
    """The tip of the workspace's branch and the commit of the user's checkout; empty where there is none."""
    limit = workspace.limits.git_s
    candidate = await branch_tip(workspace.repository, workspace.record.branch, deadline_s=limit)
    return References(candidate, await commit_of(workspace.repository, deadline_s=limit))


async def inspect(
    workspace: OpenedWorkspace, guard: DiffGuard | None = None, *, baseline: str | None = None
) -> References:
    """Check the workspace's committed work; `guard` overrides the workspace's own, `baseline` what it is compared with.

    Raises `guard` with all that speaks against it, and the workspace is retained from then on (GUARD-07).
    """
    guard = guard or workspace.guard
    before = await read_references(workspace)
    if guard is None or workspace.is_current:
        return before
    found = _Findings()
    try:
        await _inspect(workspace, guard, before, found, baseline)
    except OutpostError as error:
        _refuse(found, "inspection", error.message)
    if await read_references(workspace) != before:
        found.reasons.append("references-changed")
    if found.reasons:
        raise refusal(workspace, guard, before, found)
    workspace.is_refused = False
    return before


def moved(workspace: OpenedWorkspace, references: References) -> OutpostError:
    """The fault of references that moved between the inspection and the merge (GUARD-08)."""
    if workspace.guard is None:
        message = f"The branch {workspace.record.branch} or the checkout moved meanwhile."
        return OutpostError("conflict", message, workspace.recovery)
    return refusal(workspace, workspace.guard, references, _Findings(reasons=["references-changed"]))


def refusal(workspace: OpenedWorkspace, guard: DiffGuard, references: References, found: _Findings) -> OutpostError:
    """The fault of a guard, and the mark that the work has to stay."""
    workspace.is_refused = True
    details: dict[str, Any] = {
        "reasons": found.reasons,
        "matches": found.matches,
        "changedLines": found.changed_lines,
        "binaryPaths": found.binary_paths,
        "maxChangedLines": guard.max_changed_lines,
        "baseline": found.baseline,
        "candidateCommit": references.candidate,
        "hostCommit": references.host,
        **workspace.recovery,
    }
    words = f": {found.words}" if found.words else ""
    message = f"The guard refused the work on {workspace.record.branch} ({', '.join(found.reasons)}){words}."
    return OutpostError("guard", message, details)


async def _inspect(
    workspace: OpenedWorkspace, guard: DiffGuard, references: References, found: _Findings, baseline: str | None
) -> None:
    limit = workspace.limits.git_s
    branch = await current_branch(workspace.view, deadline_s=limit)
    if branch != workspace.record.branch or not references.candidate:
        _refuse(found, "inspection", "the workspace does not stand on its branch")
        return
    baseline = baseline or await _baseline(workspace, references)
    if baseline is None:
        _refuse(found, "inspection", "the branch and the checkout do not have exactly one merge base")
        return
    found.baseline = baseline
    for statistic in await _statistics(workspace.repository, baseline, references.candidate, limit):
        for path in statistic.paths:
            found.matches += [
                {"path": path, "pattern": pattern}
                for pattern in guard.protected_paths
                if path_glob(pattern).fullmatch(path)
            ]
        if statistic.lines is None:
            found.binary_paths.append(statistic.paths[-1])
        else:
            found.changed_lines += statistic.lines
    if found.matches:
        found.reasons.append("protected-paths")
    if guard.max_changed_lines is None:
        return
    if found.binary_paths:
        found.reasons.append("binary-files")
    if found.changed_lines > guard.max_changed_lines:
        found.reasons.append("changed-lines")


async def _baseline(workspace: OpenedWorkspace, references: References) -> str | None:
    """What the candidate is compared with (GUARD-03)."""
    if workspace.record.policy.mode == "named":
        return workspace.record.baseline
    bases = await merge_bases(
        workspace.repository, references.host, references.candidate, deadline_s=workspace.limits.git_s
    )
    return bases[0] if len(bases) == 1 else None


async def _statistics(repository: Repository, base: str, candidate: str, deadline_s: float) -> list[_Statistic]:
    """The net diff in lines, by the rules of GUARD-09; `guard` cannot be fooled by the repository's settings."""
    arguments = [
        "diff-tree",
        "-r",
        "-z",
        "--numstat",
        "--diff-algorithm=myers",
        "--find-renames=50%",
        "-l0",
        "--ignore-submodules=none",
        base,
        candidate,
        "--",
    ]
    result = await run_git(repository, arguments, check=True, max_output=_LONGEST_STATISTICS, deadline_s=deadline_s)
    if result.truncated:
        raise OutpostError("limit", f"the statistics are larger than {_LONGEST_STATISTICS >> 20} MiB")
    return _parse(result.stdout)


def _parse(output: bytes) -> list[_Statistic]:
    fields = iter(output.split(b"\0"))
    found = []
    for entry in fields:
        if not entry:
            continue
        parts = entry.split(b"\t", 2)
        if len(parts) != 3:
            raise OutpostError("workspace", "git's statistics could not be read")
        added, removed, name = parts
        names = (name,) if name else (next(fields, b""), next(fields, b""))
        if not all(names):
            raise OutpostError("workspace", "git's statistics could not be read")
        paths = tuple(os.fsdecode(each) for each in names)
        if added == removed == b"-":
            found.append(_Statistic(paths, None))
        elif added.isdigit() and removed.isdigit():
            found.append(_Statistic(paths, int(added) + int(removed)))
        else:
            raise OutpostError("workspace", "git's statistics could not be read")
    return found


def _refuse(found: _Findings, reason: str, words: str) -> None:
    found.reasons.append(reason)
    found.words = words
