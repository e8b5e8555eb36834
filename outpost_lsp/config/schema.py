"""All settings, with their defaults: the one description that files, checks, documentation and editors go by.

What is here holds for each table by itself; what one table says of another is checked in `checks.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from outpost_lsp.config.agents import AgentSettings
from outpost_lsp.config.fields import (
    AgentName,
    Count,
    FilledText,
    Flag,
    Fraction,
    Money,
    OptionalVariableName,
    PositiveCount,
    Seconds,
    Section,
    ServerName,
    Text,
    VariableName,
)
from outpost_lsp.config.services import (
    DeciderSettings,
    McpServerSettings,
    ModelSettings,
    ProviderSettings,
    RoutingSettings,
)
from outpost_lsp.reviews.instructions import SHIPPED_AGENTS


class HttpSettings(Section):
    """How services are reached."""

    ca_file: Text = ""
    """A file of certificates to trust besides the system's."""
    proxy: Text = ""
    """A proxy's URL; the usual environment variables when empty. A service on this machine is asked without it. SOCKS needs `pip install 'httpx[socks]'`."""


class ReviewSettings(Section):
    """Reviews and their findings."""

    agent: AgentName = "reviewer"
    """Who reviews."""
    instructions: tuple[FilledText, ...] = ("AGENTS.md", "REVIEW.md")
    """Files of the repository that the reviewer is given when they are there; each run notes which were."""
    outside_diff: Literal["hint", "drop", "keep"] = "hint"
    """What becomes of findings outside the changed lines."""
    max_findings: PositiveCount = 100
    """The most findings of one review."""
    min_confidence: Fraction = 0.0
    """Findings below it are left out."""
    exclude: tuple[FilledText, ...] = ("**/*.lock",)
    """Files that are not reviewed, as gitignore patterns."""
    dismissals: Literal["private", "shared"] = "private"
    """`shared`: kept in `.outpost/dismissals.json`, followed in trusted folders only."""


class SandboxSettings(Section):
    """The worktrees that agents work in."""

    directory: Text = ""
    """Where worktrees are; the user's cache folder when empty. What an earlier folder still holds is looked after."""
    uncommitted: Flag = True
    """Whether staged and unstaged changes are in the snapshot."""
    untracked: Flag = True
    """Whether untracked files are; ignored ones are not."""
    max_untracked_mib: Count = 500
    """Beyond it the largest untracked files are left out; the run's notes name them."""
    unsaved: Flag = True
    """Whether the unsaved text of open documents is."""
    copy_ignored: tuple[FilledText, ...] = ()
    """Ignored files to bring along, as gitignore patterns, besides those that `.worktreeinclude` names."""
    git_timeout_s: Seconds = 120
    """For one call of git."""
    setup: tuple[FilledText, ...] = ()
    """Commands that are run in a new worktree; the user's own file or a trusted folder only."""
    shell: Literal["off", "confined", "unconfined"] = "off"
    """Whether agents with the tool `shell` may run commands, and how."""
    environment: tuple[VariableName, ...] = ()
    """Names of variables that commands get besides the few that all get; the user's own file only."""
    readable: tuple[FilledText, ...] = ()
    """Folders that confined commands may read besides the system's; the user's own file only."""
    keep: Literal["changed", "never", "always"] = "changed"
    """Which finished worktrees stay until their changes are applied or discarded."""


class RaySettings(Section):
    """Where runs are carried out with `executor = "ray"`."""

    url: Text = ""
    """`https`, or a loopback host."""
    token_env: OptionalVariableName = "OUTPOST_RAY_TOKEN"  # noqa: S105 - the name of a variable
    """The variable that holds the token."""
    ca_file: Text = ""
    """A file of certificates to trust besides the system's."""
    concurrency: PositiveCount = 16
    """Runs of this workspace there at once."""
    lease_s: Seconds = 120
    """How long a run is held there without a sign of life."""
    when_away: Literal["fail", "local"] = "fail"
    """What an unreachable cluster means."""
    retry_lost: Annotated[Count, Field(le=100)] = 0
    """How often a run that was lost there is begun again."""


class RunSettings(Section):
    """How runs are carried out and remembered."""

    concurrency: PositiveCount = 2
    """Runs at once; the rest wait."""
    retention_days: Count = 30
    """How long runs, journals and conversations are kept."""
    events: Literal["off", "summary", "all"] = "summary"
    """Which events editors are sent."""
    replayable: Flag = True
    """Whether journals hold what a replay of the changes needs."""
    executor: Literal["local", "ray"] = "local"
    """Where runs are carried out; the user's own file or the client only."""
    verbose: Flag = False
    """Whether events and journals hold requests, answers and decision states too."""
    ray: RaySettings = RaySettings()
    """Only with `executor = "ray"`."""


