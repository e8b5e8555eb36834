"""Agents from settings: what each part of a table becomes, and what is refused (SEC-12, SEC-17, ROUTE-03, INSTR-05)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from outpost_lsp.config.build import build_agent, check_agent
from outpost_lsp.config.prices import price_table
from outpost_lsp.config.providers import Services
from outpost_lsp.config.sources import LoadedSettings, load_settings
from outpost_lsp.config.trust import Trust
from outpost_lsp.decisions.rules import RulesDecisionProvider
from outpost_lsp.domain.message import user
from outpost_lsp.domain.model import Completed, ModelRequest
from outpost_lsp.domain.permission import Resources
from outpost_lsp.errors import OutpostError
from outpost_lsp.harness.agent import DEFAULT, Agent
from outpost_lsp.harness.routing import focused_state
from outpost_lsp.harness.subagent import Subagent
from outpost_lsp.harness.watchdog import Intervention
from outpost_lsp.reviews.instructions import SHIPPED_AGENTS
from outpost_lsp.reviews.offline import OfflineModelProvider
from outpost_lsp.tools.findings import FindingScope
from tests.support.model_server import ModelServer

SERVICE = """
[providers.p]
kind = "openai"
base_url = "https://models.example/v1"
[models.small]
provider = "p"
name = "service-small"
reasoning = "low"
max_output_tokens = 2000
context_window = 128000
price = { input = 0.25, cached = 0.025, output = 2.0, currency = "EUR" }
[models.large]
provider = "p"
name = "service-large"
price = { input = 1, output = 4, currency = "EUR" }
"""


def configured(tmp_path: Path, text: str, *, trusted: bool = False) -> LoadedSettings:
    file = tmp_path / "config.toml"
    file.write_text(text)
    loaded = load_settings(user_file=file, trust=lambda _: Trust(trusted, "test"))
    assert loaded.faults == ()
    return loaded


def services(tmp_path: Path, text: str, **options: Any) -> Services:
    return Services(configured(tmp_path, text).settings, {}, **options)


def tools_of(agent: Agent) -> set[str]:
    return set(agent.harness.tool_table)


def texts_of(agent: Agent) -> list[str]:
    return [item.source for item in agent.harness.instructions if isinstance(item.source, str)]


def test_the_built_in_agents_work_without_any_configuration(tmp_path: Path) -> None:
    made = services(tmp_path, "")
    reviewer, coordinator, fixer = (build_agent(made, name) for name in ("reviewer", "coordinator", "fixer"))
    assert isinstance(reviewer.agent.harness.model_provider, OfflineModelProvider)
    assert reviewer.agent.model.name == "offline"
    assert {"read_file", "search", "git", "report_finding"} <= tools_of(reviewer.agent)
    assert not {"edit_file", "shell"} & tools_of(reviewer.agent)
    assert texts_of(reviewer.agent) == [SHIPPED_AGENTS["reviewer"].instructions]
    assert isinstance(coordinator.agent.harness.tool_table["reviewer"], Subagent)
    assert "edit_file" in tools_of(fixer.agent)
    for run in (reviewer, coordinator, fixer):
        assert (run.prices, run.watchdog, run.redact, run.notes) == (None, None, (), ())
        assert run.agent.harness.routing is None
        assert run.agent.harness.limits.usage is None


def test_every_field_of_an_agent_arrives(tmp_path: Path) -> None:
    made = services(
        tmp_path,
        SERVICE
        + """
