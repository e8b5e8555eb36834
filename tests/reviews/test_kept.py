"""A prepared review is the same after it was kept as data."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from outpost_lsp.domain.run import ReviewScope
from outpost_lsp.errors import OutpostError
from outpost_lsp.reviews.kept import kept_review, review_from
from outpost_lsp.reviews.scope import ReviewSettings, prepare_review
from outpost_lsp.worktrees.git import find_repository
from tests.support.repositories import make_repository


@pytest.mark.parametrize("scope", [ReviewScope(), ReviewScope(scope="workspace", paths=("a.py",))])
async def test_a_review_is_read_as_it_was_kept(tmp_path: Path, scope: ReviewScope) -> None:
    project = make_repository(tmp_path / "project", {"a.py": "x = 1\n", "b.py": "y = 1\n"})
    project.write("a.py", "x = 2\n")
    project.write("c.py", "z = 1\n")
    settings = ReviewSettings()
    prepared = await prepare_review(await find_repository(project.path), scope, brief="Look.", settings=settings)
    kept = json.loads(json.dumps(kept_review(prepared)))
    read = review_from(kept, settings)
    changed = None if prepared.changed is None else {path: tuple(one) for path, one in prepared.changed.items()}
    assert replace(read, excluded=prepared.excluded) == replace(prepared, changed=changed)
    assert read.excluded("x.lock") is prepared.excluded("x.lock") is True


@pytest.mark.parametrize("kept", [{}, {"scope": {}}, {"scope": "all", "changed": 3}])
def test_what_is_no_review_is_refused(kept: dict[str, object]) -> None:
    with pytest.raises(OutpostError) as fault:
        review_from(kept, ReviewSettings())
    assert fault.value.code == "configuration"
