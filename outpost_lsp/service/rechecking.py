"""The touched lines of a fix, reviewed once more before anybody applies it.

The reviewer that named the finding looks at what the fix changed, in a run of its own that publishes nothing: until the
fix is applied, its text stands in no file of the user's. What it still finds is kept with the fix, said in a note, and
published when the fix is applied. A fix that cannot be reviewed again is offered all the same, and a note says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from outpost_lsp.domain.finding import Finding
from outpost_lsp.domain.markdown import one_line
from outpost_lsp.domain.run import ReviewScope
from outpost_lsp.domain.wording import count_of
from outpost_lsp.errors import OutpostError
from outpost_lsp.reviews.scope import PreparedReview, prepare_review
from outpost_lsp.service.carrying import Assignment, carry
from outpost_lsp.service.handle import RunHandle
from outpost_lsp.service.reviews import review_settings

if TYPE_CHECKING:
    from outpost_lsp.service.outpost import Outpost
    from outpost_lsp.service.workspace import Workspace

_TITLE_LENGTH: Final = 80
_NAMED: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recheck:
    outpost: Outpost
    workspace: Workspace
    prepared: PreparedReview
    agent: str

    async def perform(self, handle: RunHandle) -> None:
        """The run's job; the fix holds its place among the runs at work."""
        prepared = self.prepared
        handle.record(base=prepared.snapshot.parent, notes=prepared.notes)
        handle.snapshot = prepared.snapshot.commit
        scope = prepared.finding_scope(handle.run.id, self.agent, dismissed=self.workspace.board.dismissal_of)
        assignment = Assignment(
            agent=self.outpost.build(self.workspace, self.agent, finding_scope=scope),
            brief=prepared.brief,
            snapshot=prepared.snapshot,
            keep="never",
            is_quiet=True,
        )
        result = await carry(self.outpost, self.workspace, handle, assignment)
        handle.finish("succeeded", text=result.text)


async def review_again(outpost: Outpost, workspace: Workspace, fix: RunHandle, finding_id: str) -> None:
    """Review what a fix changed, and keep with it what remains; nothing is done when it changed nothing."""
    finding = workspace.finding(finding_id)
    commit = workspace.runs.details(fix.run.id).get("result")
    if finding is None or not isinstance(commit, str) or not workspace.has_repository:
        return
    agent = finding.agent if finding.agent in workspace.settings.agents else workspace.settings.review.agent
    scope = ReviewScope(scope="commit", revision=commit)
    try:
        prepared = await prepare_review(
            workspace.repository,
            scope,
            brief=_brief(finding),
            settings=review_settings(workspace.settings),
            dismissed=workspace.board.dismissals.in_force(),
        )
        if prepared.is_empty:
            return
        job = _Recheck(outpost=outpost, workspace=workspace, prepared=prepared, agent=agent)
        title = one_line(f"Review again: {finding.title}", _TITLE_LENGTH)
        handle = outpost.start(workspace, "review", agent, title, job.perform, scope=scope)
        try:
            run = await handle.wait()
        except BaseException:
            handle.cancel()
            raise
    except OutpostError as error:
        fix.note(f"The fix could not be reviewed again: {error.message}")
        return
    if run.status != "succeeded":
        why = f": {run.error.message}" if run.error is not None else ""
        fix.note(f"The fix could not be reviewed again, the run {run.id} {run.status}{why}")
        return
    remaining = [one for one in handle.findings.values() if one.in_diff is not False]
    details = workspace.runs.details(fix.run.id)
    kept = [one.model_dump(mode="json", by_alias=True) for one in remaining]
    workspace.runs.save_details(fix.run.id, details | {"remains": kept})
    fix.note(_told(remaining))


def _brief(finding: Finding) -> str:
    return (
        f"This change was made to settle a finding in `{finding.path}`: {finding.title}\n\n{finding.detail}\n\n"
        "Report what remains of it, and what the change itself breaks; nothing else."
    )


def _told(remaining: list[Finding]) -> str:
    if not remaining:
        return "Reviewed again: nothing remains in the lines that the fix touches."
    named = "; ".join(one_line(one.title, _TITLE_LENGTH) for one in remaining[:_NAMED])
    more = "" if len(remaining) <= _NAMED else " …"
    return f"Reviewed again: {count_of(len(remaining), 'finding')} in the lines that the fix touches: {named}{more}"
