"""What people and editors read about the settings: documentation, JSON Schema, `config show`."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from outpost_lsp.config.describe import describe, to_json, toml_value
from outpost_lsp.config.reference import with_settings_tables
from outpost_lsp.config.schema import Settings, default_settings, json_schema
from outpost_lsp.config.sources import ClientSettings, load_settings

DOCUMENT = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_documented_settings_are_those_of_the_schema() -> None:
    text = DOCUMENT.read_text("utf-8")
    assert with_settings_tables(text) == text, "run: python -m outpost_lsp.config.reference docs/configuration.md"


def test_a_document_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="needs the marks"):
        with_settings_tables("no marks")


def test_every_example_of_the_documentation_is_a_configuration_without_faults(tmp_path: Path) -> None:
    examples = re.findall(r"```toml\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    assert len(examples) >= 5
    base = "[providers.openai]\nkind = 'openai'\n"
    for example in examples:
        file = tmp_path / "config.toml"
        parts = [example] if "[providers.openai]" in example else [base, example]
        known = tomllib.loads("\n".join(parts))
        if "small" not in known.get("models", {}) or "name" not in known["models"]["small"]:
            small = "provider = 'openai'\nname = 'n'\n"
            parts = (
                [part.replace("[models.small]\n", f"[models.small]\n{small}") for part in parts]
                if "[models.small]" in example
                else [*parts, f"[models.small]\n{small}"]
            )
        file.write_text("\n".join(parts))
        assert load_settings(user_file=file).faults == (), example


def test_every_setting_is_described() -> None:
    schema = json_schema()
    for table in (schema, *schema["$defs"].values()):
        for name, field in table.get("properties", {}).items():
            assert field.get("description"), f"{table['title']}.{name}"


@pytest.mark.parametrize(
    ("tree", "fits"),
    [
        ({}, True),
        ({"models": {"small": {"reasoning": "low"}}}, True),
        ({"agents": {"a": {"watchdog": {"on_stuck": {"instruction": "x"}}}}}, True),
        ({"agents": {"a": {"watchdog": {"on_stuck": "warn"}}}}, True),
        ({"runs": {"concurrency": 0}}, False),
        ({"runs": {"concurrncy": 1}}, False),
        ({"sandbox": {"shell": "on"}}, False),
        ({"agents": {"a b": {}}}, False),
        ({"review": []}, False),
    ],
)
def test_the_JSON_schema_accepts_and_refuses_what_the_server_does(tree: dict[str, Any], fits: bool) -> None:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert (not list(jsonschema.Draft202012Validator(schema).iter_errors(tree))) is fits
    assert (load_settings(client=[ClientSettings("c", tree)]).faults == ()) is fits or "models" in tree


def test_the_built_in_settings_fit_the_JSON_schema() -> None:
    tree = json.loads(default_settings().model_dump_json(exclude_none=True))
    assert not list(jsonschema.Draft202012Validator(json_schema()).iter_errors(tree))


def test_what_is_shown_is_a_configuration_that_gives_the_same_settings(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(
        'default_model = "a b"\n[models."a b"]\nprovider = "offline"\nname = "q\\"\\\\ \\u0007 é\\n"\n'
        "[agents.reviewer]\nwatchdog = { on_stuck = { instruction = 'x' } }\n"
        "permissions = { rules = [{ effect = 'deny', paths = ['**/.env'] }] }\n"
        "[budget]\nper_run = { output = 5 }\n"
    )
    loaded = load_settings(user_file=file)
    assert loaded.faults == ()
    shown = "\n".join(str(described) for described in describe(loaded))
    assert Settings.model_validate(tomllib.loads(shown)) == loaded.settings


def test_each_shown_value_has_its_origin(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("\n[runs]\nconcurrency = 3\n")
    loaded = load_settings(user_file=file, client=[ClientSettings("the editor", {"runs": {"verbose": True}})])
    origins = {described.key: str(described.origin) for described in describe(loaded)}
    assert origins["runs.concurrency"] == f"{file}:3"
    assert origins["runs.verbose"] == "the editor"
    assert origins["runs.events"] == origins["agents.reviewer.tools"] == "built in"
    rows = {row["key"]: row for row in to_json(loaded)["settings"]}
    assert rows["runs.concurrency"] == {
        "key": "runs.concurrency",
        "value": 3,
        "place": "user",
        "source": str(file),
        "line": 3,
    }


def test_no_secret_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(
        "[http]\nproxy = 'http://user:canary@proxy:3128'\n"
        "[mcp.a]\ncommand = 'a'\narguments = ['--token', 'canary']\nenvironment = { TOKEN = 'canary' }\n"
        "[mcp.b]\nurl = 'https://b'\nheaders = { Authorization = 'canary' }\n"
    )
    loaded = load_settings(user_file=file)
    assert loaded.faults == ()
    shown = "\n".join(map(str, describe(loaded))) + json.dumps(to_json(loaded))
    assert "canary" not in shown
    assert "***@proxy:3128" in shown


@pytest.mark.parametrize(
    "value", ["", 'a"b\\c\n\t\r\x00\x1b\x7f\u2028é\U0001f600', True, 3, 1.5, ["a", 1], {}, {"a b": {"c": []}}]
)
def test_shown_values_are_TOML(value: Any) -> None:
    assert tomllib.loads(f"v = {toml_value(value)}")["v"] == value
