"""For every test: a home folder of its own, real git repositories, and in CI no excuse for being skipped."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from tests.support.repositories import Case, RealRepository, build_case, make_repository


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a machine lacks is a reason to skip a test, but CI's machine has to have it."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI"):
        report.outcome = "failed"
        report.longrepr = f"skipped, and CI skips none: {report.longrepr}"
    return report


@pytest.fixture(autouse=True)
def private_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Git and the product find an empty home folder, whatever the machine's own configuration says."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture
def repository(tmp_path: Path) -> RealRepository:
    """A repository with one commit of `a.txt` and `src/main.py`."""
    return make_repository(tmp_path / "repo", {"a.txt": "one\ntwo\nthree\n", "src/main.py": "print('hello')\n"})


@pytest.fixture
def case(tmp_path: Path) -> Callable[[str], Case]:
    """Build one of the prepared repositories of `tests/cases/repos` by its name."""
    return lambda name: build_case(name, tmp_path / name)
