"""The code of docs/library.md, run as it stands there: in a real repository, against real services on loopback.

Only addresses that name somebody's service are put in place of those of this machine.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp import Agent, CliAgent, DispatchResult, Tool
from tests.support.model_answers import Answer
from tests.support.model_server import ModelServer
from tests.support.repositories import make_repository

ROOT = Path(__file__).parents[1]
BLOCKS = re.findall(
    r"^```python\n(.*?)^```", (ROOT / "docs" / "library.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
)


def stand_in(folder: Path, name: str, module: str) -> None:
    """A program of this name in the folder."""
    program = folder / name
    program.write_text(f'#!/bin/sh\ncd "{ROOT}" && exec "{sys.executable}" -m {module} "{folder}" models\n')
    program.chmod(0o755)


async def run(source: str, names: dict[str, Any]) -> str:
    """Run a block as a notebook would, awaiting at its top; what it printed."""
    if "asyncio.run(" in source:
        # A loop runs already where the tests do.
        source = source.replace("asyncio.run(", "await (")
    # A test has no terminal that could be handed over.
    source = source.replace("    await sandbox.attach()\n", "")
    code = compile(source, "docs/library.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        made = eval(code, names)
        if inspect.isawaitable(made):
            await made
    return printed.getvalue()


async def test_every_block_of_the_document_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = make_repository(tmp_path / "project", {"app.py": "print('hello')\n", ".gitignore": "local.settings\n"})
    repository.write("local.settings", "mine\n")
    programs = tmp_path / "programs"
    programs.mkdir()
    stand_in(programs, "some-agent", "tests.support.acp_agent_program")
    for name, value in (
        ("PATH", f"{programs}:{os.environ['PATH']}"),
        ("OPENAI_API_KEY", "a-key-of-the-test"),
        ("MODEL_NAME", "small"),
        ("SOME_AGENT_KEY", "another-key-of-the-test"),
        ("OUTPOST_STATE_DIR", str(tmp_path / "state")),
        ("OUTPOST_CACHE_DIR", str(tmp_path / "cache")),
        ("HOME", str(tmp_path)),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(repository.path)
    review = {"name": "review", "input": {"prompt": "Look at app.py."}}
    names: dict[str, Any] = {"__name__": "library"}
    with ModelServer(
        [
            Answer(calls=[review], when={"contains": "Review the validation code", "results": 0}),
            Answer(text="Two risks.", when={"contains": "Review the validation code", "results": 1}),
            Answer(text="Done.", usage={"input": 10, "output": 2}, times=0),
        ]
    ) as service:
        printed = []
        for source in BLOCKS:
            printed.append(await run(source.replace("https://api.openai.com/v1", service.base_url), names))
    assert len(BLOCKS) >= 5
    assert printed[0].startswith("Two risks.")
    assert isinstance(names["word_count"], Tool)
    assert isinstance(names["helper"], Agent)
    assert isinstance(names["outside"], CliAgent)
    assert isinstance(names["result"], DispatchResult)
    assert len(service.requests) >= 4
    assert service.problems == []
    assert (programs / "asked.jsonl").exists(), "the outside agent was asked"
    assert repository.git("status", "--porcelain") == ""
    await names["provider"].aclose()
