"""From settings to an agent that can be run: the one place where tables become declarations of the harness.

What is built keeps nothing of the settings. Services are handed in and shared; whoever made them closes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic.alias_generators import to_snake

from outpost_lsp.config.agents import AgentSettings, InterventionSettings, LimitSettings, PermissionSettings
from outpost_lsp.config.prices import price_table
from outpost_lsp.config.programs import external_agent, mcp_server, why_not
from outpost_lsp.config.providers import Services
from outpost_lsp.config.schema import Settings
from outpost_lsp.config.services import ModelSettings, RoutingSettings
from outpost_lsp.config.skills import load_skill
from outpost_lsp.dispatches.cli_agent import CliAgent
from outpost_lsp.dispatches.fallback import FallbackAgent
from outpost_lsp.dispatches.options import AnyAgent
from outpost_lsp.domain.decision import Choice, Decision
from outpost_lsp.domain.model import ModelSpec
from outpost_lsp.domain.permission import PermissionRule, Permissions
from outpost_lsp.domain.price import ModelPriceTable
from outpost_lsp.domain.record import describe
from outpost_lsp.domain.tool import Tool, Toolset
from outpost_lsp.domain.usage import UsageLimits
from outpost_lsp.errors import configuration
from outpost_lsp.harness.agent import DEFAULT, Agent, Harness, Limits, ToolExecution
from outpost_lsp.harness.context import ContextStrategy, summarize_history, truncate_tool_results
from outpost_lsp.harness.instructions import Instructions, repository_instructions
from outpost_lsp.harness.routing import ModelRouting, focused_state
from outpost_lsp.harness.subagent import Subagent
from outpost_lsp.harness.watchdog import Intervention, Watchdog
from outpost_lsp.models.offline import MODEL_NAME
from outpost_lsp.reviews.instructions import SHIPPED_AGENTS
from outpost_lsp.tools.edit import edit_tools
from outpost_lsp.tools.files import file_tools
from outpost_lsp.tools.findings import FindingScope, finding_tools
from outpost_lsp.tools.git import git_tools
from outpost_lsp.tools.mcp_server import McpServer
from outpost_lsp.tools.search import search_tools
from outpost_lsp.tools.shell import shell_tools

_CONTEXT: Final = {"truncate_tool_results": truncate_tool_results, "summarize_history": summarize_history}


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRun:
    """An agent with what its dispatch is given besides."""

    agent: AnyAgent
    prices: ModelPriceTable | None
    watchdog: Watchdog | None
    redact: tuple[re.Pattern[str], ...]
    """The keys that are known now; no text of the run shows them."""
    notes: tuple[str, ...]
    """What a person should know before it begins."""


def build_agent(
    services: Services,
    name: str,
    *,
    settings: Settings | None = None,
    finding_scope: FindingScope | None = None,
    limits: Mapping[str, Any] | None = None,
    folder: Path | None = None,
    is_trusted: bool = False,
    confinement_works: bool = False,
) -> AgentRun:
    """The configured agent `name`. `configuration` when there is none, or something that it names is missing.

    `settings` are those in force when the services were made for earlier ones. `limits` replace the agent's own, key by
    key. `folder` is what relative folders of skills are relative to. Agents have the tool `shell` only where
    `[sandbox] shell` is on, and with `confined` only when `confinement_works`.
    """
    settings = services.settings if settings is None else settings
    building = _Building(settings, services, finding_scope, folder, is_trusted, confinement_works)
    agent = building.agent(name, limits)
    return AgentRun(
        agent=agent,
        prices=price_table(settings),
        watchdog=_watchdog(settings.agents[name]),
        redact=services.masks(),
        notes=tuple(dict.fromkeys(building.notes)),
    )


def check_agent(settings: Settings, name: str) -> AgentSettings:
    """The settings of an agent; `configuration` when there is none of that name."""
    found = settings.agents.get(name)
    if found is None:
        raise configuration(
            f"agent: there is no agent {name!r}; there are {', '.join(sorted(settings.agents))}", field="agent"
        )
    return found


def model_of(settings: Settings, name: str) -> ModelSettings:
    """The model that an agent starts with: its own, that of its routing for doubt, or the default."""
    agent = settings.agents[name]
    if agent.model is None and agent.routing is not None:
        routing = settings.routing[agent.routing]
        return settings.models[routing.models[routing.fallback]]
    return settings.models[agent.model or settings.default_model]


class _Building:
    """The making of one agent and of those it may call."""

    def __init__(
        self,
        settings: Settings,
        services: Services,
        finding_scope: FindingScope | None,
        folder: Path | None,
        is_trusted: bool,
        confinement_works: bool,
    ) -> None:
        self.notes: list[str] = []
        self._settings = settings
        self._services = services
        self._finding_scope = finding_scope
        self._folder = folder
        self._is_trusted = is_trusted
        self._why_no_programs = why_not(is_trusted=is_trusted, offline=services.offline)
        shell = settings.sandbox.shell
        self._has_shell = shell == "unconfined" or (shell == "confined" and confinement_works)
        self._made: dict[str, Agent] = {}

    def agent(self, name: str, limits: Mapping[str, Any] | None = None) -> AnyAgent:
        """The agent of this name."""
        settings = check_agent(self._settings, name)
        if settings.candidates is not None and settings.on is not None:
            candidates = [self._candidate(candidate, limits) for candidate in settings.candidates]
            return FallbackAgent(candidates, settings.on, names=settings.candidates)
        return self._candidate(name, limits)

    def _candidate(self, name: str, limits: Mapping[str, Any] | None) -> Agent | CliAgent:
        settings = check_agent(self._settings, name)
        if settings.kind == "external":
            why = self._why_no_programs
            permissions = _permissions(settings.permissions)
            return external_agent(name, settings, self._settings, permissions, why=why, shell=self._has_shell)
        self._note_the_offline_model(name)
        return self._built_in(name, limits)

    def _built_in(self, name: str, limits: Mapping[str, Any] | None = None) -> Agent:
        if name in self._made:
            return self._made[name]
        settings = check_agent(self._settings, name)
        model = model_of(self._settings, name)
        tools = self._tools(name, settings)
        self._made[name] = Agent(
            self._spec(model),
            Harness(
                self._services.provider(model.provider),
                instructions=self._instructions(name, settings),
                tools=tools,
                limits=_limits(name, settings.limits, limits),
                tool_execution=ToolExecution(**settings.tool_execution.model_dump()),
                permissions=_permissions(settings.permissions),
                context=[self._strategy(strategy) for strategy in settings.context],
                conversations=DEFAULT if settings.conversations else None,
                skills=[load_skill(self._skill_folder(skill)) for skill in settings.skills],
                mcp_servers=self._servers(name, settings),
                routing=self._routing(settings),
            ),
        )
        return self._made[name]

    def _note_the_offline_model(self, name: str) -> None:
        """Say so when an agent works by fixed rules although somebody has configured models."""
        settings = self._settings
        own = settings.providers[model_of(settings, name).provider]
        others = [key for key, model in settings.models.items() if settings.providers[model.provider].kind != "offline"]
        if own.kind == "offline" and others and not self._services.offline:
            self.notes.append(
                f"the agent {name} works by the fixed rules of the offline provider, although there are models "
                f"({', '.join(others)}): set default_model or agents.{name}.model to use one"
            )

    def _spec(self, model: ModelSettings) -> ModelSpec:
        if self._services.offline or self._settings.providers[model.provider].kind == "offline":
            return ModelSpec(MODEL_NAME)
        return ModelSpec(model.name, model.reasoning, model.max_output_tokens, model.context_window)

    def _tools(self, name: str, settings: AgentSettings) -> list[Tool | Toolset]:
        tools: list[Tool | Toolset] = []
        for toolset in settings.tools:
            match toolset:
                case "files":
                    tools.append(file_tools())
                case "edit":
                    tools.append(edit_tools())
                case "search":
                    tools.append(search_tools())
                case "git":
                    tools.append(git_tools())
                case "findings":
                    scope = self._finding_scope
                    tools.append(finding_tools(None if scope is None else replace(scope, agent=name)))
                case "shell" if self._has_shell:
                    tools.append(shell_tools())
                case "shell":
                    self.notes.append(self._why_no_shell(name))
        tools += [
            Subagent(subagent, self._settings.agents[subagent].description or f"The agent {subagent}.", agent)
            for subagent, agent in ((subagent, self._built_in(subagent)) for subagent in settings.subagents)
        ]
        return tools

    def _why_no_shell(self, name: str) -> str:
        if self._settings.sandbox.shell == "off":
            return f"the agent {name} has no shell: sandbox.shell is off"
        return (
            f"the agent {name} has no shell: commands cannot be confined on this machine; outpost-lsp doctor says why"
        )

    def _servers(self, name: str, settings: AgentSettings) -> dict[str, McpServer] | None:
        if not settings.mcp:
            return None
        if self._why_no_programs is not None:
            self.notes.append(f"the agent {name} has no tools of MCP servers here: {self._why_no_programs}")
            return None
        return {server: mcp_server(server, self._settings.mcp[server]) for server in settings.mcp}

    def _instructions(self, name: str, settings: AgentSettings) -> list[str | Instructions]:
        shipped = SHIPPED_AGENTS.get(name)
        text = settings.instructions or (shipped.instructions if shipped is not None else None)
        instructions: list[str | Instructions] = [] if text is None else [text]
        # A reviewer is given the repository's own words with each brief. In an untrusted folder they reach nobody who
        # could act on them (INSTR-05).
        acts = {"edit", "shell"} & set(settings.tools)
        if "findings" not in settings.tools and (self._is_trusted or not acts):
            names = self._settings.review.instructions
            instructions.append(repository_instructions(names, trusted=self._is_trusted))
        return instructions

    def _strategy(self, name: str) -> ContextStrategy:
        return _CONTEXT[name]()

    def _skill_folder(self, text: str) -> Path:
        path = Path(text).expanduser()
        return path if path.is_absolute() or self._folder is None else self._folder / path

    def _routing(self, settings: AgentSettings) -> ModelRouting | None:
        if settings.routing is None:
            return None
        routing = self._settings.routing[settings.routing]
        if self._services.offline and self._settings.deciders[routing.decider].kind != "rules":
            self.notes.append(f"the routing {settings.routing} is not used offline: its decider is a service")
            return None
        return ModelRouting(
            provider=self._services.decider(
                routing.decider, cheapest=_cheapest(routing, self._settings), fallback=routing.fallback
            ),
            model=routing.model,
            decision=Decision({routing.question: Choice(routing.instructions, routing.criteria)}),
            question=routing.question,
            models={label: self._spec(self._settings.models[model]) for label, model in routing.models.items()},
            fallback=routing.fallback,
            min_confidence=routing.min_confidence,
            on_error=routing.on_error,
            state=focused_state if routing.state == "focused" else None,
            confidence_source=routing.confidence_source,
        )


def _cheapest(routing: RoutingSettings, settings: Settings) -> str:
    """The label whose model costs least; without prices the first one that is not the fallback."""
    others = [label for label in routing.criteria if label != routing.fallback]

    def cost(label: str) -> float:
        price = settings.models[routing.models[label]].price
        return float("inf") if price is None else price.input + price.output

    return min(others, key=cost)


def _limits(name: str, settings: LimitSettings, changes: Mapping[str, Any] | None) -> Limits:
    if changes:
        settings = _changed(name, settings, changes)
    usage = settings.usage.model_dump(exclude_none=True) if settings.usage is not None else {}
    return Limits(
        max_steps=settings.max_steps,
        max_tool_calls=settings.max_tool_calls,
        max_delegation_depth=settings.max_delegation_depth,
        usage=UsageLimits(**usage) if usage else None,
    )


def _changed(name: str, settings: LimitSettings, changes: Mapping[str, Any]) -> LimitSettings:
    tree = settings.model_dump(exclude_none=True)
    for key, value in changes.items():
        field = to_snake(key)
        if field == "usage" and isinstance(value, Mapping):
            tree["usage"] = {**tree.get("usage", {}), **{to_snake(str(part)): count for part, count in value.items()}}
        else:
            tree[field] = value
    try:
        return LimitSettings.model_validate(tree)
    except ValidationError as error:
        raise configuration(describe(f"limits of {name}", error), field="limits") from error


def _permissions(settings: PermissionSettings | None) -> Permissions | None:
    if settings is None:
        return None
    rules = [
        PermissionRule(rule.effect, tools=rule.tools, paths=rule.paths, commands=rule.commands, reason=rule.reason)
        for rule in settings.rules
    ]
    return Permissions(rules, settings.default)


def _watchdog(settings: AgentSettings) -> Watchdog | None:
    watchdog = settings.watchdog
    if watchdog is None:
        return None
    reaction = watchdog.on_stuck
    if isinstance(reaction, InterventionSettings):
        return Watchdog(
            window=watchdog.window,
            max_repeats=watchdog.max_repeats,
            on_stuck=Intervention(instruction=reaction.instruction, max_interventions=reaction.max_interventions),
        )
    return Watchdog(window=watchdog.window, max_repeats=watchdog.max_repeats, on_stuck=reaction)
