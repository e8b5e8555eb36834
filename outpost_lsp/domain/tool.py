"""What an agent can do: tools, toolsets, and what a call is given and gives back (TDEF rules)."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Final, get_type_hints, overload

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    InstanceOf,
    StrictBool,
    TypeAdapter,
    ValidationError,
    create_model,
    field_validator,
)

from outpost_lsp.domain.event import Event, FindingEvent
from outpost_lsp.domain.model import ModelSpec, ToolSpec
from outpost_lsp.domain.permission import Resources
from outpost_lsp.domain.record import Declaration, NonBlank, changeable
from outpost_lsp.domain.sandbox import Lease
from outpost_lsp.domain.schema import check_schema, schema_issues
from outpost_lsp.errors import OutpostError

_PREFIX: Final = "argument_"
_INPUT_CONFIG: Final = ConfigDict(extra="forbid")

ToolName = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9_-]{1,64}$")]


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a call gives back; a bare text means the same without error (TDEF-07)."""

    content: str
    is_error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """What a call is given. It dies with the call: afterwards the sandbox and `observe` refuse (TOOL-12).

    `observe` takes `text`, `warning` and `raw` events only. `report` is the door of the findings toolset.
    """

    sandbox: Lease
    call_id: str
    model: ModelSpec
    observe: Callable[[Event], None]
    report: Callable[[FindingEvent], None]
    route: str | None = None


Execute = Callable[[Any, ToolContext], Any]
ResourcesOf = Callable[[Any], Any]


class InvalidInputError(Exception):
    """The input does not fit the tool; the text lists every issue."""


class Tool(Declaration):
    """One thing an agent can do.

    `input` is a JSON Schema of the supported subset, or a pydantic model (then `execute` gets the validated instance).
    `execute(input, context)` may be a plain function, which runs in a worker thread (TDEF-09), or a coroutine.
    `resources(input)` returns what permissions look at: a `Resources`, or a mapping with `paths` and `command`.
    """

    model_config = ConfigDict(ignored_types=(cached_property,))

    name: ToolName
    description: NonBlank
    input: Any
    execute: Execute
    read_only: StrictBool = False
    resources: ResourcesOf | None = None

    def __init__(
        self,
        name: str,
        description: str,
        input: Any,
        execute: Execute,
        read_only: bool = False,
        resources: ResourcesOf | None = None,
        **unknown: Any,
    ) -> None:
        super().__init__(
            name=name,
            description=description,
            input=input,
            execute=execute,
            read_only=read_only,
            resources=resources,
            **unknown,
        )

    @field_validator("input")
    @classmethod
    def _input_is_an_object_schema(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            try:
                check_schema(value)
            except OutpostError as error:
                raise ValueError(error.message) from error
            value = dict(value)
        elif not (isinstance(value, type) and issubclass(value, BaseModel)) and not isinstance(value, TypeAdapter):
            raise ValueError("a JSON Schema object, a pydantic model or a TypeAdapter is expected")
        if _input_schema(value).get("type") != "object":
            raise ValueError('the root type must be "object"')
        return value

    @cached_property
    def spec(self) -> ToolSpec:
        """The tool as the model sees it, made once."""
        return ToolSpec(self.name, self.description, _input_schema(self.input))

    def validated(self, raw: Any) -> Any:
        """The input that `execute` gets; `InvalidInputError` with every issue otherwise."""
        if isinstance(self.input, Mapping):
            if issues := schema_issues(self.spec.input_schema, raw):
                raise InvalidInputError("; ".join(issues))
            return raw
        try:
            if isinstance(self.input, TypeAdapter):
                return self.input.validate_python(raw)
            return self.input.model_validate(raw)
        except ValidationError as error:
            raise InvalidInputError("; ".join(_issue(fault) for fault in error.errors(include_url=False))) from error

    def resources_of(self, value: Any) -> Resources:
        """What a call with this validated input touches."""
        if self.resources is None:
            return Resources()
        found = self.resources(value)
        if isinstance(found, Mapping) and not set(found) - {"paths", "command"}:
            paths = found.get("paths") or ()
            if isinstance(paths, Sequence) and not isinstance(paths, str):
                found = Resources(tuple(paths), found.get("command"))
        if not isinstance(found, Resources) or not all(isinstance(path, str) for path in found.paths):
            raise OutpostError("configuration", f"tool {self.name}: resources must give paths and a command")
        return found


class Toolset(Declaration):
    """Tools under one name; may hold other toolsets."""

    name: ToolName
    tools: tuple[InstanceOf[Tool] | InstanceOf[Toolset], ...]

    def __init__(self, name: str, tools: Iterable[Tool | Toolset], **unknown: Any) -> None:
        super().__init__(name=name, tools=tuple(tools), **unknown)


def flatten(tools: Iterable[Tool | Toolset]) -> tuple[Tool, ...]:
    """All tools in order; `configuration` for a name that stands twice (TDEF-02) or for what is no tool (TDEF-03)."""
    found: dict[str, Tool] = {}
    for tool in _leaves(tools):
        if tool.name in found:
            raise OutpostError("configuration", f"tools: two tools are named {tool.name!r}")
        found[tool.name] = tool
    return tuple(found.values())


def _leaves(tools: Iterable[Tool | Toolset]) -> Iterable[Tool]:
    for tool in tools:
        if isinstance(tool, Toolset):
            yield from _leaves(tool.tools)
        elif isinstance(tool, Tool):
            yield tool
        else:
            raise OutpostError("configuration", f"tools: {type(tool).__name__} is not a tool")


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    read_only: bool = False,
    resources: ResourcesOf | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    read_only: bool = False,
    resources: ResourcesOf | None = None,
) -> Any:
    """Make a `Tool` of a function: its name, docstring and annotated parameters say the rest.

    A parameter annotated `ToolContext` receives the context and is no part of the input.
    """

    def declare(target: Callable[..., Any]) -> Tool:
        text = description or inspect.getdoc(target)
        if not text:
            raise OutpostError("configuration", f"tool {target.__name__}: a description or a docstring is needed")
        fields, context_name = _parameters(target)
        model = create_model(f"{target.__name__}_input", __config__=_INPUT_CONFIG, **fields)

        if inspect.iscoroutinefunction(target):

            async def execute(value: Any, context: ToolContext) -> Any:
                return await target(**_arguments(value, fields, context_name, context))
        else:

            def execute(value: Any, context: ToolContext) -> Any:  # type: ignore[misc]
                return target(**_arguments(value, fields, context_name, context))

        return Tool(name or target.__name__, text, model, execute, read_only, resources)

    return declare if function is None else declare(function)


