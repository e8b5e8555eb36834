"""The tables of services: providers of models, models, deciders, routings and MCP servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from outpost_lsp.config.fields import (
    Count,
    FilledText,
    Fraction,
    Money,
    OptionalVariableName,
    PositiveCount,
    Seconds,
    Section,
    Text,
    VariableName,
)
from outpost_lsp.domain.model import Reasoning


class ProviderSettings(Section):
    """A service that answers prompts. The name of the table is yours."""

    kind: Literal["openai", "anthropic", "offline"]
    """`openai` for every compatible service, `anthropic`, or `offline`: fixed rules, no service."""
    base_url: Text | None = None
    """Where the service is, with its version prefix; the public service of the kind when absent. `https`, or a loopback host."""
    api: Literal["responses", "chat"] = "responses"
    """Which of the two protocols of the kind `openai`. Many local servers have `chat` only."""
    api_key_env: OptionalVariableName | None = None
    """The variable of the server's own environment that holds the key; read at each request, never stored. Empty: no authentication. Absent: `OPENAI_API_KEY` or `ANTHROPIC_API_KEY` for the public service, none for others."""
    api_key_command: Annotated[tuple[FilledText, ...], Field(min_length=1)] | None = None
    """A program and its arguments that print the key, instead of a variable. The user's own file only."""
    timeout_s: Seconds | None = None
    """Silence allowed before the first byte and between bytes. Absent: 120, and 300 for models whose reasoning is `high` or above."""
    max_retries: Annotated[Count, Field(le=100)] = 2
    """How often a 429 or 5xx is tried again; the service's own waiting time is kept."""


class PriceSettings(Section):
    """What a model costs, per million tokens."""

    input: Money
    """Input tokens."""
    output: Money
    """Output tokens."""
    cached: Money | None = None
    """Input read from a cache; like `input` when absent."""
    cache_created: Money | None = None
    """Input written to a cache; like `input` when absent."""
    currency: Literal["EUR", "USD"] = "USD"
    """One currency for all models."""


class ModelSettings(Section):
    """A model under a name of yours."""

    provider: FilledText
    """A name under `[providers]`."""
    name: FilledText
    """The service's own name of the model."""
    reasoning: Reasoning | None = None
    """How much the model thinks."""
    max_output_tokens: PositiveCount | None = None
    """The most tokens of one answer."""
    context_window: PositiveCount | None = None
    """In tokens; decides when a history is summarized."""
    price: PriceSettings | None = None
    """Needed for costs and for limits in money."""


class DeciderSettings(Section):
    """A service that answers questions about a state."""

    kind: Literal["system-one", "rules"]
    """`system-one` over HTTP, or `rules`: the built-in table, no service."""
    base_url: Text | None = None
    """Where the service is, with its version prefix; needed for `system-one`. `https`, or a loopback host."""
    api_key_env: OptionalVariableName = ""
    """The variable that holds the key. Empty: no authentication."""
    timeout_s: Seconds = 10
    """The whole time allowed to one decision."""
    price: PriceSettings | None = None
    """What its decisions cost; 0 for a service of your own."""


class RoutingSettings(Section):
    """How the model of each step is chosen."""

    decider: FilledText
    """A name under `[deciders]`."""
    model: FilledText = "auto"
    """The decider's model."""
    question: FilledText = "route"
    """What the question is called."""
    instructions: FilledText = "Choose the model for the next step."
    """What is asked."""
    criteria: Mapping[str, FilledText]
    """When each label is right."""
    models: Mapping[str, FilledText]
    """Which name under `[models]` each label means; all of one provider."""
    min_confidence: Fraction = 0.85
    """Below it `fallback` is used."""
    fallback: FilledText
    """The label for doubt and outage."""
    on_error: Literal["fallback", "fail"] = "fallback"
    """What an unreachable decider means."""
    confidence_source: Literal["reported", "probabilities"] = "reported"
    """Whose number is compared: the service's, or one worked out from its probabilities."""
    state: Literal["default", "focused"] = "default"
    """What the decider sees: everything, or step, active model and the texts of the last four messages."""


class McpToolsSettings(Section):
    """Which tools of a server are offered."""

    include: Annotated[tuple[FilledText, ...], Field(min_length=1)] | None = None
    """Only these."""
    exclude: Annotated[tuple[FilledText, ...], Field(min_length=1)] | None = None
    """All but these."""


class McpServerSettings(Section):
    """A server of the Model Context Protocol: a program, or a URL."""

    command: FilledText | None = None
    """The program."""
    arguments: tuple[Text, ...] = ()
    """Its arguments."""
    environment: Mapping[str, Text] = Field(default_factory=dict)
    """Variables with literal values."""
    variables: tuple[VariableName, ...] = ()
    """Names of variables to pass on."""
    url: FilledText | None = None
    """The address of a server over HTTP."""
    headers: Mapping[str, Text] = Field(default_factory=dict)
    """Headers of each request."""
    bearer_token_variable: VariableName | None = None
    """The variable that holds a bearer token."""
    tools: McpToolsSettings | None = None
    """Which of its tools are offered; all when absent."""
    startup_timeout_s: Seconds = 60
    """How long it may take to start."""
