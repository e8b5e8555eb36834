"""The documentation and the schema are what the models say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from outpost_lsp.protocol import names
from outpost_lsp.protocol.commands import COMMANDS
from outpost_lsp.protocol.document import protocol_markdown
from outpost_lsp.protocol.schema import protocol_schema

_DOCUMENT = Path(__file__).parents[2] / "docs" / "protocol.md"


def test_the_document_is_made_from_the_models() -> None:
    made = protocol_markdown()
    assert _DOCUMENT.read_text(encoding="utf-8") == made, (
        "run: python -m outpost_lsp.protocol.document > docs/protocol.md"
    )
    for name in (*names.COMMANDS, *names.NOTIFICATIONS):
        assert f"### `{name}`" in made


def test_every_type_that_the_document_names_has_a_section() -> None:
    made = protocol_markdown()
    linked = {part.split(")", 1)[0] for part in made.split("](#")[1:]}
    sections = {line.removeprefix("### ").lower() for line in made.splitlines() if line.startswith("### ")}
    assert linked <= sections


def test_the_schema_names_everything_and_is_one() -> None:
    schema = protocol_schema()
    assert json.loads(json.dumps(schema)) == schema
    assert tuple(schema["commands"]) == names.COMMANDS
    assert tuple(schema["notifications"]) == names.NOTIFICATIONS
    assert set(schema["records"]) == {"Run", "Finding", "Usage"}
    assert schema["requests"].keys() == {names.SECRET_REQUEST}
    jsonschema.Draft202012Validator.check_schema({"$defs": schema["$defs"]})


@pytest.mark.parametrize("name", names.COMMANDS)
def test_the_schema_of_an_argument_admits_what_the_command_takes_and_nothing_else(name: str) -> None:
    schema = protocol_schema()
    checker = jsonschema.Draft202012Validator({**schema["commands"][name]["argument"], "$defs": schema["$defs"]})
    required: dict[str, Any] = {
        field.alias or key: True if field.annotation is bool else "x"
        for key, field in COMMANDS[name].params.model_fields.items()
        if field.is_required()
    }
    assert checker.is_valid(required)
    assert not checker.is_valid(required | {"colour": 1})
    assert not checker.is_valid([])
    for field in required:
        assert not checker.is_valid({key: value for key, value in required.items() if key != field})
