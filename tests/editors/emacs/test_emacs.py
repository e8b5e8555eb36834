"""The documented eglot snippet in a real Emacs, in batch mode. Needs Emacs 28 with eglot; CI installs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.stage import make_repository

HERE = Path(__file__).parent


def test_review_diagnostics_and_a_fix_in_emacs(tmp_path: Path) -> None:
    emacs = shutil.which("emacs")
    if emacs is None:
        if os.environ.get("CI"):
            pytest.fail("CI has no Emacs: .ci/run installs it")
        pytest.skip("no Emacs here; install emacs-nox and elpa-eglot")
    repository = make_repository(tmp_path / "repo", {"app.py": "x = 1\n"})
    (repository / "app.py").write_text('def load(path):\n    if path is "x":\n        return None\n    return path\n')
    done = subprocess.run(
        [emacs, "--batch", "--no-init-file", "-l", str(HERE / "whole_loop.el")],
        env={
            **os.environ,
            "HOME": str(tmp_path),
            "OUTPOST_REPOSITORY": str(repository),
            "OUTPOST_PYTHON": sys.executable,
            "OUTPOST_STATE_DIR": str(tmp_path / "state"),
            "OUTPOST_CACHE_DIR": str(tmp_path / "cache"),
        },
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    assert "PASSED" in told, told