[agents.mine]
description = "mine"
model = "small"
instructions = "Do it."
tools = ["files", "edit", "search", "git", "findings"]
subagents = ["reviewer"]
limits = { max_steps = 6, max_tool_calls = 40, max_delegation_depth = 1, usage = { output = 2000 } }
permissions = { default = "ask", rules = [{ effect = "deny", tools = ["write_*"], paths = ["**/.env"], reason = "no" }] }
conversations = false
tool_execution = { concurrency = 2, deadline_s = 30, on_error = "fail" }
context = ["truncate_tool_results", "summarize_history"]
watchdog = { window = 9, max_repeats = 4, on_stuck = { instruction = "Stop that.", max_interventions = 2 } }
""",
    )
    run = build_agent(made, "mine")
    model, harness = run.agent.model, run.agent.harness
    assert (model.name, model.reasoning, model.max_output_tokens, model.context_window) == (
        "service-small",
        "low",
        2000,
        128000,
    )
    assert harness.model_provider is made.provider("p")
    assert texts_of(run.agent) == ["Do it."]
    assert {"read_file", "edit_file", "search", "git", "report_finding", "reviewer"} <= tools_of(run.agent)
    limits = harness.limits
    assert (limits.max_steps, limits.max_tool_calls, limits.max_delegation_depth) == (6, 40, 1)
    assert limits.usage is not None
    assert limits.usage.set_counters() == (("output", 2000),)
    assert harness.permissions is not None
    assert harness.permissions.verdict("write_file", Resources(paths=("a/.env",))).reason == "no"
    assert harness.permissions.verdict("read_file", Resources(paths=("a",))).effect == "ask"
    assert harness.conversations is None
    assert (harness.tool_execution.concurrency, harness.tool_execution.deadline_s) == (2, 30)
    assert harness.tool_execution.on_error == "fail"
    assert [strategy.name for strategy in harness.context] == ["truncate_tool_results", "summarize_history"]
    assert run.watchdog is not None
    assert (run.watchdog.window, run.watchdog.max_repeats) == (9, 4)
    assert run.watchdog.on_stuck == Intervention(instruction="Stop that.", max_interventions=2)
    assert build_agent(made, "reviewer").agent.harness.conversations is DEFAULT


def test_prices_are_by_the_services_own_names(tmp_path: Path) -> None:
    prices = price_table(configured(tmp_path, SERVICE).settings)
    assert prices is not None
    assert prices.currency == "EUR"
    assert set(prices.models) == {"service-small", "service-large"}
    assert (prices.models["service-small"].cached, prices.models["service-large"].cached) == (0.025, None)


DECIDER = """
[deciders.router]
kind = "system-one"
base_url = "http://127.0.0.1:9/v1"
price = { input = 0.5, output = 0, currency = "EUR" }
[routing.one]
decider = "router"
model = "jev-latest"
criteria = { fast = "Routine tools", deep = "Repairs" }
models = { fast = "small", deep = "large" }
fallback = "deep"
[routing.two]
decider = "router"
criteria = { fast = "Routine tools", deep = "Repairs" }
models = { fast = "small", deep = "large" }
fallback = "deep"
[routing.three]
decider = "rules"
model = "outpost-rules/1"
criteria = { fast = "Routine tools", deep = "Repairs" }
models = { fast = "small", deep = "large" }
fallback = "deep"
"""


def test_PRICE_06_a_decider_has_a_price_which_is_that_of_every_decision_model_it_is_asked_for(tmp_path: Path) -> None:
    prices = price_table(configured(tmp_path, SERVICE + DECIDER).settings)
    assert prices is not None
    assert set(prices.models) == {"service-small", "service-large", "jev-latest", "auto"}
    assert prices.models["jev-latest"] == prices.models["auto"]
    assert (prices.models["auto"].input, prices.models["auto"].output) == (0.5, 0)


def test_the_price_of_a_decider_is_enough_for_a_ceiling_in_money(tmp_path: Path) -> None:
    models = SERVICE.replace("price =", "# price =")
    prices = price_table(configured(tmp_path, models + DECIDER + "[budget.per_run]\ncost = 1\n").settings)
    assert prices is not None
    assert (prices.currency, set(prices.models)) == ("EUR", {"jev-latest", "auto"})


def test_a_routing_becomes_a_decision_over_specs_of_one_provider(tmp_path: Path) -> None:
    made = services(
        tmp_path,
        SERVICE
        + """
