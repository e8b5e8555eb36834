"""A repository for the examples to work on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.examples.programs import Ended, run_program
from tests.support.repositories import RealRepository, make_repository

Run = Callable[..., Ended]


@pytest.fixture
def repository(tmp_path: Path) -> RealRepository:
    found = make_repository(tmp_path / "repository")
    found.write("validation.py", "def valid(text):\n    return len(text) > 0\n")
    found.write("docs/manual.md", "Three short words\n")
    found.commit_all("start")
    return found


@pytest.fixture
def run(repository: RealRepository, tmp_path: Path) -> Run:
    home = tmp_path / "home"
    home.mkdir()

    def run_here(name: str, *arguments: str, **variables: str) -> Ended:
        return run_program(name, repository.path, home, *arguments, **variables)

    return run_here
