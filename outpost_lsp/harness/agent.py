"""What an agent is: a model and a harness, as frozen data (section 4 of the engine rules).

Everything that can be wrong with an agent is said when it is declared: names that clash, limits out of range, a model
the provider cannot serve, a routing candidate likewise (LIM-06, LIM-07, ROUTE-05).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from outpost_lsp.domain.model import ModelProvider, ModelSpec, ToolSpec
from outpost_lsp.domain.permission import Permissions
from outpost_lsp.domain.record import Declaration, PositiveInt, SafeInt
from outpost_lsp.domain.tool import Tool, Toolset, flatten
from outpost_lsp.domain.usage import UsageLimits
from outpost_lsp.errors import OutpostError
from outpost_lsp.harness.context import ContextStrategy
from outpost_lsp.harness.hooks import Hook, Hooks
from outpost_lsp.harness.instructions import Instructions, Skill, as_instructions, load_skill_tool
from outpost_lsp.harness.routing import ModelRouting
from outpost_lsp.storage.conversations import ConversationStore
from outpost_lsp.tools.mcp_server import McpServer, checked_servers

MAX_DELEGATION_DEPTH: Final = 3
"""Levels of subagents below a harness that names no number."""


class _Default:
    """The conversation store that the dispatch chooses."""

    def __repr__(self) -> str:
        return "DEFAULT"


DEFAULT: Final = _Default()


class Limits(Declaration):
    """Ceilings of one loop; tokens count its descendants too."""

    max_steps: PositiveInt = 100
    max_tool_calls: PositiveInt | None = None
    max_delegation_depth: SafeInt | None = None
    usage: UsageLimits | None = None

    @field_validator("usage", mode="before")
    @classmethod
    def _usage_from_mapping(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            try:
                return UsageLimits(**value)
            except OutpostError as error:
                raise ValueError(error.message) from error
        return value


class ToolExecution(Declaration):
    """How the calls of a step are carried out. One whole delegation counts as one call."""

    concurrency: PositiveInt = 4
    deadline_s: Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)] = 300
    on_error: Literal["return-to-model", "fail"] = "return-to-model"


class Harness(Declaration):
    """Instructions, tools, limits, permissions, hooks and routing of an agent."""

    model_config = ConfigDict(ignored_types=(cached_property,))

    model_provider: Any
    instructions: tuple[Instructions, ...] = ()
    tools: tuple[Tool | Toolset, ...] = ()
    limits: Limits = Limits()
    tool_execution: ToolExecution = ToolExecution()
    hooks: tuple[Hook, ...] = ()
    permissions: Permissions | None = None
    context: tuple[ContextStrategy, ...] = ()
    conversations: Any = DEFAULT
    skills: tuple[Skill, ...] = ()
    mcp_servers: Mapping[str, McpServer] | None = None
    cache: bool = True
    routing: ModelRouting | None = None

    def __init__(
        self,
        model_provider: ModelProvider,
        *,
        instructions: str | Instructions | Sequence[str | Instructions] | None = None,
        tools: Iterable[Tool | Toolset] = (),
        limits: Limits | None = None,
        tool_execution: ToolExecution | None = None,
        hooks: Iterable[Hook] = (),
        permissions: Permissions | None = None,
        context: ContextStrategy | Sequence[ContextStrategy] | None = None,
        conversations: Any = DEFAULT,
        skills: Iterable[Skill] = (),
        mcp_servers: Mapping[str, McpServer] | None = None,
        cache: bool = True,
        routing: ModelRouting | None = None,
    ) -> None:
        super().__init__(
            model_provider=model_provider,
            instructions=as_instructions(instructions),
            tools=_as_tuple("tools", tools),
            limits=Limits() if limits is None else limits,
            tool_execution=ToolExecution() if tool_execution is None else tool_execution,
            hooks=_as_tuple("hooks", hooks),
            permissions=permissions,
            context=() if context is None else (context,) if isinstance(context, ContextStrategy) else tuple(context),
            conversations=conversations,
            skills=_as_tuple("skills", skills),
            mcp_servers=checked_servers(mcp_servers),
            cache=cache,
            routing=routing,
        )
        for model in () if routing is None else routing.models.values():
            validate_model(model_provider, model)

    @field_validator("model_provider")
    @classmethod
    def _is_provider(cls, value: Any) -> Any:
        if not (callable(getattr(value, "stream", None)) or callable(getattr(value, "request", None))):
            raise ValueError("a model provider is expected")
        return value

    @field_validator("conversations")
    @classmethod
    def _is_store(cls, value: Any) -> Any:
        if value is DEFAULT or value is None:
            return value
        if not isinstance(value, ConversationStore) or value.format != "harness":
            raise ValueError("a ConversationStore with the format 'harness' is expected, or None for no transcript")
        return value

    @model_validator(mode="after")
    def _distinct_names(self) -> Harness:
        try:
            _ = self.tool_table
        except OutpostError as error:
            raise ValueError(error.message) from error
        names = [skill.name for skill in self.skills]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"skills: two skills are named {twice!r}")
        return self

    @cached_property
    def tool_table(self) -> Mapping[str, Tool]:
        """Every tool by name: plain ones, `load_skill` and those of skills."""
        tools: list[Tool | Toolset] = list(self.tools)
        if self.skills:
            tools.append(load_skill_tool(self.skills))
            tools.extend(tool for skill in self.skills for tool in skill.tools)
        return {tool.name: tool for tool in flatten(tools)}

    @cached_property
    def skill_of_tool(self) -> Mapping[str, str]:
        """Which skill unlocks which tool."""
        return {tool.name: skill.name for skill in self.skills for tool in flatten(skill.tools)}

    @cached_property
    def tool_specs(self) -> tuple[ToolSpec, ...]:
        """The tools as a model sees them, compiled once."""
        return tuple(tool.spec for tool in self.tool_table.values())

    @cached_property
    def hook_table(self) -> Hooks:
        """The hooks by phase."""
        return Hooks(self.hooks)

    @property
    def keeps_conversations(self) -> bool:
        """Whether a transcript is kept."""
        return self.conversations is not None


class Agent(Declaration):
    """A model and the harness that carries it."""

    model: ModelSpec
    harness: Harness

    def __init__(self, model: str | ModelSpec, harness: Harness) -> None:
        spec = ModelSpec.of(model) if isinstance(model, str | ModelSpec) else model
        super().__init__(model=spec, harness=harness)
        validate_model(harness.model_provider, self.model)


def validate_model(provider: ModelProvider, model: ModelSpec) -> None:
    """Let the provider refuse a model it cannot serve; a provider need not have an opinion (LIM-07)."""
    validate: Callable[[ModelSpec], None] | None = getattr(provider, "validate", None)
    if validate is not None:
        validate(model)


def _as_tuple(name: str, values: Any) -> tuple[Any, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise OutpostError("configuration", f"Harness: {name}: a list is expected")
    return tuple(values)
