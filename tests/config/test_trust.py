"""What an untrusted folder may set, key by key, and who is trusted (SEC-12, SEC-15, SEC-17, U-43)."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp.config.sources import ClientSettings, LoadedSettings, load_settings
from outpost_lsp.config.trust import Trust, TrustStore, decide_trust, settings_digest

USER = """
default_model = "small"
[providers.p]
kind = "openai"
base_url = "https://models.example/v1"
api_key_env = "P_KEY"
[models.small]
provider = "p"
name = "s"
[models.large]
provider = "p"
name = "l"
[routing.depth]
decider = "rules"
criteria = { a = "x", b = "y" }
models = { a = "small", b = "large" }
fallback = "b"
[agents.guarded]
limits = { max_steps = 6, usage = { output = 2000 } }
permissions = { default = "ask", rules = [{ effect = "deny", tools = ["write_file"] }] }
watchdog = { max_repeats = 3 }
tool_execution = { concurrency = 2, deadline_s = 60 }
[budget.per_run]
output = 1000
"""


def loaded(tmp_path: Path, workspace: str, *, trusted: bool = False, client: Any = None) -> LoadedSettings:
    user, folder = tmp_path / "config.toml", tmp_path / "workspace"
    user.write_text(USER)
    folder.mkdir(exist_ok=True)
    (folder / "outpost.toml").write_text(workspace)
    return load_settings(
        user_file=user,
        folder=folder,
        client=[ClientSettings("client", client)] if client is not None else [],
        trust=lambda _: Trust(trusted, "test"),
    )


ALLOWED = [
    'default_model = "large"',
    'review.agent = "fixer"',
    'review.instructions = ["NOTES.md"]',
    'review.outside_diff = "drop"',
    "review.max_findings = 5",
    "review.min_confidence = 0.5",
    'review.exclude = ["gen/**"]',
    'review.dismissals = "private"',
    "budget.per_run.output = 999",
    "budget.per_run.input = 5",
    "budget.per_day.output = 5",
    'agents.mine = { description = "d", instructions = "i", tools = ["files", "edit", "search", "git", "findings"] }',
    'agents.mine = { model = "large", routing = "depth", subagents = ["reviewer"], conversations = false }',
    'agents.mine = { context = ["summarize_history"], limits = { max_steps = 9, max_tool_calls = 3 } }',
    'agents.mine = { permissions = { default = "deny" }, watchdog = { on_stuck = "warn" } }',
    'agents.mine = { candidates = ["reviewer", "fixer"], on = ["quota"] }',
    "agents.mine = {}",
    "agents.guarded.limits = { max_steps = 5, usage = { output = 1999, input = 4 } }",
    "agents.guarded.tool_execution = { concurrency = 1, deadline_s = 30, on_error = 'fail' }",
    'agents.guarded.instructions = "be kind"',
    'agents.reviewer.instructions = "be kind"',
    'agents.reviewer.permissions = { default = "ask" }',
]

REFUSED = {
    "default_model": 'default_model = "mine"\nmodels.mine = { provider = "offline", name = "offline" }',
    "providers.q.kind": 'providers.q.kind = "openai"',
    "providers.p.base_url": 'providers.p.base_url = "https://evil.example"',
    "providers.p.api_key_env": 'providers.p.api_key_env = "HOME"',
    "providers.p.api_key_command": 'providers.p.api_key_command = ["touch", "x"]',
    "models.mine.provider": 'models.mine = { provider = "p", name = "expensive" }',
    "models.small.name": 'models.small.name = "expensive"',
    "models.small.price.input": "models.small.price = { input = 0, output = 0 }",
    "deciders.d.kind": 'deciders.d = { kind = "system-one", base_url = "https://evil.example" }',
    "deciders.rules.kind": 'deciders.rules = { kind = "system-one", base_url = "https://evil.example" }',
    "routing.depth.min_confidence": "routing.depth.min_confidence = 0",
    "agents.mine.routing": 'agents.mine.routing = "unheard"',
    "agents.mine.model": 'agents.mine.model = "unheard"',
    "agents.mine.tools": 'agents.mine.tools = ["files", "shell"]',
    "agents.mine.limits.max_steps": "agents.mine.limits.max_steps = 101",
    "agents.mine.limits.max_delegation_depth": "agents.mine.limits.max_delegation_depth = 4",
    "agents.mine.tool_execution.deadline_s": "agents.mine.tool_execution.deadline_s = 301",
    "agents.mine.tool_execution.concurrency": "agents.mine.tool_execution.concurrency = 5",
    "agents.mine.command": 'agents.mine.command = ["touch", "x"]',
    "agents.mine.mcp": "agents.mine.mcp = []",
    "agents.mine.skills": 'agents.mine.skills = ["skills/x"]',
    "agents.guarded.limits.max_steps": "agents.guarded.limits.max_steps = 7",
    "agents.guarded.limits.usage.output": "agents.guarded.limits.usage.output = 2001",
    "agents.guarded.permissions.default": 'agents.guarded.permissions.default = "allow"',
    "agents.guarded.permissions.rules": "agents.guarded.permissions.rules = []",
    "agents.guarded.watchdog.max_repeats": "agents.guarded.watchdog.max_repeats = 20",
    "agents.guarded.tool_execution.concurrency": "agents.guarded.tool_execution.concurrency = 3",
    "mcp.s.command": 'mcp.s.command = "touch"',
    "http.proxy": 'http.proxy = "http://evil.example"',
    "http.ca_file": 'http.ca_file = "evil.pem"',
    "review.max_findings": "review.max_findings = 101",
    "review.dismissals": 'review.dismissals = "shared"',
    "sandbox.shell": 'sandbox.shell = "unconfined"',
    "sandbox.setup": 'sandbox.setup = ["touch x"]',
    "sandbox.environment": 'sandbox.environment = ["SECRET"]',
    "sandbox.readable": 'sandbox.readable = ["/"]',
    "sandbox.copy_ignored": 'sandbox.copy_ignored = [".env"]',
    "sandbox.directory": 'sandbox.directory = "/tmp/x"',
    "sandbox.keep": 'sandbox.keep = "never"',
    "sandbox.untracked": "sandbox.untracked = false",
    "runs.concurrency": "runs.concurrency = 1",
    "runs.verbose": "runs.verbose = true",
    "runs.executor": 'runs.executor = "local"',
    "runs.ray.url": 'runs.ray.url = "https://evil.example"',
    "budget.per_run.output": "budget.per_run.output = 1001",
}


@pytest.mark.parametrize("text", ALLOWED)
def test_an_untrusted_folder_may_set_what_only_narrows_or_describes(tmp_path: Path, text: str) -> None:
    result = loaded(tmp_path, text)
    assert result.refused == ()
    assert result.faults == ()
    assert any(origin.place == "workspace" for origin in result.origins.origins.values())


@pytest.mark.parametrize(("key", "text"), REFUSED.items(), ids=REFUSED)
def test_SEC_15_everything_else_is_refused_and_reported_by_key(tmp_path: Path, key: str, text: str) -> None:
    without = loaded(tmp_path, "").settings
    result = loaded(tmp_path, text)
    keys = [fault.key for fault in result.refused]
    assert keys.count(key) == 1
    assert len(keys) == len(set(keys))
    for fault in result.refused:
        assert fault.origin.source.endswith("outpost.toml")
        assert fault.origin.line is not None
    assert result.faults == ()
    changed = result.settings.model_dump()
    unchanged = without.model_dump()
    # An agent whose only settings were refused may be there, with nothing that was refused.
    changed["agents"].pop("mine", None)
    assert changed == unchanged


@pytest.mark.parametrize(
    "key",
    sorted(
        set(REFUSED)
        - {"providers.p.api_key_command", "sandbox.environment", "sandbox.readable", "runs.executor", "runs.ray.url"}
    ),
)
def test_a_trusted_folder_may_set_it(tmp_path: Path, key: str) -> None:
    text = REFUSED[key].replace("unheard", "depth" if "routing" in key else "small")
    assert key not in [fault.key for fault in loaded(tmp_path, text, trusted=True).refused]


@pytest.mark.parametrize("key", ["providers.p.api_key_command", "sandbox.environment", "sandbox.readable"])
def test_some_keys_are_the_users_own_files_only(tmp_path: Path, key: str) -> None:
    text = REFUSED[key]
    assert [fault.key for fault in loaded(tmp_path, text, trusted=True).refused] == [key]
    tree: Any = ["x"]
    for part in reversed(key.split(".")):
        tree = {part: tree}
    result = loaded(tmp_path, "", trusted=True, client=tree)
    assert [fault.key for fault in result.refused] == [key]


@pytest.mark.parametrize("key", ["runs.executor", "runs.ray.url"])
def test_where_runs_are_carried_out_is_not_even_a_trusted_workspaces_choice(tmp_path: Path, key: str) -> None:
    assert [fault.key for fault in loaded(tmp_path, REFUSED[key], trusted=True).refused] == [key]
    client = {"runs": {"executor": "ray", "ray": {"url": "https://cluster.example"}}}
    assert loaded(tmp_path, "", client=client).settings.runs.executor == "ray"


@pytest.mark.parametrize(
    "client",
    [
        {"mcp": {"s": {"command": "touch"}}},
        {"sandbox": {"setup": ["touch x"]}},
        {"agents": {"mine": {"command": ["touch", "x"]}}},
    ],
)
def test_SEC_15_programs_from_the_client_need_trust(tmp_path: Path, client: Any) -> None:
    assert len(loaded(tmp_path, "", client=client).refused) == 1
    assert loaded(tmp_path, "", client=client, trusted=True).refused == ()


def test_the_users_own_setup_commands_wait_for_trust(tmp_path: Path) -> None:
    user, folder = tmp_path / "config.toml", tmp_path / "workspace"
    folder.mkdir()
    user.write_text('sandbox.setup = ["make deps"]\n')
    for is_trusted, setup in ((False, ()), (True, ("make deps",))):
        result = load_settings(user_file=user, folder=folder, trust=lambda _, t=is_trusted: Trust(t, "test"))
        assert result.settings.sandbox.setup == setup


def test_a_ceiling_of_the_client_counts_when_a_workspace_may_only_lower(tmp_path: Path) -> None:
    client = {"budget": {"perDay": {"output": 10}}, "agents": {"reviewer": {"limits": {"maxSteps": 3}}}}
    text = "budget.per_day.output = 11\nagents.reviewer.limits.max_steps = 4\n"
    assert [fault.key for fault in loaded(tmp_path, text, client=client).refused] == [
        "budget.per_day.output",
        "agents.reviewer.limits.max_steps",
    ]


def test_trust_is_for_exactly_the_settings_that_were_there(tmp_path: Path) -> None:
    store = TrustStore(tmp_path / "state")
    folder = tmp_path / "workspace"
    folder.mkdir()
    file = folder / "outpost.toml"

    def load(previous: LoadedSettings | None = None) -> LoadedSettings:
        return load_settings(
            folder=folder,
            trust=lambda digest: decide_trust(folder, digest, client=None, environment={}, store=store),
            previous=previous,
        )

    file.write_text("runs.concurrency = 7\n")
    first = load()
    assert not first.is_trusted
    assert "outpost-lsp trust" in first.trust.reason
    store.trust(folder, first.digest)
    trusted = load()
    assert trusted.is_trusted
    assert trusted.settings.runs.concurrency == 7
    assert stat.S_IMODE((tmp_path / "state" / "trusted.json").stat().st_mode) == 0o600

    file.write_text("# a comment changes nothing\nruns.concurrency = 7\n")
    assert load().is_trusted
    file.write_text("runs.concurrency = 8\n")
    changed = load(trusted)
    assert not changed.is_trusted
    assert "changed" in changed.trust.reason
    assert changed.settings.runs.concurrency == 2

    # A broken file falls back to the last good settings under the trust that those had.
    broken_file = "runs.concurrency = = 8\n"
    file.write_text(broken_file)
    assert load(trusted).settings.runs.concurrency == 7
    assert load(changed).settings.runs.concurrency == 2
    assert not load(changed).is_trusted

    assert store.distrust(folder)
    assert not store.distrust(folder)
    file.write_text("runs.concurrency = 7\n")
    assert not load().is_trusted


def test_trusting_an_empty_folder_does_not_trust_what_appears_in_it_later(tmp_path: Path) -> None:
    store, folder = TrustStore(tmp_path / "state"), tmp_path / "workspace"
    folder.mkdir()
    store.trust(folder, load_settings(folder=folder).digest)

    def load(previous: LoadedSettings | None = None) -> LoadedSettings:
        return load_settings(
            folder=folder,
            trust=lambda digest: decide_trust(folder, digest, client=None, environment={}, store=store),
            previous=previous,
        )

    assert load().is_trusted
    (folder / "outpost.toml").write_text('sandbox.shell = "unconfined"\n')
    hostile = load()
    (folder / "outpost.toml").write_text("nonsense")
    after = load(hostile)
    assert not hostile.is_trusted
    assert hostile.settings.sandbox.shell == after.settings.sandbox.shell == "off"
    assert not after.is_trusted


@pytest.mark.parametrize(
    ("client", "environment", "stored", "is_trusted"),
    [
        (None, {}, False, False),
        (None, {}, True, True),
        (None, {"OUTPOST_TRUST": "1"}, False, True),
        (None, {"OUTPOST_TRUST": "0"}, False, False),
        (None, {"OUTPOST_TRUST": ""}, False, False),
        (True, {}, False, True),
        (False, {}, True, False),
        (False, {"OUTPOST_TRUST": "1"}, True, False),
    ],
)
def test_who_says_that_a_folder_is_trusted(
    tmp_path: Path, client: bool | None, environment: dict[str, str], stored: bool, is_trusted: bool
) -> None:
    store = TrustStore(tmp_path / "state")
    if stored:
        store.trust(tmp_path, "digest")
    decision = decide_trust(tmp_path, "digest", client=client, environment=environment, store=store)
    assert decision.is_trusted is is_trusted
    assert decision.reason


def test_trust_follows_the_real_folder_and_a_damaged_list_trusts_nobody(tmp_path: Path) -> None:
    store = TrustStore(tmp_path / "state")
    folder, alias = tmp_path / "folder", tmp_path / "alias"
    folder.mkdir()
    alias.symlink_to(folder)
    store.trust(alias, "d")
    assert store.state(folder, "d") == "trusted"
    assert store.state(folder, "other") == "changed"
    assert store.state(tmp_path, "d") == "unknown"
    for content in ("", "{", "[]", '{"folders":[]}', f'{{"folders":{{"{folder}":3}}}}'):
        (tmp_path / "state" / "trusted.json").write_text(content)
        assert store.state(folder, "d") == "unknown"
    (tmp_path / "state" / "trusted.json").unlink()
    os.mkfifo(tmp_path / "state" / "trusted.json")
    assert store.state(folder, "d") == "unknown"


def test_the_hash_is_of_the_settings_and_not_of_their_order() -> None:
    assert settings_digest({"a": 1, "b": {"c": 2}}) == settings_digest({"b": {"c": 2}, "a": 1})
    assert settings_digest({"a": 1}) != settings_digest({"a": 2})
    assert settings_digest(None) == settings_digest({})


OUTSIDE = """
[review]
agent = "outside"
max_findings = 7
[agents.outside]
description = "a program"
command = ["touch", "x"]
[agents.steady]
candidates = ["fixer", "outside"]
on = ["quota"]
[agents.other]
candidates = ["fixer", "reviewer"]
on = ["quota"]
[agents.mine]
description = "mine"
subagents = ["reviewer", "unknown-to-you"]
[agents.unknown-to-you]
model = "unheard"
"""


def test_SEC_15_what_rests_on_a_refused_agent_is_refused_with_it_and_the_rest_of_the_file_counts(
    tmp_path: Path,
) -> None:
    result = loaded(tmp_path, OUTSIDE)
    assert result.faults == ()
    assert {refusal.key: refusal.message for refusal in result.refused} == {
        "agents.outside.command": "the folder is not trusted",
        "agents.unknown-to-you.model": "the folder is not trusted",
        "agents.steady.candidates": "the folder is not trusted, so it has no agent outside",
        "agents.mine.subagents": "the folder is not trusted, so it has no agent unknown-to-you",
        "review.agent": "the folder is not trusted, so it has no agent outside",
    }
    assert all(refusal.origin.line is not None for refusal in result.refused)
    assert {"mine", "other"} <= result.settings.agents.keys()
    assert {"outside", "steady", "unknown-to-you"}.isdisjoint(result.settings.agents)
    assert (result.settings.review.agent, result.settings.review.max_findings) == ("reviewer", 7)
    assert result.settings.agents["mine"].subagents == ()


def test_a_refused_agent_takes_the_candidates_of_an_agent_of_yours_with_it_and_not_the_agent(tmp_path: Path) -> None:
    text = 'agents.outside.command = ["touch", "x"]\nagents.fixer = { candidates = ["guarded", "outside"], on = ["quota"] }'
    result = loaded(tmp_path, text)
    assert result.faults == ()
    assert [refusal.key for refusal in result.refused] == ["agents.outside.command", "agents.fixer.candidates"]
    assert result.settings == loaded(tmp_path, "").settings


def test_in_a_trusted_folder_an_external_candidate_is_one(tmp_path: Path) -> None:
    text = (
        'agents.outside.command = ["touch", "x"]\nagents.steady = { candidates = ["fixer", "outside"], on = ["quota"] }'
    )
    result = loaded(tmp_path, text, trusted=True)
    assert (result.faults, result.refused) == ((), ())
    assert result.settings.agents["steady"].candidates == ("fixer", "outside")
