"""What the documents promise: links that lead somewhere, commands that exist, settings that are accepted."""

from __future__ import annotations

import contextlib
import re
import shlex
from pathlib import Path

import pytest

from outpost_lsp.cli.arguments import parse
from outpost_lsp.config.files import read_settings_file

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
SHELL = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_relative_link_of_a_document_leads_to_a_file(document: Path) -> None:
    targets = [target.split("#")[0] for target in LINK.findall(document.read_text("utf-8"))]
    relative = [target for target in targets if target and "://" not in target]
    missing = [target for target in relative if not (document.parent / target).exists()]
    assert missing == []


def commands() -> list[str]:
    found = []
    for document in DOCUMENTS:
        for block in SHELL.findall(document.read_text("utf-8")):
            for line in block.splitlines():
                parts = (part.strip() for part in re.split(r"&&|\|", line.split(" #")[0]))
                found += [part for part in parts if re.match(r"\S*outpost-lsp\s", part)]
    return found


@pytest.mark.parametrize("command", sorted(set(commands())))
def test_every_command_line_of_a_document_is_accepted(command: str) -> None:
    _program, *arguments = shlex.split(command)
    with contextlib.suppress(SystemExit):  # help ends so
        parse([argument for argument in arguments if argument != "..."])


def test_the_documents_hold_command_lines() -> None:
    assert len(set(commands())) > 10


def test_the_readme_names_every_command_of_the_program_or_its_family() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    for command in (
        "review",
        "run",
        "continue",
        "runs",
        "show",
        "diff",
        "apply",
        "discard",
        "reopen",
        "replay",
        "serve",
    ):
        assert re.search(rf"\b{command}\b", readme), command


def test_ci_runs_the_readmes_test_command() -> None:
    readme, script = ((ROOT / name).read_text("utf-8") for name in ("README.md", ".ci/run"))
    tests = "pytest -n auto --dist worksteal"
    assert f".venv/bin/pip install -q -e '.[dev]' && .venv/bin/{tests}" in readme
    assert "-e '.[dev]'" in script
    assert f"/{tests}" in script.replace('"', "")


def test_the_projects_own_review_reads_everything_but_keys_of_tests_and_lock_files() -> None:
    loaded = read_settings_file(ROOT / "outpost.toml")
    assert loaded.fault is None
    assert loaded.tree == {"review": {"exclude": ["**/*.lock", "tests/**/*.key"]}}
