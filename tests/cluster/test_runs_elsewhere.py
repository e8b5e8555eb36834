"""Runs that a worker carries out, through a real face on loopback, are as those of this process (SO-01, SO-07, SO-08)."""

from __future__ import annotations

from pathlib import Path

from outpost_lsp.domain.run import ReviewScope
from outpost_lsp.storage.journal import read_journal
from tests.cluster.conftest import Office
from tests.support.hosted_face import TOKEN, hosted_face
from tests.support.repositories import RealRepository


async def test_SO_01_a_review_elsewhere_is_the_same_but_for_ids_times_and_the_workers_note(
    office: Office, project: RealRepository, tmp_path: Path, environment: dict[str, str]
) -> None:
    environment["OUTPOST_RAY_TOKEN"] = TOKEN
    here = await office.workspace(project)
    local = await (await office.outpost.review(here, ReviewScope())).wait()
    local_kinds = [record.kind for record in read_journal(here.journal_path(local.id))]
    local_findings = [finding.model_dump(exclude={"id", "run_id"}) for finding in here.board.listing()]
    assert local.status == "succeeded"
    assert local.findings > 0
    await office.outpost.remove_workspace(project.path)
    async with hosted_face(tmp_path / "face") as face:
        there = await office.workspace(project, face.settings())
        remote = await (await office.outpost.review(there, ReviewScope())).wait()
        assert remote.error is None
        assert remote.status == "succeeded"
        assert remote.text == local.text
        assert remote.findings == local.findings
        assert [note for note in remote.notes if note not in local.notes] == ["Carried out by here."]
        kinds = [record.kind for record in read_journal(there.journal_path(remote.id))]
        assert kinds == local_kinds
        findings = [finding.model_dump(exclude={"id", "run_id"}) for finding in there.board.listing()]
        assert findings == local_findings
        assert "GET /v1/health" in face.requests
