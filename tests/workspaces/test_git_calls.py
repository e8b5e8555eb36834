"""Every git call around a workspace goes through the one door (GIT-01, GIT-02)."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from outpost_lsp import DiffGuard
from tests.workspaces.conftest import Bench, sh


async def test_GIT_02_no_call_takes_optional_locks_a_pager_a_monitor_or_an_inherited_place(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, log = shutil.which("git"), tmp_path / "calls"
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/git"
    program.write_text(
        "#!/usr/bin/env python3\n"
        "import json, os, sys\n"
        f"with open({str(log)!r}, 'a') as log:\n"
        "    log.write(json.dumps([sys.argv[1:], dict(os.environ)]) + '\\n')\n"
        f"os.execv({real!r}, ['git', *sys.argv[1:]])\n"
    )
    program.chmod(0o755)
    workspace_script = "echo w > w; git add w; git commit -qm w"
    with monkeypatch.context() as patched:
        patched.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
        for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
            patched.setenv(name, str(tmp_path / "nowhere"))
        workspace = await bench.open("integrate", guard=DiffGuard(max_changed_lines=9))
    sh(workspace.directory, workspace_script)
    bench.repository.write("theirs", "x")
    bench.repository.commit_all("theirs")
    await workspace.integrate()
    await workspace.close()
    calls = [json.loads(line) for line in log.read_text().splitlines()]
    folders = {arguments[index + 1] for arguments, _ in calls for index, word in enumerate(arguments) if word == "-C"}
    commands = {
        next((word for word in arguments if not word.startswith("-") and word not in folders), "")
        for arguments, _ in calls
    }
    assert {"worktree", "merge-tree", "commit-tree", "merge", "diff-tree", "branch", "status"} <= commands
    for arguments, environment in calls:
        if arguments[0] in {"version", "config"} or "config" in arguments:
            continue
        count = int(environment["GIT_CONFIG_COUNT"])
        settings = {environment[f"GIT_CONFIG_KEY_{n}"]: environment[f"GIT_CONFIG_VALUE_{n}"] for n in range(count)}
        assert settings["core.hooksPath"] == os.devnull
        assert (settings["core.fsmonitor"], settings["core.pager"]) == ("false", "cat")
        assert environment["GIT_OPTIONAL_LOCKS"] == environment["GIT_TERMINAL_PROMPT"] == "0"
        assert environment["LC_ALL"] == "C"
        assert str(tmp_path / "nowhere") not in environment.values()
