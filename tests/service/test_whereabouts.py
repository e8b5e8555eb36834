"""A run's count of findings and the list of them agree: what is not there any more is told with what became of it."""

from __future__ import annotations

from outpost_lsp.service.whereabouts import whereabouts
from tests.service.conftest import Office
from tests.service.test_replacing import SLIP, review
from tests.support.repositories import RealRepository


async def test_what_a_later_review_found_again_or_no_more_is_told_of_the_earlier_run(
    office: Office, project: RealRepository
) -> None:
    project.write("b.py", SLIP)
    workspace = await office.workspace(project)
    first = await review(office, workspace)
    run = workspace.runs.load(first)
    assert run is not None
    before = await whereabouts(workspace, run)
    assert ([one.path for one in before.here], before.gone) == (["a.py", "b.py"], ())
    assert run.findings == 2
    project.write("b.py", "x = 2\n")
    last = await review(office, workspace)
    after = await whereabouts(workspace, run)
    assert after.here == ()
    assert [(finding.path, became) for finding, became in after.gone] == [
        ("a.py", f"replaced by the finding of run {last}"),
        ("b.py", "no longer there: a later review did not report it again, or it was cleared"),
    ]


async def test_a_dismissed_finding_is_still_there(office: Office, project: RealRepository) -> None:
    workspace = await office.workspace(project)
    run = workspace.runs.load(await review(office, workspace))
    assert run is not None
    [finding] = workspace.findings()
    workspace.dismiss(finding.id, reason=None, until=None)
    found = await whereabouts(workspace, run)
    assert ([one.status for one in found.here], found.gone) == (["dismissed"], ())
