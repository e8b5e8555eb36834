"""The library's names, their parameters and defaults, and what every declaration and record has in common (PY rules)."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any

import pydantic
import pytest

import outpost_lsp
from outpost_lsp import (
    Agent,
    BranchPolicy,
    Brief,
    Choice,
    CliAgent,
    Continuation,
    CostLimit,
    Decision,
    DiffGuard,
    FallbackAgent,
    Harness,
    Hook,
    Instructions,
    Intervention,
    Journal,
    JsonResponse,
    Limits,
    McpServer,
    ModelPriceTable,
    ModelRouting,
    ModelSpec,
    Noul,
    OutpostError,
    PermissionRule,
    Permissions,
    RulesDecisionProvider,
    Score,
    ScriptedModelProvider,
    Skill,
    StageLimits,
    Subagent,
    TextResponse,
    Tool,
    ToolExecution,
    Toolset,
    UsageLimits,
    Watchdog,
    WorkflowLimits,
)
from outpost_lsp.domain.record import MAX_SAFE_INTEGER, Declaration, Record
from outpost_lsp.harness.context import ContextStrategy

REQUIRED: Any = inspect.Parameter.empty

PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "Agent": {"model": REQUIRED, "harness": REQUIRED},
    "ModelSpec": {"name": REQUIRED, "reasoning": None, "max_output_tokens": None},
    "Harness": {
        "model_provider": REQUIRED,
        "instructions": None,
        "tools": (),
        "hooks": (),
        "permissions": None,
        "context": None,
        "conversations": outpost_lsp.DEFAULT,
        "skills": (),
        "mcp_servers": None,
        "cache": True,
        "routing": None,
    },
    "Limits": {"max_steps": 100, "max_tool_calls": None, "max_delegation_depth": None, "usage": None},
    "UsageLimits": {"input": None, "cached": None, "cache_created": None, "output": None},
    "ToolExecution": {"concurrency": 4, "deadline_s": 300, "on_error": "return-to-model"},
    "Subagent": {"name": REQUIRED, "description": REQUIRED, "agent": REQUIRED},
    "Tool": {
        "name": REQUIRED,
        "description": REQUIRED,
        "input": REQUIRED,
        "execute": REQUIRED,
        "read_only": False,
        "resources": None,
    },
    "file_tools": {},
    "edit_tools": {},
    "search_tools": {},
    "git_tools": {},
    "shell_tools": {"deadline_s": 120},
    "Permissions": {"default": "allow"},
    "PermissionRule": {"effect": REQUIRED, "tools": None, "paths": None, "commands": None, "reason": None},
    "Hook": {"on": REQUIRED, "run": REQUIRED},
    "truncate_tool_results": {"keep_recent": 4, "max_characters": 2_000},
    "summarize_history": {"keep_recent_messages": 6},
    "OpenAIModelProvider": {"base_url": REQUIRED, "api_key": REQUIRED, "api": "responses"},
    "AnthropicModelProvider": {},
    "OfflineModelProvider": {},
    "Decision": {"questions": REQUIRED},
    "Choice": {"instructions": REQUIRED, "criteria": REQUIRED},
    "Score": {"instructions": REQUIRED, "criteria": REQUIRED},
    "Noul": {"instructions": REQUIRED, "criteria": None},
    "decide": {"provider": REQUIRED, "model": REQUIRED, "decision": REQUIRED, "state": REQUIRED},
    "SystemOneDecisionProvider": {"base_url": REQUIRED, "api_key": None, "timeout_s": 120},
    "RulesDecisionProvider": {},
    "ModelRouting": {
        "provider": REQUIRED,
        "model": REQUIRED,
        "decision": REQUIRED,
        "question": REQUIRED,
        "models": REQUIRED,
        "fallback": REQUIRED,
        "min_confidence": 0.85,
        "on_error": "fallback",
        "state": None,
        "confidence_source": "reported",
    },
    "Brief": {"text": None, "file": None, "values": None},
    "dispatch": {
        "repository": REQUIRED,
        "agent": REQUIRED,
        "brief": REQUIRED,
        "sandbox_provider": None,
        "observe": None,
        "observation": None,
        "steering": None,
        "continuation": None,
        "response": None,
        "watchdog": None,
        "prices": None,
        "budget": None,
        "journal": True,
        # Section 2.1 of the rules about dispatches.
        "workspace": None,
        "branch": None,
        "copies": (),
        "guard": None,
        "limits": None,
        "hooks": None,
        "label": None,
        "passes": 1,
        "until": "<outpost>done</outpost>",
        "idle_s": 600,
        "idle_warning_s": 60,
        "settle_s": 60,
        "deadline_s": 3_600,
        "expansion_s": 30,
        "redact": (),
        "warn": None,
        "diagnostic": None,
        "conversation_home": None,
    },
    "Journal": {"path": None, "verbose": False, "replayable": True},
    "WorktreeSandboxProvider": {},
    "open_sandbox": {},
    "Continuation": {"id": REQUIRED, "fork": False},
    "Steering": {},
    "TextResponse": {"repairs": 0},
    "JsonResponse": {"schema": REQUIRED, "repairs": 0},
    "ObservationHub": {"sinks": (), "capacity": 1_024, "delivery_timeout_s": 5, "verbose": False, "redact": ()},
    "read_journal": {"path": REQUIRED},
    "ReplayAgent": {"journal": REQUIRED, "divergence": "fail"},
    "FallbackAgent": {"candidates": REQUIRED, "on": REQUIRED},
    "CliAgent": {"command": REQUIRED, "model": None},
    "McpServer": {"command": None, "url": None},
    "open_workspace": {},
    "BranchPolicy": {"name": None, "start": None},
    "DiffGuard": {},
    "ModelPriceTable": {"currency": REQUIRED, "models": REQUIRED},
    "usage_cost": {"usage": REQUIRED, "prices": REQUIRED},
    "review": {"repository": REQUIRED},
    "OutpostError": {"code": REQUIRED, "message": REQUIRED, "details": None},
}
"""By name: parameters that the contract fixes, with their defaults; others may be there besides."""


@pytest.mark.parametrize("name", PARAMETERS)
def test_every_name_takes_what_the_contract_says(name: str) -> None:
    found = inspect.signature(getattr(outpost_lsp, name)).parameters
    wanted = PARAMETERS[name]
    assert {parameter: found[parameter].default for parameter in wanted} == wanted
    others = [one for one in found.values() if one.name not in wanted and one.default is REQUIRED]
    assert [one.name for one in others if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)] in ([], ["rules"])
    # What is required and obvious may be given by position, in the order of the contract.
    by_position = [one.name for one in found.values() if one.kind is one.POSITIONAL_OR_KEYWORD]
    required = [parameter for parameter in wanted if wanted[parameter] is REQUIRED and parameter in by_position]
    assert by_position[: len(required)] == required


@pytest.mark.parametrize(
    ("name", "members"),
    [
        ("DispatchResult", "text usage conversation transcript journal changes response turns cost completed completion branch directory commits retained_directory fallback observer_errors report resume fork"),
        ("Turn", "text status interrupted conversation transcript usage duration_ms"),
        ("Sandbox", "workspace root dispatch resume fork command diagnose attach close"),
        ("Workspace", "repository directory branch base_branch baseline dispatch sandbox integrate close"),
        ("Steering", "send state close"),
        ("ModelRouting", "replace"),
        ("ReplayAgent", "remaining_turns"),
        ("ObservationHub", "emit child flush close errors dropped"),
    ],
)  # fmt: skip
def test_every_object_has_the_members_of_the_contract(name: str, members: str) -> None:
    kind = getattr(outpost_lsp, name)
    known = {*dir(kind), *inspect.get_annotations(kind)}
    assert set(members.split()) <= known


def execute(_value: Any, _context: Any) -> str:
    return ""


def provider() -> ScriptedModelProvider:
    return ScriptedModelProvider([])


def agent() -> Agent:
    return Agent("m", Harness(provider()))


DECISION = Decision({"route": Choice("Choose.", {"fast": "a", "deep": "b"})})

DECLARATIONS: Mapping[str, tuple[Callable[..., Any], Mapping[str, Any]]] = {
    "Agent": (Agent, {"model": "m", "harness": Harness(provider())}),
    "ModelSpec": (ModelSpec, {"name": "m"}),
    "Harness": (Harness, {"model_provider": provider()}),
    "Limits": (Limits, {"max_steps": 1}),
    "UsageLimits": (UsageLimits, {"input": 1}),
    "ToolExecution": (ToolExecution, {"concurrency": 1}),
    "Subagent": (Subagent, {"name": "a", "description": "A.", "agent": agent()}),
    "Tool": (Tool, {"name": "a", "description": "A.", "input": {"type": "object"}, "execute": execute}),
    "Toolset": (Toolset, {"name": "a", "tools": []}),
    "Permissions": (Permissions, {"rules": []}),
    "PermissionRule": (PermissionRule, {"effect": "deny"}),
    "Hook": (Hook, {"on": "stop", "run": lambda _given: None}),
    "ContextStrategy": (ContextStrategy, {"name": "a", "compact": lambda _given: None}),
    "Skill": (Skill, {"name": "a", "description": "A.", "instructions": "Do."}),
    "Instructions": (Instructions, {"source": "Do."}),
    "Decision": (Decision, {"questions": {"a": Noul("Is it?")}}),
    "Choice": (Choice, {"instructions": "Choose.", "criteria": {"a": "A", "b": "B"}}),
    "Score": (Score, {"instructions": "Rate.", "criteria": ["bad", "good"]}),
    "Noul": (Noul, {"instructions": "Is it?"}),
    "ModelRouting": (
        ModelRouting,
        {
            "provider": RulesDecisionProvider(),
            "model": "auto",
            "decision": DECISION,
            "question": "route",
            "models": {"fast": "s", "deep": "l"},
            "fallback": "deep",
        },
    ),
    "Continuation": (Continuation, {"id": "c"}),
    "Journal": (Journal, {"verbose": True}),
    "TextResponse": (TextResponse, {"tag": "answer"}),
    "WorkflowLimits": (WorkflowLimits, {"attempts": 1}),
    "CostLimit": (CostLimit, {"currency": "EUR", "limit": 1.0}),
    "JsonResponse": (JsonResponse, {"schema": {"type": "object"}}),
    "Watchdog": (Watchdog, {"window": 5}),
    "Intervention": (Intervention, {"instruction": "Stop."}),
    "FallbackAgent": (FallbackAgent, {"candidates": [agent(), agent()], "on": ["quota"]}),
    "CliAgent": (CliAgent, {"command": ["agent"]}),
    "McpServer": (McpServer, {"command": "server"}),
    "BranchPolicy": (BranchPolicy, {"mode": "current"}),
    "DiffGuard": (DiffGuard, {"max_changed_lines": 1}),
    "StageLimits": (StageLimits, {"git_s": 1}),
    "ModelPriceTable": (ModelPriceTable, {"currency": "EUR", "models": {}}),
}


@pytest.mark.parametrize("name", DECLARATIONS)
def test_PY_08_an_unknown_option_is_refused_when_it_is_declared(name: str) -> None:
    build, options = DECLARATIONS[name]
    build(**options)
    with pytest.raises(OutpostError, match="unheard_of") as caught:
        build(**options, unheard_of=1)
    assert caught.value.code == "configuration"


@pytest.mark.parametrize("name", DECLARATIONS)
def test_PY_02_a_declaration_cannot_be_changed_once_it_is_built(name: str) -> None:
    build, options = DECLARATIONS[name]
    declared = build(**options)
    field = next(iter(options))
    before = getattr(declared, field)
    with pytest.raises((pydantic.ValidationError, AttributeError, TypeError)):
        setattr(declared, field, None)
    with pytest.raises((pydantic.ValidationError, AttributeError, TypeError)):
        declared.another = 1
    assert getattr(declared, field) == before


def _changeable() -> Mapping[str, tuple[Any, list[Any]]]:
    """Declarations made from what the caller can still change, by name, with everything that can be changed."""
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string", "enum": ["x"]}}}
    criteria, levels = {"fast": "a", "deep": "b"}, ["bad", "good"]
    questions: dict[str, Any] = {"route": {"type": "choice", "instructions": "Choose.", "criteria": criteria}}
    models, tools, names = {"fast": "s", "deep": "l"}, [], ["a*"]
    rules = [PermissionRule("deny", tools=names)]
    candidates, on, command = [agent(), agent()], ["quota"], ["agent", "--acp"]
    environment, variables, headers = {"A": "1"}, ["B"], {"X-A": "1"}
    prices: dict[str, Any] = {"m": {"input": 1.0, "output": 1.0}}
    values, texts, servers = {"NAME": "x"}, ["One."], {"docs": McpServer("server")}
    routing = {**DECLARATIONS["ModelRouting"][1], "models": models}
    return {
        "Tool": (Tool("a", "A.", schema, execute), [schema]),
        "Toolset": (Toolset("a", tools), [tools]),
        "JsonResponse": (JsonResponse(schema), [schema]),
        "Choice": (Choice("Choose.", criteria), [criteria]),
        "Score": (Score("Rate.", levels), [levels]),
        "Decision": (Decision(questions), [questions]),
        "ModelRouting": (ModelRouting(**routing), [models]),
        "PermissionRule": (PermissionRule("deny", tools=names), [names]),
        "Permissions": (Permissions(rules), [rules]),
        "FallbackAgent": (FallbackAgent(candidates, on), [candidates, on]),  # type: ignore[arg-type]
        "CliAgent": (
            CliAgent(command, environment=environment, variables=variables),
            [command, environment, variables],
        ),
        "McpServer": (
            McpServer("server", command, environment=environment, variables=variables, tools={"include": names}),
            [command, environment, variables, names],
        ),
        "McpServer over HTTP": (McpServer(url="https://a.example", headers=headers), [headers]),
        "ModelPriceTable": (ModelPriceTable("EUR", prices), [prices]),
        "Brief": (Brief(file="a", values=values), [values]),
        "DiffGuard": (DiffGuard(protected_paths=names), [names]),
        "Harness": (
            Harness(provider(), instructions=texts, tools=tools, mcp_servers=servers, skills=tools),
            [texts, tools, servers],
        ),
    }


@pytest.mark.parametrize("name", list(_changeable()))
def test_PY_02_what_the_caller_changes_afterwards_changes_no_declaration(name: str) -> None:
    declared, given = _changeable()[name]
    before = _plain(declared)
    for value in given:
        _spoil(value)
    assert _plain(declared) == before
    assert _still_changeable(declared) == []


def _plain(value: Any) -> Any:
    """A copy of what can be read from a declaration."""
    if isinstance(value, pydantic.BaseModel):
        return {name: _plain(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value


def _spoil(value: Any) -> None:
    for one in value.values() if isinstance(value, dict) else value:
        if isinstance(one, dict | list):
            _spoil(one)
    if isinstance(value, dict):
        value["another"] = "1"
    else:
        value.append("another")


def _still_changeable(value: Any, path: str = "") -> list[str]:
    """Where something hangs from a declaration that could be changed."""
    if isinstance(value, pydantic.BaseModel):
        fields = type(value).model_fields
        return [one for name in fields for one in _still_changeable(getattr(value, name), f"{path}.{name}")]
    if isinstance(value, dict | list | set):
        return [path]
    if isinstance(value, Mapping):
        return [one for name, each in value.items() for one in _still_changeable(each, f"{path}[{name}]")]
    if isinstance(value, tuple):
        return [one for each in value for one in _still_changeable(each, f"{path}[]")]
    return []


@pytest.mark.parametrize("value", [True, False, 1.0, -1, "1", MAX_SAFE_INTEGER + 1])
def test_PY_07_a_count_is_an_int_that_is_no_bool_and_fits(value: Any) -> None:
    for build in (
        lambda: UsageLimits(output=value),
        lambda: Limits(max_steps=value),
        lambda: Limits(max_tool_calls=value),
        lambda: Limits(max_delegation_depth=value),
        lambda: ToolExecution(concurrency=value),
        lambda: ModelSpec("m", max_output_tokens=value),
        lambda: Intervention(instruction="x", max_interventions=value),
        lambda: TextResponse(repairs=value),
    ):
        with pytest.raises(OutpostError) as caught:
            build()
        assert caught.value.code == "configuration"


def test_PY_07_zero_is_a_safe_integer_and_no_positive_one() -> None:
    assert UsageLimits(output=0).output == 0
    assert Limits(max_delegation_depth=0, max_tool_calls=MAX_SAFE_INTEGER).max_tool_calls == MAX_SAFE_INTEGER
    for wrong in ({"max_steps": 0}, {"max_tool_calls": 0}):
        with pytest.raises(OutpostError, match=next(iter(wrong))):
            Limits(**wrong)


def _all_records() -> list[type[Record]]:
    for module in pkgutil.walk_packages(outpost_lsp.__path__, "outpost_lsp."):
        if module.name.split(".")[1] in ("domain", "protocol", "dispatches", "storage", "service", "harness"):
            importlib.import_module(module.name)
    found: list[type[Record]] = []
    waiting: list[type[Record]] = [Record]
    while waiting:
        for kind in waiting.pop().__subclasses__():
            if kind.__module__.startswith("outpost_lsp."):
                found.append(kind)
                waiting.append(kind)
    return sorted(set(found), key=lambda kind: f"{kind.__module__}.{kind.__qualname__}")


@pytest.mark.parametrize("kind", _all_records(), ids=lambda kind: kind.__qualname__)
def test_PY_01_every_record_is_frozen_camelCase_on_the_wire_and_filled_by_either_name(kind: type[Record]) -> None:
    assert kind.model_config["frozen"]
    assert kind.model_config["populate_by_name"]
    for name, field in kind.model_fields.items():
        plain = name.rstrip("_")
        assert field.serialization_alias == pydantic.alias_generators.to_camel(plain)
        assert field.validation_alias in (field.serialization_alias, None) or field.alias is not None


def test_PY_01_an_absent_field_is_left_out_and_never_null() -> None:
    from outpost_lsp.domain.event import SubagentEvent

    event = SubagentEvent(id="7f3c", call_id="call-1", name="review", status="started", conversation=None)
    wire = {"kind": "subagent", "id": "7f3c", "callId": "call-1", "name": "review", "status": "started"}
    assert event.to_json() == wire
    assert SubagentEvent(**wire) == SubagentEvent.model_validate(wire) == event
    with pytest.raises(pydantic.ValidationError):
        event.name = "other"  # type: ignore[misc]


def test_every_declaration_is_among_those_that_are_tried() -> None:
    public = {
        name
        for name in outpost_lsp.__all__
        if isinstance(getattr(outpost_lsp, name), type) and issubclass(getattr(outpost_lsp, name), Declaration)
    }
    assert public - set(DECLARATIONS) <= {"Brief", "LifecycleHooks"}
