"""The variables that commands in a workspace see (ENV-01 to ENV-06, LOCAL-01, LOCAL-02)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp import BranchPolicy, Command, HostSandboxProvider, WorktreeSandboxProvider, open_sandbox
from outpost_lsp.workspaces.variables import file_variables, parse_variables
from tests.workspaces.conftest import Bench

PRINTS = Command(executable=sys.executable, arguments=["-c", "import json, os; print(json.dumps(dict(os.environ)))"])


async def seen(bench: Bench, **options: Any) -> dict[str, str]:
    async with open_sandbox(
        bench.repository.path, branch=BranchPolicy("named", "work"), layout=bench.layout, **options
    ) as sandbox:
        found: dict[str, str] = json.loads((await sandbox.command(PRINTS)).stdout)
        return found


async def test_ENV_01_LOCAL_02_nothing_of_the_host_comes_along_but_the_allow_list(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, private_home: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    monkeypatch.setenv("SOMETHING_ELSE", "x")
    found = await seen(bench)
    assert "sk-canary" not in found.values()
    assert "SOMETHING_ELSE" not in found
    assert found["PATH"]
    assert found["HOME"] != str(private_home)


async def test_ENV_02_the_identity_yields_to_the_file_and_the_file_to_the_provider(bench: Bench) -> None:
    """The repository's own `.env` is not read."""
    bench.repository.write(".env", "FROM_ENV=1\n")
    bench.repository.write(".outpost/.env", "GIT_AUTHOR_NAME=File\nONE=file\nTWO=file\n")
    found = await seen(bench, sandbox_provider=HostSandboxProvider(variables={"TWO": "provider"}))
    assert (found["GIT_AUTHOR_NAME"], found["GIT_COMMITTER_NAME"]) == ("File", "Outpost")
    assert (found["ONE"], found["TWO"]) == ("file", "provider")
    assert "FROM_ENV" not in found


async def test_ENV_03_only_what_the_application_hands_on_fills_an_empty_value(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    bench.repository.write(".outpost/.env", "OPENAI_API_KEY=\nTOKEN=\nPLAIN=1\n")
    found = await seen(bench, sandbox_provider=HostSandboxProvider(host={"TOKEN": "t", "OTHER": "o"}))
    assert (found["TOKEN"], found["PLAIN"]) == ("t", "1")
    assert not {"OPENAI_API_KEY", "OTHER"} & found.keys()
    found = await seen(bench, sandbox_provider=HostSandboxProvider(environment_file=False))
    assert "PLAIN" not in found


def test_ENV_03_an_empty_value_takes_the_hosts(tmp_path: Path) -> None:
    (tmp_path / ".outpost").mkdir()
    (tmp_path / ".outpost/.env").write_text("LISTED=\nMISSING=\nGIVEN=own\n")
    host = {"LISTED": "host", "OTHER": "host", "GIVEN": "host"}
    assert file_variables(tmp_path, host) == {"LISTED": "host", "GIVEN": "own"}


def test_ENV_03_a_file_behind_a_link_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/.env").write_text("A=1\n")
    (tmp_path / ".outpost").symlink_to(tmp_path / "elsewhere")
    assert file_variables(tmp_path, {}) == {}
    (tmp_path / ".outpost").unlink()
    (tmp_path / ".outpost").mkdir()
    (tmp_path / ".outpost/.env").symlink_to(tmp_path / "elsewhere/.env")
    assert file_variables(tmp_path, {}) == {}
    (tmp_path / ".outpost/.env").unlink()
    (tmp_path / ".outpost/.env").write_text("A=1\n" * 20_000)
    assert file_variables(tmp_path, {}) == {}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("A=1", {"A": "1"}),
        ("  export A = two words  ", {"A": "two words"}),
        ("A='single \\n $x # no comment'", {"A": "single \\n $x # no comment"}),
        (r'A="tab\tline\nreturn\rquote\"back\\ other\q"', {"A": 'tab\tline\nreturn\rquote"back\\ other\\q'}),
        ("A=value # comment", {"A": "value"}),
        ("A=value#no comment", {"A": "value#no comment"}),
        ('A="x" # comment', {"A": "x"}),
        ("A=# all comment", {"A": ""}),
        ("A=", {"A": ""}),
        ("A=b=c", {"A": "b=c"}),
        ("# comment", {}),
        ("no assignment", {}),
        ("1A=x", {}),
        ("", {}),
    ],
)
def test_ENV_05_the_syntax_of_the_file(line: str, expected: dict[str, str]) -> None:
    assert parse_variables(line + "\n") == expected


async def test_ENV_06_a_snapshot_sandbox_as_the_editor_uses_it_does_not_read_the_file(bench: Bench) -> None:
    bench.repository.write(".outpost/.env", "FROM_FILE=1\n")
    provider = WorktreeSandboxProvider(layout=bench.layout)
    async with open_sandbox(bench.repository.path, sandbox_provider=provider) as sandbox:
        assert "FROM_FILE" not in json.loads((await sandbox.command(PRINTS)).stdout)


async def test_LOCAL_01_only_the_checked_out_tree_is_apart(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "outside.txt").write_text("seen")
    async with bench.open("named", "work") as workspace, workspace.sandbox() as sandbox:
        assert sandbox.root == workspace.directory
        read = await sandbox.command(Command(executable="cat", arguments=[str(tmp_path / "outside.txt")]))
        assert read.stdout == "seen"
    assert HostSandboxProvider().placement == "host"
