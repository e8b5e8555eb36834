"""`outpost-lsp report RUN`: what a bug report needs, and nothing that is a key, a home folder or somebody's text."""

from __future__ import annotations

import json
import stat
import zipfile
from pathlib import Path
from typing import Any

from outpost_lsp.cli.redacting import redacted, redacted_settings
from tests.cli.conftest import Program
from tests.support.model_answers import Answer
from tests.support.model_server import ModelServer
from tests.support.repositories import RealRepository

KEY = "sk-a-key-that-nobody-may-see"
CANARIES = ("secret instructions", "return math.pi", "ORDERS ARE SECRET", "Answer of the model", "internal.example")


def contents(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_a_bundle_holds_settings_record_journal_and_versions_and_no_key_home_or_text(
    program: Program, project: RealRepository
) -> None:
    project.write("shop/orders.py", "# ORDERS ARE SECRET\ndef area(r):\n    return math.pi * r\n")
    more = (
        '[providers.other]\nkind = "openai"\nbase_url = "https://person:word@internal.example/v1"\n'
        '[agents.careful]\ninstructions = "secret instructions"\nmodel = "main"\ntools = ["files", "findings"]\n'
    ).replace("person:word@", "")
    calls = [
        {"name": "read_file", "input": {"path": "shop/orders.py"}},
        {"name": "read_file", "input": {"path": f"/{KEY}"}},
        {"name": "unknown_tool", "input": {"word": KEY}},
    ]
    with ModelServer([Answer(calls=calls), f"Answer of the model: {KEY}"]) as server:
        program.use_model(server.base_url, more=more)
        text = program.config.read_text().replace('api_key_env = ""', 'api_key_env = "THE_KEY"', 1)
        program.config.write_text(text)
        program("review", "--agent", "careful", cwd=project.path, THE_KEY=KEY)
        [run] = program("runs", "--json", cwd=project.path).json
        ended = program("report", run["id"][:20], cwd=project.path, THE_KEY=KEY)
    assert ended.status == 0, ended.err
    assert "nothing was sent" in ended.out
    file = Path(program.environment["OUTPOST_STATE_DIR"]) / "reports" / f"outpost-report-{run['id']}.zip"
    assert str(file) in ended.out
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    found = contents(file)
    assert set(found) == {"ABOUT.txt", "versions.json", "settings.json", "run.json", "journal.jsonl"}
    whole = "".join(found.values())
    home = program.environment["HOME"]
    for canary in (KEY, *CANARIES, home, str(project.path)):
        assert canary not in whole, canary
    kinds = [json.loads(line)["event"]["kind"] for line in found["journal.jsonl"].splitlines()]
    assert {"step", "tool", "tool-result", "usage"} <= set(kinds)
    assert "shop/orders.py" in found["journal.jsonl"], "names of files in the repository are kept"
    assert json.loads(found["run.json"])["status"] == run["status"]
    assert json.loads(found["versions.json"])["packages"]["pygls"]
    settings = {one["key"]: one["value"] for one in json.loads(found["settings.json"])["settings"]}
    assert settings["providers.other.base_url"] == "https://[a host]/v1"
    assert settings["providers.loopback.api_key_env"] == "THE_KEY"
    assert settings["agents.careful.instructions"] == "[19 characters]"
    again = program("report", run["id"], "--output", str(file), cwd=project.path, THE_KEY=KEY)
    assert again.status == 2
    assert "is there already" in again.err


def test_a_bundle_does_not_tell_the_name_of_the_patch_that_was_reviewed(
    program: Program, project: RealRepository, tmp_path: Path
) -> None:
    file = tmp_path / "for our customer.diff"
    file.write_bytes(project.run("diff", "HEAD"))
    project.git("checkout", "--", ".")
    run = program("review", "--patch", str(file), "--format", "json", cwd=project.path).json["run"]
    assert any(file.name in note for note in run["notes"])
    bundle = tmp_path / "bundle.zip"
    ended = program("report", run["id"], "--output", str(bundle), cwd=project.path)
    assert ended.status == 0, ended.err
    found = contents(bundle)
    assert json.loads(found["run.json"])["notes"][0].startswith("The patch [21 characters] was applied to HEAD")
    assert "customer" not in "".join(found.values())


def test_a_text_in_a_field_that_nobody_knows_is_left_out_and_numbers_stay() -> None:
    event: dict[str, Any] = {
        "kind": "of-a-newer-version",
        "novel": "somebody's words",
        "name": "x" * 500,
        "count": 3,
        "flag": True,
        "inner": [{"path": "/home/somebody/file"}, {"path": "src/a.py"}, {"message": "words of a tool"}],
    }
    assert redacted(event, str) == {
        "kind": "of-a-newer-version",
        "novel": "[16 characters]",
        "name": "[500 characters]",
        "count": 3,
        "flag": True,
        "inner": [{"path": "[19 characters]"}, {"path": "src/a.py"}, {"message": "[15 characters]"}],
    }


def test_only_messages_of_the_products_own_are_kept() -> None:
    assert redacted({"kind": "warning", "message": "the journal is cut"}, str)["message"] == "the journal is cut"
    assert redacted({"kind": "text", "message": "the journal is cut"}, str)["message"] == "[18 characters]"


def test_settings_keep_what_the_product_knows_and_hide_what_a_person_wrote() -> None:
    told = {
        "trusted": True,
        "files": [],
        "faults": [],
        "refused": [],
        "warnings": [],
        "settings": [
            {"key": "providers.a.base_url", "value": "http://127.0.0.1:8080/v1", "source": "file"},
            {"key": "providers.a.api_key_command", "value": ["pass", "show", "mine"], "source": "file"},
            {"key": "review.max_findings", "value": 7, "source": "file"},
            {"key": "agents.a.tools", "value": ["files"], "source": "file"},
            {"key": "mcp.docs.command", "value": "/opt/docs", "source": "file"},
        ],
    }
    values = [one["value"] for one in redacted_settings(told, str)["settings"]]
    assert values == ["http://127.0.0.1:8080/v1", "[3 values]", 7, ["files"], "[9 characters]"]
