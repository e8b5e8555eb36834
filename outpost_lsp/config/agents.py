"""The tables of agents: what an agent may be given in a file. Hooks and tools of one's own are for the library."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from outpost_lsp.config.fields import (
    AgentName,
    Count,
    FilledText,
    Flag,
    PositiveCount,
    Seconds,
    Section,
    ServerName,
    Text,
)

ToolSetName = Literal["files", "edit", "search", "git", "shell", "findings"]
ContextName = Literal["truncate_tool_results", "summarize_history"]
EffectName = Literal["allow", "deny", "ask"]


class UsageLimitSettings(Section):
    """Ceilings in tokens, of a loop and all its descendants."""

    input: Count | None = None
    """Input tokens."""
    cached: Count | None = None
    """Input tokens read from a cache."""
    cache_created: Count | None = None
    """Input tokens written to a cache."""
    output: Count | None = None
    """Output tokens."""


class LimitSettings(Section):
    """Ceilings of one agent."""

    max_steps: PositiveCount = 100
    """Model requests."""
    max_tool_calls: PositiveCount | None = None
    """Tool calls; no ceiling when absent."""
    max_delegation_depth: Count | None = None
    """Levels of subagents below it; 3 when absent, 0 for none."""
    usage: UsageLimitSettings | None = None
    """Tokens, its subagents' included."""


class PermissionRuleSettings(Section):
    """What may be done with some tools, paths or commands."""

    effect: EffectName
    """`allow`, `deny`, or `ask` the person."""
    tools: Annotated[tuple[FilledText, ...], Field(min_length=1)] | None = None
    """Globs on tool names."""
    paths: Annotated[tuple[FilledText, ...], Field(min_length=1)] | None = None
    """Globs on paths."""
    commands: Annotated[tuple[FilledText, ...], Field(min_length=1)] | None = None
    """Globs on commands."""
    reason: FilledText | None = None
    """What the agent is told."""


class PermissionSettings(Section):
    """Rules on tool calls; the first that matches decides."""

    default: EffectName = "allow"
    """For calls that no rule speaks of."""
    rules: tuple[PermissionRuleSettings, ...] = ()
    """In order."""


class ToolExecutionSettings(Section):
    """How tool calls are carried out."""

    concurrency: PositiveCount = 4
    """Calls that only read, at once."""
    deadline_s: Seconds = 300
    """For one call."""
    on_error: Literal["return-to-model", "fail"] = "return-to-model"
    """What a failing tool means."""


class InterventionSettings(Section):
    """What an agent that goes round in circles is told."""

    instruction: FilledText
    """The text."""
    max_interventions: PositiveCount = 1
    """How often, before it is stopped."""


def _kind_of_reaction(value: Any) -> str:
    return "table" if isinstance(value, dict | InterventionSettings) else "word"


class WatchdogSettings(Section):
    """When an agent repeats itself."""

    window: Annotated[int, Field(strict=True, ge=2, le=10_000)] = 20
    """How many of the latest activities are looked at."""
    max_repeats: Annotated[int, Field(strict=True, ge=2, le=10_000)] = 3
    """How many equal ones among them are too many."""
    on_stuck: Annotated[
        Annotated[Literal["stop", "warn"], Tag("word")] | Annotated[InterventionSettings, Tag("table")],
        Discriminator(_kind_of_reaction),
    ] = "stop"
    """`stop`, `warn`, or an instruction."""


class AgentSettings(Section):
    """An agent: a model with tools and limits, an external program, or a list of agents to try in order."""

    description: Text = ""
    """When to call it, for people and for agents that delegate."""
    model: FilledText | None = None
    """A name under `[models]`; `default_model` when absent."""
    instructions: FilledText | None = None
    """What it is told; the built-in agents have texts of their own."""
    tools: tuple[ToolSetName, ...] = ()
    """Sets of tools."""
    routing: FilledText | None = None
    """A name under `[routing]`: the model of each step is chosen."""
    subagents: tuple[AgentName, ...] = ()
    """Agents that it may call, each as a tool of that name."""
    limits: LimitSettings = LimitSettings()
    """Its ceilings."""
    permissions: PermissionSettings | None = None
    """Rules on its tool calls."""
    conversations: Flag = True
    """Whether a conversation is kept that can be continued."""
    tool_execution: ToolExecutionSettings = ToolExecutionSettings()
    """How its tool calls are carried out."""
    context: tuple[ContextName, ...] = ()
    """How a long history is shortened, in order."""
    watchdog: WatchdogSettings | None = None
    """When it repeats itself."""
    skills: tuple[FilledText, ...] = ()
    """Folders that hold a `SKILL.md`."""
    mcp: tuple[ServerName, ...] = ()
    """Names under `[mcp]`."""
    command: Annotated[tuple[FilledText, ...], Field(min_length=1)] | None = None
    """An external agent that speaks the Agent Client Protocol, instead of a model; trusted workspaces only."""
    candidates: Annotated[tuple[AgentName, ...], Field(min_length=2)] | None = None
    """Agents that are tried in order, instead of a model."""
    on: Annotated[tuple[Literal["quota", "unavailable"], ...], Field(min_length=1)] | None = None
    """What makes the next candidate take over."""

    @property
    def kind(self) -> Literal["built-in", "external", "candidates"]:
        """Which of the three sorts of agent this is."""
        if self.candidates is not None:
            return "candidates"
        return "external" if self.command is not None else "built-in"
