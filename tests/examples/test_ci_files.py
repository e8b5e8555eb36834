"""The files for pre-commit, GitHub and GitLab: they parse, and their command lines are those of this program."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from outpost_lsp.cli.arguments import parse

ROOT = Path(__file__).parents[2]
HOOKS = ROOT / ".pre-commit-hooks.yaml"
FILES = [HOOKS, *sorted((ROOT / "examples" / "ci").glob("*.yml"))]


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for one in value.values():
            yield from texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from texts(one)
    elif isinstance(value, str):
        yield value


def command_lines(file: Path) -> list[list[str]]:
    lines = [line for text in texts(yaml.safe_load(file.read_text("utf-8"))) for line in text.splitlines()]
    return [shlex.split(line)[1:] for line in lines if re.match(r"outpost-lsp [a-z]+( -|$)", line)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_command_line_is_accepted(file: Path) -> None:
    lines = command_lines(file)
    assert lines
    for line in lines:
        assert parse(line).command in ("review", "usage")


def test_both_pipelines_write_the_report_that_they_hand_on() -> None:
    github, gitlab = (
        yaml.safe_load((ROOT / "examples" / "ci" / name).read_text()) for name in ("github.yml", "gitlab-ci.yml")
    )
    [upload] = [step for step in github["jobs"]["review"]["steps"] if "upload-sarif" in step.get("uses", "")]
    assert f"--output {upload['with']['sarif_file']}" in "".join(texts(github["jobs"]["review"]["steps"]))
    for name in ("outpost-review", "outpost-baseline", "outpost-everything"):
        job = gitlab[name]
        assert f"--output {job['artifacts']['paths'][0]}" in "".join(job["script"])


def test_the_hooks_say_what_pre_commit_asks_for() -> None:
    for hook in yaml.safe_load(HOOKS.read_text("utf-8")):
        assert {"id", "name", "entry", "language"} <= set(hook)
        assert hook["require_serial"], "one review of the whole commit"
