"""A reviewer is told what a person dismissed, so that it need not raise it again."""

from __future__ import annotations

from outpost_lsp.domain.run import ReviewScope
from outpost_lsp.service.reviews import PlannedReview, plan_review
from tests.service.conftest import Office
from tests.service.test_replacing import review
from tests.support.repositories import RealRepository


async def test_U_09_the_next_brief_holds_the_title_and_the_reason_until_it_is_restored(
    office: Office, project: RealRepository
) -> None:
    async def brief() -> str:
        planned = await plan_review(office.outpost, workspace, ReviewScope(scope="uncommitted"), "reviewer", None, {})
        assert isinstance(planned, PlannedReview)
        return planned.prepared.brief

    workspace = await office.workspace(project)
    await review(office, workspace)
    [finding] = workspace.findings()
    assert finding.title not in await brief()
    workspace.dismiss(finding.id, reason="it is meant so", until=None)
    told = await brief()
    assert finding.title in told
    assert "the reason: it is meant so" in told
    workspace.restore(finding.id)
    assert finding.title not in await brief()
    workspace.dismiss(finding.id, reason=None, until="2020-01-01")
    assert finding.title not in await brief()
