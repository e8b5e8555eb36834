"""TDEF-01 to -07: what a tool is, and how one is declared."""

from __future__ import annotations

import inspect
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter

from outpost_lsp.domain.model import ModelSpec
from outpost_lsp.domain.permission import Resources
from outpost_lsp.domain.tool import InvalidInputError, Tool, ToolContext, Toolset, flatten, tool
from outpost_lsp.errors import OutpostError

SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}


def declared(name: str = "echo", **options) -> Tool:
    return Tool(name, "Says it again.", SCHEMA, lambda value, context: value["text"], **options)


class Node(BaseModel):
    value: int
    children: list[Node] = []


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "a b"}, "name"),
        ({"name": "a" * 65}, "name"),
        ({"name": "é"}, "name"),
        ({"description": " "}, "description"),
        ({"execute": "no"}, "execute"),
        ({"resources": "no"}, "resources"),
        ({"read_only": 1}, "read_only"),
        ({"input": []}, "input"),
        ({"input": {"type": "string"}}, 'the root type must be "object"'),
        ({"input": {}}, 'the root type must be "object"'),
        ({"input": {"type": "object", "format": "x"}}, "'format' is not supported"),
        ({"input": TypeAdapter(int)}, 'the root type must be "object"'),
        ({"readonly": True}, "readonly: there is no such option"),
    ],
)
def test_TDEF_01_TDEF_04_a_wrong_declaration_is_refused_by_field(options, field):
    values = {"name": "a", "description": "d", "input": SCHEMA, "execute": print}
    with pytest.raises(OutpostError) as caught:
        Tool(**{**values, **options})
    assert caught.value.code == "configuration"
    assert field in caught.value.message


def test_a_tool_cannot_be_changed_afterwards():
    schema = {"type": "object", "properties": {}}
    one = Tool("a", "d", schema, print)
    schema["properties"]["x"] = {"type": "nonsense"}
    assert one.spec.input_schema == {"type": "object", "properties": {}}
    with pytest.raises(Exception, match="frozen"):
        one.name = "b"


def test_TDEF_02_names_are_unique_over_nested_toolsets():
    inner = Toolset("inner", [declared("a")])
    assert [one.name for one in flatten([declared("b"), Toolset("outer", [inner, declared("c")])])] == ["b", "a", "c"]
    with pytest.raises(OutpostError, match="two tools are named 'a'"):
        flatten([declared("a"), Toolset("outer", [inner])])


def test_TDEF_03_what_merely_looks_like_a_tool_is_refused():
    raw = {"name": "a", "description": "d", "input": SCHEMA, "execute": print}
    for wrong in (raw, "a", print):
        with pytest.raises(OutpostError, match="is not a tool"):
            flatten([wrong])
        with pytest.raises(OutpostError) as caught:
            Toolset("set", [wrong])
        assert caught.value.code == "configuration"


def test_TDEF_04_models_and_adapters_give_their_schema_and_their_instance():
    class Input(BaseModel):
        count: int

    by_model = Tool("a", "d", Input, print)
    assert by_model.spec.input_schema["properties"]["count"]["type"] == "integer"
    assert by_model.validated({"count": "3"}) == Input(count=3)
    by_adapter = Tool("a", "d", TypeAdapter(Input), print)
    assert by_adapter.validated({"count": 3}) == Input(count=3)
    with pytest.raises(InvalidInputError, match=r"^input\.count: "):
        by_adapter.validated({})


def test_TDEF_04_a_model_that_holds_itself_has_an_object_at_its_root():
    recursive = Tool("a", "d", Node, print)
    assert recursive.spec.input_schema["type"] == "object"
    assert "$defs" in recursive.spec.input_schema
    assert recursive.validated({"value": 1, "children": [{"value": 2}]}).children[0].value == 2
    with pytest.raises(InvalidInputError, match=r"^input\.children\[0\]\.value: "):
        recursive.validated({"value": 1, "children": [{}]})


def test_invalid_input_names_every_issue():
    with pytest.raises(InvalidInputError, match=r"^input\.text: is required; input\.x: there is no such field$"):
        declared().validated({"x": 1})


def test_TDEF_05_resources_are_told_in_either_form():
    assert declared().resources_of({}) == Resources()
    assert declared(resources=lambda value: {"paths": ["a"], "command": "b"}).resources_of({}) == Resources(("a",), "b")
    assert declared(resources=lambda value: Resources(("a",))).resources_of({}) == Resources(("a",))


@pytest.mark.parametrize(
    "wrong", [None, "a", {"path": "a"}, {"paths": "abc"}, {"paths": [1]}, Resources(paths=(None,))]
)
def test_TDEF_05_other_resources_are_a_configuration_fault(wrong):
    with pytest.raises(OutpostError, match="tool echo: resources"):
        declared(resources=lambda value: wrong).resources_of({})


def context() -> ToolContext:
    return ToolContext(sandbox=None, call_id="1", model=ModelSpec("m"), observe=print, report=print)


def test_the_decorator_derives_a_tool_from_a_function():
    @tool
    def repeat(text: str, times: Annotated[int, Field(ge=1)] = 2, *, kind: Literal["a", "b"] = "a") -> str:
        """Say it several times."""
        return f"{kind}{text * times}"

    assert (repeat.name, repeat.description, repeat.read_only) == ("repeat", "Say it several times.", False)
    assert set(repeat.spec.input_schema["properties"]) == {"text", "times", "kind"}
    assert repeat.spec.input_schema["required"] == ["text"]
    assert repeat.spec.input_schema["additionalProperties"] is False
    assert not inspect.iscoroutinefunction(repeat.execute)
    assert repeat.execute(repeat.validated({"text": "x"}), context()) == "axx"
    with pytest.raises(InvalidInputError, match=r"^input\.times: .*; input\.more: "):
        repeat.validated({"text": "x", "times": 0, "more": 1})


async def test_the_decorator_hands_over_the_context_and_keeps_coroutines():
    @tool(name="who", description="Says which model asks.", read_only=True, resources=lambda value: {"command": "who"})
    async def whoever(call: ToolContext) -> str:
        return call.model.name

    assert (whoever.name, whoever.read_only) == ("who", True)
    assert whoever.spec.input_schema.get("properties", {}) == {}
    assert inspect.iscoroutinefunction(whoever.execute)
    assert await whoever.execute(whoever.validated({}), context()) == "m"
    assert whoever.resources_of(whoever.validated({})) == Resources(command="who")


def test_parameters_may_have_names_that_mean_something_to_pydantic():
    @tool
    def odd(json: str, model_name: str, schema: int = 1) -> str:
        """Odd names."""
        return f"{json}{model_name}{schema}"

    assert set(odd.spec.input_schema["properties"]) == {"json", "model_name", "schema"}
    assert odd.execute(odd.validated({"json": "a", "model_name": "b"}), context()) == "ab1"


def test_a_function_that_a_model_cannot_call_is_refused():
    def undocumented(text: str) -> str:
        return text

    def many(*texts: str) -> str:
        """Any number."""
        return "".join(texts)

    for function in (undocumented, many):
        with pytest.raises(OutpostError) as caught:
            tool(function)
        assert caught.value.code == "configuration"
