"""MCP servers, external agents and lists of candidates from settings (MCP-13, SEC-15, FALL-01)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from outpost_lsp.config.build import AgentRun, build_agent
from outpost_lsp.config.keys import key_variables, service_key_variables
from outpost_lsp.config.providers import Services
from outpost_lsp.config.sources import load_settings
from outpost_lsp.config.trust import Trust
from outpost_lsp.dispatches.cli_agent import CliAgent
from outpost_lsp.dispatches.fallback import FallbackAgent
from outpost_lsp.domain.permission import PermissionRule, Permissions
from outpost_lsp.errors import OutpostError
from outpost_lsp.harness.agent import Agent
from outpost_lsp.tools.mcp_server import McpServer

TEXT = """
[providers.p]
kind = "openai"
base_url = "https://models.example/v1"
api_key_env = "MODEL_KEY"
[models.large]
provider = "p"
name = "service-large"
[agents.helper]
tools = ["files"]
mcp = ["docs", "web"]
[agents.outside]
command = ["some-agent", "--acp"]
model = "large"
[agents.plain]
command = ["other-agent"]
[agents.steady]
candidates = ["helper", "outside"]
on = ["quota", "unavailable"]
[mcp.docs]
command = "docs-server"
arguments = ["--stdio"]
environment = { MODE = "quiet" }
variables = ["DOCS_HOME"]
tools = { include = ["look_up"] }
startup_timeout_s = 5
[mcp.web]
url = "https://docs.example/mcp"
headers = { X-Team = "blue" }
bearer_token_variable = "DOCS_TOKEN"
"""


def build(tmp_path: Path, name: str, text: str = TEXT, *, offline: bool = False, **options: Any) -> AgentRun:
    file = tmp_path / "config.toml"
    file.write_text(text)
    loaded = load_settings(user_file=file, trust=lambda _: Trust(True, "test"))
    assert loaded.faults == ()
    options.setdefault("is_trusted", True)
    return build_agent(Services(loaded.settings, {}, offline=offline), name, **options)


def test_MCP_01_the_servers_of_an_agent_arrive_field_by_field(tmp_path: Path) -> None:
    agent = build(tmp_path, "helper").agent
    assert isinstance(agent, Agent)
    assert dict(agent.harness.mcp_servers or {}) == {
        "docs": McpServer(
            "docs-server",
            ["--stdio"],
            environment={"MODE": "quiet"},
            variables=["DOCS_HOME"],
            tools={"include": ["look_up"]},
            startup_timeout_s=5,
        ),
        "web": McpServer(
            url="https://docs.example/mcp", headers={"X-Team": "blue"}, bearer_token_variable="DOCS_TOKEN"
        ),
    }


@pytest.mark.parametrize(
    ("options", "why"), [({"is_trusted": False}, "the folder is not trusted"), ({"offline": True}, "offline")]
)
def test_MCP_13_no_server_is_started_for_an_untrusted_folder_or_offline(
    tmp_path: Path, options: dict[str, Any], why: str
) -> None:
    built = build(tmp_path, "helper", **options)
    assert isinstance(built.agent, Agent)
    assert built.agent.harness.mcp_servers is None
    assert any(why in note for note in built.notes)


def test_an_external_agent_is_a_program_with_the_services_own_name_of_its_model(tmp_path: Path) -> None:
    agent = build(tmp_path, "outside").agent
    assert isinstance(agent, CliAgent)
    assert (agent.command, agent.model and agent.model.name, agent.shell) == (
        ("some-agent", "--acp"),
        "service-large",
        False,
    )
    plain = build(tmp_path, "plain", '[sandbox]\nshell = "unconfined"\n' + TEXT).agent
    assert isinstance(plain, CliAgent)
    assert (plain.model, plain.shell) == (None, True)


def test_an_external_agent_has_the_permissions_of_its_settings(tmp_path: Path) -> None:
    text = (
        TEXT
        + """
[agents.held]
command = ["some-agent"]
permissions = { default = "deny", rules = [{ effect = "allow", tools = ["execute"], commands = ["make *"] }] }
"""
    )
    agent = build(tmp_path, "held", text).agent
    assert isinstance(agent, CliAgent)
    assert agent.permissions == Permissions([PermissionRule("allow", tools=["execute"], commands=["make *"])], "deny")
    plain = build(tmp_path, "plain").agent
    assert isinstance(plain, CliAgent)
    assert plain.permissions is None


@pytest.mark.parametrize(
    ("options", "why"), [({"is_trusted": False}, "has to be trusted first"), ({"offline": True}, "offline")]
)
def test_SEC_15_an_external_agent_is_refused_for_an_untrusted_folder_and_offline(
    tmp_path: Path, options: dict[str, Any], why: str
) -> None:
    for name in ("outside", "steady"):
        with pytest.raises(OutpostError, match=why) as caught:
            build(tmp_path, name, **options)
        assert caught.value.code == "configuration"


def test_FALL_01_candidates_are_tried_in_order_under_their_own_names(tmp_path: Path) -> None:
    agent = build(tmp_path, "steady", limits={"maxSteps": 3}).agent
    assert isinstance(agent, FallbackAgent)
    first, second = agent.candidates
    assert isinstance(first, Agent)
    assert isinstance(second, CliAgent)
    assert (agent.names, agent.on) == (("helper", "outside"), ("quota", "unavailable"))
    assert first.harness.limits.max_steps == 3


def test_SEC_17_a_token_of_a_server_is_no_command_s_and_a_provider_s_key_no_server_s(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(TEXT)
    settings = load_settings(user_file=file, trust=lambda _: Trust(True, "test")).settings
    assert {"DOCS_TOKEN", "MODEL_KEY", "OPENAI_API_KEY"} <= key_variables(settings)
    assert "DOCS_TOKEN" not in service_key_variables(settings)
    assert {"MODEL_KEY", "OPENAI_API_KEY"} <= service_key_variables(settings)
