"""An agent that resolves the conflict of an integration, and the command that verifies what it made (CONF-05 to -07).

The invariant: a resolution is given back only when the merge that was prepared is whole, both sides are in it, the
verification ended with status 0, and nothing moved while it ran. Called by `Workspace.integrate(on_conflict=...)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, Final

from outpost_lsp.dispatches.options import AnyAgent
from outpost_lsp.dispatches.place import on_workspace
from outpost_lsp.dispatches.workspace import Workspace
from outpost_lsp.dispatches.workspace_sandbox import LeaseProvider
from outpost_lsp.domain.event import Event
from outpost_lsp.domain.sandbox import Command
from outpost_lsp.errors import OutpostError, configuration
from outpost_lsp.workspaces.guard import References
from outpost_lsp.workspaces.reading import process_fault, unmerged_paths
from outpost_lsp.workspaces.resolution import ConflictContext, Resolution, check_resolution
from outpost_lsp.workspaces.workspace import OpenedWorkspace
from outpost_lsp.worktrees.git import run_git
from outpost_lsp.worktrees.identity import commit_identity

_VERIFYING_S: Final = 300.0
_USUAL_S: Final = next(field.default for field in fields(Command) if field.name == "deadline_s")
_MERGE: Final = (
    "merge",
    "--no-commit",
    "--no-ff",
    "--no-edit",
    "--no-squash",
    "--no-stat",
    "--no-autostash",
    "--no-gpg-sign",
    "--no-verify-signatures",
    "--no-rerere-autoupdate",
)
_NAMED: Final = 200


class AgentConflictResolver:
    """Resolves conflicts with an agent, which needs a tool that can edit and one that can commit.

    `verify` runs in the resolution's workspace afterwards and must end with status 0; it has 300 s unless it says
    otherwise. `instructions` are added to what the agent is told.
    """

    def __init__(
        self,
        agent: AnyAgent,
        *,
        verify: Command,
        sandbox_provider: LeaseProvider | None = None,
        instructions: str | None = None,
        observe: Callable[[Event], None] | None = None,
    ) -> None:
        self.agent = agent
        self.verify = _checked(verify)
        self._provider = on_workspace(sandbox_provider)
        self._instructions = instructions
        self._observe = observe

    async def __call__(self, context: ConflictContext) -> Resolution:
        """Prepare the merge, let the agent resolve it, check, verify, and check again."""
        workspace = context.workspace
        if not isinstance(workspace, Workspace):
            raise configuration("AgentConflictResolver: it works on workspaces that open_workspace made")
        own = workspace.opened
        sides = References(candidate=context.candidate_commit, host=context.host_commit)
        await _prepare(own, context)
        async with workspace.sandbox(agent=self.agent, sandbox_provider=self._provider) as sandbox:
            result = await sandbox.dispatch(self._brief(context), observe=self._observe)
            failed = next((turn for turn in result.turns if turn.status != 0), None)
            if failed is not None:
                raise process_fault("the agent", failed.status, failed.text, "")
            commit = await check_resolution(own, sides)
            verification = await sandbox.command(self.verify)
            if verification.status != 0:
                raise process_fault(
                    f"the verification {self.verify.executable}",
                    verification.status,
                    verification.stdout,
                    verification.stderr,
                )
            await check_resolution(own, sides, commit)
        return Resolution(
            commit=commit,
            branch=workspace.branch,
            directory=workspace.directory,
            usage=result.usage,
            verification=verification,
            transcript=result.transcript,
        )

    def _brief(self, context: ConflictContext) -> str:
        paths = "\n".join(f"- {path}" for path in context.conflicts[:_NAMED])
        rest = len(context.conflicts) - _NAMED
        more = f"\n- and {rest} more, which `git status` lists" if rest > 0 else ""
        own = f"\n\n{self._instructions}" if self._instructions else ""
        return (
            f"A merge is under way in this worktree: commit {context.host_commit} is being merged into commit "
            f"{context.candidate_commit}, and these files are in conflict:\n{paths}{more}\n\n"
            "Resolve every conflict so that what both sides meant is kept, add the files and commit the merge. Do not "
            f"abort it, do not start another one, and leave no other change and no untracked file behind.{own}"
        )


async def _prepare(own: OpenedWorkspace, context: ConflictContext) -> None:
    """Begin the merge for real, in the resolution's worktree; it has to conflict as it did in advance (CONF-06)."""
    result = await run_git(
        own.view,
        [*_MERGE, context.host_commit],
        environment=commit_identity(own.repository),
        deadline_s=own.limits.merge_s,
    )
    if result.status != 1 or not await unmerged_paths(own.view, deadline_s=own.limits.git_s):
        words = result.stderr.strip() or "it did not conflict"
        raise OutpostError("conflict", f"The merge could not be prepared: {words}", own.recovery)


def _checked(verify: Any) -> Command:
    if not isinstance(verify, Command) or not verify.executable.strip():
        raise configuration("AgentConflictResolver: verify: a Command with an executable is expected")
    if verify.directory is not None:
        raise configuration("AgentConflictResolver: verify: it runs in the workspace and takes no directory")
    if verify.stdin is not None:
        raise configuration("AgentConflictResolver: verify: it takes no input")
    if not verify.deadline_s > 0:
        raise configuration("AgentConflictResolver: verify: deadline_s: a positive number of seconds is expected")
    return replace(verify, deadline_s=_VERIFYING_S) if verify.deadline_s == _USUAL_S else verify
