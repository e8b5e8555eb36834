"""The commits of a dispatch on a branch, as a journal keeps them, and making them again (JRN-04, RPL-05).

The invariant: what is written is enough to make the same trees again, with the same authors, dates and messages, or it
says why it is not. A replay makes commits only on top of what it was recorded on, and compares every tree.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from outpost_lsp.domain.observation import WorkspaceCommitsEvent
from outpost_lsp.errors import OutpostError
from outpost_lsp.workspaces.reading import is_ancestor, tree_of
from outpost_lsp.workspaces.record import Commit
from outpost_lsp.workspaces.workspace import OpenedWorkspace
from outpost_lsp.worktrees.changes import patch
from outpost_lsp.worktrees.git import run_git

_MAX_PATCHES: Final = 8 * 1024 * 1024
_PERSON: Final = re.compile(r"(.*?) ?<([^<>]*)> (\d+) ([+-]\d{4})")
Diverged = Callable[[str, Any, Any], None]


async def recorded_commits(workspace: OpenedWorkspace, start: str, commits: Sequence[Commit]) -> WorkspaceCommitsEvent:
    """The event of a dispatch's commits, the oldest first."""
    if not start:
        return WorkspaceCommitsEvent(unavailable="the repository had no commits")
    view = workspace.view
    baseline = {"commit": start, "tree": await tree_of(view, start)}
    head = commits[0].oid if commits else start
    if not await is_ancestor(view, start, head):
        return WorkspaceCommitsEvent(baseline=baseline, unavailable="the history was rewritten")
    found: list[Mapping[str, Any]] = []
    room, parent = _MAX_PATCHES, start
    for commit in reversed(commits):
        try:
            fields = await _fields(workspace, commit.oid, parent)
            data = await patch(view, parent, commit.oid, max_output=room)
        except OutpostError as error:
            return WorkspaceCommitsEvent(baseline=baseline, unavailable=error.message)
        room, parent = room - len(data), commit.oid
        found.append({**fields, **_patch(data)})
    return WorkspaceCommitsEvent(baseline=baseline, commits=tuple(found))


async def rebuild(workspace: OpenedWorkspace, start: str, recorded: Mapping[str, Any], diverged: Diverged) -> None:
    """Make recorded commits again on the workspace's branch; `replay` when one does not apply."""
    view = workspace.view
    baseline = (recorded.get("baseline") or {}).get("tree")
    own = await tree_of(view, start) if start else None
    if baseline != own:
        diverged("baseline", baseline, own)
    for commit in recorded.get("commits") or ():
        encoded = commit.get("patchBase64")
        data = base64.b64decode(encoded) if encoded is not None else str(commit.get("patch", "")).encode()
        if data:
            arguments = ["apply", "--index", "--binary", "--whitespace=nowarn", "-"]
            result = await run_git(view, arguments, stdin=data)
            if result.status != 0:
                details = {"kind": "tree", "commit": commit.get("tree")}
                raise OutpostError("replay", f"a recorded commit does not apply: {result.stderr.strip()}", details)
        tree = (await run_git(view, ["write-tree"], check=True)).stdout.decode("ascii").strip()
        if tree != commit.get("tree"):
            diverged("tree", commit.get("tree"), tree)
        await _commit(workspace, tree, commit)


async def _commit(workspace: OpenedWorkspace, tree: str, recorded: Mapping[str, Any]) -> None:
    head = await workspace.head()
    parents = ["-p", head] if head else []
    made = await run_git(
        workspace.view,
        ["commit-tree", tree, *parents],
        stdin=str(recorded.get("message", "")).encode(),
        environment={**_person("AUTHOR", recorded), **_person("COMMITTER", recorded)},
        check=True,
    )
    oid = made.stdout.decode("ascii").strip()
    await run_git(
        workspace.view, ["update-ref", "-m", "commit: replayed", "HEAD", oid, *([head] if head else [])], check=True
    )


def _person(role: str, recorded: Mapping[str, Any]) -> dict[str, str]:
    given = recorded.get(role.lower()) or {}
    name = str(given.get("name") or "Outpost")
    found = {f"GIT_{role}_NAME": name, f"GIT_{role}_EMAIL": str(given.get("email") or "outpost@localhost")}
    return found | ({f"GIT_{role}_DATE": str(given["date"])} if given.get("date") else {})


async def _fields(workspace: OpenedWorkspace, oid: str, parent: str) -> dict[str, Any]:
    result = await run_git(workspace.view, ["cat-file", "commit", oid], check=True)
    try:
        head, _, message = result.stdout.decode("utf-8").partition("\n\n")
    except UnicodeDecodeError as error:
        raise OutpostError("replay", f"the message of {oid} is no UTF-8") from error
    lines = [line.partition(" ")[::2] for line in head.split("\n") if not line.startswith(" ")]
    if [value for key, value in lines if key == "parent"] != [parent]:
        raise OutpostError("replay", f"{oid} is a merge")
    values = dict(lines)
    people = {role: _identity(values.get(role, "")) for role in ("author", "committer")}
    return {"tree": values["tree"], "message": message, **people}


def _identity(text: str) -> dict[str, str]:
    match = _PERSON.fullmatch(text)
    return {} if match is None else {"name": match[1], "email": match[2], "date": f"@{match[3]} {match[4]}"}


def _patch(data: bytes) -> dict[str, str]:
    try:
        return {"patch": data.decode()}
    except UnicodeDecodeError:
        return {"patchBase64": base64.b64encode(data).decode("ascii")}
