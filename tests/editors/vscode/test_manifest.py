"""The extension's settings are the server's: every name is one that it knows, and every default is its own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic.alias_generators import to_snake

import outpost_lsp
from outpost_lsp.config.schema import default_settings
from outpost_lsp.protocol.names import COMMANDS, NOTIFICATIONS

EXTENSION = Path(__file__).parents[3] / "vscode-extension"
MANIFEST = json.loads((EXTENSION / "package.json").read_text(encoding="utf-8"))
PROPERTIES: dict[str, Any] = {
    name.removeprefix("outpost."): setting
    for group in MANIFEST["contributes"]["configuration"]
    for name, setting in group["properties"].items()
}
SETTINGS_SOURCE = (EXTENSION / "src" / "settings.ts").read_text(encoding="utf-8")


def own_settings() -> set[str]:
    found = re.search(r"OWN_SETTINGS = \[(.*?)\]", SETTINGS_SOURCE, re.DOTALL)
    assert found is not None
    return set(re.findall(r'"([^"]+)"', found[1]))


def of_the_server() -> list[str]:
    return sorted(PROPERTIES.keys() - own_settings())


@pytest.mark.parametrize("name", of_the_server())
def test_a_setting_is_one_that_the_server_knows_with_the_same_default(name: str) -> None:
    value: Any = default_settings()
    for part in name.split("."):
        value = getattr(value, to_snake(part))
    told = PROPERTIES[name]["default"]
    if PROPERTIES[name]["type"] == "object":
        # A table adds to what is built in.
        assert told == {}
    else:
        assert told == (list(value) if isinstance(value, tuple) else value)


def test_the_settings_that_are_left_out_are_the_users_files_alone_or_rare() -> None:
    known = {
        f"{section}.{field}"
        for section in ("http", "review", "sandbox", "runs")
        for field in type(getattr(default_settings(), section)).model_fields
    }
    told = {re.sub(r"[^.]+$", lambda last: to_snake(last[0]), name) for name in of_the_server()}
    left_out = {name for name in known - told if name.split(".")[0] in ("http", "review", "sandbox", "runs")}
    assert left_out == {"sandbox.environment", "sandbox.readable", "runs.executor", "runs.ray", "runs.replayable"}


def test_the_extension_and_the_server_have_one_version() -> None:
    assert MANIFEST["version"] == outpost_lsp.__version__


def test_the_extension_knows_every_command_and_notification() -> None:
    files = (EXTENSION / "src" / "protocol").glob("*.ts")
    source = "\n".join(file.read_text(encoding="utf-8") for file in files)
    assert set(re.findall(r'^  "(outpost\.\w+)": \{', source, re.MULTILINE)) == set(COMMANDS)
    assert set(re.findall(r'^  "(\$/outpost/\w+)": ', source, re.MULTILINE)) == set(NOTIFICATIONS)