class TelemetrySettings(Section):
    """Spans of what runs do, for OpenTelemetry; needs the extra `otel`. The user's own file or the client only."""

    enabled: Flag = False
    """Whether spans are sent."""
    endpoint: Text = ""
    """The collector's base URL for OTLP over HTTP, without `/v1/traces`: `https`, or a loopback host. Empty: the variable `OTEL_EXPORTER_OTLP_ENDPOINT`, else `http://127.0.0.1:4318`."""
    headers_env: OptionalVariableName = "OTEL_EXPORTER_OTLP_HEADERS"
    """The variable that holds headers for the collector, as `name=value,name=value`."""
    content: Flag = False
    """Whether prompts, answers, and what tools were given and gave are sent, too."""


class CeilingSettings(Section):
    """Ceilings in tokens and money."""

    input: Count | None = None
    """Input tokens."""
    cached: Count | None = None
    """Input tokens read from a cache."""
    cache_created: Count | None = None
    """Input tokens written to a cache."""
    output: Count | None = None
    """Output tokens."""
    cost: Money | None = None
    """Money, in the currency of the prices."""


class BudgetSettings(Section):
    """What may be spent. Seen after each answer, so that one answer may overshoot."""

    per_run: CeilingSettings = CeilingSettings()
    """Of one run, over any agent's own limits."""
    per_day: CeilingSettings = CeilingSettings()
    """Of this workspace, over all runs but replays."""


class Settings(Section):
    """The whole configuration."""

    default_model: FilledText = "offline"
    """The model of agents that name none: a name under `[models]`."""
    providers: Mapping[FilledText, ProviderSettings] = Field(default_factory=dict)
    """Services that answer prompts."""
    models: Mapping[FilledText, ModelSettings] = Field(default_factory=dict)
    """Models under names of yours."""
    deciders: Mapping[FilledText, DeciderSettings] = Field(default_factory=dict)
    """Services that answer questions about a state."""
    routing: Mapping[FilledText, RoutingSettings] = Field(default_factory=dict)
    """Ways to choose the model of each step."""
    agents: Mapping[AgentName, AgentSettings] = Field(default_factory=dict)
    """Agents under names of yours."""
    mcp: Mapping[ServerName, McpServerSettings] = Field(default_factory=dict)
    """Servers of the Model Context Protocol."""
    http: HttpSettings = HttpSettings()
    """How services are reached."""
    review: ReviewSettings = ReviewSettings()
    """Reviews and their findings."""
    sandbox: SandboxSettings = SandboxSettings()
    """The worktrees that agents work in."""
    runs: RunSettings = RunSettings()
    """How runs are carried out and remembered."""
    budget: BudgetSettings = BudgetSettings()
    """What may be spent."""
    telemetry: TelemetrySettings = TelemetrySettings()
    """Spans for OpenTelemetry."""


BUILT_IN: Final[Mapping[str, Any]] = {
    "providers": {"offline": {"kind": "offline"}},
    "models": {
        "offline": {"provider": "offline", "name": "offline"},
        "fast": {"provider": "offline", "name": "offline"},
        "deep": {"provider": "offline", "name": "offline"},
    },
    "deciders": {"rules": {"kind": "rules"}},
    "routing": {
        "rules": {
            "decider": "rules",
            "model": "outpost-rules/1",
            "question": "route",
            "instructions": "Choose the model depth for the next step.",
            "criteria": {"fast": "Routine tools", "deep": "Reasoning or repairs"},
            "models": {"fast": "fast", "deep": "deep"},
            # Whoever chooses the table follows it: it claims no confidence beyond its record.
            "min_confidence": 0,
            "fallback": "deep",
        }
    },
    "agents": {
        agent.name: {
            "description": agent.description,
            "tools": list(agent.tools),
            **({"subagents": list(agent.subagents)} if agent.subagents else {}),
        }
        for agent in SHIPPED_AGENTS.values()
    },
}
"""What is there before any file is read: the first of the four places."""


def default_settings() -> Settings:
    """The settings when nothing is configured."""
    return Settings.model_validate(BUILT_IN)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a configuration file. Everything may be left out, since files complete each other."""
    # Only documentation and editors need it, and its reading takes time that the server's start has not.
    from outpost_lsp.config.descriptions import descriptions

    schema = Settings.model_json_schema(by_alias=False)
    texts = descriptions()
    for definition in (schema, *schema.get("$defs", {}).values()):
        definition.pop("required", None)
        for name, field in definition.get("properties", {}).items():
            field["description"] = texts[definition["title"]][name]
            # Patterns say which names a table may have; without this, other names would be welcome, too.
            if "patternProperties" in field:
                field["additionalProperties"] = False
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "Configuration of outpost-lsp",
    }
