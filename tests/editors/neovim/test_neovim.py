"""The whole loop in a real Neovim, headless. Needs `nvim` 0.11 in PATH or named by OUTPOST_NVIM; CI installs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.stage import make_repository
from tests.support.model_server import Answer, ModelServer

HERE = Path(__file__).parent
PLUGIN = HERE.parents[2] / "examples" / "neovim"


def neovim() -> str:
    found = os.environ.get("OUTPOST_NVIM") or shutil.which("nvim")
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("CI has no Neovim: .ci/run installs it")
        pytest.skip("no Neovim here; set OUTPOST_NVIM to one of version 0.11")
    return found


def test_the_whole_loop_in_neovim(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "repo", {"app.py": "import os\n\n\ndef first():\n    return os.name\n"})
    (repository / "app.py").write_text(
        'def load(path):\n    print(os.path.basename(path))\n    if path is "x":\n        return None\n    return path\n'
    )
    linked = tmp_path / "linked"
    subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(linked)], cwd=repository, check=True)
    empty = tmp_path / "empty"
    empty.mkdir()
    subprocess.run(["git", "init", "--quiet"], cwd=empty, check=True)
    (empty / "first.py").write_text("print(missing)\n")
    answers = [
        Answer(
            when={"contains": "write it", "results": 0},
            calls=[{"name": "write_file", "input": {"path": "new.txt", "content": "written\n"}}],
        ),
        Answer(when={"contains": "write it", "results": 1}, text="Written."),
        Answer(
            when={"contains": "write another", "results": 0},
            calls=[{"name": "write_file", "input": {"path": "other.txt", "content": "other\n"}}],
        ),
        Answer(when={"contains": "write another", "results": 1}, text="Written."),
        Answer(when={"contains": "look at the tests too"}, silent=True, times=0),
        # Until what is said to the slow one has come, it goes on with its work.
        Answer(when={"contains": "wait for me"}, calls=[{"name": "list_files", "input": {}}], delay_s=1.0, times=0),
    ]
    with ModelServer(answers) as server:
        environment = {
            **os.environ,
            "OUTPOST_PLUGIN": str(PLUGIN),
            "OUTPOST_REPOSITORY": str(repository),
            "OUTPOST_LINKED": str(linked),
            "OUTPOST_EMPTY": str(empty),
            "OUTPOST_MODEL_URL": server.base_url,
            "OUTPOST_PYTHON": sys.executable,
            "OUTPOST_CONFIG": str(tmp_path / "none.toml"),
            "OUTPOST_STATE_DIR": str(tmp_path / "state"),
            "OUTPOST_CACHE_DIR": str(tmp_path / "cache"),
            "XDG_STATE_HOME": str(tmp_path / "nvim-state"),
            "XDG_CACHE_HOME": str(tmp_path / "nvim-cache"),
            "XDG_CONFIG_HOME": str(tmp_path / "nvim-config"),
            "XDG_DATA_HOME": str(tmp_path / "nvim-data"),
        }
        (tmp_path / "none.toml").write_text("")
        done = subprocess.run(
            [neovim(), "--headless", "-u", str(HERE / "whole_loop.lua")],
            env=environment,
            capture_output=True,
            text=True,
            timeout=200,
            cwd=repository,
            check=False,
        )
    log = tmp_path / "nvim-state" / "nvim" / "lsp.log"
    told = done.stdout + done.stderr + (log.read_text()[-4000:] if log.exists() else "")
    assert done.returncode == 0, told
    assert "PASSED" in done.stdout, told
    assert (repository / "new.txt").read_text() == "written\n"
