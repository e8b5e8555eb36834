"""The commands that the extension's tests know, with their answers, are those that the server speaks.

The files are read by the extension's tests, too, which compile them against its own types: neither side can change a
field alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp.protocol.commands import COMMANDS, parse

FILES = sorted((Path(__file__).parents[2] / "golden" / "commands").glob("*.json"))


def read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_server_takes_what_the_file_asks(file: Path) -> None:
    message = read(file)
    parse(message["method"], [message["params"]])


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_answer_in_the_file_is_one_of_the_servers(file: Path) -> None:
    message = read(file)
    answer = COMMANDS[message["method"]].result.model_validate(message["result"])
    assert answer.to_json() == message["result"]


def test_the_files_cover_most_commands() -> None:
    told = {read(file)["method"] for file in FILES}
    assert len(told) >= 16
    assert told <= set(COMMANDS)
