"""Four places, their order, their faults by file, line and key, and what stays in force (U-36, REL-19)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp.config.environment import default_layout, user_file_path, user_settings
from outpost_lsp.config.files import read_settings_file
from outpost_lsp.config.overrides import settings_from_assignments
from outpost_lsp.config.schema import BUILT_IN, Settings, default_settings
from outpost_lsp.config.sources import ClientSettings, LoadedSettings, check_file, load_settings
from outpost_lsp.config.trust import Trust
from outpost_lsp.errors import OutpostError

TRUSTED = Trust(True, "the test says so")


class Places:
    """A user file and a workspace folder."""

    def __init__(self, root: Path) -> None:
        self.user = root / "config.toml"
        self.folder = root / "workspace"
        self.folder.mkdir()
        self.workspace = self.folder / "outpost.toml"
        self.is_trusted = True

    def load(self, *client: Any, previous: LoadedSettings | None = None) -> LoadedSettings:
        return load_settings(
            user_file=self.user,
            folder=self.folder,
            client=[ClientSettings(f"client {number}", tree) for number, tree in enumerate(client)],
            trust=lambda _: Trust(self.is_trusted, "test"),
            previous=previous,
        )


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


def test_without_any_file_the_built_in_settings_are_in_force(places: Places) -> None:
    loaded = places.load()
    assert loaded.settings == default_settings()
    assert loaded.faults == loaded.refused == loaded.warnings == ()
    assert set(loaded.settings.agents) == {"reviewer", "coordinator", "fixer"}
    assert loaded.settings.agents["coordinator"].subagents == ("reviewer",)
    assert "edit" in loaded.settings.agents["fixer"].tools
    for agent in loaded.settings.agents.values():
        assert (agent.routing, agent.limits.usage, agent.limits.max_tool_calls) == (None, None, None)


def test_later_places_win_key_by_key(places: Places) -> None:
    places.user.write_text("[runs]\nconcurrency = 3\nretention_days = 7\n[review]\nmax_findings = 1\nexclude = ['a']\n")
    places.workspace.write_text("[review]\nmax_findings = 2\nmin_confidence = 0.5\n")
    loaded = places.load({"review": {"maxFindings": 3}}, {"review": {"exclude": ["b"]}})
    review, runs = loaded.settings.review, loaded.settings.runs
    assert loaded.faults == ()
    assert (runs.concurrency, runs.retention_days, runs.events) == (3, 7, "summary")
    assert (review.max_findings, review.min_confidence, review.exclude) == (3, 0.5, ("b",))
    origins = loaded.origins.origins
    assert str(origins["runs", "concurrency"]) == f"{places.user}:2"
    assert str(origins["review", "min_confidence"]) == f"{places.workspace}:3"
    assert str(origins["review", "max_findings"]) == "client 0"
    assert str(origins["review", "exclude"]) == "client 1"
    assert origins["deciders", "rules", "kind"].place == "default"


def test_tables_merge_at_every_depth_and_lists_replace(places: Places) -> None:
    places.user.write_text('[agents.reviewer]\ntools = ["files"]\n[agents.reviewer.limits]\nusage = { output = 5 }\n')
    places.workspace.write_text("[agents.reviewer.limits]\nmax_steps = 6\nusage = { input = 7 }\n")
    reviewer = places.load().settings.agents["reviewer"]
    assert reviewer.tools == ("files",)
    assert reviewer.description
    assert reviewer.limits.usage is not None
    assert (reviewer.limits.max_steps, reviewer.limits.usage.output, reviewer.limits.usage.input) == (6, 5, 7)


def test_a_table_can_be_completed_by_another_place(places: Places) -> None:
    places.user.write_text('[models.small]\nprovider = "offline"\n')
    places.workspace.write_text('[models.small]\nname = "offline"\n')
    assert places.load().settings.models["small"].name == "offline"
    places.workspace.unlink()
    loaded = places.load()
    [fault] = loaded.faults
    assert str(fault) == f"{places.user}:2: models.small.name: it is needed"
    assert loaded.settings == default_settings()


def test_the_pyproject_table_is_read_when_there_is_no_outpost_file(places: Places) -> None:
    project = places.folder / "pyproject.toml"
    project.write_text("[project]\nname = 'x'\n\n[tool.outpost.review]\nmax_findings = 4\n")
    loaded = places.load()
    assert loaded.settings.review.max_findings == 4
    assert str(loaded.origins.origins["review", "max_findings"]) == f"{project}:5"
    project.write_text("[tool.outpost.review]\n\nmax_findings = 'x'\n")
    [fault] = places.load().faults
    assert str(fault) == f"{project}:3: review.max_findings: a whole number is expected, not text"
    project.write_text("[tool]\noutpost = 3\n")
    [fault] = places.load().faults
    assert "a table is expected" in str(fault)
    places.workspace.write_text("[review]\nmax_findings = 9\n")
    assert places.load().settings.review.max_findings == 9
    project.write_text("broken = = toml")
    assert places.load().faults == ()
    places.workspace.unlink()
    assert places.load().faults == ()


def test_JSON_may_be_camelCase_or_snake_case_and_names_of_ones_own_are_left_alone(places: Places) -> None:
    loaded = places.load(
        {
            "defaultModel": "myModel",
            "models": {"myModel": {"provider": "offline", "name": "offline", "maxOutputTokens": 5}},
            "routing": {
                "byDepth": {
                    "decider": "rules",
                    "criteria": {"quickOne": "a", "slow_one": "b"},
                    "models": {"quickOne": "fast", "slow_one": "deep"},
                    "fallback": "slow_one",
                    "minConfidence": 0.5,
                }
            },
            "agents": {"myAgent": {"toolExecution": {"deadline_s": 5}, "limits": {"usage": {"cacheCreated": 1}}}},
            "budget": {"perRun": {"output": 5}},
            "sandbox": None,
            "trace": {"server": "verbose"},
            "server": {"path": "/x"},
        }
    )
    assert loaded.faults == ()
    settings = loaded.settings
    assert settings.models["myModel"].max_output_tokens == 5
    assert set(settings.routing["byDepth"].criteria) == {"quickOne", "slow_one"}
    assert settings.agents["myAgent"].tool_execution.deadline_s == 5
    assert settings.budget.per_run.output == 5


def test_TOML_is_snake_case_only_and_the_fault_says_how(places: Places) -> None:
    places.user.write_text("[review]\n\nmaxFindings = 4\n")
    [fault] = places.load().faults
    assert str(fault) == (f"{places.user}:3: review.maxFindings: there is no such setting; did you mean max_findings?")


@pytest.mark.parametrize(
    ("text", "key", "hint"),
    [
        ("[reviews]\nagent = 'x'", "reviews", "did you mean review?"),
        ("[agents.reviewer]\ntool = []", "agents.reviewer.tool", "did you mean tools?"),
        ("[agents.x.limits]\nmaxsteps = 1", "agents.x.limits.maxsteps", "did you mean max_steps?"),
        ("[runs.ray]\nzzz = 1", "runs.ray.zzz", "there are url, token_env"),
        (
            "[agents.x.permissions]\nrules = [\n {effect = 'deny'},\n {effect = 'deny', path = ['a']},\n]",
            "agents.x.permissions.rules[1].path",
            "did you mean paths?",
        ),
        (
            "[agents.x.watchdog]\non_stuck = {instructions = 'a'}",
            "agents.x.watchdog.on_stuck.instructions",
            "did you mean instruction?",
        ),
    ],
)
def test_unknown_keys_are_refused_with_a_near_miss(places: Places, text: str, key: str, hint: str) -> None:
    places.user.write_text(text)
    faults = [fault for fault in places.load().faults if fault.key == key]
    assert len(faults) == 1
    assert hint in faults[0].message
    assert faults[0].origin.line is not None
    places.user.unlink()
    [fault] = [fault for fault in places.load(_tree(text)).faults if fault.key == key]
    assert hint in fault.message


def _tree(text: str) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(text)


WRONG = [3, 1.5, True, "text", [], {}, ["text"], [3], {"key": 1}]
"""One value of each kind; what is right for a key is left out by the table below."""


def _keys(section: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], set[str]]]:
    """Every key of the schema with the kinds of value it takes, from the JSON Schema."""
    schema = Settings.model_json_schema()
    found = []

    def kinds(node: dict[str, Any]) -> set[str]:
        node = schema["$defs"][node["$ref"].rpartition("/")[2]] if "$ref" in node else node
        if "anyOf" in node or "oneOf" in node:
            return set().union(*(kinds(part) for part in node.get("anyOf") or node["oneOf"]))
        if "enum" in node:
            return {"enum"}
        return {"enum"} if "const" in node else {node["type"]}

    def walk(node: dict[str, Any], path: tuple[str, ...]) -> None:
        for option in node.get("anyOf", [node]):
            target = schema["$defs"][option["$ref"].rpartition("/")[2]] if "$ref" in option else option
            for name, below in target.get("properties", {}).items():
                found.append(((*path, name), kinds(below)))
                walk(below, (*path, name))
            items = target.get("additionalProperties") or next(iter(target.get("patternProperties", {}).values()), None)
            if isinstance(items, dict) and "$ref" in items:
                found.append(((*path, "some"), kinds(items)))
                walk(items, (*path, "some"))

    walk(schema, ())
    return found


def _fits(value: Any, kinds: set[str]) -> bool:
    if isinstance(value, bool):
        return "boolean" in kinds
    if isinstance(value, int):
        return bool(kinds & {"integer", "number"})
    if isinstance(value, float):
        return "number" in kinds
    if isinstance(value, str):
        return "string" in kinds
    if isinstance(value, list):
        return "array" in kinds
    return "object" in kinds


@pytest.mark.parametrize(
    ("path", "kinds"), _keys(Settings), ids=lambda value: ".".join(value) if isinstance(value, tuple) else ""
)
def test_a_value_of_every_wrong_kind_is_a_fault_that_names_its_key(
    places: Places, path: tuple[str, ...], kinds: set[str]
) -> None:
    tried = 0
    for value in WRONG:
        if _fits(value, kinds):
            continue
        tried += 1
        tree: Any = value
        for part in reversed(path):
            tree = {part: tree}
        loaded = places.load(tree)
        assert loaded.settings == default_settings()
        [fault, *others] = loaded.faults
        assert not others
        assert fault.key == ".".join(path)
        assert "expected" in fault.message
        assert fault.origin.source == "client 0"
    assert tried >= 6


@pytest.mark.parametrize(
    ("text", "key", "expected"),
    [
        ("runs.concurrency = 0", "runs.concurrency", "a number from 1 is expected"),
        ("runs.concurrency = 9007199254740992", "runs.concurrency", "a number up to"),
        ("runs.retention_days = -1", "runs.retention_days", "a number from 0 is expected"),
        ("review.min_confidence = 1.1", "review.min_confidence", "a number up to 1 is expected"),
        ("review.min_confidence = nan", "review.min_confidence", "a finite number is expected"),
        ("sandbox.git_timeout_s = 0", "sandbox.git_timeout_s", "a number above 0 is expected"),
        ("sandbox.git_timeout_s = inf", "sandbox.git_timeout_s", "expected"),
        ("sandbox.shell = 'on'", "sandbox.shell", '"off", "confined" or "unconfined" is expected'),
        ("review.instructions = ['']", "review.instructions[0]", "text that is not blank is expected"),
        ("default_model = '  '", "default_model", "text that is not blank is expected"),
        ("sandbox.environment = ['A-B']", "sandbox.environment[0]", "the name of an environment variable is expected"),
        ("agents.'a b'.model = 'x'", 'agents."a b"', "a name of letters, digits"),
        ("agents.x.tools = ['file']", "agents.x.tools[0]", '"files", "edit"'),
        ("agents.x.candidates = ['reviewer']", "agents.x.candidates", "a list of at least 2 is expected"),
        ("agents.x.watchdog.window = 1", "agents.x.watchdog.window", "a number from 2 is expected"),
        ("budget.per_day.cost = -1", "budget.per_day.cost", "a number from 0 is expected"),
        ("models.x.price = { input = 1, output = 1, currency = 'GBP' }", "models.x.price.currency", '"EUR" or "USD"'),
        ("runs.events = 1979-05-27", "runs.events", "expected"),
        ("runs.verbose = 1979-05-27", "runs.verbose", "true or false is expected, not a date"),
    ],
)
def test_values_out_of_range_say_what_was_expected(places: Places, text: str, key: str, expected: str) -> None:
    places.user.write_text(f"# first\n{text}\n")
    loaded = places.load()
    assert [fault.key for fault in loaded.faults] == [key]
    assert expected in loaded.faults[0].message
    assert loaded.faults[0].origin.line == 2
    assert loaded.settings == default_settings()


PRICED = "models.a = { provider = 'offline', name = 'a', price = { input = 1, output = 1 } }\n"


@pytest.mark.parametrize(
    ("text", "key", "expected"),
    [
        ("default_model = 'offlin'", "default_model", "[models] has no such name; did you mean offline?"),
        ("review.agent = 'nobody'", "review.agent", "[agents] has no such name; there are"),
        ("models.a = { provider = 'openai', name = 'a' }", "models.a.provider", "[providers] has no such name"),
        ("agents.x.model = 'b'", "agents.x.model", "[models] has no such name"),
        ("agents.x.routing = 'b'", "agents.x.routing", "[routing] has no such name"),
        ("agents.x.subagents = ['b']", "agents.x.subagents[0]", "[agents] has no such name"),
        ("agents.x.subagents = ['fixer', 'fixer']", "agents.x.subagents[1]", "it is named twice"),
        ("agents.x.subagents = ['x']", "agents.x.subagents", "it would call itself"),
        ("agents.reviewer.subagents = ['coordinator']", "agents.reviewer.subagents", "it would call itself"),
        ("agents.x.mcp = ['b']", "agents.x.mcp[0]", "[mcp] has no such name"),
        (
            "agents.x = { command = ['a'], candidates = ['reviewer', 'fixer'], on = ['quota'] }",
            "agents.x.candidates",
            "either it or command",
        ),
        ("agents.x.candidates = ['reviewer', 'fixer']", "agents.x.on", "needed together"),
        (
            "agents.x = { candidates = ['reviewer', 'x'], on = ['quota'] }",
            "agents.x.candidates[1]",
            "must not have candidates",
        ),
        ("agents.x = { command = ['a'], tools = ['files'] }", "agents.x.tools", "has none"),
        ("agents.x.watchdog = { window = 3, max_repeats = 4 }", "agents.x.watchdog.max_repeats", "up to window"),
        ("providers.p = { kind = 'openai', base_url = 'http://example.com/v1' }", "providers.p.base_url", "plain http"),
        ("providers.p = { kind = 'anthropic', api = 'chat' }", "providers.p.api", "only a provider of the kind"),
        ("providers.p = { kind = 'offline', base_url = 'https://a' }", "providers.p.base_url", "asks no service"),
        (
            "providers.p = { kind = 'openai', api_key_env = 'A', api_key_command = ['a'] }",
            "providers.p.api_key_command",
            "not both",
        ),
        (
            "providers.p.kind = 'anthropic'\nmodels.a = { provider = 'p', name = 'a' }",
            "models.a.max_output_tokens",
            "needs it",
        ),
        ("deciders.d.kind = 'system-one'", "deciders.d.base_url", "needs it"),
        ("deciders.d = { kind = 'rules', base_url = 'https://a' }", "deciders.d.base_url", "has none"),
        (
            "deciders.d = { kind = 'system-one', base_url = 'http://a' }",
            "deciders.d.base_url",
            "plain http is for loopback",
        ),
        ("routing.rules.fallback = 'slow'", "routing.rules.fallback", "criteria has no such label"),
        ("routing.rules.models.slow = 'deep'", "routing.rules.models.slow", "criteria has no such label"),
        ("routing.rules.criteria.slow = 'x'", "routing.rules.criteria.slow", "no model for this label"),
        ("routing.rules.models.fast = 'quick'", "routing.rules.models.fast", "[models] has no such name"),
        ("routing.rules.decider = 'laya'", "routing.rules.decider", "[deciders] has no such name"),
        (
            "providers.p.kind = 'openai'\nmodels.fast = { provider = 'p', name = 'a' }\nagents.x.routing = 'rules'",
            "agents.x.routing",
            "all models of a routing need one provider; its models have offline and p",
        ),
        ("mcp.s = {}", "mcp.s", "either command or url"),
        ("mcp.s = { command = 'a', url = 'https://b' }", "mcp.s", "either command or url"),
        ("mcp.s = { url = 'ftp://b' }", "mcp.s.url", "an http or https URL"),
        ("mcp.s = { url = 'https://u:p@b' }", "mcp.s.url", "without user name"),
        ("mcp.s = { command = 'a', arguments = ['${HOME}'] }", "mcp.s.arguments[0]", "without ${"),
        ("mcp.s = { url = 'https://b', headers = { A = \"a\\nb\" } }", "mcp.s.headers.A", "line breaks"),
        (
            "mcp.s = { url = 'https://b', headers = { authorization = 'x' }, bearer_token_variable = 'T' }",
            "mcp.s.headers",
            "not both",
        ),
        ("runs.executor = 'ray'", "runs.ray.url", "needed with"),
        ("runs.ray.url = 'http://cluster'", "runs.ray.url", "plain http"),
        ("sandbox.directory = 'work'", "sandbox.directory", "an absolute path"),
        ("sandbox.readable = ['/opt', 'tools']", "sandbox.readable[1]", "an absolute path"),
        ("http.ca_file = './ca.pem'", "http.ca_file", "an absolute path"),
        ("http.proxy = 'proxy:3128'", "http.proxy", "an http or https URL"),
        ("budget.per_run.cost = 1", "budget.per_run.cost", "needs models with a price"),
        (
            PRICED
            + "models.b = { provider = 'offline', name = 'b', price = { input = 1, output = 1, currency = 'EUR' } }",
            "models.b.price.currency",
            "one currency",
        ),
        (
            PRICED + "models.b = { provider = 'offline', name = 'a', price = { input = 2, output = 1 } }",
            "models.b.price",
            "a is the same service model at another price",
        ),
        (
            PRICED
            + "deciders.d = { kind = 'system-one', base_url = 'http://127.0.0.1:9/v1', "
            + "price = { input = 1, output = 1, currency = 'EUR' } }",
            "deciders.d.price.currency",
            "one currency",
        ),
        (
            PRICED
            + "deciders.d = { kind = 'system-one', base_url = 'http://127.0.0.1:9/v1', price = { input = 2, output = 0 } }\n"
            + "routing.r = { decider = 'd', model = 'a', criteria = { x = 'X', y = 'Y' }, models = { x = 'fast', y = 'deep' }"
            + ", fallback = 'x' }",
            "deciders.d.price",
            "a is the same service model at another price",
        ),
        (
            "deciders.rules.price = { input = 0, output = 0 }",
            "deciders.rules.price",
            "asks no service and has none",
        ),
    ],
)
def test_what_does_not_fit_together_is_a_fault_with_its_line(
    places: Places, text: str, key: str, expected: str
) -> None:
    places.user.write_text(text + "\n")
    loaded = places.load()
    faults = [fault for fault in loaded.faults if fault.key == key]
    assert len(faults) == 1, loaded.faults
    assert expected in faults[0].message
    assert faults[0].origin.source == str(places.user)
    assert faults[0].origin.line is not None
    assert loaded.settings == default_settings()


def test_defining_one_of_the_two_built_in_models_is_no_fault_while_no_agent_routes(places: Places) -> None:
    places.user.write_text("providers.p.kind = 'openai'\nmodels.fast = { provider = 'p', name = 'a' }\n")
    loaded = places.load()
    assert loaded.faults == ()
    assert loaded.settings.models["fast"].provider == "p"


def test_the_home_folder_may_be_written_short(places: Places) -> None:
    places.user.write_text("sandbox = { directory = '~/work', readable = ['~', '/opt'] }\nhttp.ca_file = '~/ca.pem'\n")
    assert places.load().faults == ()


def test_the_last_good_version_of_a_place_stays_in_force(places: Places) -> None:
    places.user.write_text("runs.concurrency = 5\n")
    places.workspace.write_text("review.max_findings = 6\n")
    first = places.load({"review": {"minConfidence": 0.25}})
    places.user.write_text("runs.concurrency = 'many'\n")
    places.workspace.write_text("not toml")
    second = places.load({"review": {"minConfidence": 7}}, previous=first)
    assert len(second.faults) == 3
    assert second.settings == first.settings
    third = places.load({"review": {"minConfidence": 0.75}}, previous=second)
    assert third.settings.review.min_confidence == 0.75
    assert third.settings.runs.concurrency == 5
    places.user.write_text("runs.concurrency = 6\ndefault_model = 'missing'\n")
    fourth = places.load(previous=third)
    assert [fault.key for fault in fourth.faults] == ["", "default_model"]
    assert fourth.settings.runs.concurrency == 5
    places.user.write_text("runs.concurrency = 7\n")
    fifth = places.load(previous=fourth)
    assert fifth.settings.runs.concurrency == 7


def test_a_faulty_place_does_not_take_the_others_with_it(places: Places) -> None:
    places.user.write_text("[providers.p]\nkind = 'openai'\n[models.m]\nprovider = 'p'\nname = 'n'\n")
    places.workspace.write_text("review.max_findings = 'x'\n")
    loaded = places.load({"defaultModel": "m"})
    assert len(loaded.faults) == 1
    assert loaded.settings.default_model == "m"


def test_a_fault_of_one_place_that_breaks_another_is_told_and_both_give_way(places: Places) -> None:
    places.user.write_text("[models.m]\nprovider = 3\nname = 'n'\n")
    places.workspace.write_text("[agents.a]\nmodel = 'm'\n")
    loaded = places.load()
    assert [fault.key for fault in loaded.faults] == ["models.m.provider", "agents.a.model"]
    assert loaded.settings == default_settings()


@pytest.mark.parametrize(
    ("content", "line", "expected"),
    [
        (b"a = 1\nb = = 2\n", 2, "it is no TOML"),
        (b"a = 1\nb = '\xff'\n", 2, "it is not UTF-8"),
        (b"a = 1\na = 2\n", 2, "it is no TOML"),
        (b"[" * 5_000, None, "no TOML"),
        (b"a = " + b"[" * 100_000, None, "nested too deeply"),
        (b"#" * (4 * 1024 * 1024 + 1), None, "larger than 4 MiB"),
    ],
)
def test_files_that_cannot_be_read_are_named(places: Places, content: bytes, line: int | None, expected: str) -> None:
    places.user.write_bytes(content)
    places.workspace.write_bytes(content)
    loaded = places.load()
    assert [fault.origin.source for fault in loaded.faults] == [str(places.user), str(places.workspace)]
    for fault in loaded.faults:
        assert expected in fault.message
        assert line is None or fault.origin.line == line
    assert loaded.settings == default_settings()


def test_pipes_folders_and_links_out_of_the_folder_are_refused_and_hang_nothing(places: Places, tmp_path: Path) -> None:
    os.mkfifo(places.user)
    places.workspace.symlink_to(tmp_path / "elsewhere.toml")
    (tmp_path / "elsewhere.toml").write_text("secret = 1\n")
    user, workspace = places.load().faults
    assert "no regular file" in user.message
    assert "a link that leaves the folder" in workspace.message
    places.user.unlink()
    places.user.mkdir()
    places.workspace.unlink()
    (places.folder / "real.toml").write_text("review.max_findings = 8\n")
    places.workspace.symlink_to("real.toml")
    loaded = places.load()
    assert [fault.origin.source for fault in loaded.faults] == [str(places.user)]
    assert loaded.settings.review.max_findings == 8


def test_a_byte_order_mark_and_windows_line_ends_are_fine(places: Places) -> None:
    places.user.write_bytes(b"\xef\xbb\xbf[runs]\r\n\r\nconcurrency = 4\r\n")
    loaded = places.load()
    assert loaded.settings.runs.concurrency == 4
    assert loaded.origins.origins["runs", "concurrency"].line == 3


@pytest.mark.parametrize("tree", [3, "text", [], True])
def test_client_settings_that_are_no_table_are_a_fault(places: Places, tree: Any) -> None:
    loaded = places.load(tree)
    assert [fault.message for fault in loaded.faults] == ["a table is expected"]
    assert loaded.settings == default_settings()


def test_client_settings_may_be_absent(places: Places) -> None:
    assert places.load(None).faults == ()


@pytest.mark.parametrize(
    ("tree", "key"),
    [
        ({"providers": {"p": {"kind": "openai", "apiKey": "canary-sk-123456789"}}}, "providers.p.apiKey"),
        ({"providers": {"p": {"kind": "openai", "api_key": "canary-sk-123456789"}}}, "providers.p.api_key"),
        ({"apiToken": "canary-sk-123456789"}, "apiToken"),
        ({"providers": {"p": {"kind": "openai", "apiKeyEnv": "canary-sk-1234567890abc"}}}, "providers.p.api_key_env"),
        ({"providers": {"p": {"kind": "openai", "apiKeyEnv": "canary_1234567890abcdef"}}}, "providers.p.api_key_env"),
    ],
)
def test_U_36_a_key_in_settings_is_a_warning_with_the_way_out_and_is_quoted_nowhere(
    places: Places, tree: dict[str, Any], key: str
) -> None:
    loaded = places.load(tree)
    assert loaded.faults == ()
    [warning] = loaded.warnings
    assert warning.key == key
    assert "api_key_env" in warning.message
    assert "secret storage" in warning.message
    assert "canary" not in repr(loaded.settings) + str(warning) + repr(loaded.origins.tree)


def test_faults_never_quote_a_value(places: Places) -> None:
    canary = "canary-value-1234"
    places.user.write_text(
        f'runs.concurrency = "{canary}"\nsandbox.shell = "{canary}"\nproviders.p.base_url = ["{canary}"]\n'
        f'sandbox.environment = ["{canary}"]\n'
    )
    loaded = places.load({"providers": {"p": {"kind": "openai", "baseUrl": f"https://user:{canary}@example.com"}}})
    assert len(loaded.faults) == 5
    assert canary not in " ".join(map(str, loaded.faults))


def test_a_named_user_file_must_exist_and_the_null_device_is_empty(tmp_path: Path) -> None:
    missing = user_settings({"OUTPOST_CONFIG": str(tmp_path / "none.toml")})
    [fault] = load_settings(user_file=missing).faults
    assert str(fault) == f"{tmp_path}/none.toml: there is no such file"
    assert load_settings(user_file=user_settings({"OUTPOST_CONFIG": os.devnull})).faults == ()
    assert user_file_path({}).parts[-2:] == ("outpost", "config.toml")


def test_the_environment_names_the_folders(tmp_path: Path) -> None:
    layout = default_layout({"OUTPOST_STATE_DIR": str(tmp_path / "s"), "OUTPOST_CACHE_DIR": str(tmp_path / "c")})
    assert (layout.state, layout.cache) == (tmp_path / "s", tmp_path / "c")
    assert default_layout({}).state.name == "outpost"
    assert default_layout({}).state != default_layout({}).cache


def test_checking_a_file_tells_what_is_wrong_with_it_alone(tmp_path: Path) -> None:
    path = tmp_path / "any.toml"
    path.write_text("runs.concurrency = 'x'\ndefault_model = 'nope'\n")
    assert [fault.key for fault in check_file(read_settings_file(path))] == ["runs.concurrency", "default_model"]
    path.write_text("default_model = 'nope'\n")
    assert [fault.key for fault in check_file(read_settings_file(path))] == ["default_model"]
    path.write_text("runs.concurrency = 4\nsandbox.readable = ['/opt']\n")
    assert check_file(read_settings_file(path)) == ()
    assert [str(fault) for fault in check_file(read_settings_file(tmp_path / "no.toml"))] == [
        f"{tmp_path}/no.toml: there is no such file"
    ]
    own = tmp_path / "config.toml"
    own.write_text("runs.events = 3\n[models.nope]\nprovider = 'offline'\nname = 'offline'\n")
    path.write_text("default_model = 'nope'\n")
    assert [fault.key for fault in check_file(read_settings_file(path), read_settings_file(own))] == ["default_model"]
    own.write_text("[models.nope]\nprovider = 'offline'\nname = 'offline'\n")
    assert check_file(read_settings_file(path), read_settings_file(own)) == ()
    assert check_file(read_settings_file(own), read_settings_file(own)) == ()
    project = tmp_path / "pyproject.toml"
    project.write_text("[tool.outpost.runs]\nconcurrency = 0\n")
    assert [fault.origin.line for fault in check_file(read_settings_file(project))] == [2]


@pytest.mark.parametrize(
    ("assignments", "tree"),
    [
        ([], {}),
        (["runs.concurrency=4"], {"runs": {"concurrency": 4}}),
        (["default_model = small"], {"default_model": "small"}),
        (['default_model="small"'], {"default_model": "small"}),
        (["review.exclude=['a', 'b']"], {"review": {"exclude": ["a", "b"]}}),
        (["a.b=1", "a.c=x=y"], {"a": {"b": 1, "c": "x=y"}}),
        (['models."odd.name".name=n'], {"models": {"odd.name": {"name": "n"}}}),
        (["a.b=", "a.b=2"], {"a": {"b": 2}}),
        (["a.b=1\n[c]\nd=2"], {"a": {"b": "1\n[c]\nd=2"}}),
    ],
)
def test_assignments_of_the_command_line_become_a_tree(assignments: list[str], tree: dict[str, Any]) -> None:
    assert settings_from_assignments(assignments) == tree


@pytest.mark.parametrize("assignment", ["", "=1", "a", "a b=1", "a..b=1", "[a]=1", "a=1\nb=2".replace("=1", "", 1)])
def test_what_is_no_assignment_is_refused(assignment: str) -> None:
    with pytest.raises(OutpostError, match="--set"):
        settings_from_assignments([assignment])


def test_an_assignment_below_a_value_is_refused() -> None:
    with pytest.raises(OutpostError, match="goes below a value"):
        settings_from_assignments(["a=1", "a.b=2"])


def test_the_built_in_settings_are_whole() -> None:
    assert Settings.model_validate(BUILT_IN) == default_settings()


def test_a_key_that_is_given_in_both_spellings_is_a_fault(places: Places) -> None:
    [fault] = places.load({"review": {"maxFindings": 1, "max_findings": 2}}).faults
    assert (fault.key, fault.message) == (
        "review.max_findings",
        "it is given twice, as max_findings and maxFindings",
    )


@pytest.mark.parametrize("text", ["", "[project]\nname = 'x'\n", "tool = 3\n", "[tool.other]\nx = 1\n"])
def test_a_pyproject_file_without_our_table_says_nothing(places: Places, text: str) -> None:
    (places.folder / "pyproject.toml").write_text(text)
    loaded = places.load()
    assert loaded.faults == ()
    assert loaded.settings == default_settings()