[deciders.laya]
kind = "system-one"
base_url = "http://127.0.0.1:8000/v1"
[routing.depth]
decider = "laya"
model = "auto"
question = "route"
instructions = "Choose."
criteria = { fast = "Routine", deep = "Hard" }
models = { fast = "small", deep = "large" }
min_confidence = 0.5
fallback = "deep"
on_error = "fail"
confidence_source = "probabilities"
state = "focused"
[agents.reviewer]
routing = "depth"
[agents.fixer]
routing = "rules"
[routing.rules]
models = { fast = "small", deep = "large" }
""",
    )
    agent = build_agent(made, "reviewer").agent
    routing = agent.harness.routing
    assert routing is not None
    assert agent.model.name == "service-large"
    assert {label: model.name for label, model in routing.models.items()} == {
        "fast": "service-small",
        "deep": "service-large",
    }
    assert routing.models["fast"].max_output_tokens == 2000
    assert dict(routing.decision.questions["route"].criteria) == {"fast": "Routine", "deep": "Hard"}
    assert (routing.min_confidence, routing.fallback, routing.on_error) == (0.5, "deep", "fail")
    assert (routing.confidence_source, routing.state) == ("probabilities", focused_state)
    rules = build_agent(made, "fixer").agent.harness.routing
    assert rules is not None
    assert isinstance(rules.provider, RulesDecisionProvider)
    assert (rules.min_confidence, rules.state) == (0, None)


def test_offline_asks_nobody_whatever_is_configured(tmp_path: Path) -> None:
    text = (
        'default_model = "small"\n'
        + SERVICE
        + '[deciders.laya]\nkind = "system-one"\nbase_url = "https://decider.example/v1"\n'
        + '[routing.depth]\ndecider = "laya"\ncriteria = { a = "x", b = "y" }\n'
        + 'models = { a = "small", b = "large" }\nfallback = "b"\n'
        + '[agents.reviewer]\nmodel = "small"\nrouting = "depth"\n[agents.fixer]\nrouting = "rules"\n'
    )
    made = services(tmp_path, text, offline=True)
    reviewer, fixer = build_agent(made, "reviewer"), build_agent(made, "fixer")
    for run in (reviewer, fixer):
        assert isinstance(run.agent.harness.model_provider, OfflineModelProvider)
        assert run.agent.model.name == "offline"
    assert reviewer.agent.harness.routing is None
    assert reviewer.notes == ("the routing depth is not used offline: its decider is a service",)
    assert fixer.agent.harness.routing is not None


def test_a_run_on_fixed_rules_beside_configured_models_says_so(tmp_path: Path) -> None:
    made = services(tmp_path, SERVICE + '[agents.fixer]\nmodel = "small"\n')
    [note] = build_agent(made, "reviewer").notes
    assert "fixed rules of the offline provider" in note
    assert "small, large" in note
    assert "agents.reviewer.model" in note
    assert build_agent(made, "fixer").notes == ()


@pytest.mark.parametrize(
    ("shell", "works", "has_shell", "note"),
    [
        ("off", True, False, "sandbox.shell is off"),
        ("confined", False, False, "cannot be confined"),
        ("confined", True, True, None),
        ("unconfined", False, True, None),
    ],
)
def test_SEC_12_the_shell_needs_its_setting_and_confinement_that_works(
    tmp_path: Path, shell: str, works: bool, has_shell: bool, note: str | None
) -> None:
    made = services(tmp_path, f'[sandbox]\nshell = "{shell}"\n[agents.fixer]\ntools = ["files", "shell"]\n')
    run = build_agent(made, "fixer", confinement_works=works)
    assert ("shell" in tools_of(run.agent)) is has_shell
    assert (note is None) == (run.notes == ())
    assert note is None or note in run.notes[0]


def test_INSTR_05_an_untrusted_repositorys_words_reach_nobody_who_can_act(tmp_path: Path) -> None:
    made = services(tmp_path, '[agents.reader]\ninstructions = "Read."\ntools = ["files"]\n')

    def reads_the_repository(name: str, is_trusted: bool) -> bool:
        instructions = build_agent(made, name, is_trusted=is_trusted).agent.harness.instructions
        return any(callable(item.source) for item in instructions)

    assert reads_the_repository("reader", False)
    assert reads_the_repository("reader", True)
    assert not reads_the_repository("fixer", False)
    assert reads_the_repository("fixer", True)
    # A reviewer has them in its brief.
    assert not reads_the_repository("reviewer", True)


def test_agents_of_one_run_share_the_scope_and_each_reports_under_its_own_name(tmp_path: Path) -> None:
    made = services(tmp_path, "")
    scope = FindingScope(run_id="r", agent="coordinator")
    coordinator = build_agent(made, "coordinator", finding_scope=scope).agent
    child = coordinator.harness.tool_table["reviewer"]
    assert isinstance(child, Subagent)
    report = child.agent.harness.tool_table["report_finding"]
    closure = dict(zip(report.execute.__code__.co_freevars, report.execute.__closure__, strict=True))
    found = closure["scope"].cell_contents
    assert (found.agent, found.run_id) == ("reviewer", "r")
    assert found.ledger is scope.ledger


def test_limits_of_a_request_replace_single_limits(tmp_path: Path) -> None:
    made = services(tmp_path, "[agents.reviewer.limits]\nmax_steps = 6\nusage = { input = 5, output = 2000 }\n")
    changed = build_agent(made, "reviewer", limits={"maxSteps": 9, "usage": {"output": 3000}}).agent.harness.limits
    assert changed.max_steps == 9
    assert changed.usage is not None
    assert changed.usage.set_counters() == (("input", 5), ("output", 3000))
    assert build_agent(made, "reviewer").agent.harness.limits.max_steps == 6


@pytest.mark.parametrize("limits", [{"maxSteps": 0}, {"steps": 3}, {"usage": {"output": "x"}}, {"usage": 3}])
def test_wrong_limits_of_a_request_are_refused_by_name(tmp_path: Path, limits: dict[str, Any]) -> None:
    with pytest.raises(OutpostError, match="limits of reviewer") as caught:
        build_agent(services(tmp_path, ""), "reviewer", limits=limits)
    assert caught.value.details["field"] == "limits"


def test_an_agent_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    made = services(tmp_path, "")
    for attempt in (lambda: build_agent(made, "nobody"), lambda: check_agent(made.settings, "nobody")):
        with pytest.raises(OutpostError, match="no agent 'nobody'; there are coordinator, fixer, reviewer") as caught:
            attempt()
        assert caught.value.code == "configuration"


def test_skills_are_loaded_from_their_folders(tmp_path: Path) -> None:
    folder = tmp_path / "workspace"
    (folder / "skills" / "tests").mkdir(parents=True)
    (folder / "skills" / "tests" / "SKILL.md").write_text(
        '---\nname: writing-tests\nversion: 3\ndescription: "How: tests are written"\n---\n\n# Tests\n\nShort ones.\n'
    )
    made = services(tmp_path, '[agents.fixer]\nskills = ["skills/tests"]\n')
    [skill] = build_agent(made, "fixer", folder=folder).agent.harness.skills
    assert (skill.name, skill.description) == ("writing-tests", "How: tests are written")
    assert skill.instructions[0].source == "# Tests\n\nShort ones."


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        ("no head", "no head"),
        ("---\nname: a\n---\ntext", "no description"),
        ("---\ndescription: a\n---\ntext", "no name"),
        ("---\nname: a\ndescription: b\n---\n \n", "says nothing"),
        ("---\nname: a b\ndescription: b\n---\ntext", "name"),
        ("---\nname: a\ndescription: b\n---\n" + "x" * 1_100_000, "larger than"),
    ],
)
def test_a_skill_that_is_no_skill_is_a_fault_that_names_it(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "SKILL.md").write_text(content)
    made = services(tmp_path, f'[agents.fixer]\nskills = ["{tmp_path}"]\n')
    with pytest.raises(OutpostError, match=message) as caught:
        build_agent(made, "fixer")
    assert caught.value.code == "configuration"


def test_an_external_agent_is_refused_in_an_untrusted_folder(tmp_path: Path) -> None:
    made = services(tmp_path, '[agents.outside]\ncommand = ["some-agent", "--acp"]\n')
    with pytest.raises(OutpostError, match="the folder has to be trusted first"):
        build_agent(made, "outside")


async def ask(provider: Any, model: str = "m") -> Completed:
    events: AsyncIterator[Any] = provider.stream(ModelRequest(model=model, messages=[user("hi")]))
    async for event in events:
        if isinstance(event, Completed):
            return event
    raise AssertionError("no answer")


async def test_HTTP_09_a_provider_is_made_once_asked_with_its_key_and_closed(tmp_path: Path) -> None:
    with ModelServer(["one", "two"]) as server:
        text = (
            f'[providers.local]\nkind = "openai"\nbase_url = "{server.base_url}"\napi = "chat"\napi_key_env = "L_KEY"\n'
            '[models.m]\nprovider = "local"\nname = "m"\n'
        )
        environment = {"L_KEY": "canary-key-1", "OPENAI_API_KEY": "canary-other"}
        made = Services(configured(tmp_path, text).settings, environment)
        provider = made.provider("local")
        assert made.provider("local") is provider
        assert provider.name == "local"
        answer = await ask(provider)
        assert "".join(getattr(block, "text", "") for block in answer.result.blocks) == "one"
        environment["L_KEY"] = "canary-key-2"
        await ask(provider)
        seen = [request.headers.get("authorization") for request in server.requests]
        assert seen == ["Bearer canary-key-1", "Bearer canary-key-2"]
        assert len({request.connection for request in server.requests}) == 1, "one client keeps its connection"
        assert any(pattern.search("canary-key-2") for pattern in made.masks())
        assert "canary" not in repr(provider) + repr(made.settings)
        await made.aclose()
        await server.until(lambda: server.open_connections == 0)


async def test_a_missing_key_ends_the_request_before_it_is_sent(tmp_path: Path) -> None:
    with ModelServer(["never"]) as server:
        text = f'[providers.local]\nkind = "openai"\nbase_url = "{server.base_url}"\napi_key_env = "L_KEY"\n'
        made = Services(configured(tmp_path, text).settings, {})
        with pytest.raises(OutpostError, match="L_KEY is not set") as caught:
            await ask(made.provider("local"))
        assert caught.value.code == "configuration"
        assert server.requests == []
        await made.aclose()


def test_an_anthropic_service_without_a_key_is_refused_by_name(tmp_path: Path) -> None:
    made = services(tmp_path, '[providers.a]\nkind = "anthropic"\napi_key_env = ""\n')
    with pytest.raises(OutpostError, match=r"providers\.a\.api_key_env"):
        made.provider("a")


def test_services_fit_settings_that_name_the_same_ones(tmp_path: Path) -> None:
    made = services(tmp_path, SERVICE)
    same = configured(tmp_path, SERVICE + "[review]\nmax_findings = 3\n").settings
    other = configured(tmp_path, SERVICE.replace("models.example", "other.example")).settings
    proxied = configured(tmp_path, SERVICE + '[http]\nproxy = "http://proxy:3128"\n').settings
    assert made.serves(same)
    assert not made.serves(other)
    assert not made.serves(proxied)


def test_the_table_of_rules_is_told_the_cheapest_label(tmp_path: Path) -> None:
    made = services(
        tmp_path,
        SERVICE
        + '[routing.three]\ndecider = "rules"\ncriteria = { a = "x", b = "y", c = "z" }\nfallback = "b"\n'
        + 'models = { a = "large", b = "large", c = "small" }\n[agents.reviewer]\nrouting = "three"\n',
    )
    routing = build_agent(made, "reviewer").agent.harness.routing
    assert routing is not None
    assert routing.provider is made.decider("rules", cheapest="c", fallback="b")