def _parameters(target: Callable[..., Any]) -> tuple[dict[str, Any], str | None]:
    hints = get_type_hints(target, include_extras=True)
    fields: dict[str, Any] = {}
    context_name = None
    for parameter in inspect.signature(target).parameters.values():
        hint = hints.get(parameter.name, Any)
        if hint is ToolContext:
            context_name = parameter.name
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise OutpostError("configuration", f"tool {target.__name__}: {parameter} cannot be filled by a model")
        # The prefix keeps names such as `json` or `model_x` from meaning something to pydantic.
        fields[f"{_PREFIX}{parameter.name}"] = (
            Annotated[hint, Field(alias=parameter.name)],
            ... if parameter.default is parameter.empty else parameter.default,
        )
    return fields, context_name


def _arguments(value: Any, fields: Iterable[str], context_name: str | None, context: ToolContext) -> dict[str, Any]:
    arguments = {name.removeprefix(_PREFIX): getattr(value, name) for name in fields}
    if context_name is not None:
        arguments[context_name] = context
    return arguments


def _input_schema(input: Any) -> Mapping[str, Any]:
    if isinstance(input, Mapping):
        plain: Mapping[str, Any] = changeable(input)
        return plain
    schema = input.json_schema() if isinstance(input, TypeAdapter) else input.model_json_schema()
    reference = schema.get("$ref")
    if isinstance(reference, str):
        # A model that holds itself stands among the definitions only; services want an object at the root.
        schema = {**schema["$defs"][reference.rpartition("/")[2]], "$defs": schema["$defs"]}
    return schema


def _issue(fault: Any) -> str:
    place = "input"
    for part in fault["loc"]:
        place += f"[{part}]" if isinstance(part, int) else f".{part}"
    return f"{place}: {fault['msg']}"


OBSERVABLE: Final[Sequence[str]] = ("text", "warning", "raw")
"""The kinds a tool may report (TOOL-13)."""

MaybeAwaitable = Awaitable[Any] | Any
